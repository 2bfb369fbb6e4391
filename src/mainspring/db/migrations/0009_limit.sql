-- Limits: how many jobs may start in any window, how many may run at once, in which order those of one strand go, and
-- which organisation is next.
--
-- A claim asks once whether any limit concerns it; without one it pays nothing else. A limit of a whole queue bounds how
-- many are taken from it, so that its jobs stay in their order. A limit of a task, or by organisation or strand, is asked
-- after the jobs are found; what it does not let in is moved away from the head of the queue: to the instant at which a
-- rate will let it in, or behind a gate that opens when a slot is free.

-- A rule. By whom it counts: 'all' together, each 'org', or each 'strand' (of an organisation).
create table {schema}.limit (
  org_id      text not null default 'SYSTEM',
  name        text not null,
  queue       text,
  task        text,
  by          text not null default 'all' check (by in ('all', 'org', 'strand')),
  rate        integer check (rate between 1 and 1000000),
  per         interval check (per between interval '100 ms' and interval '1 day'),
  concurrency integer check (concurrency between 1 and 1000000),
  in_order    boolean not null default false,  -- the next of a strand starts when the one before it has finished
  declared    boolean not null default false,  -- by the code; else by somebody at run time, who wins
  app         text,                            -- whose code declares it
  code        jsonb,                           -- what the code says, where somebody has said otherwise
  counted     boolean not null default true,   -- false: what ran when it was set has no slots yet, see count_in
  set_at      timestamptz not null,
  set_by      text not null,
  primary key (org_id, name),
  constraint target check (num_nonnulls(queue, task) = 1),
  constraint rate_per check ((rate is null) = (per is null)),
  constraint what check (num_nonnulls(rate, concurrency) = 1),
  constraint in_order check (not in_order or (by = 'strand' and concurrency = 1))
);

-- What a rule has counted for one key: its gate is `name/`, `name/org` or `name/org/strand`. Locked while a claim asks.
-- The log of a rate: so many were let in, whose handlers are entered at these instants at the latest; those less than a
-- hundredth of a window apart stand as one, at the later. `next_at`: when the next job that a rate puts off may expect to
-- start, for each priority; first those that it puts off for the first time, then those that come back too early.
create table {schema}.bucket (
  org_id  text not null default 'SYSTEM',
  gate    text not null,
  name    text not null,  -- of the limit
  at      timestamptz[] not null default '{}',
  count   integer[] not null default '{}',
  next_at timestamptz[] not null default array_fill(timestamptz '-infinity', array[8]),
  full_at timestamptz not null default '-infinity',  -- when it last came near its limit
  used_at timestamptz not null,
  primary key (org_id, gate)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

-- A place that a job holds under a limit of concurrency: while it runs, and in order until it has finished. Counted, never
-- summed up: so it cannot leak.
create table {schema}.slot (
  org_id   text not null default 'SYSTEM',
  gate     text not null,
  job_id   uuid not null,
  in_order boolean not null,
  primary key (org_id, gate, job_id)
) with (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

-- A permit of a rate that nobody used: its job was given back before its handler was entered. It counts against the log of
-- its bucket, at an instant no later than the permit's own, so that it never outlives what it makes up for.
create table {schema}.unused (
  org_id text not null default 'SYSTEM',
  gate   text not null,
  epoch  bigint not null,
  name   text not null,  -- of the limit
  at     timestamptz not null,
  primary key (org_id, gate, epoch)
) with (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

create index slot_job on {schema}.slot (job_id);

-- Queues whose organisations take turns, and the weight of those that count for more than 1: {org: weight}.
create table {schema}.fair (
  org_id   text not null default 'SYSTEM',
  queue    text not null,
  weights  jsonb not null default '{}',
  cursor   text not null default '',  -- the organisation where the last claim stopped
  declared boolean not null default false,
  app      text,
  set_at   timestamptz not null,
  set_by   text not null,
  primary key (org_id, queue)
) with (fillfactor = 50);

-- Which gate of a limit a job passes; null where the limit does not concern it. No two organisations share one by a slash.
create function {schema}.gate_of(l {schema}.limit, p_org text, p_strand text) returns text language sql immutable
  return l.name || '/' || case l.by when 'all' then '' when 'org' then p_org
                                    else replace(replace(p_org, '%', '%25'), '/', '%2F') || '/' || p_strand end;

-- The least that a permit of a rate is good for.
create function {schema}.briefest(p_per interval) returns interval language sql immutable
  return greatest(p_per * 0.04, interval '20 ms');

-- How long a permit of a rate is good for, between the claim and the handler's first line. Where a limit is never reached
-- it may be long, so that nobody gives jobs back in a hurry; else that time is lost to the rate, so it is short. A worker
-- that starts a job at all does so within a second or two.
create function {schema}.validity(l {schema}.limit, p_gate text, p_room integer, p_at timestamptz) returns interval
language sql stable
  return least(interval '5 s', case when p_room >= l.rate * 0.5 and not exists (
                                 select from {schema}.bucket b
                                 where b.org_id = 'SYSTEM' and b.gate = p_gate and b.full_at > p_at - l.per * 20)
                               then l.per else {schema}.briefest(l.per) end);

-- How far back a limiter looks from now, at the latest entries it let in: in any window, however it lies, there are then no
-- more entries than it may hold. A little more, for the way from the worker's look at its clock to the handler's first line.
-- A day has 24 hours here, whatever the session's time zone makes of it.
create function {schema}.lookback(p_per interval) returns interval language sql immutable
  return make_interval(secs => extract(epoch from p_per)::float8) + least(p_per * 0.005, interval '5 ms');

-- Let one claim at a time ask at a gate. Never waits long: whoever holds it is at its commit, and in the transaction that
-- asks are outcomes. In one order, so that claims do not wait in a circle.
-- False: it takes too long. What a clock that was set back left in the future counts as now.
create function {schema}.lock_gates(p_gates text[]) returns boolean language plpgsql
  set lock_timeout = '250ms' set enable_seqscan = off
as $$
declare
  t timestamptz;
begin
  perform pg_advisory_xact_lock(hashtext('{schema} gates'), g.n)
  from (select distinct hashtext(x) & 63 as n from unnest(p_gates) x order by 1) g;
  t := {schema}.instant();
  update {schema}.bucket b set at = array(select least(a, t) from unnest(b.at) a)
  from {schema}.limit l
  where b.org_id = 'SYSTEM' and b.gate = any(p_gates) and l.org_id = 'SYSTEM' and l.name = b.name
    and b.at[cardinality(b.at)] > t + l.per;
  delete from {schema}.unused u using {schema}.limit l
  where u.org_id = 'SYSTEM' and u.gate = any(p_gates) and l.org_id = 'SYSTEM' and l.name = u.name
    and (u.at <= t - {schema}.lookback(l.per) or u.at > t + l.per);
  return true;
exception when lock_not_available then
  return false;
end $$;

-- How many more a gate lets in now. What lies far ahead, because the clock was set back, does not count: `lock_gates`
-- makes it now.
create function {schema}.room(l {schema}.limit, p_gate text, p_at timestamptz) returns integer language sql volatile
  set enable_seqscan = off
as $$
  select case when l.rate is null
    then l.concurrency - (select count(*) from {schema}.slot s where s.org_id = 'SYSTEM' and s.gate = p_gate)::integer
    else l.rate - coalesce((
      select sum(e.n) from {schema}.bucket b, unnest(b.at, b.count) e(at, n)
      where b.org_id = 'SYSTEM' and b.gate = p_gate and e.at > p_at - {schema}.lookback(l.per)
        and e.at <= p_at + l.per), 0)::integer + (
      select count(*) from {schema}.unused u
      where u.org_id = 'SYSTEM' and u.gate = p_gate and u.at > p_at - {schema}.lookback(l.per)
        and u.at <= p_at + l.per)::integer end
$$;

-- Who: `settle`, for a job that goes back before its handler was entered. The briefest permit, counted from the claim, ends
-- no later than this one: until then it stands in the log for certain. Not under a limit that is newer than it.
create function {schema}.hand_back(r {schema}.running) returns void language sql volatile set enable_seqscan = off as $$
  insert into {schema}.unused (gate, epoch, name, at)
  select b.gate, r.epoch, l.name, r.started_at + {schema}.briefest(l.per)
  from {schema}.limit l join {schema}.bucket b on b.org_id = 'SYSTEM' and b.gate = {schema}.gate_of(l, r.org_id, r.strand)
  where l.rate is not null and (l.queue = r.queue or l.task = r.task) and l.set_at < r.started_at
  on conflict do nothing
$$;

-- When a rate that is full lets the next one in.
create function {schema}.opens_at(l {schema}.limit, p_gate text, p_at timestamptz) returns timestamptz language sql volatile
  set enable_seqscan = off
as $$
  select coalesce(min(e.at), p_at) + {schema}.lookback(l.per)
  from {schema}.bucket b, unnest(b.at) e(at)
  where b.org_id = 'SYSTEM' and b.gate = p_gate and e.at > p_at - {schema}.lookback(l.per)
$$;

-- Write down that so many are let in, to be entered until then. Who asks holds the gate.
create function {schema}.enter(
  l {schema}.limit, p_gate text, p_at timestamptz, p_until timestamptz, p_count integer, p_room integer
) returns void language plpgsql set enable_seqscan = off as $$
declare
  ats timestamptz[];
  counts integer[];
begin
  select array_agg(x.at order by x.at), array_agg(x.n order by x.at) into ats, counts
  from (
    select max(e.at) as at, sum(e.n)::integer as n
    from (
      select y.at, y.n from {schema}.bucket b, unnest(b.at, b.count) y(at, n)
      where b.org_id = 'SYSTEM' and b.gate = p_gate and y.at > p_at - {schema}.lookback(l.per)
      union all select p_until, p_count) e
    group by date_bin(l.per / 100, e.at, 'epoch')) x;
  insert into {schema}.bucket as b (gate, name, at, count, used_at, full_at)
  values (p_gate, l.name, ats, counts, p_at, case when p_room < l.rate * 0.5 then p_at else '-infinity' end)
  on conflict (org_id, gate) do update
  set at = excluded.at, count = excluded.count, used_at = excluded.used_at,
      full_at = case when p_room < l.rate * 0.5 then p_at else least(b.full_at, p_at) end;
end $$;

-- What limits make of jobs that were found: the ids that they let in, in turn, each through all its gates or none. The
-- others are moved away from the head of the queue, but for those that only a limit of the whole queue stops: they stay in
-- their order. Nothing is held for ever: what waits for a slot comes back to ask, later and later, in case nobody told it;
-- `leave` tells it at once.
create function {schema}.admit(p_found {schema}.waiting[], out let_in uuid[], out permit interval)
language plpgsql set enable_seqscan = off set enable_hashjoin = on set jit = off as $$
declare
  gates text[];    -- at which they ask: slots before rates, because who knows when one is free, and whole queues last
  names text[];
  counts integer[];  -- how many each lets in
  rooms integer[];   -- how many more it would
  refused uuid[] := '{}';
  closed integer[] := '{}';  -- the gate that refused them
  ordered boolean;
  t timestamptz;
  waited interval;
  j record;
  l {schema}.limit;
  shut integer;
  good interval;
begin
  select array_agg(y.gate order by y.whole, y.rated, y.gate), array_agg(y.name order by y.whole, y.rated, y.gate),
         array_agg(y.n order by y.whole, y.rated, y.gate), bool_or(y.in_order)
  into gates, names, counts, ordered
  from (
    select {schema}.gate_of(x, f.org_id, f.strand) as gate, x.name, x.in_order, x.rate is not null as rated,
           x.queue is not null and x.by = 'all' as whole, count(*)::integer as n
    from {schema}.limit x join unnest(p_found) f on f.task = x.task or f.queue = x.queue
    where {schema}.gate_of(x, f.org_id, f.strand) is not null
    group by 1, 2, 3, 4, 5) y;
  let_in := array(select f.id from unnest(p_found) f);
  if gates is null then
    return;
  end if;
  if not {schema}.lock_gates(gates) then
    let_in := '{}';
    return;
  end if;
  waited := clock_timestamp() - transaction_timestamp();  -- before: a permit ends no later than it is written down
  t := {schema}.instant();
  rooms := array(
    select coalesce({schema}.room(x, z.gate, t), 1000000)  -- null: it was dropped meanwhile
    from unnest(gates, names) with ordinality z(gate, name, ord)
    left join {schema}.limit x on x.org_id = 'SYSTEM' and x.name = z.name order by z.ord);
  if not ordered and not exists (select from unnest(rooms, counts) z(room, n) where z.room < z.n) then
    rooms := array(select z.room - z.n from unnest(rooms, counts) with ordinality z(room, n, ord) order by z.ord);
  else
    counts := array_fill(0, array[cardinality(gates)]);
    for j in
      select f.id, array_agg(g.nth) filter (where not p.in_place) as asks,
             min(g.nth) filter (where not p.in_place and not p.first) as behind
      from unnest(p_found) with ordinality f
      join {schema}.limit x on f.task = x.task or f.queue = x.queue
      cross join lateral (select {schema}.gate_of(x, f.org_id, f.strand) as gate) o
      cross join lateral (select array_position(gates, o.gate) as nth) g
      cross join lateral (
        select x.in_order and exists (
                 select from {schema}.slot s where s.org_id = 'SYSTEM' and s.gate = o.gate and s.job_id = f.id) as in_place,
               -- Behind one that another claim is about to take? One that waits for others has its place when they are done.
               not x.in_order or not exists (
                 select from {schema}.waiting w
                 where w.org_id = f.org_id and w.strand = f.strand and (w.task = x.task or w.queue = x.queue)
                   and w.after is null and w.gate is distinct from 'parents'
                   and (coalesce(w.due_then, w.due_at), w.id) < (coalesce(f.due_then, f.due_at), f.id)) as first) p
      where o.gate is not null
      group by f.id, f.ordinality
      order by bool_or(p.in_place) desc, bool_or(f.gate is not distinct from o.gate) desc, f.ordinality
    loop
      shut := least(j.behind, (select min(n) from unnest(j.asks) n where rooms[n] <= 0));
      if shut is not null then
        refused := refused || j.id;
        closed := closed || shut;
        continue;
      end if;
      for n in 1 .. coalesce(cardinality(j.asks), 0) loop
        rooms[j.asks[n]] := rooms[j.asks[n]] - 1;
        counts[j.asks[n]] := counts[j.asks[n]] + 1;
      end loop;
    end loop;
    let_in := array(select f.id from unnest(p_found) f where f.id <> all(refused));
  end if;
  insert into {schema}.slot (gate, job_id, in_order)
  select {schema}.gate_of(x, f.org_id, f.strand), f.id, x.in_order
  from {schema}.limit x join unnest(p_found) f on f.task = x.task or f.queue = x.queue
  where x.concurrency is not null and {schema}.gate_of(x, f.org_id, f.strand) is not null and f.id = any(let_in)
  on conflict do nothing;
  for i in 1 .. cardinality(gates) loop
    select * into l from {schema}.limit x where x.org_id = 'SYSTEM' and x.name = names[i];
    continue when l.rate is null or counts[i] = 0;
    good := {schema}.validity(l, gates[i], rooms[i], t);
    permit := least(permit, good);
    perform {schema}.enter(l, gates[i], t, t + good, counts[i], rooms[i]);
  end loop;
  permit := permit + waited;  -- counted by the worker from when it asked
  if refused = '{}' then
    return;
  end if;
  with opening as materialized (
    select c.nth, gates[c.nth] as gate, x.rate, x.per / x.rate as step, b.next_at,
           case when x.rate is not null then {schema}.opens_at(x, gates[c.nth], t) end as opens_at
    from (select distinct n as nth from unnest(closed) n) c
    join {schema}.limit x on x.org_id = 'SYSTEM' and x.name = names[c.nth]
    left join {schema}.bucket b on b.org_id = 'SYSTEM' and b.gate = gates[c.nth]
    where x.task is not null or x.by <> 'all'  -- those of a whole queue stay where they are
  ), asked as (
    select f.id, r.ord, o.*, coalesce(f.due_then, f.due_at) as due_then,
           f.priority + 1 + case when f.gate = o.gate then 4 else 0 end as line
    from unnest(refused, closed) with ordinality r(id, nth, ord)
    join opening o on o.nth = r.nth join unnest(p_found) f on f.id = r.id
  ), booked as (
    select a.id, a.gate, a.due_then, a.line, a.step,
           case when a.rate is null then t + least(greatest((t - a.due_then) / 2, interval '1 s'), interval '1 min')
             else least(t + interval '1 min', greatest(a.opens_at, a.next_at[a.line])
                        + (row_number() over (partition by a.gate, a.line order by a.ord) - 1) * a.step) end as due_at
    from asked a
  ), moved as (
    update {schema}.waiting w set due_at = b.due_at, due_then = b.due_then, gate = b.gate from booked b where w.id = b.id
  )
  update {schema}.bucket u
  set next_at = array(select coalesce(x.ends[array_position(x.lines, n)], u.next_at[n]) from generate_series(1, 8) n order by n)
  from (select y.gate, array_agg(y.line) as lines, array_agg(y.ends) as ends
        from (select b.gate, b.line, least(max(b.due_at + b.step), t + interval '1 min') as ends
              from booked b where b.step is not null group by 1, 2) y
        group by y.gate) x
  where u.org_id = 'SYSTEM' and u.gate = x.gate;
end $$;

-- Jobs of a queue whose organisations take turns, each its share of what is wanted, by weight; what some leave, those that
-- have more take. Where less is wanted than there are organisations, chance decides whose turn it is, by weight too: so
-- many workers that take one job each, of tasks of their own, need not agree on an order. Walks the organisations, not the
-- backlog: at most 100 that have something due a claim, going on where the last one stopped.
-- Index: waiting_fair, which is there while a queue is fair.
create function {schema}.find_fair(p_queue text, p_want integer, p_tasks text[], p_oldest boolean) returns setof {schema}.waiting
language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set enable_sort = on set jit = off
as $$
declare
  lanes constant smallint[] := array(
    select p from unnest('{0,1,2,3}'::smallint[]) p
    order by case when p_oldest then (
      select w.due_at from {schema}.waiting w
      where w.queue = p_queue and w.priority = p and w.due_at <= {schema}.now() order by w.due_at limit 1) end, p);
  lane smallint;
  start text;
  heavy jsonb;
  orgs text[];
  weights integer[];
  total integer;
  counts integer[];
  share integer;
  n integer;
  left_over integer := p_want;
  walked text;
begin
  select f.cursor, f.weights into start, heavy from {schema}.fair f where f.org_id = 'SYSTEM' and f.queue = p_queue;
  foreach lane in array lanes loop
    exit when left_over <= 0;
    -- From the cursor on, then from the beginning up to it.
    with recursive walk as (
      select start as org_id, timestamptz 'infinity' as due_at, false as around, 0 as depth, 0 as due
      union all
      select x.*, h.depth + 1, h.due + (x.due_at <= {schema}.now())::integer
      from walk h cross join lateral (
        select y.org_id, y.due_at, h.around from (
          select w.org_id, w.due_at from {schema}.waiting w
          where w.queue = p_queue and w.priority = lane and w.org_id > h.org_id order by w.org_id, w.due_at limit 1) y
        where not h.around or y.org_id <= start
        union all
        select y.org_id, y.due_at, true from (
          select w.org_id, w.due_at from {schema}.waiting w
          where w.queue = p_queue and w.priority = lane and not h.around order by w.org_id, w.due_at limit 1) y
        where y.org_id <= start
        limit 1) x
      where h.due < 100 and h.depth < 1000
    ), chance as (
      select k.*, z.weight, -ln(1 - random()) / z.weight as turn
      from walk k cross join lateral (select coalesce((heavy ->> k.org_id)::integer, 1) as weight) z
    )
    select array_agg(k.org_id order by k.turn) filter (where k.due_at <= {schema}.now()),
           array_agg(k.weight order by k.turn) filter (where k.due_at <= {schema}.now()),
           sum(k.weight) filter (where k.due_at <= {schema}.now()),
           case when max(k.due) = 100 or max(k.depth) = 1000 then (array_agg(k.org_id order by k.depth desc))[1] end
    into orgs, weights, total, walked
    from chance k;
    if walked is not null then
      update {schema}.fair f set cursor = walked
      where f.org_id = 'SYSTEM' and f.queue = p_queue and f.cursor <> walked
        and exists (select from {schema}.fair x where x.org_id = 'SYSTEM' and x.queue = p_queue for update skip locked);
    end if;
    continue when orgs is null;
    counts := array_fill(0, array[cardinality(orgs)]);
    for i in 1 .. cardinality(orgs) loop
      exit when left_over <= 0;
      share := least(left_over, greatest(1, p_want * weights[i] / total));
      return query
        select w.* from {schema}.waiting w
        where w.queue = p_queue and w.priority = lane and w.org_id = orgs[i] and w.due_at <= {schema}.now()
          and w.task = any(p_tasks) and w.crashes = 0
        order by w.due_at, w.id limit share for update of w skip locked;
      get diagnostics n = row_count;
      counts[i] := case when n = share then n else -1 end;  -- -1: it has no more
      left_over := left_over - n;
    end loop;
    for i in 1 .. cardinality(orgs) loop
      continue when counts[i] <= 0;
      exit when left_over <= 0;
      return query
        select w.* from {schema}.waiting w
        where w.queue = p_queue and w.priority = lane and w.org_id = orgs[i] and w.due_at <= {schema}.now()
          and w.task = any(p_tasks) and w.crashes = 0
        order by w.due_at, w.id offset counts[i] limit left_over for update of w skip locked;
      get diagnostics n = row_count;
      left_over := left_over - n;
    end loop;
  end loop;
end $$;

-- Who: `claim`, where a limit or a fair queue concerns it. Takes what the limits let in. The bounds from below are not
-- used: what a limit of the whole queue leaves stays at its head.
create function {schema}.claim_limited(
  p_worker text, p_lease interval, p_total integer, p_queues text[], p_limits integer[], p_tasks text[], p_oldest boolean,
  p_rescued boolean
) returns table (
  id uuid, task text, payload text, org_id text, project_id uuid, actor_type text, actor_id text, request_id text,
  correlation_id text, traceparent text, key text, created_at timestamptz, scheduled_for timestamptz,
  max_attempts smallint, epoch bigint, attempt smallint, crashes smallint, snoozes smallint, suspect boolean,
  queue text, priority smallint, due_at timestamptz, claimed_at timestamptz, strand text, permit interval
) language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
  set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
declare
  l {schema}.limit;
  rooms integer[];
  free integer[];
  fair text[];
  jobs {schema}.waiting[];
  more {schema}.waiting[];
  ids uuid[];
  good interval;
  i integer;
  moved integer := 0;
  capped boolean := exists (
    select from {schema}.limit x where x.concurrency is not null and (x.queue = any(p_queues) or x.task = any(p_tasks)));
begin
  if exists (select from {schema}.limit x where not x.counted) and not {schema}.count_in() then
    return;
  end if;
  -- A queue in which nothing is due has no room: most are empty most of the time, and their limits need not be asked.
  rooms := array(
    select case when exists (
             select from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
             cross join lateral (
               select from {schema}.waiting w
               where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now() limit 1) y)
           then q.n else 0 end
    from unnest(p_queues, p_limits) with ordinality q(name, n, nth) order by q.nth);
  -- How much the limits of whole queues leave, without waiting: looked at again, alone, once something is found.
  for l in select * from {schema}.limit x where x.queue = any(p_queues) and x.by = 'all' loop
    i := array_position(p_queues, l.queue);
    continue when rooms[i] <= 0;
    rooms[i] := least(rooms[i], {schema}.room(l, l.name || '/', {schema}.instant()));
  end loop;
  if not 0 < any(rooms) then
    return;
  end if;
  select array_agg(f.queue) into fair from {schema}.fair f where f.queue = any(p_queues);

  loop
    jobs := null;
    free := rooms;
    if p_rescued then
      select array_agg(y) into jobs from (
        select w.* from {schema}.waiting w
        where w.crashes > 0 and w.due_at <= {schema}.now() and w.queue = any(p_queues) and w.task = any(p_tasks)
          and free[array_position(p_queues, w.queue)] > 0
          and not exists (
            select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = w.queue and mq.paused_at is not null)
        order by w.due_at, w.id limit least(p_total, 1) for update of w skip locked) y;
      if jobs is not null then
        i := array_position(p_queues, (jobs[1]).queue);
        free[i] := free[i] - 1;
      end if;
    end if;
    select array_agg(y) into more from (
      select x.*
      from unnest(p_queues, free) q(name, n)
      cross join lateral (
        select y.*
        from (
          select p.priority
          from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
          order by case when p_oldest then (
            select w.due_at from {schema}.waiting w
            where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now()
            order by w.due_at limit 1) end, p.priority
        ) p
        cross join lateral (
          select w.* from {schema}.waiting w
          where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now() and w.task = any(p_tasks)
            and w.crashes = 0
          order by w.due_at, w.id limit q.n for update of w skip locked) y
        limit q.n) x
      where q.n > 0 and (fair is null or q.name <> all(fair)) and not exists (
        select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = q.name and mq.paused_at is not null)
      limit p_total - coalesce(cardinality(jobs), 0)) y;
    jobs := jobs || more;
    if fair is not null then
      for i in 1 .. cardinality(p_queues) loop
        continue when not p_queues[i] = any(fair) or free[i] <= 0 or coalesce(cardinality(jobs), 0) >= p_total;
        continue when exists (
          select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = p_queues[i] and mq.paused_at is not null);
        select array_agg(w) into more
        from {schema}.find_fair(p_queues[i], least(free[i], p_total - coalesce(cardinality(jobs), 0)), p_tasks, p_oldest) w;
        jobs := jobs || more;
      end loop;
    end if;
    if jobs is null then
      return;
    end if;

    select a.let_in, a.permit into ids, good from {schema}.admit(jobs) a;
    exit when cardinality(ids) > 0;
    -- All were put off: what stood behind them may be let in. Not where some stay at the head, or a gate is busy.
    moved := moved + cardinality(jobs);
    if exists (select from {schema}.waiting w
               where w.id = any(array(select j.id from unnest(jobs) j)) and w.due_at <= {schema}.now()) then
      return;
    elsif moved > 2000 then
      perform set_config('mainspring.more', 'on', true);  -- and others have their turn: `next_due` says so
      return;
    end if;
  end loop;

  return query
  with d as (
    delete from {schema}.waiting w where w.id = any(ids)
    returning w.id, w.org_id, w.task, w.queue, w.priority, w.due_at, (w.attempt + 1)::smallint as attempt, w.crashes,
              w.snoozes, w.suspect, w.strand,
              w.tied or (capped and exists (select from {schema}.slot s where s.job_id = w.id)) as tied,
              nextval('{schema}.epoch') as epoch
  ), r as (
    insert into {schema}.running (id, epoch, worker, org_id, task, queue, priority, due_at, attempt, crashes, snoozes,
                                  suspect, strand, tied, started_at, lease_expires_at)
    select d.id, d.epoch, p_worker, d.org_id, d.task, d.queue, d.priority, d.due_at, d.attempt, d.crashes, d.snoozes,
           d.suspect, d.strand, d.tied, {schema}.now(), {schema}.now() + p_lease
    from d
  )
  select d.id, d.task, j.payload::text, d.org_id, j.project_id, j.actor_type, j.actor_id, j.request_id, j.correlation_id,
         j.traceparent, j.key, j.created_at, j.scheduled_for, j.max_attempts, d.epoch, d.attempt, d.crashes, d.snoozes,
         d.suspect, d.queue, d.priority, d.due_at, {schema}.now(), d.strand, p.permit
  from d cross join lateral (select * from {schema}.job j where j.id = d.id limit 1) j
  cross join lateral (  -- null: no limit concerns it; a day: it holds a slot, and may start when it likes
    select case when count(*) > 0
             then case when bool_or(x.rate is not null) then good else interval '1 day' end end as permit
    from {schema}.limit x where x.queue = d.queue or x.task = d.task) p
  order by d.priority, d.due_at, d.id;
end $$;

-- Who: `untie`. Gives back the slots of jobs that have left their worker, those in order only once they have finished, and
-- opens each gate for as many of those that wait at it. Index: slot_job, waiting_gate.
create function {schema}.leave(p_ids uuid[]) returns void language plpgsql set enable_seqscan = off as $$
declare
  g record;
  lane smallint;
begin
  for g in
    with gone as (
      delete from {schema}.slot s
      where s.job_id = any(p_ids) and (not s.in_order or exists (select from {schema}.finished f where f.id = s.job_id))
      returning s.gate, s.in_order)
    select gone.gate, gone.in_order, count(*) as n from gone group by 1, 2 order by 1
  loop
    -- In order it is the next one's turn, whatever its priority.
    lane := case when g.in_order then (
      select p.lane from generate_series(0, 3) p(lane) cross join lateral (
        select x.due_then, x.id from {schema}.waiting x where x.gate = g.gate and x.priority = p.lane
        order by x.due_then, x.id limit 1) x
      order by x.due_then, x.id limit 1) else 0 end;
    -- Due when it was first: its place in the order depends on it, and limited claims know no bound from below.
    update {schema}.waiting w set due_at = w.due_then, gate = null, due_then = null
    where w.id = any(array(
      select x.id from {schema}.waiting x where x.gate = g.gate and x.priority >= lane
      order by x.priority, x.due_then, x.id limit g.n for update skip locked));
    perform {schema}.wake();
  end loop;
end $$;

-- Who: clean-up. Buckets that nobody has asked at for a day count nothing any more.
create function {schema}.forget_buckets(p_limit integer) returns integer language plpgsql as $$
declare
  n integer;
begin
  delete from {schema}.bucket b where b.ctid = any(array(
    select x.ctid from {schema}.bucket x where x.used_at < {schema}.now() - interval '25 hours'
    limit p_limit for update skip locked));
  get diagnostics n = row_count;
  delete from {schema}.unused u where u.at < {schema}.now() - interval '25 hours';
  return n;
end $$;

-- Who: `next_due`. When a queue that a rate has closed, and in which jobs are due, opens again.
create function {schema}.next_open(p_queues text[]) returns timestamptz language sql volatile set enable_seqscan = off as $$
  select min({schema}.opens_at(l, l.name || '/', {schema}.now()))
  from {schema}.limit l
  where l.queue = any(p_queues) and l.by = 'all' and l.rate is not null
    and {schema}.room(l, l.name || '/', {schema}.now()) <= 0
    and exists (select from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority),
                lateral (select from {schema}.waiting w where w.queue = l.queue and w.priority = p.priority
                           and w.due_at <= {schema}.now() limit 1) x)
$$;

-- Who: whatever ends or gives back an attempt of a job that is tied: its slots, its batch, the jobs that wait for it.
create function {schema}.untie(p_ids uuid[]) returns void language plpgsql as $$
begin
  perform {schema}.leave(p_ids);
  perform {schema}.conclude(p_ids);
end $$;

-- -- What people, and the code, say about limits -------------------------------------------------------------------------

-- A limit as it is shown and remembered.
create function {schema}.rule_of(l {schema}.limit) returns jsonb language sql immutable
  return case when l.name is not null then jsonb_strip_nulls(jsonb_build_object(
    'queue', l.queue, 'task', l.task, 'by', l.by, 'rate', l.rate, 'per', l.per, 'concurrency', l.concurrency,
    'in_order', l.in_order)) end;

-- Refuse a limit that cannot hold, as mainspring.limit says it.
create function {schema}.check_limit(l {schema}.limit) returns void language plpgsql immutable as $$
begin
  perform {schema}.check_text('name', l.name, 240);
  if strpos(l.name, '/') > 0 then
    perform {schema}.refuse('name', 'has a slash, which stands between a limit and the key that it counts by');
  elsif num_nonnulls(l.queue, l.task) <> 1 then
    perform {schema}.refuse('queue', 'give either a queue or a task');
  elsif l.queue = 'q:deadletter' then
    perform {schema}.refuse('queue', 'q:deadletter holds dead jobs; nothing runs there');
  end if;
  perform {schema}.check_text('queue', coalesce(l.queue, '-'), 63);
  perform {schema}.check_text('task', coalesce(l.task, '-'), 200);
  if l."by" is null or l."by" not in ('all', 'org', 'strand') then
    perform {schema}.refuse('by', 'is not one of all, org, strand');
  elsif num_nonnulls(l.rate, l.concurrency) <> 1 then
    perform {schema}.refuse('rate', 'give either a rate or a concurrency');
  elsif l.rate not between 1 and 1000000 then
    perform {schema}.refuse('rate', 'is not a whole number from 1 to 1000000');
  elsif l.concurrency not between 1 and 1000000 then
    perform {schema}.refuse('concurrency', 'is not a whole number from 1 to 1000000');
  elsif l.rate is not null and l.per is null then
    perform {schema}.refuse('per', 'is missing');
  elsif l.rate is null and l.per is not null then
    perform {schema}.refuse('per', 'is given together with a concurrency');
  elsif l.per not between interval '100 ms' and interval '1 day' then
    perform {schema}.refuse('per', 'is not a time span from 100 ms to 1 day');
  elsif l.in_order and (l."by" <> 'strand' or l.concurrency is distinct from 1) then
    perform {schema}.refuse('in_order', 'is for jobs of one strand, one at a time');
  end if;
end $$;

-- What somebody did to a limit, or to whose turn it is, with what it was before and is after.
create function {schema}.record_limit(
  p_event text, p_actor_type text, p_actor_id text, p_reason text, p_what jsonb, p_before jsonb, p_after jsonb) returns void
language sql as $$
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  select 'SYSTEM', {schema}.now(), p_event, p_actor_type, p_actor_id, p_what || jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'before', p_before, 'after', p_after)
$$;

-- The gates of a limit at whose bucket no claim is, locked. What is left at the others is soon forgotten.
create function {schema}.free_buckets(p_name text) returns text[] language sql volatile set enable_seqscan = off as $$
  select array(select b.gate from {schema}.bucket b where b.org_id = 'SYSTEM' and b.name = p_name for update skip locked)
$$;

-- Jobs that a limit has put off ask again now, in their order. At most 10,000 at once: the others come back by themselves
-- within a minute. A claim without limits keeps a bound from below, so that what has none any more is due now.
-- Index: waiting_gate.
create function {schema}.reconsider(p_name text, p_gone boolean) returns void language plpgsql set enable_seqscan = off as $$
begin
  update {schema}.waiting w
  set due_at = case when p_gone then greatest(w.due_then, {schema}.now()) else w.due_then end, gate = null, due_then = null
  where w.id = any(array(
    select x.id from {schema}.waiting x where x.gate is not null and starts_with(x.gate, p_name || '/')
    order by x.due_then limit 10000 for update skip locked));
  update {schema}.bucket b set next_at = default
  where b.org_id = 'SYSTEM' and b.gate = any({schema}.free_buckets(p_name));
  perform pg_notify({channel}, '');  -- rare
end $$;

-- Who: `claim_limited`, once after a limit of concurrency was set: gives slots to the jobs that run already. Answers whether
-- all of them have theirs; until then nothing more is let in. Waits for nobody: another claim may be at it, and a row of
-- `running` may be locked by whoever renews or cancels.
create function {schema}.count_in() returns boolean language plpgsql set enable_seqscan = off as $$
declare
  l {schema}.limit;
begin
  for l in select * from {schema}.limit x where not x.counted order by x.name for update skip locked loop
    delete from {schema}.slot s where s.org_id = 'SYSTEM' and starts_with(s.gate, l.name || '/');  -- of a limit that had this name before
    with tied as (
      update {schema}.running r set tied = true
      where r.id = any(array(
        select x.id from {schema}.running x
        where (x.queue = l.queue or x.task = l.task) and {schema}.gate_of(l, x.org_id, x.strand) is not null
        for update skip locked))
      returning r.id, {schema}.gate_of(l, r.org_id, r.strand) as gate
    )
    insert into {schema}.slot (gate, job_id, in_order) select t.gate, t.id, l.in_order from tied t;
    update {schema}.limit x set counted = true
    where x.org_id = 'SYSTEM' and x.name = l.name and not exists (
      select from {schema}.running r
      where (r.queue = l.queue or r.task = l.task) and {schema}.gate_of(l, r.org_id, r.strand) is not null
        and not exists (select from {schema}.slot s where s.job_id = r.id and s.gate = {schema}.gate_of(l, r.org_id, r.strand)));
  end loop;
  return not exists (select from {schema}.limit x where not x.counted);
end $$;

-- Write a limit, tell the trail, and let it hold from now on. Locks: a limit of concurrency that is new waits for the claims
-- that do not see it, so that no job runs uncounted. Buckets are never waited for: a claim that holds one may wait for us.
create function {schema}.put_limit(p_new {schema}.limit, p_actor_type text, p_actor_id text, p_reason text) returns void
language plpgsql as $$
declare
  before {schema}.limit;
  same boolean;
begin
  perform {schema}.check_limit(p_new);
  select * into before from {schema}.limit x where x.org_id = 'SYSTEM' and x.name = p_new.name for update;
  same := (before.queue, before.task, before."by", before.in_order, before.rate is null)
          is not distinct from (p_new.queue, p_new.task, p_new."by", p_new.in_order, p_new.rate is null);
  if not same then
    if p_new.concurrency is not null then
      perform pg_advisory_xact_lock({claim_lock});
    end if;
    delete from {schema}.bucket b where b.org_id = 'SYSTEM' and b.gate = any({schema}.free_buckets(p_new.name));
    delete from {schema}.unused u where u.org_id = 'SYSTEM' and u.name = p_new.name;
  end if;
  insert into {schema}.limit (name, queue, task, by, rate, per, concurrency, in_order, declared, app, code, counted, set_at, set_by)
  values (p_new.name, p_new.queue, p_new.task, p_new."by", p_new.rate, p_new.per, p_new.concurrency, p_new.in_order, p_new.declared,
          p_new.app, p_new.code, case when same then before.counted else p_new.concurrency is null end, {schema}.now(), p_actor_id)
  on conflict (org_id, name) do update
  set queue = excluded.queue, task = excluded.task, by = excluded.by, rate = excluded.rate, per = excluded.per,
      concurrency = excluded.concurrency, in_order = excluded.in_order, declared = excluded.declared, app = excluded.app,
      code = excluded.code, counted = excluded.counted, set_at = excluded.set_at, set_by = excluded.set_by;
  perform {schema}.record_limit('limit.set', p_actor_type, p_actor_id, p_reason, jsonb_build_object('limit', p_new.name),
                                {schema}.rule_of(before), {schema}.rule_of(p_new));
  perform {schema}.reconsider(p_new.name, false);
end $$;

-- Set a limit at run time; it wins over what the code declares, until it is reset or dropped.
create function {schema}.set_limit(
  p_name text, p_queue text, p_task text, p_by text, p_rate integer, p_per interval, p_concurrency integer,
  p_in_order boolean, p_actor_type text, p_actor_id text, p_reason text default null) returns void
language plpgsql as $$
declare
  l {schema}.limit;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('{schema} limits', 0));
  select * into l from {schema}.limit x where x.org_id = 'SYSTEM' and x.name = p_name;
  l.code := case when l.declared then {schema}.rule_of(l) else l.code end;
  l.name := p_name;
  l.queue := p_queue;
  l.task := p_task;
  l."by" := coalesce(p_by, 'all');
  l.rate := p_rate;
  l.per := p_per;
  l.concurrency := p_concurrency;
  l.in_order := coalesce(p_in_order, false);
  l.declared := false;
  perform {schema}.put_limit(l, p_actor_type, p_actor_id, p_reason);
end $$;

-- A limit as the code declares it.
create function {schema}.declared_limit(p_name text, p_app text, p_code jsonb) returns {schema}.limit language sql stable as $$
  select (jsonb_populate_record(null::{schema}.limit, jsonb_build_object('by', 'all', 'in_order', false) || jsonb_strip_nulls(p_code)
            || jsonb_build_object('name', p_name, 'app', p_app, 'declared', true))).*
$$;

-- Let the code's word hold again; false when nobody had said otherwise.
create function {schema}.reset_limit(p_name text, p_actor_type text, p_actor_id text, p_reason text default null)
returns boolean language plpgsql as $$
declare
  l {schema}.limit;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('{schema} limits', 0));
  select * into l from {schema}.limit x where x.org_id = 'SYSTEM' and x.name = p_name and x.code is not null;
  if not found then
    return false;
  end if;
  perform {schema}.put_limit({schema}.declared_limit(l.name, l.app, l.code), p_actor_type, p_actor_id, p_reason);
  return true;
end $$;

-- Take a limit away; false when there is none. What it held starts as others do. Its slots go as their jobs end.
create function {schema}.drop_limit(p_name text, p_actor_type text, p_actor_id text, p_reason text default null)
returns boolean language plpgsql as $$
declare
  before {schema}.limit;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('{schema} limits', 0));
  delete from {schema}.limit x where x.org_id = 'SYSTEM' and x.name = p_name returning * into before;
  if not found then
    return false;
  end if;
  perform {schema}.record_limit('limit.dropped', p_actor_type, p_actor_id, p_reason, jsonb_build_object('limit', p_name),
                                {schema}.rule_of(before), null);
  perform {schema}.reconsider(p_name, true);
  delete from {schema}.bucket b where b.org_id = 'SYSTEM' and b.gate = any({schema}.free_buckets(p_name));
  delete from {schema}.unused u where u.org_id = 'SYSTEM' and u.name = p_name;
  return true;
end $$;

-- The index that fair queues need is there while there is one: it costs each job 1.6 µs. Gives up rather than let everybody
-- wait behind it for somebody who holds the table.
create function {schema}.index_fair() returns void language plpgsql set lock_timeout = '2s' as $$
declare
  wanted constant boolean := exists (select from {schema}.fair f);
begin
  if wanted = (to_regclass('{schema}.waiting_fair') is not null) then
    return;
  elsif wanted then
    execute 'create index waiting_fair on {schema}.waiting (queue, priority, org_id, due_at, id)';
  else
    execute 'drop index {schema}.waiting_fair';
  end if;
exception when lock_not_available then
  raise exception 'fair: the index of fair queues could not be changed within 2 s, because an open transaction holds the table of '
    'jobs that wait; nothing was changed, try again' using errcode = 'lock_not_available';
end $$;

-- Let the organisations of a queue take turns, by weights {org: weight}; those not named have 1.
create function {schema}.put_fair(p_queue text, p_weights jsonb, p_app text, p_actor_type text, p_actor_id text, p_reason text)
returns void language plpgsql as $$
declare
  before jsonb;
  org text;
  weight jsonb;
begin
  perform {schema}.check_text('queue', p_queue, 63);
  if p_queue = 'q:deadletter' then
    perform {schema}.refuse('queue', 'q:deadletter holds dead jobs; nothing runs there');
  elsif p_weights is null or jsonb_typeof(p_weights) <> 'object' then
    perform {schema}.refuse('weights', 'is not an object of organisations and whole numbers');
  end if;
  for org, weight in select * from jsonb_each(p_weights) loop
    perform {schema}.check_text('weights', org, 200);
    if weight::text !~ '^([1-9]\d{0,2}|1000)$' then
      perform {schema}.refuse('weights', 'is not a whole number from 1 to 1000');
    end if;
  end loop;
  select f.weights into before from {schema}.fair f where f.org_id = 'SYSTEM' and f.queue = p_queue;
  insert into {schema}.fair (queue, weights, declared, app, set_at, set_by)
  values (p_queue, p_weights, p_app is not null, p_app, {schema}.now(), p_actor_id)
  on conflict (org_id, queue) do update
  set weights = excluded.weights, declared = excluded.declared, app = excluded.app, set_at = excluded.set_at,
      set_by = excluded.set_by;
  perform {schema}.index_fair();
  perform {schema}.record_limit('queue.fair', p_actor_type, p_actor_id, p_reason, jsonb_build_object('queue', p_queue),
                                jsonb_build_object('weights', before), jsonb_build_object('weights', p_weights));
end $$;

create function {schema}.set_fair(p_queue text, p_weights jsonb, p_actor_type text, p_actor_id text, p_reason text default null)
returns void language plpgsql as $$
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('{schema} limits', 0));
  perform {schema}.put_fair(p_queue, coalesce(p_weights, '{}'), null, p_actor_type, p_actor_id, p_reason);
end $$;

-- By due time again; false when the queue was not fair.
create function {schema}.unset_fair(p_queue text, p_actor_type text, p_actor_id text, p_reason text default null)
returns boolean language plpgsql as $$
declare
  before jsonb;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('{schema} limits', 0));
  delete from {schema}.fair f where f.org_id = 'SYSTEM' and f.queue = p_queue returning f.weights into before;
  if not found then
    return false;
  end if;
  perform {schema}.index_fair();
  perform {schema}.record_limit('queue.unfair', p_actor_type, p_actor_id, p_reason, jsonb_build_object('queue', p_queue),
                                jsonb_build_object('weights', before), null);
  return true;
end $$;

-- Who: a worker when it starts, and the testing kit. What an application's code declares is written down: p_limits
-- [{name, queue, task, by, rate, per, concurrency, in_order}], p_fair [{queue, weights}]. Somebody's word at run time stays;
-- what this application declares no longer goes.
create function {schema}.declare_limits(p_app text, p_limits jsonb, p_fair jsonb) returns void language plpgsql as $$
declare
  item jsonb;
  was {schema}.limit;
  new {schema}.limit;
  turn {schema}.fair;
begin
  perform {schema}.check_text('app', p_app, 1000);
  perform pg_advisory_xact_lock(hashtextextended('{schema} limits', 0));
  for item in select * from jsonb_array_elements(p_limits) loop
    new := {schema}.declared_limit(item ->> 'name', p_app, item - 'name');
    select * into was from {schema}.limit x where x.org_id = 'SYSTEM' and x.name = new.name;
    if was.name is null or (was.declared and {schema}.rule_of(was) <> {schema}.rule_of(new)) then
      perform {schema}.put_limit(new, 'system', 'SYSTEM', 'declared by ' || p_app);
    else
      update {schema}.limit x
      set app = p_app, code = case when not was.declared then {schema}.rule_of(new) end
      where x.org_id = 'SYSTEM' and x.name = new.name
        and (x.app, x.code) is distinct from (p_app, case when not was.declared then {schema}.rule_of(new) end);
    end if;
  end loop;
  for was in
    select * from {schema}.limit x
    where x.app = p_app and x.name not in (select e ->> 'name' from jsonb_array_elements(p_limits) e)
  loop
    if was.declared then
      perform {schema}.drop_limit(was.name, 'system', 'SYSTEM', 'no longer declared by ' || p_app);
    else
      update {schema}.limit x set app = null, code = null where x.org_id = 'SYSTEM' and x.name = was.name;
    end if;
  end loop;
  for item in select * from jsonb_array_elements(p_fair) loop
    select * into turn from {schema}.fair f where f.org_id = 'SYSTEM' and f.queue = item ->> 'queue';
    if turn.queue is null or (turn.declared and (turn.weights, turn.app) is distinct from (item -> 'weights', p_app)) then
      perform {schema}.put_fair(item ->> 'queue', item -> 'weights', p_app, 'system', 'SYSTEM', 'declared by ' || p_app);
    end if;
  end loop;
  for turn in
    select * from {schema}.fair f
    where f.app = p_app and f.queue not in (select e ->> 'queue' from jsonb_array_elements(p_fair) e)
  loop
    perform {schema}.unset_fair(turn.queue, 'system', 'SYSTEM', 'no longer declared by ' || p_app);
  end loop;
end $$;

-- Refuse best-effort jobs of a queue while so many are ready in it; null: take them all. Others are never refused.
create function {schema}.set_depth(p_queue text, p_most integer, p_actor_type text, p_actor_id text, p_reason text default null)
returns void language plpgsql as $$
declare
  before integer;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform {schema}.check_text('queue', p_queue, 63);
  if p_most not between 1 and 1000000 then
    perform {schema}.refuse('most', 'is not a whole number from 1 to 1000000');
  end if;
  select q.max_depth into before from {schema}.queue q where q.org_id = 'SYSTEM' and q.name = p_queue for update;
  insert into {schema}.queue (name, max_depth) values (p_queue, p_most)
  on conflict (org_id, name) do update set max_depth = excluded.max_depth;
  perform {schema}.record_limit('queue.depth', p_actor_type, p_actor_id, p_reason, jsonb_build_object('queue', p_queue),
                                jsonb_build_object('max_depth', before), jsonb_build_object('max_depth', p_most));
end $$;
