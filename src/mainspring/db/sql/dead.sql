-- What people ask and do about dead letters. Index: finished_open, then the primary keys.

-- name: list_dead
-- A person looks; newest death first, by cursor.
select row_to_json(d)::text
from {schema}.find_dead(%(org)s::text, %(task)s::text, %(queue)s::text, %(code)s::text, %(fingerprint)s::text,
  %(state)s::text, greatest(%(since)s::text::timestamptz, {schema}.now() - %(newer_than)s::text::interval),
  least(%(until)s::text::timestamptz, {schema}.now() - %(older_than)s::text::interval)) d
where %(before_at)s::text is null
   or (d.finished_at, d.id) < (%(before_at)s::text::timestamptz, %(before_id)s::text::uuid)
order by d.finished_at desc, d.id desc
limit %(limit)s

-- name: group_dead
-- A person looks: errors that look alike, the most frequent first; of all, or of the newest so many.
select row_to_json(g)::text from (
  select d.fingerprint, count(*) as count, count(distinct d.org_id) as orgs, d.task, d.code, min(d.finished_at) as oldest, max(d.finished_at) as newest,
         (array_agg(d.message order by d.finished_at desc, d.id desc))[1] as message,
         (array_agg(d.id order by d.finished_at desc, d.id desc))[1] as example
  from (
    select f.* from {schema}.find_dead(
      %(org)s::text, %(task)s::text, %(queue)s::text, %(code)s::text, %(fingerprint)s::text, %(state)s::text,
      greatest(%(since)s::text::timestamptz, {schema}.now() - %(newer_than)s::text::interval),
      least(%(until)s::text::timestamptz, {schema}.now() - %(older_than)s::text::interval)) f
    order by f.finished_at desc, f.id desc limit %(newest)s::text::bigint) d
  group by d.fingerprint, d.task, d.code
  order by count(*) desc, max(d.finished_at) desc, d.fingerprint
  limit %(limit)s) g

-- name: count_dead
-- Before an act on many.
select count(*)
from {schema}.find_dead(%(org)s::text, %(task)s::text, %(queue)s::text, %(code)s::text, %(fingerprint)s::text,
  %(state)s::text, greatest(%(since)s::text::timestamptz, {schema}.now() - %(newer_than)s::text::interval),
  least(%(until)s::text::timestamptz, {schema}.now() - %(older_than)s::text::interval))

-- name: batch_dead
-- An act on many: the next ones, oldest death first, of those that were dead when it began.
select d.id, d.finished_at::text
from {schema}.find_dead(%(org)s::text, %(task)s::text, %(queue)s::text, %(code)s::text, %(fingerprint)s::text,
  %(state)s::text, greatest(%(since)s::text::timestamptz, {schema}.now() - %(newer_than)s::text::interval),
  least(%(start)s::text::timestamptz, %(until)s::text::timestamptz,
        {schema}.now() - %(older_than)s::text::interval)) d
where (d.finished_at, d.id) > (%(last_at)s::text::timestamptz, %(last_id)s::text::uuid)
order by d.finished_at, d.id
limit %(limit)s

-- name: record_bulk
-- An act on many, once, before its first batch.
select {schema}.record_bulk(%(org)s::text, %(event)s::text, %(actor_type)s::text, %(actor_id)s::text, %(detail)s::text::jsonb)

-- name: replay_many
select {schema}.replay_many(%(ids)s::text::uuid[], %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text,
  %(bulk)s::text::uuid, %(due)s::text::timestamptz, %(every)s::text::interval, %(moved)s)

-- name: discard_many
select {schema}.discard_many(%(ids)s::text::uuid[], %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text,
  %(bulk)s::text::uuid)

-- name: discard
select {schema}.discard(%(id)s::text::uuid, %(org)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: fix_forward
select moved, in_the_way from {schema}.fix_forward(%(id)s::text::uuid, %(org)s::text, %(new)s::text::uuid,
  %(payload)s::text::jsonb, %(diff)s::text::jsonb, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text,
  %(dry_run)s::text::boolean)

-- name: about_dead
-- What is said of one dead letter besides its job and its attempts.
select row_to_json(x)::text from (
  select {schema}.error_fingerprint(j.task, f.error) as fingerprint, {schema}.payload_hash(j.payload) as payload_hash,
         j.queue,
         case when r.job_id is not null then json_build_object(
           'resolution', r.resolution, 'at', r.at, 'by', r.actor_id, 'by_type', r.actor_type, 'reason', r.reason,
           'successor', r.successor) end as decision
  from {schema}.job j join {schema}.finished f on f.id = j.id
  left join {schema}.resolution r on r.org_id = j.org_id and r.job_id = j.id
  where j.id = %(id)s::text::uuid and f.state in ('failed', 'dead')) x

-- name: sum_dead
-- Metrics and doctor, every few seconds: reads the index of unsuccessful jobs, not the hot tables.
select row_to_json(x)::text from (
  select d.task, d.queue, count(*) as size, min(d.finished_at) as oldest,
         extract(epoch from {schema}.now() - min(d.finished_at))::float8 as oldest_age_s
  from {schema}.dead_letters d where (%(org)s::text is null or d.org_id = %(org)s::text)
  group by d.task, d.queue order by min(d.finished_at), d.task, d.queue) x
