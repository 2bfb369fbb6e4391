-- What clean-up removes besides jobs and fires, in bounded batches.

-- name: prune_keys
-- Keys whose time is over; a key gets its expiry when its job is pruned. Index: idempotency_expiry. Whoever enqueues
-- under such a key holds it: it goes another time.
with gone as (
  delete from {schema}.idempotency i
  where i.ctid = any(array(
    select x.ctid from {schema}.idempotency x where x.expires_at <= {schema}.now()
    order by x.expires_at limit %(limit)s::text::bigint for update skip locked))
  returning 1
)
select count(*) from gone

-- name: forget_workers
-- Workers that died: those that stop in good order take their row away themselves.
with gone as (
  delete from {schema}.worker w where w.seen_at < {schema}.now() - %(age)s::text::interval returning 1
)
select count(*) from gone

-- name: forget_buckets
-- Limits by organisation and by strand leave a row for every one that they have met.
select {schema}.forget_buckets(%(limit)s)

-- name: begin_sweep
-- One at a time. It concerns every organisation, so its transaction belongs to none: on a secured schema only workers
-- may say so.
select pg_try_advisory_xact_lock(hashtextextended('{schema} ' || %(name)s::text, 0))
where set_config('mainspring.org', '', true) = ''

-- name: end_sweep
select set_config('mainspring.org', %(org)s::text, true)
