-- What people do with queues.

-- name: list_queues
-- A person looks. Names come from the table, from live workers, and from tickets by one probe a name, of an organisation
-- those of its own; what is ready is counted up to 10,000.
with recursive lane(name) as (
  (select queue from {schema}.waiting order by queue limit 1)
  union all
  select (select w.queue from {schema}.waiting w where w.queue > lane.name order by w.queue limit 1)
  from lane where lane.name is not null
), names as (
  select name from {schema}.queue
  union select l.name from lane l where l.name is not null and (%(org)s::text is null or exists (
    select from {schema}.waiting w where w.queue = l.name and w.org_id = %(org)s::text))
  union select unnest(queues) from {schema}.worker
)
select json_build_object('name', n.name, 'paused_at', q.paused_at, 'paused_by', q.paused_by,
                         'pause_reason', q.pause_reason, 'start_target_s', extract(epoch from q.start_target), 'max_depth', q.max_depth,
                         'ready', lanes.ready, 'oldest_age_s', extract(epoch from {schema}.now() - lanes.oldest))::text
from names n
left join {schema}.queue q on q.org_id = 'SYSTEM' and q.name = n.name
cross join lateral (
  select least(count(*), 10000) as ready, least(min(x.due_at), {schema}.oldest_parked(n.name, %(org)s::text)) as oldest
  from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
  cross join lateral (
    select w.due_at from {schema}.waiting w
    where w.queue = n.name and w.priority = p.priority and w.due_at <= {schema}.now()
      and (%(org)s::text is null or w.org_id = %(org)s::text)
    order by w.due_at limit 10000) x
) lanes
order by n.name

-- name: queue_depth
-- A person looks: how many jobs wait, counted up to a limit, because hot tables are never counted whole.
-- Lane by lane, so that a million timers in the same queue are not passed on the way.
select count(*) from (
  select from generate_series(0, 3) p(priority)
  cross join lateral (
    select from {schema}.waiting w
    where w.queue = %(queue)s::text and w.priority = p.priority and w.due_at <= {schema}.now()
    order by w.due_at limit %(limit)s) w
  limit %(limit)s) w

-- name: running_by_queue
-- A person looks: how many jobs of each queue run. `running` is as large as all slots of all workers; more are not counted.
select r.queue, count(*)
from (select x.queue from {schema}.running x where (%(org)s::text is null or x.org_id = %(org)s::text) limit %(limit)s) r
group by r.queue

-- name: pause
select {schema}.pause(%(queue)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: claims_seen
-- Completes a pause, in a transaction of its own.
select {schema}.claims_seen()

-- name: resume
select {schema}.resume(%(queue)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: declare_queues
-- A worker, when it starts.
select {schema}.declare_queues(%(app)s::text, %(queues)s::text::jsonb)
