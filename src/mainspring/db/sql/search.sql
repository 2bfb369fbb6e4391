-- Search for jobs: a walk names candidates in an order that an index has, a sieve keeps those that are meant. Both are
-- bounded, so that a search that finds little answers soon and says how far it looked.

-- name: walk_newest
-- A person looks, by creation: the next jobs back from a place. Index: job_pkey. Ids of version 7 begin with the time, so
-- that a span of time is a range of them, unless the clock is not the real one.
select j.id, 0, null
from {schema}.job j
where j.id between %(low)s::text::uuid and %(high)s::text::uuid
  and (%(after)s::text is null or j.id < %(after)s::text::uuid)
  and j.id >= case when {schema}.now() = statement_timestamp() then %(oldest)s::text::uuid else %(low)s::text::uuid end
  and j.id <= case when {schema}.now() = statement_timestamp() then %(newest)s::text::uuid else %(high)s::text::uuid end
order by j.id desc
limit %(look)s

-- name: walk_running
-- A person looks at what runs, newest first. Read whole: it is as large as all slots of all workers.
select r.id, 0, null
from {schema}.running r
where (%(queue)s::text is null or r.queue = %(queue)s::text) and (%(after)s::text is null or r.id < %(after)s::text::uuid)
order by r.id desc
limit %(look)s

-- name: walk_ended
-- A person looks at what did not end well, the newest end first. Index: finished_open, once a state.
select x.id, 0, x.finished_at
from unnest(%(states)s::text::text[]) s(state)
cross join lateral (
  select f.id, f.finished_at from {schema}.finished f
  where f.state = s.state and f.state <> 'succeeded'
    and f.finished_at >= %(since)s::text::timestamptz
    and f.finished_at <= least(%(until)s::text::timestamptz, %(at)s::text::timestamptz)
    and (%(after)s::text is null or (f.finished_at, f.id) < (%(at)s::text::timestamptz, %(after)s::text::uuid))
  order by f.finished_at desc, f.id desc
  limit %(look)s) x
order by x.finished_at desc, x.id desc
limit %(look)s

-- name: walk_waiting
-- A person looks at what waits, in the order in which it is claimed. Index: waiting_claim, once a queue and priority; queues
-- are found by one probe each. What a gate holds without a time stands last, and in no span of time.
with recursive lane(name) as (
  (select w.queue from {schema}.waiting w order by w.queue limit 1)
  union all
  select (select w.queue from {schema}.waiting w where w.queue > lane.name order by w.queue limit 1)
  from lane where lane.name is not null
), names as (
  select %(queue)s::text as name where %(queue)s::text is not null
  union all select lane.name from lane where lane.name is not null and %(queue)s::text is null
)
select x.id, x.priority, case when x.due_at < 'infinity' then x.due_at end
from names n
cross join generate_series(%(priority)s, 3) p(priority)
cross join lateral (
  select w.id, w.priority, w.due_at from {schema}.waiting w
  where w.queue = n.name and w.priority = p.priority
    and w.due_at >= greatest(%(since)s::text::timestamptz, case when %(due)s::text = 'later' then {schema}.now() end,
      case when p.priority = %(priority)s and %(after)s::text is not null then %(at)s::text::timestamptz end)
    and w.due_at <= least(%(until)s::text::timestamptz, case when %(due)s::text = 'now' then {schema}.now() end)
    and (p.priority > %(priority)s or %(after)s::text is null
         or (w.due_at, w.id) > (%(at)s::text::timestamptz, %(after)s::text::uuid))
  order by w.due_at, w.id
  limit %(look)s) x
order by x.priority, x.due_at, x.id
limit %(look)s

-- name: walk_retrying
-- A person looks at what is to be tried again, in the order in which it is claimed. Index: waiting_retrying; what failed and
-- waits is sorted, timers are not passed on the way.
select w.id, w.priority, case when w.due_at < 'infinity' then w.due_at end
from {schema}.waiting w
where w.retrying and (%(queue)s::text is null or w.queue = %(queue)s::text)
  and w.due_at >= %(since)s::text::timestamptz and w.due_at <= %(until)s::text::timestamptz
  and (%(after)s::text is null or (w.priority, w.due_at, w.id)
       > (%(priority)s, %(at)s::text::timestamptz, %(after)s::text::uuid))
order by w.priority, w.due_at, w.id
limit %(look)s

-- name: sift_jobs
-- After a walk: those of at most a thousand candidates that are meant, in the order given. Index: the primary keys, once a
-- candidate until there are enough. A large payload, or one deeper than parsers go, is left out.
select row_to_json(x)::text
from (select c.id, c.n from unnest(%(ids)s::text::uuid[]) with ordinality c(id, n) order by c.n) c
cross join lateral (
  select j.id, j.task, coalesce(j.state, 'lost') as state, j.org_id, j.project_id, j.correlation_id, j.request_id,
         j.idempotency_key, j.queue, j.priority, coalesce(j.attempt, 0) as attempt, j.max_attempts, j.cancellable,
         j.created_at, j.due_at, j.started_at, j.finished_at, j.worker, j.cancel_requested_at, j.gate,
         j.error ->> 'code' as code, left(j.error ->> 'message', 2000) as message, j.resolution,
         case when pg_column_size(j.payload) <= 16384 and octet_length(j.payload::text) <= 16384
                and not jsonb_path_exists(j.payload, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")')
              then j.payload::text end as payload
  from {schema}.jobs j
  where j.id = c.id
    and (%(org)s::text is null or j.org_id = %(org)s::text)
    and (%(states)s::text is null or coalesce(j.state, 'lost') = any(%(states)s::text::text[]))
    and (%(queue)s::text is null or j.queue = %(queue)s::text)
    and (%(task)s::text is null or j.task = %(task)s::text)
    and (%(project)s::text is null or j.project_id = %(project)s::text::uuid)
    and (%(correlation)s::text is null or j.correlation_id = %(correlation)s::text)
    and (%(request)s::text is null or j.request_id = %(request)s::text)
    and (%(parent)s::text is null or j.parent_id = %(parent)s::text::uuid)
    and (%(created_from)s::text is null or j.created_at >= %(created_from)s::text::timestamptz)
    and (%(created_to)s::text is null or j.created_at < %(created_to)s::text::timestamptz)
    and (%(due_from)s::text is null or j.due_at >= %(due_from)s::text::timestamptz)
    and (%(due_to)s::text is null or j.due_at < %(due_to)s::text::timestamptz)
    and (%(finished_from)s::text is null or j.finished_at >= %(finished_from)s::text::timestamptz)
    and (%(finished_to)s::text is null or j.finished_at < %(finished_to)s::text::timestamptz)
  offset 0) x
order by c.n
limit %(limit)s
