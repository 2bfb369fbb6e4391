-- name: server
-- Which server answers: its process (a pooler announces another), whether it is a standby, its identity and its
-- timeline, which grows by one with each promotion. Any role may ask.
select
  pg_backend_pid(),
  pg_is_in_recovery(),
  (select system_identifier from pg_control_system()),
  case when not pg_is_in_recovery() then left(pg_walfile_name(pg_current_wal_lsn()), 8) end
