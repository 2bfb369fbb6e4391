-- Jobs that a breaker or a paused endpoint has stopped: they are parked there, and called when it lets them go.

-- What a job that a breaker has stopped waits at. The breaker of a key is its organisation's, and so is its gate.
create or replace function {schema}.breaker_gate(p_org text, p_name text, p_key text) returns text language sql immutable
  return 'breaker:' || p_name || case when p_key <> '' then ':' || p_key || '@' || p_org else '' end;

-- The breaker whose gate this is, where jobs of this organisation wait; null: it is forgotten.
create or replace function {schema}.breaker_at(p_gate text, p_org text) returns {schema}.breaker language sql stable as $$
  select b from (select split_part(p_gate, ':', 2) as name) n
  cross join lateral (select left(substr(p_gate, length(n.name) + 10), -1 - length(p_org)) as key) k
  join {schema}.breaker b
    on b.org_id = case when k.key = '' then 'SYSTEM' else p_org end and b.name = n.name and b.key = k.key
$$;

-- Who: `settle`, for a job that was stopped. Answers the gate at which it waits without a due time; null: what stopped it
-- has changed, or somebody is changing it, and the job asks again soon. It is read under a lock of its row, which whoever
-- changes it takes before: so nobody who lets jobs go overlooks one that is on its way here. Never waits, because a caller's
-- transaction may hold the row for long. Locks: the row, shared, until outcomes are written.
create or replace function {schema}.stopped_at(p_org text, p_gate text) returns text language plpgsql as $$
declare
  dependency constant text := split_part(p_gate, ':', 2);
  part constant text := substr(p_gate, length(dependency) + 10);
  b {schema}.breaker;
begin
  if not starts_with(p_gate, 'breaker:') then
    perform from {schema}.webhook_endpoint e
    where e.org_id = p_org and e.id = {schema}.endpoint_at(p_gate) and e.state = 'paused' for key share skip locked;
    return case when found then p_gate end;
  end if;
  select * into b from {schema}.breaker x
  where x.org_id = case when part = '' then 'SYSTEM' else p_org end and x.name = dependency and x.key = part
  for key share skip locked;
  return case when {schema}.breaker_state(b) <> 'closed' then {schema}.breaker_gate(p_org, dependency, part) end;
end $$;

-- Who: a worker that sees jobs stopped by a dependency's breaker. Those that are due behind them wait at its gate from here
-- on and need not be claimed for that, so that others of their queue are not kept waiting; answers how many. Not while it is
-- half open: one that is due may be the probe. Of a key it is the payload that names it. Index: waiting_claim. Locks: these
-- tickets (skip locked), and the row as in `stopped_at`.
create or replace function {schema}.park_due(p_name text, p_queues text[], p_tasks text[], p_limit integer) returns integer
language plpgsql set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off as $$
declare
  count integer;
begin
  perform from {schema}.breaker b
  where b.org_id = 'SYSTEM' and b.name = p_name and b.key = '' and {schema}.breaker_state(b) = 'open'
  for key share skip locked;
  if not found then
    return 0;
  end if;
  update {schema}.waiting w
  set due_at = 'infinity', due_then = coalesce(w.due_then, w.due_at), gate = {schema}.breaker_gate('SYSTEM', p_name, '')
  where w.ctid = any(array(
    select x.tid
    from unnest(p_queues) q(name) cross join (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
    cross join lateral (
      select y.ctid as tid from {schema}.waiting y
      where y.queue = q.name and y.priority = p.priority and y.due_at <= {schema}.now() and y.task = any(p_tasks)
      order by y.due_at, y.id limit p_limit for update of y skip locked) x
    limit p_limit));
  get diagnostics count = row_count;
  return count;
end $$;

-- When jobs may be let go to ask for a probe: at the end of the pause, or two seconds after the last ones were, if they have
-- not asked. They may not be able to: no slot is free, a limit holds them, or their task needs the dependency no longer.
create or replace function {schema}.next_call(b {schema}.breaker) returns timestamptz language sql stable
  return case when b.called_at <= {schema}.now() then b.called_at + interval '2 s' * {schema}.speed() else b.until end;

-- How many a half-open breaker lets go: as many as there may be probes; twice as many as before, if those have not asked.
create or replace function {schema}.probes_wanted(b {schema}.breaker) returns integer language sql stable
  return case when {schema}.breaker_state(b) <> 'half_open'
                or (b.called_at is not null and {schema}.next_call(b) > {schema}.now()) then 0
              when b.called > 0 then least(b.called * 2, greatest(b.probes, 100))
              else b.probes - (select count(*) from {schema}.running r
                               where r.epoch = any(b.probing) and r.lease_expires_at > {schema}.now())::integer end;

-- Who: `release_gate`, of a breaker that is half open: the longest waiting first, of queues and tasks that the caller
-- serves. Locks: these tickets and the breaker's row; who finds it locked leaves it to the other.
create or replace function {schema}.call_probes(p_gate text, b {schema}.breaker, p_queues text[], p_tasks text[]) returns tid[]
language plpgsql set enable_seqscan = off as $$
declare
  wanted constant integer := {schema}.probes_wanted(b);
  tickets tid[];
begin
  if wanted <= 0 then
    return '{}';
  end if;
  tickets := array(
    select y.tid from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
    cross join lateral (
      select x.ctid as tid, x.due_then, x.id from {schema}.waiting x
      where x.gate = p_gate and x.priority = p.priority and x.queue = any(p_queues) and x.task = any(p_tasks)
        and not exists (
          select from {schema}.queue q where q.org_id = 'SYSTEM' and q.name = x.queue and q.paused_at is not null)
      order by x.due_then, x.id limit wanted for update of x skip locked) y
    order by y.due_then, y.id limit wanted);
  select * into b from {schema}.breaker x
  where x.org_id = b.org_id and x.name = b.name and x.key = b.key and cardinality(tickets) > 0 for update skip locked;
  if not found or {schema}.probes_wanted(b) <= 0 then
    return '{}';
  end if;
  update {schema}.breaker x set called = cardinality(tickets), called_at = {schema}.now()
  where x.org_id = b.org_id and x.name = b.name and x.key = b.key;
  return tickets;
end $$;

-- Let go of jobs that wait at a gate: all of them, up to p_limit, if what stopped them does so no longer or is forgotten;
-- of a breaker that is half open, who may ask for a probe. Answers how many. Index: waiting_gate. Locks: these tickets.
create or replace function {schema}.release_gate(p_gate text, p_queues text[], p_tasks text[], p_limit integer) returns integer
language plpgsql set enable_seqscan = off as $$
declare
  org constant text := (select x.org_id from {schema}.waiting x where x.gate = p_gate limit 1);
  b constant {schema}.breaker := case when starts_with(p_gate, 'breaker:') then {schema}.breaker_at(p_gate, org) end;
  tickets tid[];
begin
  if org is null or {schema}.breaker_state(b) = 'open' or {schema}.is_paused(org, p_gate) then
    return 0;
  elsif {schema}.breaker_state(b) = 'half_open' then
    tickets := {schema}.call_probes(p_gate, b, p_queues, p_tasks);
  else
    tickets := array(
      select x.ctid from {schema}.waiting x where x.gate = p_gate
      order by x.priority, x.due_then, x.id limit p_limit for update skip locked);
  end if;
  update {schema}.waiting w
  set due_at = case when exists (  -- their place depends on it, and limited claims know no bound from below
                      select from {schema}.limit l where l.in_order and (l.task = w.task or l.queue = w.queue))
                    then w.due_then else {schema}.now() end, gate = null, due_then = null
  where w.ctid = any(tickets);
  return cardinality(tickets);
end $$;

-- Who: each worker that sees a breaker close or its pause end, for these gates; and when it starts and every few seconds for
-- all gates at which jobs wait (p_gates null), whoever closed, forgot or resumed what. Answers how many jobs are due by it,
-- about p_limit at most. Walks the gates, not what waits at them. Index: waiting_gate.
create or replace function {schema}.release_gates(p_gates text[], p_queues text[], p_tasks text[], p_limit integer) returns integer
language plpgsql set enable_seqscan = off as $$
declare
  kind text;
  place text;
  count integer := 0;
begin
  foreach place in array coalesce(p_gates, '{}') loop
    exit when count >= p_limit;
    count := count + {schema}.release_gate(place, p_queues, p_tasks, p_limit);
  end loop;
  foreach kind in array case when p_gates is null then '{breaker:,endpoint:}' else '{}' end::text[] loop
    place := kind;
    loop
      place := (select x.gate from {schema}.waiting x where x.gate > place and x.gate is not null order by x.gate limit 1);
      exit when count >= p_limit or place is null or not starts_with(place, kind);
      count := count + {schema}.release_gate(place, p_queues, p_tasks, p_limit);
    end loop;
  end loop;
  if count > 0 then
    perform pg_notify({channel}, '');
  end if;
  return count;
end $$;

-- Since when the oldest job of a queue waits that is due but for a gate; null: there is none. Index: waiting_parked.
create or replace function {schema}.oldest_parked(p_queue text, p_org text default null) returns timestamptz language sql stable set enable_seqscan = off as $$
  select w.due_then from {schema}.waiting w
  where w.queue = p_queue and w.due_at = 'infinity' and w.gate <> 'parents' and w.due_then <= {schema}.now()
    and (p_org is null or w.org_id = p_org)
  order by w.due_then limit 1
$$;
