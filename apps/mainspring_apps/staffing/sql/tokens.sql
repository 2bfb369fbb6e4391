-- Magic links: tokens that nobody can use, or that nobody has used for a day.

-- name: delete_tokens
-- A batch; the two indexes find them (STAFF-13.07).
delete from staffing.magic_link_tokens where id in (
  select id from staffing.magic_link_tokens
  where expires_at < {schema}.now() or (not used and created_at < {schema}.now() - %(unused)s::interval)
  limit %(limit)s for update skip locked)
returning expires_at < {schema}.now() as expired
