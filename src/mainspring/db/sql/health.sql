-- What readiness asks.

-- name: writable
-- False on a standby, and where an administrator has switched writing off.
select current_setting('transaction_read_only') = 'off'
