-- What `mainspring up` and `mainspring top` show. Once a second, by one person who watches: nothing here counts a hot
-- table. What happened is found by time (job_pkey, whose ids begin with it; finished_age; attempt_ended), what waits is
-- counted lane by lane up to a limit (waiting_claim; `order by` there keeps the planner from reading the whole table for an
-- empty lane: measured among a million timers, 200 ms against 15).

-- name: pulse
with recursive span as materialized (
  select x.since, greatest(x.since, {schema}.now() - %(lag)s::text::interval * {schema}.speed()) as until
  from (select %(since)s::text::timestamptz as since) x
), made as materialized (  -- the ids of jobs are of real time, whatever the engine's clock shows
  select statement_timestamp() - ({schema}.now() - s.since) / {schema}.speed() as since,
         statement_timestamp() - ({schema}.now() - s.until) / {schema}.speed() as until
  from span s
), lane(name) as (
  (select w.queue from {schema}.waiting w order by w.queue limit 1)
  union all
  select (select w.queue from {schema}.waiting w where w.queue > lane.name order by w.queue limit 1)
  from lane where lane.name is not null
), begun as materialized (
  select r.id, r.attempt, r.started_at from {schema}.running r
  where r.started_at > (select since from span) and r.started_at <= (select until from span)
  union all
  select f.id, f.attempt, f.started_at from {schema}.finished f
  where f.finished_at > (select since from span) and f.started_at > (select since from span)
    and f.started_at <= (select until from span)
  union all
  select a.job_id, a.attempt, a.started_at from {schema}.attempt a
  where a.ended_at > (select since from span) and a.started_at > (select since from span)
    and a.started_at <= (select until from span) and a.outcome in ('retried', 'rescued')
), ended as materialized (
  select f.state from {schema}.finished f
  where f.finished_at > (select since from span) and f.finished_at <= (select until from span)
), again as materialized (
  select a.outcome from {schema}.attempt a
  where a.ended_at > (select since from span) and a.ended_at <= (select until from span)
), pickup as materialized (
  select percentile_cont(array[0.5, 0.95]) within group (
    order by extract(epoch from b.started_at - greatest(j.created_at, j.scheduled_for)) * 1000 / {schema}.speed()) as ms
  from (select * from begun where attempt = 1 limit 1000) b
  cross join lateral (select j.created_at, j.scheduled_for from {schema}.job j where j.id = b.id limit 1) j
)
select json_build_object(
  'since', s.since,
  'until', s.until,
  'enqueued', (select count(*) from {schema}.job j
               where j.id >= (lpad(to_hex((extract(epoch from m.since) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
                 and j.id < (lpad(to_hex((extract(epoch from m.until) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid),
  'started', (select count(*) from begun),
  'succeeded', (select count(*) from ended where state = 'succeeded'),
  'retried', (select count(*) from again where outcome = 'retried'),
  'rescued', (select count(*) from again where outcome = 'rescued'),
  'failed', (select count(*) from ended where state = 'failed'),
  'dead', (select count(*) from ended where state = 'dead'),
  'ready', (select count(*) from (
              select from lane l cross join generate_series(0, 3) p(priority)
              cross join lateral (
                select from {schema}.waiting w
                where w.queue = l.name and w.priority = p.priority and w.due_at <= {schema}.now()
                order by w.due_at limit 10000) w
              limit 10000) x),
  'later', (select count(*) from (
              select from lane l cross join generate_series(0, 3) p(priority)
              cross join lateral (
                select from {schema}.waiting w
                where w.queue = l.name and w.priority = p.priority and w.due_at > {schema}.now()
                order by w.due_at limit 10000) w
              limit 10000) x),
  'running', (select count(*) from (select from {schema}.running limit 100000) x),
  'pickup_ms', (select ms[1] from pickup),
  'pickup_p95_ms', (select ms[2] from pickup)
)::text
from span s cross join made m

-- name: ended
-- With each pulse of `up`: the newest attempts that ended between two instants, and of those that went wrong more; and
-- the job that comes next. The engine's own, and what was cancelled, only if somebody wants them. A job that a schedule
-- caused says which, and in which zone, else in that of the job which began it; a notification goes by its template,
-- anything else by its task's subject and its ids. Index: finished_age, attempt_ended, waiting_claim, primary keys.
with recursive lane(name) as (
  (select w.queue from {schema}.waiting w order by w.queue limit 1)
  union all
  select (select w.queue from {schema}.waiting w where w.queue > lane.name order by w.queue limit 1)
  from lane where lane.name is not null
), ended as materialized (
  select f.id, f.org_id, f.state, f.attempt, f.finished_at as at, null::jsonb as error, false as wrong
  from {schema}.finished f
  where f.finished_at > %(since)s::text::timestamptz and f.finished_at <= %(until)s::text::timestamptz
    and (f.state = 'succeeded' and f.org_id <> 'SYSTEM' or f.state in ('succeeded', 'cancelled') and %(own)s::boolean)
  union all
  select a.job_id, a.org_id, a.outcome, a.attempt, a.ended_at, a.error, a.outcome <> 'retried'
  from {schema}.attempt a
  where a.ended_at > %(since)s::text::timestamptz and a.ended_at <= %(until)s::text::timestamptz
    and a.outcome in ('retried', 'failed', 'dead', 'rescued')
), shown as materialized (
  select e.* from (select e.*, row_number() over (partition by e.wrong order by e.at desc) as place from ended e) e
  where e.place <= case when e.wrong then 50 else %(most)s end
)
select json_build_object(
  'count', (select count(*) from ended),
  'entries', (select coalesce(json_agg(json_strip_nulls(json_build_object(
      'kind', 'attempt', 'at', e.at, 'zone', coalesce(nullif(c.zone, ''), c.own_zone, r.zone, 'UTC'),
      'task', coalesce(n.template || ' by ' || n.channel, j.task), 'org', e.org_id, 'job_id', e.id,
      'attempt', e.attempt, 'state', e.state, 'schedule', c.schedule, 'follows', c.task <> j.task,
      'subject', case when n.template is not null then json_build_object('to', n.recipient_id) else (
        select json_object_agg(p.key, p.value order by p.place) from (
          select p.key, p.value, row_number() over (order by p.key <> coalesce(s.field, ''), p.key) as place
          from jsonb_each(case when jsonb_typeof(j.payload) = 'object' then j.payload else '{}' end) p
          where p.key = s.field or (p.key like '%%\_id' and jsonb_typeof(p.value) = 'number')) p
        where p.place <= 2) end,
      'key', j.key, 'error', (e.error ->> 'code') || ': ' || (e.error ->> 'message'),
      'due_at', case when e.state = 'retried' then (
        select w.due_at from {schema}.waiting w where w.id = e.id and w.due_at < 'infinity') end)) order by e.at, e.id), '[]')
    from shown e
    cross join (select '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' as pattern) i
    cross join lateral (select * from {schema}.job j where j.id = e.id limit 1) j
    cross join lateral (select %(subjects)s::text::jsonb ->> j.task as field) s
    left join lateral (
      select f.schedule, f.zone, s.zone as own_zone, s.task
      from {schema}.schedule s join {schema}.fire f on f.org_id = s.org_id and f.schedule = s.name
      where f.id = case when j.correlation_id ~ i.pattern then j.correlation_id::uuid end
      limit 1) c on true
    left join lateral (
      select b.payload ->> 'zone' as zone from {schema}.job b
      where b.id = case when j.correlation_id ~ i.pattern then j.correlation_id::uuid end limit 1) r on true
    left join lateral (
      select n.template, n.channel, n.recipient_id from {schema}.notification n
      where n.org_id = e.org_id and n.id = case when j.payload ->> 'notification_id' ~ i.pattern
                                                then (j.payload ->> 'notification_id')::uuid end
      limit 1) n on true),
  'next', (select json_build_object('at', w.due_at, 'task', w.task)
           from lane l cross join generate_series(0, 3) p(priority)
           cross join lateral (
             select w.due_at, w.task, w.org_id from {schema}.waiting w
             where w.queue = l.name and w.priority = p.priority and w.due_at > {schema}.now() and w.due_at < 'infinity'
             order by w.due_at limit 1) w
           where w.org_id <> 'SYSTEM' or %(own)s::boolean
           order by w.due_at limit 1)
)::text

-- name: board
-- With each pulse of `top`. Failures of the last five minutes, the thousand newest, by task and code.
with recursive lane(name) as (
  (select w.queue from {schema}.waiting w order by w.queue limit 1)
  union all
  select (select w.queue from {schema}.waiting w where w.queue > lane.name order by w.queue limit 1)
  from lane where lane.name is not null
), busy as materialized (
  select r.queue, count(*) as running from (select queue from {schema}.running limit 100000) r group by 1
), named as (
  select q.name from {schema}.queue q union select l.name from lane l where l.name is not null
  union select b.queue from busy b
), late as materialized (
  select a.job_id, a.ended_at, a.outcome, a.error from {schema}.attempt a
  where a.ended_at > {schema}.now() - interval '5 min' and a.outcome <> 'cancelled'
  order by a.ended_at desc limit 1000
)
select json_build_object(
  'queues', (
    select coalesce(json_agg(json_build_object(
             'name', n.name, 'ready', d.ready, 'running', coalesce(b.running, 0),
             'oldest_s', extract(epoch from {schema}.now() - d.oldest),
             'target_s', extract(epoch from q.start_target) * {schema}.speed(),
             'paused_by', case when q.paused_at is not null then coalesce(q.paused_by, '') end) order by n.name), '[]')
    from named n
    left join {schema}.queue q on q.org_id = 'SYSTEM' and q.name = n.name
    left join busy b on b.queue = n.name
    cross join lateral (
      select count(*) as ready, least(min(x.due_at), {schema}.oldest_parked(n.name)) as oldest
      from generate_series(0, 3) p(priority)
      cross join lateral (
        select w.due_at from {schema}.waiting w
        where w.queue = n.name and w.priority = p.priority and w.due_at <= {schema}.now()
        order by w.due_at limit 10000) x) d),
  'workers', (
    select coalesce(json_agg(json_build_object(
             'id', w.id, 'host', w.host, 'running', w.running, 'concurrency', w.concurrency, 'stopping', w.stopping,
             'seen_s', extract(epoch from {schema}.now() - w.seen_at),
             'gone', w.seen_at < {schema}.now() - %(gone_after)s::text::interval * {schema}.speed())
             order by w.started_at, w.id), '[]')
    from {schema}.worker w),
  'failures', (
    select coalesce(json_agg(x order by x.ago_s), '[]')
    from (
      select j.task, l.error ->> 'code' as code, count(*) as count,
             (array_agg(l.error ->> 'message' order by l.ended_at desc))[1] as message,
             extract(epoch from {schema}.now() - max(l.ended_at)) as ago_s
      from late l cross join lateral (select j.task from {schema}.job j where j.id = l.job_id limit 1) j
      group by 1, 2 order by 5 limit 20) x),
  'dead_letters', (
    select count(*) from (
      select from {schema}.finished f
      where f.state in ('failed', 'dead')
        and not exists (select from {schema}.resolution r where r.org_id = f.org_id and r.job_id = f.id)
      limit 10000) x)
)::text
