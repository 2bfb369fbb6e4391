-- What `mainspring up` shows.

-- name: pulse
-- Once a second, by one person who watches. Jobs are found by their ids, which begin with the time they were made
-- (index job_pkey), and finished ones by block range (finished_age); counts of what waits stop at 10,000.
with span as materialized (
  select %(since)s::text::timestamptz as since, {schema}.now() - %(lag)s::text::interval as until
), begun as (
  select r.id, r.attempt, r.started_at from {schema}.running r, span s
  where r.started_at > s.since and r.started_at <= s.until
  union all
  select f.id, f.attempt, f.started_at from {schema}.finished f, span s
  where f.finished_at > s.since and f.started_at > s.since and f.started_at <= s.until
  union all
  select a.job_id, a.attempt, a.started_at from {schema}.attempt a, span s
  where a.started_at > s.since and a.started_at <= s.until and a.outcome in ('retried', 'expired')
), ended as (
  select f.state from {schema}.finished f, span s where f.finished_at > s.since and f.finished_at <= s.until
), again as (
  select a.outcome from {schema}.attempt a, span s where a.ended_at > s.since and a.ended_at <= s.until
)
select json_build_object(
  'until', s.until,
  'enqueued', (select count(*) from {schema}.job j
               where j.id >= (lpad(to_hex((extract(epoch from s.since) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
                 and j.id < (lpad(to_hex((extract(epoch from s.until) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid),
  'started', (select count(*) from begun),
  'succeeded', (select count(*) from ended where state = 'succeeded'),
  'retried', (select count(*) from again where outcome = 'retried'),
  'rescued', (select count(*) from again where outcome = 'expired'),
  'failed', (select count(*) from ended where state = 'failed'),
  'dead', (select count(*) from ended where state = 'dead'),
  'ready', (select count(*) from (select from {schema}.waiting w where w.due_at <= {schema}.now() limit 10000) x),
  'later', (select count(*) from (select from {schema}.waiting w where w.due_at > {schema}.now() limit 10000) x),
  'running', (select count(*) from {schema}.running),
  'pickup_ms', (select percentile_cont(0.5) within group (
                  order by extract(epoch from b.started_at - greatest(j.created_at, j.scheduled_for)) * 1000)
                from begun b join {schema}.job j on j.id = b.id where b.attempt = 1)
)::text
from span s
