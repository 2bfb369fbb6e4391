-- Searches: the query for workers, and the saved searches that ask it.

-- name: on_primary
-- A replica may be behind: what it says of who is free is not asked (STAFF-7.16).
select not pg_is_in_recovery()

-- name: search_workers
-- Several searches at once; `number` says whose a row is.
select a.number - 1 as number, w.id, w.trade, w.zip_code, w.listed_at
from unnest(%(trades)s::text[], %(zip_codes)s::text[], %(starts)s::timestamptz[], %(ends)s::timestamptz[])
  with ordinality as a (trade, zip_code, starts, ends, number)
cross join lateral staffing.search_workers(
  a.trade, a.zip_code, a.starts, a.ends, %(listed_from)s::timestamptz, %(listed_until)s::timestamptz, %(worker_id)s::bigint) w
order by a.number, w.listed_at desc, w.id

-- name: add_search
insert into staffing.saved_searches (user_id, name, criteria, instant_enabled, digest_enabled)
values (%(user_id)s, %(name)s, %(criteria)s, %(instant)s, %(digest)s)
returning id

-- name: list_worker
-- Only a change is news (STAFF-5.02).
update staffing.workers set state = 'Listed', listed_at = {schema}.now()
where id = %(worker_id)s and state <> 'Listed'
returning listed_at

-- name: unlist_worker
update staffing.workers set state = 'Unlisted'
where id = %(worker_id)s and state = 'Listed'
returning listed_at

-- name: worker_profile
select id, company_id, state, listed_at, trade, zip_code from staffing.workers where id = %(worker_id)s

-- name: instant_searches
-- A page of those who want to be told at once, with the zone in which their dates are meant.
select s.id, s.user_id, s.name, s.criteria, u.timezone
from staffing.saved_searches s join staffing.users u on u.id = s.user_id
where s.is_active and s.instant_enabled and 'instant_alert' <> all(u.opted_out) and s.id > %(after)s
order by s.id limit %(limit)s

-- name: alerts_to_match
-- Of these searches those that still want an alert and were not told of this listing, with their users.
select s.id, s.user_id, s.name, s.criteria, u.timezone, u.quiet_hours_start, u.quiet_hours_end, u.alert_channels
from staffing.saved_searches s join staffing.users u on u.id = s.user_id
where s.id = any(%(search_ids)s) and s.is_active and s.instant_enabled and 'instant_alert' <> all(u.opted_out)
  and not exists (select from staffing.alert_deliveries d
                  where d.saved_search_id = s.id and d.slot = %(slot)s and d.kind = 'instant')
order by s.user_id, s.id

-- name: lock_users
-- In one order: what is counted or put together for somebody is so by one job at a time.
select id from staffing.users where id = any(%(ids)s) order by id for update

-- name: alerts_of_user
select count(*) from staffing.alert_deliveries d join staffing.saved_searches s on s.id = d.saved_search_id
where s.user_id = %(user_id)s and d.kind = 'instant' and d.status = 'Sent' and d.at > {schema}.now() - %(within)s::interval

-- name: deliver
-- An alert is told, or skipped, once for its search and slot (STAFF-7.18).
insert into staffing.alert_deliveries (saved_search_id, slot, kind, status, reason, since, at)
values (%(search_id)s, %(slot)s, %(kind)s, %(status)s, %(reason)s, %(since)s, {schema}.now())
on conflict do nothing
returning saved_search_id

-- name: record_search_run
insert into staffing.search_runs (kind, slot, searches, retry, failed, at)
values (%(kind)s, %(slot)s, %(searches)s, %(retry)s, %(failed)s, {schema}.now())

-- name: digest_zones
-- The zones, good or bad, of everybody who wants a digest.
select distinct u.timezone from staffing.users u
where 'digest' <> all(u.opted_out)
  and exists (select from staffing.saved_searches s where s.user_id = u.id and s.is_active and s.digest_enabled)

-- name: users_in_zones
-- Who wants a digest and lives there: for the line that says whose zone is none.
select distinct u.id from staffing.users u join staffing.saved_searches s on s.user_id = u.id
where u.timezone = any(%(zones)s) and s.is_active and s.digest_enabled and 'digest' <> all(u.opted_out)
order by u.id limit 1000

-- name: begin_digest
-- A page of the searches of a slot, user by user; what was told or skipped for it is not begun again.
with page as (
  select s.id, s.user_id from staffing.saved_searches s join staffing.users u on u.id = s.user_id
  where u.timezone = any(%(zones)s) and s.is_active and s.digest_enabled and 'digest' <> all(u.opted_out)
    and (s.user_id, s.id) > (%(after_user)s, %(after_search)s)
  order by s.user_id, s.id limit %(limit)s
), begun as (
  insert into staffing.digest_parts (saved_search_id, slot, user_id)
  select p.id, %(slot)s, p.user_id from page p
  where not exists (select from staffing.alert_deliveries d
                    where d.saved_search_id = p.id and d.slot = %(slot_name)s and d.kind = 'digest')
  on conflict do nothing
  returning saved_search_id
)
select p.id, p.user_id, b.saved_search_id is not null as begun
from page p left join begun b on b.saved_search_id = p.id
order by p.user_id, p.id

-- name: parts_to_ask
select p.saved_search_id as id, p.user_id, s.name, s.criteria,
       s.is_active and s.digest_enabled and 'digest' <> all(u.opted_out) as wanted
from staffing.digest_parts p join staffing.saved_searches s on s.id = p.saved_search_id
join staffing.users u on u.id = p.user_id
where p.slot = %(slot)s and p.saved_search_id = any(%(search_ids)s) and p.workers is null
order by p.user_id, p.saved_search_id

-- name: save_part
update staffing.digest_parts set workers = %(workers)s, starts = %(starts)s, ends = %(ends)s
where saved_search_id = %(search_id)s and slot = %(slot)s

-- name: drop_parts
delete from staffing.digest_parts where slot = %(slot)s and saved_search_id = any(%(search_ids)s)
returning user_id

-- name: users_complete
-- Of these users those for whom everything was asked, and something is to be told.
select p.user_id from staffing.digest_parts p
where p.slot = %(slot)s and p.user_id = any(%(user_ids)s)
group by p.user_id having bool_and(p.workers is not null)
order by p.user_id

-- name: wants_empty_digest
select 'empty_digest' <> all(opted_out) from staffing.users where id = %(user_id)s

-- name: parts_of_user
-- What was found, less who was taken since: a part may have waited an hour for another one.
select s.id, s.name, s.zero_result_streak,
       coalesce(jsonb_agg(jsonb_build_object('id', w.id, 'trade', w.trade, 'zip_code', w.zip_code)
                          order by w.listed_at desc, w.id) filter (where w.id is not null), '[]') as workers
from staffing.digest_parts p
join staffing.saved_searches s on s.id = p.saved_search_id
left join staffing.workers w on w.id = any(p.workers) and w.state = 'Listed'
  and (p.starts is null or staffing.free(w.id, p.starts, p.ends))
where p.slot = %(slot)s and p.user_id = %(user_id)s
group by s.id
order by s.id

-- name: count_empty
update staffing.saved_searches set zero_result_streak = %(streak)s where id = %(search_id)s

-- name: deactivate_search
update staffing.saved_searches set is_active = false where id = %(search_id)s and is_active
returning id
