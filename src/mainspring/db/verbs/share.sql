-- The shares of a rate that workers hold, so that they need not ask for each job.

-- How long a share is good for, unless its worker asks again: so long those that follow a worker that died wait for it.
create or replace function {schema}.share_for() returns interval language sql immutable
  return interval '3 s' * {schema}.speed();

-- Of the jobs that a share was let have, those that its worker has neither entered nor given back, as far as it said.
create or replace function {schema}.pending(s {schema}.share) returns integer language sql immutable
  return greatest(s.let_in - s.entered - s.returned, 0)::integer;

-- What a worker has entered within the last window, as far as it said.
create or replace function {schema}.used(s {schema}.share, p_per interval, p_at timestamptz) returns integer language sql immutable
  return coalesce((select sum(e.n) from unnest(s.at, s.count) e(at, n)
                   where e.at > p_at - {schema}.lookback(p_per) and e.at <= p_at + p_per), 0)::integer;

-- What a share takes away from its rate: n while it may be used; after that what was entered within the window, where what
-- nobody spoke of counts as entered at the last moment.
create or replace function {schema}.holds(s {schema}.share, p_per interval, p_at timestamptz) returns integer language sql immutable
  return case when s.until > p_at then greatest(s.n, {schema}.used(s, p_per, p_at))
              when s.until > p_at - {schema}.lookback(p_per)
                then least({schema}.used(s, p_per, p_at) + {schema}.pending(s), greatest(s.n, {schema}.used(s, p_per, p_at)))
              else {schema}.used(s, p_per, p_at) end;

-- How much of a rate is free, but for the share of this worker.
create or replace function {schema}.left_of(l {schema}.limit, p_gate text, p_worker text, p_at timestamptz) returns integer
language sql volatile set enable_seqscan = off
as $$
  select l.rate - coalesce((
      select sum(e.n) from {schema}.bucket b, unnest(b.at, b.count) e(at, n)
      where b.org_id = 'SYSTEM' and b.gate = p_gate and e.at > p_at - {schema}.lookback(l.per)
        and e.at <= p_at + l.per), 0)::integer - coalesce((
      select sum({schema}.holds(s, l.per, p_at)) from {schema}.share s
      where s.org_id = 'SYSTEM' and s.gate = p_gate and s.worker is distinct from p_worker), 0)::integer
$$;

-- What a worker should have of a rate where others want some, too: those that need little get it, the others share the rest
-- alike, and what cannot be shared goes round.
create or replace function {schema}.part_of(l {schema}.limit, p_gate text, p_worker text, p_at timestamptz, p_short boolean) returns integer
language plpgsql set enable_seqscan = off as $$
declare
  o record;
  rest integer := l.rate;
  many integer := (
    select count(*) from {schema}.share x
    where x.org_id = 'SYSTEM' and x.gate = p_gate and (x.until > p_at or x.worker = p_worker));
  part integer;
begin
  for o in
    select x.worker, case when x.short_at > p_at - greatest(l.per * 2, {schema}.share_for()) or (x.worker = p_worker and p_short)
                          then l.rate else {schema}.used(x, l.per, p_at) + {schema}.pending(x) end as need
    from {schema}.share x
    where x.org_id = 'SYSTEM' and x.gate = p_gate and (x.until > p_at or x.worker = p_worker)
    order by 2, hashtext(x.worker || floor(extract(epoch from p_at) / greatest(extract(epoch from l.per) * 40, 10))::text)
  loop
    part := least(o.need, rest / many);
    if o.worker = p_worker then
      return part;
    end if;
    rest := rest - part;
    many := many - 1;
  end loop;
  return 0;
end $$;

-- Let a worker that holds its gate have so many jobs, under a share of the rate: what others leave, if it could use more
-- than it has; the half of that at first, because others will come, unless it needs more.
create or replace function {schema}.grant_share(
  l {schema}.limit, p_gate text, p_worker text, p_at timestamptz, p_count integer, p_short boolean
) returns void language plpgsql set enable_seqscan = off as $$
declare
  s {schema}.share;
  free integer;
  busy integer;
begin
  select * into s from {schema}.share x where x.org_id = 'SYSTEM' and x.gate = p_gate and x.worker = p_worker;
  if s.gate is null then
    insert into {schema}.share (gate, worker, name, until) values (p_gate, p_worker, l.name, p_at) returning * into s;
  end if;
  if p_short or s.n = 0 or s.until <= p_at then
    free := {schema}.left_of(l, p_gate, p_worker, p_at);
    if {schema}.is_short(p_gate, p_worker, l.per, p_at) then
      -- What it fetches ahead belongs to the next window: it says nothing about how many it enters in one.
      free := least(free, greatest({schema}.part_of(l, p_gate, p_worker, p_at, p_short),
                                   case when s.n = 0 or s.until <= p_at
                                        then {schema}.used(s, l.per, p_at) + {schema}.pending(s) + p_count end));
    end if;
  end if;
  if s.n = 0 or s.until <= p_at then
    busy := {schema}.used(s, l.per, p_at) + {schema}.pending(s);
    s.n := greatest(0, least(free, busy + greatest(p_count, (free - busy + 1) / 2)));
    s.hold := s.n;
    s.version := nextval('{schema}.epoch');
  elsif free > s.n then
    s.n := free;
    s.version := nextval('{schema}.epoch');
  end if;
  update {schema}.share x
  set n = s.n, version = s.version, hold = s.hold, until = p_at + {schema}.share_for(), let_in = x.let_in + p_count,
      short_at = case when p_short then p_at else x.short_at end
  where x.org_id = 'SYSTEM' and x.gate = p_gate and x.worker = p_worker;
end $$;

-- Take in what a worker says about its shares; it holds their gates. Its word counts where it is the latest.
create or replace function {schema}.hear(p_worker text, p_told {schema}.share[], p_at timestamptz) returns void
language plpgsql set enable_seqscan = off as $$
declare
  m {schema}.share;
  s {schema}.share;
  l {schema}.limit;
  lower boolean;
begin
  foreach m in array coalesce(p_told, '{}') loop
    select * into s from {schema}.share x where x.org_id = 'SYSTEM' and x.gate = m.gate and x.worker = p_worker;
    continue when not found;
    select * into l from {schema}.limit x where x.org_id = 'SYSTEM' and x.name = s.name;
    if s.until <= p_at and s.n > 0 then  -- it is no longer its own: it asks anew
      s.n := 0;
      s.version := nextval('{schema}.epoch');
    end if;
    lower := m.version = s.version and m.n < s.n;
    if lower then
      s.n := m.n;
      s.version := nextval('{schema}.epoch');
    end if;
    if m.entered >= s.entered then
      s.entered := m.entered;
      s.at := m.at;
      s.count := m.count;
    end if;
    s.returned := greatest(s.returned, m.returned);
    if m.let_in is not null then  -- no other claim of this worker is under way: what it does not know of it never got
      s.let_in := m.let_in;
    end if;
    if s.n = 0 and {schema}.pending(s) = 0 and {schema}.used(s, l.per, p_at) = 0 and m.n = 0 then
      delete from {schema}.share x where x.org_id = 'SYSTEM' and x.gate = m.gate and x.worker = p_worker;
    else
      update {schema}.share x
      set n = s.n, version = s.version, hold = m.hold, let_in = s.let_in, entered = s.entered, returned = s.returned, at = s.at,
          count = s.count, until = case when s.n > 0 then p_at + {schema}.share_for() else s.until end,
          short_at = case when m.n = 0 then '-infinity' else s.short_at end, late_at = m.late_at
      where x.org_id = 'SYSTEM' and x.gate = m.gate and x.worker = p_worker;
    end if;
    if lower and {schema}.is_short(m.gate, p_worker, l.per, p_at) then
      perform {schema}.wake();
    end if;
  end loop;
end $$;

-- Whether some other worker could use more of a rate than it has.
create or replace function {schema}.is_short(p_gate text, p_worker text, p_per interval, p_at timestamptz) returns boolean
language sql stable set enable_seqscan = off as $$
  select exists (
    select from {schema}.share s
    where s.org_id = 'SYSTEM' and s.gate = p_gate and s.worker <> p_worker and s.until > p_at
      and s.short_at > p_at - greatest(p_per * 2, {schema}.share_for()))
$$;

-- Who: the exchange, after a claim: what the worker may enter of each rate in any window, and for how many seconds. `aim` is
-- less than n where others need it more.
create or replace function {schema}.shares(p_worker text) returns table (
  gate text, n integer, version bigint, aim integer, per float8, lasts float8, entered bigint, returned bigint
) language plpgsql set enable_seqscan = off set jit = off
as $$
#variable_conflict use_column
declare
  t constant timestamptz := {schema}.instant();
  s {schema}.share;
  l {schema}.limit;
begin
  for s in select * from {schema}.share x where x.worker = p_worker loop
    select * into l from {schema}.limit x where x.org_id = 'SYSTEM' and x.name = s.name and x.rate is not null;
    continue when not found;
    aim := least(s.n, l.rate);
    if s.n > {schema}.left_of(l, s.gate, p_worker, t) or {schema}.is_short(s.gate, p_worker, l.per, t) then
      aim := least(aim, {schema}.part_of(l, s.gate, p_worker, t, false));
    end if;
    gate := s.gate;
    n := s.n;
    version := s.version;
    per := extract(epoch from {schema}.lookback(l.per));
    lasts := case when s.n > 0 then extract(epoch from s.until - t) else 0 end;
    entered := s.entered;
    returned := s.returned;
    return next;
  end loop;
end $$;
