-- Why is this job not running? The predicates of `claim`, one by one, in one snapshot.

-- name: explain
-- A person asks for one job. By primary keys; what is ahead is counted up to a limit, and the few rows of `worker` are
-- read whole. `crew` holds the workers that a claim can come from, each with what it would ask for.
with job as materialized (
  select j.* from {schema}.jobs j
  where j.id = %(id)s::text::uuid and (%(org)s::text is null or j.org_id = %(org)s::text)
), ticket as materialized (
  select w.id, w.task, w.queue, w.priority, w.due_at, w.due_then, w.after, w.crashes, w.retrying, w.xmax::text as locker
  from {schema}.waiting w where w.id = (select id from job)
), open as materialized (  -- transactions that may have locked a ticket
  select a.backend_xid::text as xid, a.pid, a.application_name as name, a.state, a.xact_start
  from pg_stat_activity a where a.backend_xid is not null
), paused as materialized (
  select q.name, q.paused_at, q.paused_by, q.pause_reason from {schema}.queue q
  where q.org_id = 'SYSTEM' and q.paused_at is not null
), rescuing as materialized (
  select r.worker from {schema}.running r where r.crashes > 0
), crew as materialized (
  select w.id, w.host, w.pid, w.running, w.concurrency, w.queues, w.tasks,
         t.queue = any(w.queues) as serves, t.task = any(w.tasks) as knows,
         w.id in (select worker from rescuing) as rescuing
  from {schema}.worker w, ticket t
  where w.seen_at >= {schema}.now() - %(gone_after)s::text::interval and not w.stopping
)
select json_build_object(
  'now', {schema}.now(),
  'job', to_jsonb(j) || case when j.state is null then '{"state": "lost", "attempt": 0, "crashes": 0, "snoozes": 0}' else '{}' end::jsonb,
  'ticket', (
    select json_build_object('due', t.due_at <= {schema}.now(), 'due_at', coalesce(t.due_then, t.due_at),
                             'retrying', t.retrying, 'crashes', t.crashes, 'queue', t.queue, 'priority', t.priority)
    from ticket t),
  'held_by', (
    select json_build_object('id', t.after, 'state', s.state)
    from ticket t left join lateral {schema}.state_of(t.after) s on true where t.after is not null),
  'paused', (select row_to_json(p) from paused p, ticket t where p.name = t.queue),
  'locked_by', (
    select json_build_object('pid', o.pid, 'name', o.name, 'state', o.state,
                             'seconds', extract(epoch from clock_timestamp() - o.xact_start))
    from open o, ticket t where o.xid = t.locker),
  'crew', (
    select coalesce(json_agg(json_build_object(
             'id', c.id, 'host', c.host, 'pid', c.pid, 'running', c.running, 'concurrency', c.concurrency,
             'serves', c.serves, 'knows', c.knows, 'rescuing', c.rescuing,
             'rescued_ahead', case when t.crashes > 0 then (
               select count(*) from (
                 select from {schema}.waiting w
                 where w.crashes > 0 and w.due_at <= {schema}.now() and w.queue = any(c.queues) and w.task = any(c.tasks)
                   and w.queue not in (select name from paused) and (w.due_at, w.id) < (t.due_at, t.id)
                   and w.xmax::text not in (select xid from open)
                 limit %(most)s) x) end) order by c.id), '[]')
    from crew c, ticket t),
  'ahead', (
    select count(*) from (
      select from ticket t
      cross join generate_series(0, t.priority) p(priority)
      cross join lateral (
        select from {schema}.waiting w
        where w.queue = t.queue and w.priority = p.priority and w.crashes = 0 and w.due_at <= {schema}.now()
          and (p.priority < t.priority or (w.due_at, w.id) < (t.due_at, t.id))
        limit %(most)s) w
      where t.due_at <= {schema}.now() and t.crashes = 0
      limit %(most)s) x),
  'lease', (
    select json_build_object('worker', r.worker, 'host', w.host, 'pid', w.pid, 'seen_at', w.seen_at,
                             'expired', r.lease_expires_at <= {schema}.now())
    from {schema}.running r left join {schema}.worker w on w.org_id = 'SYSTEM' and w.id = r.worker
    where r.id = (select id from job)),
  'rescuers', (
    select count(*) from {schema}.worker w
    where w.seen_at >= {schema}.now() - %(gone_after)s::text::interval and not w.stopping)
)::text
from job j
