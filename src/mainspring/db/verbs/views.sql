-- Monitoring is just SQL: one row a job, one row an attempt, one row a dead letter, one row a key.

-- One row a job: its envelope, and where it stands.
create or replace view {schema}.jobs with (security_invoker = true) as
select j.id, j.task,
       case
         when r.id is not null then 'running'
         when f.id is not null then f.state
         when w.id is null then null  -- no ticket: the invariant is broken, and doctor says so
         when w.due_at <= {schema}.now() then 'ready'
         when w.retrying then 'retrying'
         else 'scheduled'
       end as state,
       j.org_id, j.project_id, j.actor_type, j.actor_id, j.request_id, j.correlation_id, j.parent_id, j.traceparent,
       coalesce(j.key, j.id::text) as idempotency_key,
       case when f.state = 'dead' then 'q:deadletter' else j.queue end as queue,
       coalesce(w.priority, r.priority, j.priority) as priority,
       j.payload,
       coalesce(w.attempt, r.attempt, f.attempt) as attempt,
       j.max_attempts,
       coalesce(w.crashes, r.crashes, f.crashes) as crashes,
       coalesce(w.snoozes, r.snoozes, f.snoozes) as snoozes,
       j.cancellable, j.created_at, j.scheduled_for,
       case when w.due_at < 'infinity' then w.due_at else coalesce(w.due_then, r.due_at) end as due_at,
       coalesce(r.started_at, f.started_at, last.started_at) as started_at,
       f.finished_at,
       coalesce(f.finished_at, r.started_at, last.ended_at, j.created_at) as updated_at,
       r.worker, r.epoch, r.lease_expires_at, r.cancel_requested_at, f.result,
       coalesce(f.error, last.error) as error,
       decided.resolution, decided.successor as fixed_by, fixed.job_id as fixes,
       case when p.job_id is not null then json_build_object(
         'done', p.done, 'total', p.total, 'note', p.note, 'at', p.reported_at) end as progress,
       w.gate, w.after as held_by
from {schema}.job j
left join {schema}.waiting w on w.id = j.id
left join {schema}.running r on r.id = j.id
left join {schema}.finished f on f.id = j.id
left join {schema}.progress p on p.org_id = j.org_id and p.job_id = j.id
left join {schema}.resolution decided on decided.org_id = j.org_id and decided.job_id = j.id
left join {schema}.resolution fixed on fixed.org_id = j.org_id and fixed.successor = j.id
left join lateral (
  select a.started_at, a.ended_at, a.error from {schema}.attempt a
  where a.org_id = j.org_id and a.job_id = j.id and (f.state is null or f.state <> 'succeeded')
  order by a.epoch desc limit 1) last on true;

-- A job as a document that every reader can parse: a payload put in by hand may be nested deeper than parsers go.
create or replace function {schema}.readable(j {schema}.jobs) returns json language plpgsql stable as $$
begin
  if jsonb_path_exists(j.payload, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")') then
    j.payload := '{"": "nested deeper than 64 levels"}';
  end if;
  return row_to_json(j);
end $$;

-- One row an attempt, also of the one that runs and of the one that succeeded, whose error came after its completion.
create or replace view {schema}.attempts with (security_invoker = true) as
select a.org_id, a.job_id, a.epoch, a.attempt, a.worker, a.started_at, a.ended_at, a.outcome, a.error
from {schema}.attempt a
union all
select f.org_id, f.id, f.epoch, f.attempt, f.worker, f.started_at, f.finished_at, 'succeeded', f.error
from {schema}.finished f where f.state = 'succeeded'
union all
select r.org_id, r.id, r.epoch, r.attempt, r.worker, r.started_at, null, 'running', null
from {schema}.running r;

-- One row a queue that has settings, or jobs that wait: since when the first of its jobs is due and not started, and since
-- when the first is due that a breaker or a limit keeps from starting. Nothing is counted: names come from the table and
-- from tickets by one probe a name, instants by one probe of waiting_claim a priority, and one of waiting_parked.
create or replace view {schema}.queues with (security_invoker = true) as
with recursive lane(name) as (
  (select w.queue from {schema}.waiting w order by w.queue limit 1)
  union all
  select (select w.queue from {schema}.waiting w where w.queue > lane.name order by w.queue limit 1)
  from lane where lane.name is not null
), names as (
  select q.name from {schema}.queue q where q.org_id = 'SYSTEM' union select l.name from lane l where l.name is not null
)
select n.name, q.paused_at, q.paused_by, q.pause_reason,
       (select min(x.due_at) from generate_series(0, 3) p(priority)
        cross join lateral (
          select w.due_at from {schema}.waiting w
          where w.queue = n.name and w.priority = p.priority and w.due_at <= {schema}.now()
          order by w.due_at limit 1) x) as due_since,
       {schema}.oldest_parked(n.name) as parked_since
from names n left join {schema}.queue q on q.org_id = 'SYSTEM' and q.name = n.name;

-- One row a batch, with its members counted: an index scan of them. `waiting` counts those that are due later as well.
create or replace view {schema}.batches with (security_invoker = true) as
select b.id, b.org_id, b.name,
       case when b.finished_at is not null then 'finished' when b.stopped_at is not null then 'stopping'
            when b.closed_at is null then 'open' else 'running' end as state,
       b.on_failure, b.on_finish, n.total, n.succeeded, n.failed, n.dead, n.cancelled, n.running,
       n.open - n.running as waiting, b.created_at, b.closed_at, b.stopped_at, b.stop_reason, b.finished_at
from {schema}.batch b
cross join lateral (
  select count(*) as total, count(*) filter (where m.state = 'succeeded') as succeeded,
         count(*) filter (where m.state = 'failed') as failed, count(*) filter (where m.state = 'dead') as dead,
         count(*) filter (where m.state = 'cancelled') as cancelled, count(*) filter (where m.state is null) as open,
         count(*) filter (where m.state is null and exists (
           select from {schema}.running r where r.id = m.job_id)) as running
  from {schema}.member m where m.org_id = b.org_id and m.batch_id = b.id) n;

-- A key's status follows its job; once the job is pruned, what was stored then. A job without a key has its id as key.
create or replace view {schema}.keys with (security_invoker = true) as
select i.org_id, i.key, i.job_id, i.first_seen_at, i.last_seen_at,
       case s.state
         when 'succeeded' then 'succeeded' when 'failed' then 'failed' when 'cancelled' then 'failed'
         when 'dead' then 'dead' when 'running' then 'running'
         else case when s.state is null then i.status else 'pending' end
       end as status,
       coalesce(i.expires_at, s.finished_at + i.ttl) as expires_at,
       coalesce(i.result_ref, case when s.state = 'succeeded' then i.job_id::text end) as result_ref,
       coalesce(i.error_ref, case when s.state in ('failed', 'dead', 'cancelled') then i.job_id::text end) as error_ref
from {schema}.idempotency i left join lateral {schema}.state_of(i.job_id) s on true
union all
select j.org_id, j.id::text, j.id, j.created_at, j.created_at,
       case s.state
         when 'succeeded' then 'succeeded' when 'failed' then 'failed' when 'cancelled' then 'failed'
         when 'dead' then 'dead' when 'running' then 'running' else 'pending'
       end,
       null, case when s.state = 'succeeded' then j.id::text end,
       case when s.state in ('failed', 'dead', 'cancelled') then j.id::text end
from {schema}.job j cross join lateral {schema}.state_of(j.id) s where j.key is null;

-- The complete trail of events: the stored ones, and those that tickets prove. The events of a job happened in the order
-- of `place`, whatever clocks did meanwhile; `by` is who acted. `task` is what the rules call job_type.
create or replace view {schema}.trail with (security_invoker = true) as
select a.org_id,
       coalesce(a.epoch, case a.event when 'job.enqueued' then 0 when 'job.succeeded' then 9223372036854775807 else a.id end)
         as place,
       a.at, a.event, a.job_id, a.task, a.task as job_type, a.attempt, a.project_id, a.actor_type, a.actor_id, a.request_id,
       a.correlation_id, a.subject, a.detail,
       case when a.event like 'job.%' then coalesce(a.detail ->> 'by', a.actor_id) else a.actor_id end as by, a.id
from {schema}.audit a
union all
select j.org_id, e.place, e.at, e.event, j.id, j.task, j.task, e.attempt, j.project_id, j.actor_type, j.actor_id,
       j.request_id, j.correlation_id, null, '{}', j.actor_id, null
from {schema}.job j
cross join lateral (
  select 'job.enqueued' as event, j.created_at as at, 0::smallint as attempt, 0::bigint as place
  union all select 'job.started', a.started_at, a.attempt, a.epoch
            from {schema}.attempts a where a.org_id = j.org_id and a.job_id = j.id
  union all select 'job.succeeded', f.finished_at, f.attempt, 9223372036854775807
            from {schema}.finished f where f.id = j.id and f.state = 'succeeded'
) e;
