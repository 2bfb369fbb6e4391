-- Limits: how many jobs may start in any window, how many may run at once, in which order those of one strand go, and
-- which organisation is next.
--
-- A claim asks once whether any limit concerns it; without one it pays nothing else. A limit of a whole queue bounds how
-- many are taken from it, so that its jobs stay in their order. A limit of a task, or by organisation or strand, is asked
-- after the jobs are found; what it does not let in is moved away from the head of the queue: to the instant at which a
-- rate will let it in, or behind a gate that opens when a slot is free.

-- Which gate of a limit a job passes; null where the limit does not concern it. No two organisations share one by a slash,
-- and policies read from it whose it is.
create or replace function {schema}.gate_of(l {schema}.limit, p_org text, p_strand text) returns text language sql immutable
  return l.name || '/' || case l.by when 'all' then '' else replace(replace(p_org, '%', '%25'), '/', '%2F') end
         || case l.by when 'strand' then '/' || p_strand else '' end;

-- How far back a limiter looks from now, at the latest entries it let in: in any window, however it lies, there are then no
-- more entries than it may hold. A little more, for the way from the worker's look at its clock to the handler's first line.
-- A day has 24 hours here, whatever the session's time zone makes of it.
create or replace function {schema}.lookback(p_per interval) returns interval language sql immutable
  return make_interval(secs => extract(epoch from p_per)::float8) + least(p_per * 0.005, interval '5 ms');

-- Let one claim at a time ask at a gate. Never waits long: whoever holds it is at its commit, and in the transaction that
-- asks are outcomes. In one order, so that claims do not wait in a circle.
-- False: it takes too long. What a clock that was set back left in the future counts as now.
create or replace function {schema}.lock_gates(p_gates text[]) returns boolean language plpgsql
  set lock_timeout = '250ms' set enable_seqscan = off
as $$
declare
  t timestamptz;
begin
  perform pg_advisory_xact_lock(hashtext('{schema} gates'), g.n)
  from (select distinct hashtext(x) & 63 as n from unnest(p_gates) x order by 1) g;
  t := {schema}.instant();
  update {schema}.bucket b set at = array(select least(a, t) from unnest(b.at) a)
  where b.org_id = 'SYSTEM' and b.gate = any(p_gates) and b.at[cardinality(b.at)] > t;
  update {schema}.share s
  set until = least(s.until, t + {schema}.share_for()), at = array(select least(a, t) from unnest(s.at) a)
  where s.org_id = 'SYSTEM' and s.gate = any(p_gates)
    and (s.until > t + {schema}.share_for() or s.at[cardinality(s.at)] > t);
  -- Of workers that are gone, once nothing that they entered counts: every claim adds up what is here.
  delete from {schema}.share s using {schema}.limit l
  where s.org_id = 'SYSTEM' and s.gate = any(p_gates) and l.org_id = 'SYSTEM' and l.name = s.name
    and s.until < t - {schema}.lookback(l.per)
    and coalesce(s.at[cardinality(s.at)], '-infinity') < t - {schema}.lookback(l.per);
  return true;
exception when lock_not_available then
  return false;
end $$;

-- How many more a gate lets in now. A worker that keeps a share counts its entries itself: it is let have what it can enter
-- soon (`told` is what it says in this claim), or, with p_now, at once.
create or replace function {schema}.room(
  l {schema}.limit, p_gate text, p_at timestamptz, p_worker text default null, p_told {schema}.share[] default null,
  p_now boolean default false
) returns integer language plpgsql volatile set enable_seqscan = off
as $$
declare
  s {schema}.share;
  m {schema}.share;
begin
  if l.rate is null then
    return l.concurrency - (select count(*) from {schema}.slot x where x.org_id = 'SYSTEM' and x.gate = p_gate);
  elsif p_worker is not null then
    select * into s from {schema}.share x where x.org_id = 'SYSTEM' and x.gate = p_gate and x.worker = p_worker;
    if s.gate is not null then
      select * into m from unnest(p_told) x where x.gate = p_gate;
      s.hold := coalesce(m.hold, s.hold);
      s.entered := greatest(s.entered, m.entered);
      s.returned := greatest(s.returned, m.returned);
      if s.n > 0 and s.until > p_at then
        return least(s.hold, case when p_now then s.n - {schema}.used(s, l.per, p_at) end) - {schema}.pending(s);
      end if;
      return {schema}.left_of(l, p_gate, p_worker, p_at) - {schema}.used(s, l.per, p_at) - {schema}.pending(s);
    end if;
  end if;
  return {schema}.left_of(l, p_gate, p_worker, p_at);
end $$;

-- How many more could start now, for people: whoever keeps the shares.
create or replace function {schema}.spare(l {schema}.limit, p_gate text, p_at timestamptz) returns integer language sql volatile
  set enable_seqscan = off
as $$
  select case when l.rate is null then {schema}.room(l, p_gate, p_at)
    else {schema}.left_of(l, p_gate, null, p_at) + coalesce((
      select sum({schema}.holds(s, l.per, p_at) - {schema}.used(s, l.per, p_at) - {schema}.pending(s)) from {schema}.share s
      where s.org_id = 'SYSTEM' and s.gate = p_gate), 0)::integer end
$$;

-- When a rate that is full lets the next one in.
create or replace function {schema}.opens_at(l {schema}.limit, p_gate text, p_at timestamptz) returns timestamptz language sql volatile
  set enable_seqscan = off
as $$
  select coalesce(min(e.at), p_at) + {schema}.lookback(l.per)
  from (
    select unnest(b.at) as at from {schema}.bucket b where b.org_id = 'SYSTEM' and b.gate = p_gate
    union all
    select unnest(s.at) from {schema}.share s where s.org_id = 'SYSTEM' and s.gate = p_gate) e
  where e.at > p_at - {schema}.lookback(l.per)
$$;

-- Write down that so many are let in. Who asks holds the gate.
create or replace function {schema}.enter(l {schema}.limit, p_gate text, p_at timestamptz, p_count integer) returns void
language plpgsql set enable_seqscan = off as $$
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
      union all select p_at, p_count) e
    group by date_bin(l.per / 100, e.at, 'epoch')) x;
  insert into {schema}.bucket (gate, name, at, count, used_at) values (p_gate, l.name, ats, counts, p_at)
  on conflict (org_id, gate) do update set at = excluded.at, count = excluded.count, used_at = excluded.used_at;
end $$;

-- Whether somebody is about to give back a place at a gate and has not committed yet: it does not see who is refused now,
-- and calls nobody. From here on it would wait for us, and see it. A gate with many places hears of another one soon enough.
create or replace function {schema}.is_leaving(p_gate text) returns boolean language plpgsql set enable_seqscan = off as $$
declare
  present constant bigint := (
    select count(*) from (select from {schema}.slot s where s.org_id = 'SYSTEM' and s.gate = p_gate limit 16) x);
begin
  return present > (
    select count(*) from (
      select from {schema}.slot s where s.org_id = 'SYSTEM' and s.gate = p_gate limit 16 for share skip locked) x);
end $$;

-- Let so many of those that wait at a gate ask again, in their order: due when they were first, because their place depends
-- on it, and limited claims know no bound from below. p_patient waits for claims that are looking at them just now.
create or replace function {schema}.call_next(p_gate text, p_in_order boolean, p_n bigint, p_patient boolean) returns bigint
language plpgsql set enable_seqscan = off set lock_timeout = '250ms' as $$
declare
  ids uuid[];
  n bigint;
begin
  if p_in_order then  -- it is the next one's turn, whatever its priority
    ids := array(
      select x.id from generate_series(0, 3) p(lane) cross join lateral (
        select w.due_then, w.id from {schema}.waiting w where w.gate = p_gate and w.priority = p.lane
        order by w.due_then, w.id limit 1) x
      order by x.due_then, x.id limit 1);
    ids := case when p_patient then ids
                else array(select w.id from {schema}.waiting w where w.id = any(ids) for update skip locked) end;
  elsif p_patient then
    ids := array(select w.id from {schema}.waiting w where w.gate = p_gate order by w.priority, w.due_then, w.id limit p_n);
  else
    ids := array(select w.id from {schema}.waiting w where w.gate = p_gate order by w.priority, w.due_then, w.id limit p_n
                 for update skip locked);
  end if;
  update {schema}.waiting w set due_at = w.due_then, gate = null, due_then = null where w.id = any(ids) and w.gate = p_gate;
  get diagnostics n = row_count;
  return n;
exception when lock_not_available then
  return 0;  -- they come back by themselves
end $$;

-- Who: `release_links`. Gives back the slots of jobs that have left their worker, those in order only once they have finished, and
-- opens each gate for as many of those that wait at it. Index: slot_job, waiting_gate.
create or replace function {schema}.leave(p_ids uuid[]) returns void language plpgsql set enable_seqscan = off as $$
declare
  g record;
  n bigint;
begin
  for g in
    with gone as (
      delete from {schema}.slot s
      where s.job_id = any(p_ids) and (not s.in_order or exists (select from {schema}.finished f where f.id = s.job_id))
      returning s.gate, s.in_order)
    select gone.gate, gone.in_order, count(*) as n from gone group by 1, 2 order by 1
  loop
    continue when not exists (select from {schema}.waiting w where w.gate = g.gate);
    n := {schema}.call_next(g.gate, g.in_order, g.n, false);
    if n < g.n and exists (select from {schema}.waiting w where w.gate = g.gate) then
      perform {schema}.call_next(g.gate, g.in_order, g.n - n, true);
    end if;
    perform {schema}.wake();
  end loop;
end $$;

-- Who: clean-up. Buckets that nobody has asked at for a day count nothing any more.
create or replace function {schema}.forget_buckets(p_limit integer) returns integer language plpgsql as $$
declare
  n integer;
begin
  delete from {schema}.bucket b where b.ctid = any(array(
    select x.ctid from {schema}.bucket x where x.used_at < {schema}.now() - interval '25 hours'
    limit p_limit for update skip locked));
  get diagnostics n = row_count;
  delete from {schema}.share s where s.until < {schema}.now() - interval '25 hours';
  return n;
end $$;

-- Who: `next_due`. When a queue that a rate has closed, and in which jobs are due, opens again. Whoever keeps a share knows
-- better, and who has none is told when one is free: this is in case nobody did.
create or replace function {schema}.next_open(p_queues text[]) returns timestamptz language sql volatile set enable_seqscan = off as $$
  select min(greatest({schema}.opens_at(l, l.name || '/', {schema}.now()), (
    select {schema}.now() + interval '250 ms' * {schema}.speed() from {schema}.share s
    where s.org_id = 'SYSTEM' and s.gate = l.name || '/' and s.until > {schema}.now() limit 1)))
  from {schema}.limit l
  where l.queue = any(p_queues) and l.by = 'all' and l.rate is not null
    and {schema}.room(l, l.name || '/', {schema}.now()) <= 0
    and exists (select from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority),
                lateral (select from {schema}.waiting w where w.queue = l.queue and w.priority = p.priority
                           and w.due_at <= {schema}.now() limit 1) x)
$$;

-- Who: whatever ends or gives back an attempt of a job that is linked: its slots, its batch, the jobs that wait for it.
create or replace function {schema}.release_links(p_ids uuid[]) returns void language plpgsql as $$
begin
  perform {schema}.leave(p_ids);
  perform {schema}.report_finished(p_ids);
end $$;
