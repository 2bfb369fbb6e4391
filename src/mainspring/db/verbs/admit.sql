-- Which of the jobs that were found a limit lets in, and the claim where there are limits.

-- What limits make of jobs that were found: the ids that they let in, in turn, each through all its gates or none. The
-- others are moved away from the head of the queue, but for those that only a limit of the whole queue stops: they stay in
-- their order. Nothing is held for ever: what waits for a slot comes back to ask, later and later, in case nobody told it;
-- `leave` tells it at once.
-- Without p_told no share is kept: what a rate lets in counts as entered now.
create or replace function {schema}.admit(
  p_found {schema}.waiting[], p_worker text, p_told {schema}.share[], p_wanted text[], out let_in uuid[]
) language plpgsql set enable_seqscan = off set enable_hashjoin = on set jit = off as $$
declare
  gates text[];    -- at which they ask: slots before rates, because who knows when one is free, and whole queues last
  names text[];
  counts integer[];  -- how many each lets in
  rooms integer[];   -- how many more it would
  placed text[];     -- gates of rates whose jobs take a place as well
  asked integer[];   -- how many wanted to pass, and how many it would have let in
  first integer[];
  refused uuid[] := '{}';
  closed integer[] := '{}';  -- the gate that refused them
  ordered boolean;
  capped boolean;
  t timestamptz;
  j record;
  l {schema}.limit;
  shut integer;
begin
  select array_agg(y.gate order by y.whole, y.rated, y.gate), array_agg(y.name order by y.whole, y.rated, y.gate),
         array_agg(y.n order by y.whole, y.rated, y.gate), bool_or(y.in_order), bool_or(not y.rated)
  into gates, names, counts, ordered, capped
  from (
    select {schema}.gate_of(x, f.org_id, f.strand) as gate, x.name, x.in_order, x.rate is not null as rated,
           x.queue is not null and x.by = 'all' as whole, sum(f.n)::integer as n
    from {schema}.limit x
    join (select w.task, w.queue, w.org_id, w.strand, count(*) as n from unnest(p_found) w group by 1, 2, 3, 4) f
      on f.task = x.task or f.queue = x.queue
    where {schema}.gate_of(x, f.org_id, f.strand) is not null
    group by 1, 2, 3, 4, 5) y;
  let_in := array(select f.id from unnest(p_found) f);
  if gates is null and coalesce(cardinality(p_told), 0) + cardinality(p_wanted) = 0 then
    return;
  end if;
  if not {schema}.lock_gates(gates || array(select m.gate from unnest(p_told) m) || p_wanted) then
    let_in := '{}';
    return;
  end if;
  t := {schema}.instant();
  perform {schema}.hear(p_worker, p_told, t);
  perform {schema}.grant_share(x, z.gate, p_worker, t, 0, true)
  from unnest(p_wanted) z(gate) join {schema}.limit x on x.org_id = 'SYSTEM' and x.name || '/' = z.gate;
  if gates is null then
    return;
  end if;
  -- What holds a place is not fetched ahead: others wait for it.
  placed := case when capped then array(
    select {schema}.gate_of(x, f.org_id, f.strand)
    from {schema}.limit c join unnest(p_found) f on f.task = c.task or f.queue = c.queue
    join {schema}.limit x on f.task = x.task or f.queue = x.queue
    where c.concurrency is not null and x.rate is not null and {schema}.gate_of(c, f.org_id, f.strand) is not null)
    else '{}' end;
  rooms := array(
    select coalesce({schema}.room(x, z.gate, t, case when p_told is not null then p_worker end, null, z.gate = any(placed)),
                    1000000)  -- null: it was dropped meanwhile
    from unnest(gates, names) with ordinality z(gate, name, ord)
    left join {schema}.limit x on x.org_id = 'SYSTEM' and x.name = z.name order by z.ord);
  first := rooms;
  asked := counts;
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
  if capped then
    insert into {schema}.slot (gate, job_id, in_order)
    select {schema}.gate_of(x, f.org_id, f.strand), f.id, x.in_order
    from {schema}.limit x join unnest(p_found) f on f.task = x.task or f.queue = x.queue
    where x.concurrency is not null and {schema}.gate_of(x, f.org_id, f.strand) is not null and f.id = any(let_in)
    on conflict do nothing;
  end if;
  for i in 1 .. cardinality(gates) loop
    select * into l from {schema}.limit x where x.org_id = 'SYSTEM' and x.name = names[i];
    continue when l.rate is null;
    if p_told is not null and (counts[i] > 0 or asked[i] >= first[i]) then
      perform {schema}.grant_share(l, gates[i], p_worker, t, counts[i], asked[i] >= first[i]);
    elsif p_told is null and counts[i] > 0 then
      perform {schema}.enter(l, gates[i], t, counts[i]);
    end if;
  end loop;
  if refused = '{}' then
    return;
  end if;
  insert into {schema}.bucket (gate, name, used_at)
  select distinct gates[c.n], names[c.n], t from unnest(closed) c(n) on conflict do nothing;
  with opening as materialized (
    select c.nth, gates[c.nth] as gate, x.rate, x.per / x.rate as step, b.next_at,
           case when x.rate is not null then {schema}.opens_at(x, gates[c.nth], t) end as opens_at,
           x.rate is null and {schema}.is_leaving(gates[c.nth]) as leaving
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
           -- Who leaves calls the next: they come back in case nobody did, the first of them soon.
           case when a.leaving then t + interval '10 ms'
             when a.rate is null and row_number() over (partition by a.gate order by a.ord) > 1 then t + interval '1 min'
             when a.rate is null then t + least(greatest((t - a.due_then) / 2, interval '1 s'), interval '1 min')
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

-- Who: `claim`, where a limit or a fair queue concerns it. Takes what the limits let in. The bounds from below are not
-- used: what a limit of the whole queue leaves stays at its head.
create or replace function {schema}.claim_limited(
  p_worker text, p_lease interval, p_total integer, p_queues text[], p_limits integer[], p_tasks text[], p_oldest boolean,
  p_rescued integer, p_alone boolean, p_told json
) returns table (
  id uuid, task text, payload text, org_id text, project_id uuid, actor_type text, actor_id text, request_id text,
  correlation_id text, traceparent text, key text, created_at timestamptz, scheduled_for timestamptz,
  max_attempts smallint, epoch bigint, attempt smallint, crashes smallint, snoozes smallint, suspect boolean,
  queue text, priority smallint, due_at timestamptz, claimed_at timestamptz, strand text, gates text
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
  told {schema}.share[];  -- null: no share is kept, the log decides
  wanted text[] := '{}';  -- gates of whole queues at which this worker could use a share, and has none
  first text[] := '{}';   -- queues whose rate is all used: what may start of them goes before the others
  said text[];            -- the gates of each job of a queue, where they are the same for all of them
  room integer;
  i integer;
  moved integer := 0;
  capped boolean := exists (
    select from {schema}.limit x where x.concurrency is not null and (x.queue = any(p_queues) or x.task = any(p_tasks)));
begin
  if exists (select from {schema}.limit x where not x.counted) and not {schema}.count_in() then
    return;
  end if;
  if p_told is not null and not {schema}.is_virtual() then
    told := array(
      select (null, m.gate, p_worker, null, m.n, m.version, null, m.hold, m.let_in, m.entered, m.returned,
              array(select {schema}.instant() - make_interval(secs => a) from unnest(m.ages) a), m.counts, null,
              {schema}.instant() - make_interval(secs => m.late))::{schema}.share
      from json_to_recordset(p_told) as m(gate text, n integer, version bigint, hold integer, let_in bigint, entered bigint,
                                          returned bigint, ages float8[], counts integer[], late float8));
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
    room := {schema}.room(l, l.name || '/', {schema}.instant(), case when told is not null then p_worker end, told);
    if told is not null and l.rate is not null then
      if not exists (select from {schema}.share s where s.org_id = 'SYSTEM' and s.gate = l.name || '/' and s.worker = p_worker
                       and s.n > 0 and s.until > {schema}.instant()) then
        wanted := case when room <= 0 then wanted || (l.name || '/') else wanted end;
      elsif exists (select from {schema}.share s where s.org_id = 'SYSTEM' and s.gate = l.name || '/' and s.worker = p_worker
                      and s.short_at > {schema}.now() - greatest(l.per * 2, {schema}.share_for())) then
        first := first || l.queue;
        rooms[i] := greatest(rooms[i], room);
      end if;
    end if;
    rooms[i] := least(rooms[i], room);
  end loop;
  select array_agg(f.queue) into fair from {schema}.fair f where f.queue = any(p_queues);

  -- What is found is gathered as whole rows of their table: rows without a name would be made into text and read again.
  loop
    jobs := null;
    free := rooms;
    -- What waits at a gate of which this worker keeps a share, and may start soon.
    if told is not null and not p_alone then
      select array_agg(y.job) into jobs from (
        select w.job
        from unnest(told) m join {schema}.limit x on x.org_id = 'SYSTEM' and x.name = split_part(m.gate, '/', 1)
        cross join lateral (select {schema}.room(x, m.gate, {schema}.instant(), p_worker, told) as n) r
        cross join lateral (
          select w as job from {schema}.waiting w
          where w.gate = m.gate and w.task = any(p_tasks) and w.queue = any(p_queues) and w.crashes = 0 and w.after is null
            and w.due_then <= {schema}.now() and not exists (
              select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = w.queue and mq.paused_at is not null)
          order by w.priority, w.due_then, w.id limit greatest(r.n, 0) for update of w skip locked) w
        where (x.task is not null or x.by <> 'all') and moved = 0
        limit p_total) y;
    end if;
    if p_alone then
      select array_agg(w) into jobs
      from {schema}.waiting w where w.id = (select {schema}.next_alone(p_queues, free, p_tasks));
      free := array_fill(0, array[cardinality(free)]);
    elsif p_rescued > 0 then
      select array_agg(y.job) into more from (
        select x.job
        from unnest(p_queues, free) q(name, n)
        cross join lateral (
          select w as job from {schema}.waiting w
          where w.crashes = 1 and w.due_at <= {schema}.now() and w.queue || '' = q.name and w.task = any(p_tasks)
          order by w.due_at, w.id limit least(q.n, p_rescued) for update of w skip locked) x
        where q.n > 0 and not exists (
          select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = q.name and mq.paused_at is not null)
        limit least(p_total, p_rescued)) y;
      free := array(
        select q.n - (select count(*) from unnest(more) j where j.queue = q.name)::integer
        from unnest(p_queues, free) with ordinality q(name, n, nth) order by q.nth);
      jobs := jobs || more;
    end if;
    ids := array(select j.id from unnest(jobs) j);
    select array_agg(y.job) into more from (
      select x.job
      from (select u.name, u.n from unnest(p_queues, free) with ordinality u(name, n, nth)
            order by u.name = any(first) desc, u.nth) q
      cross join lateral (
        select y.job
        from (
          select p.priority
          from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
          order by case when p_oldest then (
            select w.due_at from {schema}.waiting w
            where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now()
            order by w.due_at limit 1) end, p.priority
        ) p
        cross join lateral (
          select w as job from {schema}.waiting w
          where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now() and w.task = any(p_tasks)
            and w.crashes = 0 and w.id <> all(ids)
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
        from {schema}.find_fair(p_queues[i], least(free[i], p_total - coalesce(cardinality(jobs), 0)), p_tasks, p_oldest) w
        where w.id <> all(ids);
        jobs := jobs || more;
      end loop;
    end if;
    ids := {schema}.admit(coalesce(jobs, '{}'), p_worker, case when moved = 0 then told when told is not null then '{}' end, wanted);
    if jobs is null then
      return;
    end if;
    wanted := '{}';
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
  if p_alone then
    perform {schema}.note_probe(array(select j.task from unnest(jobs) j));
  end if;

  if not exists (select from {schema}.limit x where x.task = any(p_tasks)) then
    said := array(
      select case when bool_and(x.by = 'all') is not false then
               coalesce((json_agg(x.name || '/') filter (where x.rate is not null and told is not null))::text,
                        case when count(x.name) > 0 then '[]' end) end
      from unnest(p_queues) with ordinality q(name, nth) left join {schema}.limit x on x.queue = q.name
      group by q.nth order by q.nth);
  end if;

  return query
  with d as (
    delete from {schema}.waiting w where w.id = any(ids)
    returning w.id, w.org_id, w.task, w.queue, w.priority, w.due_at, (w.attempt + 1)::smallint as attempt, w.crashes,
              w.snoozes, w.suspect, w.strand,
              w.linked or (capped and exists (select from {schema}.slot s where s.job_id = w.id)) as linked,
              nextval('{schema}.epoch') as epoch
  ), r as (
    insert into {schema}.running (id, epoch, worker, org_id, task, queue, priority, due_at, attempt, crashes, snoozes,
                                  suspect, strand, linked, started_at, lease_expires_at)
    select d.id, d.epoch, p_worker, d.org_id, d.task, d.queue, d.priority, d.due_at, d.attempt, d.crashes, d.snoozes,
           d.suspect, d.strand, d.linked, {schema}.now(), {schema}.now() + p_lease
    from d
  )
  select d.id, d.task, j.payload::text, d.org_id, j.project_id, j.actor_type, j.actor_id, j.request_id, j.correlation_id,
         j.traceparent, j.key, j.created_at, j.scheduled_for, j.max_attempts, d.epoch, d.attempt, d.crashes, d.snoozes,
         d.suspect, d.queue, d.priority, d.due_at, {schema}.now(), d.strand,
         -- Null: no limit concerns it; empty: it holds a slot, and may start when it likes.
         coalesce(said[array_position(p_queues, d.queue)], (
           select case when count(*) > 0 then
                    coalesce(json_agg(g.gate) filter (where x.rate is not null and told is not null and g.gate is not null), '[]')::text
                  end
           from {schema}.limit x cross join lateral (select {schema}.gate_of(x, d.org_id, d.strand) as gate) g
           where x.queue = d.queue or x.task = d.task))
  from d cross join lateral (select * from {schema}.job j where j.id = d.id limit 1) j
  order by d.priority, d.due_at, d.id;
end $$;
