-- What `mainspring doctor` asks. One person looks, now and then; nothing here is proportional to the number of jobs.

-- name: doctor_server
-- The server itself; needs no schema of ours. Sessions of other roles are seen by members of pg_read_all_stats only.
select json_build_object(
  'version_num', current_setting('server_version_num')::int,
  'version', current_setting('server_version'),
  'in_recovery', pg_is_in_recovery(),
  'read_only', current_setting('transaction_read_only') = 'on',
  'timeline', case when not pg_is_in_recovery() then substr(pg_walfile_name(pg_current_wal_lsn()), 1, 8) end,
  'fsync', current_setting('fsync') = 'on',
  'full_page_writes', current_setting('full_page_writes') = 'on',
  'synchronous_commit', current_setting('synchronous_commit'),
  'autovacuum', current_setting('autovacuum') = 'on' and current_setting('track_counts') = 'on',
  'max_connections', current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
                     - coalesce(current_setting('reserved_connections', true)::int, 0),
  'connections', (select sum(d.numbackends) from pg_stat_database d),
  'sees_all', pg_has_role('pg_read_all_stats', 'usage'),
  'sessions', (
    select coalesce(json_agg(s order by s.seconds desc), '[]')
    from (
      select a.pid, a.usename as user, a.application_name as name, a.state,
             extract(epoch from clock_timestamp() - a.xact_start) as seconds,
             a.backend_xmin is not null or a.backend_xid is not null as snapshot
      from pg_stat_activity a
      where a.xact_start < clock_timestamp() - interval '1 s' and a.pid <> pg_backend_pid()
        and (a.datname = current_database() or a.backend_type = 'walsender')
      order by a.xact_start limit 20) s),
  'slots', (
    select coalesce(json_agg(json_build_object(
             'name', s.slot_name, 'active', s.active,
             'xids', greatest(age(s.xmin), age(s.catalog_xmin)), 'wal_status', s.wal_status)), '[]')
    from (select slot_name, active, xmin, catalog_xmin, wal_status from pg_replication_slots
          union all select application_name, true, backend_xmin, null, null from pg_stat_replication) s),
  'prepared', (
    select coalesce(json_agg(json_build_object(
             'gid', p.gid, 'seconds', extract(epoch from clock_timestamp() - p.prepared)) order by p.prepared), '[]')
    from pg_prepared_xacts p where p.database = current_database()),
  'at', clock_timestamp()
)::text

-- name: doctor_engine
-- The engine's tables: heads of lanes by index waiting_claim, leases by running_lease, dead letters by finished_open.
with recursive lane(name) as (
  (select w.queue from {schema}.waiting w order by w.queue limit 1)
  union all
  select (select w.queue from {schema}.waiting w where w.queue > lane.name order by w.queue limit 1)
  from lane where lane.name is not null
), living as materialized (
  select w.id, w.queues, w.tasks from {schema}.worker w
  where w.seen_at >= {schema}.now() - %(gone_after)s::text::interval * {schema}.speed() and not w.stopping
), heads as materialized (
  select l.name, w.task, w.due_at
  from lane l cross join generate_series(0, 3) p(priority)
  cross join lateral (
    select w.task, w.due_at from {schema}.waiting w
    where w.queue = l.name and w.priority = p.priority and w.due_at <= {schema}.now()
    order by w.due_at, w.id limit 100) w
  where l.name is not null
)
select json_build_object(
  'now', {schema}.now(),
  'movable_clock', to_regclass(%(clock)s::text) is not null,
  'secured', (select c.relrowsecurity from pg_class c where c.oid = '{schema}.job'::regclass),
  'superuser_owns', (
    select r.rolsuper from pg_class c join pg_roles r on r.oid = c.relowner where c.oid = '{schema}.job'::regclass),
  'workers', (select count(*) from living),
  'gone', (select count(*) from {schema}.worker w
           where w.seen_at < {schema}.now() - %(gone_after)s::text::interval * {schema}.speed()),
  'heartbeat_s', (select 1 / {schema}.speed() * extract(epoch from {schema}.now() - coalesce((
       select f.finished_at from {schema}.fire r join {schema}.finished f on f.id = r.job_id and f.state = 'succeeded'
       where r.org_id = s.org_id and r.schedule = s.name order by r.at desc limit 1), s.created_at))
     from {schema}.schedule s
     where s.org_id = 'SYSTEM' and s.name = 'mainspring.heartbeat' and s.undeclared_at is null and s.paused_at is null),
  'lanes', (
    select coalesce(json_agg(x order by x.name), '[]')
    from (
      select h.name, extract(epoch from {schema}.now() - min(h.due_at)) as oldest_s,
             (select extract(epoch from q.start_target) * {schema}.speed() from {schema}.queue q
              where q.org_id = 'SYSTEM' and q.name = h.name) as target_s,
             exists (select from living v where h.name = any(v.queues)) as served,
             coalesce(json_agg(distinct h.task) filter (where not exists (
               select from living v where h.name = any(v.queues) and h.task = any(v.tasks))), '[]') as unknown
      from heads h group by h.name) x),
  'paused', (
    select coalesce(json_agg(json_build_object(
             'name', q.name, 'seconds', extract(epoch from {schema}.now() - q.paused_at), 'by', q.paused_by,
             'reason', q.pause_reason) order by q.name), '[]')
    from {schema}.queue q where q.org_id = 'SYSTEM' and q.paused_at is not null),
  'expired', (
    select json_build_object('count', count(*), 'seconds', extract(epoch from {schema}.now() - min(x.lease_expires_at)))
    from (select r.lease_expires_at from {schema}.running r where r.lease_expires_at <= {schema}.now()
          order by r.lease_expires_at limit 1000) x),
  'holder', (  -- whose open transaction keeps the oldest of them from being taken back
    select json_build_object('pid', a.pid, 'user', a.usename, 'name', a.application_name, 'state', a.state, 'snapshot', true,
                             'seconds', coalesce(extract(epoch from clock_timestamp() - a.xact_start), 0))
    from (select r.xmax::text as locker, r.lease_expires_at from {schema}.running r where r.lease_expires_at <= {schema}.now()
          order by r.lease_expires_at limit 1000) x
    join pg_locks l on l.transactionid::text = x.locker and l.locktype = 'transactionid' and l.mode = 'ExclusiveLock' and l.granted
    join pg_stat_activity a on a.pid = l.pid
    order by x.lease_expires_at limit 1),
  'dead', (
    select json_build_object('count', count(*), 'seconds', extract(epoch from {schema}.now() - min(x.finished_at)))
    from (select f.finished_at from {schema}.finished f
          where f.state in ('failed', 'dead')
            and not exists (select from {schema}.resolution r where r.org_id = f.org_id and r.job_id = f.id)
          order by f.finished_at limit 1000) x),
  'tables', (
    select coalesce(json_agg(json_build_object(
             'name', s.relname, 'live', s.n_live_tup, 'dead', s.n_dead_tup,
             'vacuumed_s', extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)))), '[]')
    from pg_stat_all_tables s
    where s.relid = any(array['{schema}.waiting', '{schema}.running', '{schema}.finished', '{schema}.job']::regclass[]::oid[]))
)::text

-- name: doctor_tickets
-- Each job stands in exactly one ticket table, and each ticket has its job: the newest of each, or all of them.
with place as materialized (
  (select w.id, 'waiting' as name from {schema}.waiting w order by w.id desc limit %(sample)s::text::bigint)
  union all (select r.id, 'running' from {schema}.running r order by r.id desc limit %(sample)s::text::bigint)
  union all (select f.id, 'finished' from {schema}.finished f order by f.id desc limit %(sample)s::text::bigint)
  union all (select j.id, 'job' from {schema}.job j order by j.id desc limit %(sample)s::text::bigint)
), looked as materialized (
  select distinct p.id from place p
), wrong as (
  select l.id,
         (exists (select from {schema}.waiting w where w.id = l.id))::int
         + (exists (select from {schema}.running r where r.id = l.id))::int
         + (exists (select from {schema}.finished f where f.id = l.id))::int as tickets,
         exists (select from {schema}.job j where j.id = l.id) as job
  from looked l
)
select json_build_object(
  'looked', (select count(*) from looked),
  'wrong', (select coalesce(json_agg(json_build_object('id', w.id, 'tickets', w.tickets, 'job', w.job)), '[]')
            from (select * from wrong w where w.tickets <> 1 or not w.job order by w.id limit 20) w)
)::text
