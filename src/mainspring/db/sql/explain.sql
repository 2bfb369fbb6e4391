-- Why is this job not running? The predicates of `claim`, one by one, in one snapshot.

-- name: explain
-- A person asks for one job. By primary keys; what is ahead is counted up to a limit, and the few rows of `worker` are
-- read whole. `able` holds the workers that a claim can come from.
with job as materialized (
  select j.* from {schema}.jobs j
  where j.id = %(id)s::text::uuid and (%(org)s::text is null or j.org_id = %(org)s::text)
), ticket as materialized (
  select w.id, w.task, w.queue, w.priority, w.due_at, w.due_then, w.after, w.crashes, w.retrying, w.gate, w.org_id, w.strand,
         w.xmax::text as locker
  from {schema}.waiting w where w.id = (select id from job)
), open as materialized (  -- transactions that may have locked a ticket
  select l.transactionid::text as xid, a.pid, a.application_name as name, a.state, a.xact_start
  from pg_locks l join pg_stat_activity a on a.pid = l.pid
  where l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted  -- of savepoints, too
), paused as materialized (
  select q.name, q.paused_at, q.paused_by, q.pause_reason from {schema}.queue q
  where q.org_id = 'SYSTEM' and q.paused_at is not null
), able as materialized (
  select w.id, w.host, w.pid, w.running, w.concurrency, w.queues, w.tasks,
         t.queue = any(w.queues) as serves, t.task = any(w.tasks) as knows
  from {schema}.worker w, ticket t
  where w.seen_at >= {schema}.now() - %(gone_after)s::text::interval * {schema}.speed() and not w.stopping
)
select json_build_object(
  'now', {schema}.now(),
  'job', to_jsonb(j) || case when j.state is null then '{"state": "lost", "attempt": 0, "crashes": 0, "snoozes": 0}' else '{}' end::jsonb,
  'ticket', (
    select json_build_object('due', t.due_at <= {schema}.now(), 'due_at', case when t.due_at < 'infinity' then t.due_at else t.due_then end,
                             'retrying', t.retrying, 'crashes', t.crashes, 'queue', t.queue, 'priority', t.priority)
    from ticket t),
  'held_by', (
    select json_build_object('id', t.after, 'state', s.state)
    from ticket t left join lateral {schema}.state_of(t.after) s on true where t.after is not null),
  'flow', (  -- of a job that waits for others: the first of them, and how many there are; or for the end of a batch
    select json_build_object(
      'open', (select count(*) from {schema}.dependency d where d.org_id = t.org_id and d.child = t.id and not d.met),
      'batch', (select b.id from {schema}.batch b where b.org_id = t.org_id and b.on_finish = t.id),
      'first', (
        select row_to_json(x) from (
          select d.parent as id, p.task, p.state from {schema}.dependency d join {schema}.jobs p on p.id = d.parent
          where d.org_id = t.org_id and d.child = t.id and not d.met
          order by p.state in ('failed', 'dead') desc, d.place limit 1) x))
    from ticket t where t.gate = 'parents'),
  'breaker', (  -- of a job that it has put off
    select json_build_object('need', n.name || case when b.key <> '' then ':' || b.key else '' end,
                             'state', coalesce({schema}.breaker_state(b), 'closed'), 'since', b.since,
                             'next_probe', b.until, 'forced_by', b.forced_by, 'forced_reason', b.forced_reason)
    from ticket t
    cross join lateral (select split_part(t.gate, ':', 2) as name) n
    cross join lateral {schema}.breaker_at(t.gate, t.org_id) b
    where starts_with(t.gate, 'breaker:')),
  'endpoint', (  -- of a delivery that waits until it is resumed
    select json_build_object('id', {schema}.endpoint_at(t.gate), 'state', e.state, 'since', e.changed_at, 'reason', e.reason)
    from ticket t left join {schema}.webhook_endpoint e on e.org_id = t.org_id and e.id = {schema}.endpoint_at(t.gate)
    where starts_with(t.gate, 'endpoint:')),
  'limits', (  -- that concern it: how much room there is, whether it was put off, and who goes first where order matters
    select coalesce(json_agg(json_build_object(
             'name', l.name, 'by', l.by, 'rate', l.rate, 'per_s', extract(epoch from l.per), 'concurrency', l.concurrency,
             'in_order', l.in_order, 'key', case l.by when 'org' then t.org_id when 'strand' then t.strand end,
             'room', {schema}.spare(l, g.gate, {schema}.now()),
             'late', (select s.worker from {schema}.share s where s.org_id = 'SYSTEM' and s.gate = g.gate and s.late_at is not null
                        and s.until > {schema}.now() - interval '1 min' limit 1),
             'opens_at', case when l.rate is not null then {schema}.opens_at(l, g.gate, {schema}.now()) end,
             'put_off_to', case when t.gate = g.gate and t.due_at > {schema}.now() then t.due_at end,
             'in_place', p.in_place, 'after', case when not p.in_place then p.after end) order by l.name), '[]')
    from ticket t join {schema}.limit l on l.queue = t.queue or l.task = t.task
    cross join lateral (select {schema}.gate_of(l, t.org_id, t.strand) as gate) g
    cross join lateral (
      select l.in_order and exists (select from {schema}.slot s where s.gate = g.gate and s.job_id = t.id) as in_place,
             case when l.in_order then coalesce(
               (select s.job_id from {schema}.slot s where s.gate = g.gate limit 1),
               (select w.id from {schema}.waiting w
                where w.org_id = t.org_id and w.strand = t.strand and (w.task = l.task or w.queue = l.queue)
                  and w.after is null and w.gate is distinct from 'parents'
                  and (coalesce(w.due_then, w.due_at), w.id) < (coalesce(t.due_then, t.due_at), t.id)
                order by coalesce(w.due_then, w.due_at), w.id limit 1)) end as after) p
    where g.gate is not null),
  'fair', exists (select from ticket t join {schema}.fair f on f.queue = t.queue),
  'paused', (select row_to_json(p) from paused p, ticket t where p.name = t.queue),
  'locked_by', (
    select json_build_object('pid', o.pid, 'name', o.name, 'state', o.state,
                             'seconds', extract(epoch from clock_timestamp() - o.xact_start))
    from open o where o.xid = coalesce((select t.locker from ticket t), (
      select r.xmax::text from {schema}.running r where r.id = (select id from job)))),
  'workers', (
    select coalesce(json_agg(json_build_object(
             'id', c.id, 'host', c.host, 'pid', c.pid, 'running', c.running, 'concurrency', c.concurrency,
             'serves', c.serves, 'knows', c.knows) order by c.id), '[]')
    from able c, ticket t),
  'ahead', (
    select count(*) from (
      select from ticket t
      cross join generate_series(0, t.priority) p(priority)
      cross join lateral (
        select from {schema}.waiting w
        where w.queue = t.queue and w.priority = p.priority and w.crashes = 0 and w.due_at <= {schema}.now()
          and (p.priority < t.priority or (w.due_at, w.id) < (t.due_at, t.id))
          and (w.org_id = t.org_id or not exists (select from {schema}.fair f where f.queue = t.queue))
        limit %(most)s) w
      where t.due_at <= {schema}.now() and t.crashes = 0
      union all (
        select from ticket t join {schema}.waiting w
          on w.crashes > 0 and least(w.crashes, 2) = least(t.crashes, 2) and w.queue = t.queue
        where t.due_at <= {schema}.now() and w.due_at <= {schema}.now() and (w.due_at, w.id) < (t.due_at, t.id)
        limit %(most)s)
      limit %(most)s) x),
  'quarantine', (
    select json_build_object('held_at', k.held_at, 'workers', cardinality(k.workers), 'next_probe', k.probe_at)
    from {schema}.quarantine k, ticket t where k.org_id = 'SYSTEM' and k.task = t.task and k.held_at is not null),
  'lease', (
    select json_build_object('worker', r.worker, 'host', w.host, 'pid', w.pid, 'seen_at', w.seen_at,
                             'expired', r.lease_expires_at <= {schema}.now())
    from {schema}.running r left join {schema}.worker w on w.org_id = 'SYSTEM' and w.id = r.worker
    where r.id = (select id from job)),
  'rescuers', (
    select count(*) from {schema}.worker w
    where w.seen_at >= {schema}.now() - %(gone_after)s::text::interval * {schema}.speed() and not w.stopping)
)::text
from job j
