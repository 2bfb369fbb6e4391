-- What monitoring reads.

-- name: gauges
-- Every worker process with a metrics port, at most every few seconds. No count is proportional to the number of jobs:
-- lanes are counted by index waiting_claim up to a cap, the oldest at a gate is found by waiting_parked, dead letters by finished_open, tables by their statistics; the
-- with an organisation what waits, is dead or calls for a person is that one's. The last heartbeat is found by index fire_at, and there is one a minute.
with recursive lane(name) as (
  (select w.queue from {schema}.waiting w order by w.queue limit 1)
  union all
  select (select w.queue from {schema}.waiting w where w.queue > lane.name order by w.queue limit 1)
  from lane where lane.name is not null
), names as (
  select q.name from {schema}.queue q where q.name <> 'q:deadletter'
  union (select l.name from lane l where l.name is not null and (%(org)s::text is null or exists (
           select from {schema}.waiting w where w.queue = l.name and w.org_id = %(org)s::text)) limit 100)
), lanes as (
  select n.name, q.paused_at is not null as paused, extract(epoch from q.start_target) * {schema}.speed() as target_s,
         (select count(*) from (
            select from generate_series(0, 3) p(priority)
            cross join lateral (
              select from {schema}.waiting w
              where w.queue = n.name and w.priority = p.priority and w.due_at <= {schema}.now()
                and (%(org)s::text is null or w.org_id = %(org)s::text)
              limit %(cap)s::text::bigint) x
            limit %(cap)s::text::bigint) y) as ready,
         (select count(*) from (
            select from generate_series(0, 3) p(priority)
            cross join lateral (
              select from {schema}.waiting w
              where w.queue = n.name and w.priority = p.priority and w.due_at > {schema}.now()
                and (%(org)s::text is null or w.org_id = %(org)s::text)
              limit %(cap)s::text::bigint) x
            limit %(cap)s::text::bigint) y) as later,
         (select extract(epoch from {schema}.now() - least(min(x.due_at), {schema}.oldest_parked(n.name, %(org)s::text)))
          from generate_series(0, 3) p(priority)
          cross join lateral (
            select w.due_at from {schema}.waiting w
            where w.queue = n.name and w.priority = p.priority and w.due_at <= {schema}.now()
              and (%(org)s::text is null or w.org_id = %(org)s::text)
            order by w.due_at limit 1) x) as oldest_s
  from names n left join {schema}.queue q on q.org_id = 'SYSTEM' and q.name = n.name
), holders as (  -- what keeps dead rows from being removed; sessions of other roles need pg_read_all_stats
  select 'session' as holder, extract(epoch from clock_timestamp() - a.xact_start) as seconds,
         greatest(age(a.backend_xmin), age(a.backend_xid)) as transactions
  from pg_stat_activity a
  where (a.backend_xmin is not null or a.backend_xid is not null) and a.pid <> pg_backend_pid()
    and a.backend_type <> 'walsender' and a.datname = current_database()
  union all
  select 'standby', null, age(a.backend_xmin) from pg_stat_activity a
  where a.backend_type = 'walsender' and a.backend_xmin is not null
  union all
  select 'prepared', extract(epoch from clock_timestamp() - p.prepared), age(p.transaction)
  from pg_prepared_xacts p where p.database = current_database()
  union all
  select 'slot', null, greatest(age(s.xmin), age(s.catalog_xmin))
  from pg_replication_slots s where s.xmin is not null or s.catalog_xmin is not null
)
select json_build_object(
  'lanes', (select coalesce(json_agg(l order by l.name), '[]') from lanes l),
  'workers', (select count(*) from {schema}.worker w
              where w.seen_at >= {schema}.now() - %(gone_after)s::text::interval * {schema}.speed() and not w.stopping),
  'heartbeat_s', (select 1 / {schema}.speed() * extract(epoch from {schema}.now() - coalesce((
       select f.finished_at from {schema}.fire r join {schema}.finished f on f.id = r.job_id and f.state = 'succeeded'
       where r.org_id = s.org_id and r.schedule = s.name order by r.at desc limit 1), s.created_at))
     from {schema}.schedule s
     where s.org_id = 'SYSTEM' and s.name = 'mainspring.heartbeat' and s.undeclared_at is null and s.paused_at is null),
  'dead', (select json_build_object('open', count(*), 'oldest_s', extract(epoch from {schema}.now() - min(x.finished_at)))
           from (select d.finished_at from {schema}.dead_letters d where (%(org)s::text is null or d.org_id = %(org)s::text)
                 order by d.finished_at limit %(cap)s::text::bigint) x),
  'breakers', (select coalesce(json_agg(json_build_object(
       'name', b.name, 'open', {schema}.breaker_state(b) <> 'closed',
       'open_s', case when {schema}.breaker_state(b) <> 'closed'
                      then extract(epoch from {schema}.now() - coalesce(b.forced_at, b.since)) end,
       'keys', (select count(*) from (
          select from {schema}.breaker k where k.name = b.name and k.key <> '' and {schema}.breaker_state(k) <> 'closed'
            and (%(org)s::text is null or k.org_id = %(org)s::text)
          limit %(cap)s::text::bigint) k),
       'waiting', (select count(*) from (
          (select from {schema}.waiting w where w.gate = 'breaker:' || b.name and (%(org)s::text is null or w.org_id = %(org)s::text)
           limit %(cap)s::text::bigint)
          union all
          (select from {schema}.waiting w  -- its keys
           where w.gate > 'breaker:' || b.name || ':' and w.gate < 'breaker:' || b.name || ';' and (%(org)s::text is null or w.org_id = %(org)s::text)
           limit %(cap)s::text::bigint)) x)) order by b.name), '[]')
     from {schema}.breaker b where b.org_id = 'SYSTEM' and b.key = ''),
  'quarantined', (select coalesce(json_agg(k.task order by k.task), '[]') from (
       select k.task from {schema}.quarantine k where k.held_at is not null limit 1000) k),
  'alerts', (select coalesce(json_agg(n order by n.name, n.severity), '[]') from (
       select a.name, a.severity, count(*) as open
       from (select x.name, x.severity from {schema}.alert x where x.closed_at is null
               and (%(org)s::text is null or x.org_id = %(org)s::text) order by x.name
             limit %(cap)s::text::bigint) a
       group by a.name, a.severity limit 1000) n),
  'limits', (select coalesce(json_agg(json_build_object('name', l.name, 'waiting', coalesce(w.n, 0)) order by l.name), '[]')
     from (select name from {schema}.limit where org_id = 'SYSTEM' order by name limit 1000) l
     left join (select split_part(x.gate, '/', 1) as name, count(*) as n
                from (select w.gate from {schema}.waiting w where w.gate is not null and strpos(w.gate, '/') > 0 and (%(org)s::text is null or w.org_id = %(org)s::text)
                      limit %(cap)s::text::bigint) x
                group by 1) w on w.name = l.name),
  'horizon', (select coalesce(json_agg(h), '[]') from (
                select h.holder, max(h.seconds) as seconds, max(h.transactions) as transactions
                from holders h group by h.holder) h),
  'tables', (select coalesce(json_agg(json_build_object(
               'name', s.relname, 'live', s.n_live_tup, 'dead', s.n_dead_tup, 'bytes', pg_total_relation_size(s.relid),
               'vacuumed_s', extract(epoch from clock_timestamp() - greatest(s.last_autovacuum, s.last_vacuum)))), '[]')
             from pg_stat_all_tables s
             where s.relid = any(array['{schema}.waiting', '{schema}.running', '{schema}.finished', '{schema}.job',
                                       '{schema}.audit']::regclass[]::oid[]))
)::text
