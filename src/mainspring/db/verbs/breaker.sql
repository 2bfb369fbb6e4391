-- Circuit breakers: what calls report, and what people decide.

-- What a breaker does now: `half_open` is an open one whose pause is over. A clock that was set back ends the pause too; by
-- less than a minute it may be the statement that is older than a change which it waited for.
create or replace function {schema}.breaker_state(b {schema}.breaker) returns text language sql stable
  return case when b.forced is not null then b.forced
              when b.state = 'open' and (b.until <= {schema}.now() or b.since > {schema}.now() + '1 min') then 'half_open'
              else b.state end;

-- Seconds until it lets somebody through: the next probe, or, while a person holds it open, the next look.
create or replace function {schema}.breaker_wait(b {schema}.breaker) returns float8 language sql stable
  return case {schema}.breaker_state(b)
           when 'open' then extract(epoch from case when b.forced is null then b.until - {schema}.now() else b.pause end)
           else 0 end::float8;

-- Who: each worker when it starts: what its application declares, [{name, failures, rate, calls, within, pause, longest,
-- probes, failing_for}]. A rule that has changed holds for the keys at once. Locks: rows whose rule changes.
create or replace function {schema}.declare_breakers(p_rules json) returns void language plpgsql as $$
declare
  m record;
begin
  for m in
    select * from json_to_recordset(p_rules) as r (
      name text, failures integer, rate real, calls integer, within interval, pause interval, longest interval, probes smallint,
      failing_for interval)
    order by r.name
  loop
    insert into {schema}.breaker (name, failures, rate, calls, within, pause, longest, probes, failing_for, used_at)
    values (m.name, m.failures, m.rate, m.calls, m.within, m.pause, m.longest, m.probes, m.failing_for, {schema}.now())
    on conflict do nothing;
    update {schema}.breaker b
    set failures = m.failures, rate = m.rate, calls = m.calls, within = m.within, pause = m.pause, longest = m.longest,
        probes = m.probes, failing_for = m.failing_for
    where b.name = m.name
      and (b.failures, b.rate, b.calls, b.within, b.pause, b.longest, b.probes, b.failing_for)
          is distinct from (m.failures, m.rate, m.calls, m.within, m.pause, m.longest, m.probes, m.failing_for);
  end loop;
end $$;

-- Who: each worker, at once when calls have failed. p_calls: [{org_id, name, key, succeeded, ages, probe}], where `ages`
-- says of each failed call how many seconds ago it began, and `probe` is the epoch of a call that was let through to see.
-- Answers what opened or closed by it. A call that began before the breaker last changed says nothing about it now.
-- Locks: the rows it names, in the order of their keys; never in the transaction that carries outcomes.
create or replace function {schema}.report_calls(p_calls json)
returns table (org_id text, name text, key text, change text, failures integer, pause float8) language plpgsql as $$
#variable_conflict use_column
declare
  m record;
  b {schema}.breaker;
  t timestamptz;
  bad integer;
  n integer;
begin
  for m in
    select c.org_id, c.name, c.key, coalesce(c.succeeded, 0) as succeeded, coalesce(c.ages, '{}') as ages, c.probe
    from json_to_recordset(p_calls) as c (org_id text, name text, key text, succeeded integer, ages float8[], probe bigint)
    order by c.org_id, c.name, c.key
  loop
    insert into {schema}.breaker (org_id, name, key, failures, rate, calls, within, pause, longest, probes, failing_for, used_at)
    select m.org_id, r.name, m.key, r.failures, r.rate, r.calls, r.within, r.pause, r.longest, r.probes, r.failing_for,
           {schema}.now()
    from {schema}.breaker r
    where r.org_id = 'SYSTEM' and r.name = m.name and r.key = '' and not exists (
      select from {schema}.breaker k where k.org_id = m.org_id and k.name = m.name and k.key = m.key)
    on conflict do nothing;
    select * into b from {schema}.breaker x where x.org_id = m.org_id and x.name = m.name and x.key = m.key for update;
    continue when not found;
    t := {schema}.instant();  -- after the lock
    b.used_at := t;
    change := null;
    if m.probe is not null then
      continue when b.state = 'closed' or m.probe <> all(b.probing);
      change := case when m.succeeded > 0 then 'closed' else 'opened' end;
    elsif b.state = 'closed' then
      bad := (select count(*) from unnest(m.ages) a(age) where b.since is null or t - make_interval(secs => a.age) >= b.since);
      continue when bad = 0 and m.succeeded = 0;
      select coalesce(array_agg(x.at order by x.at), '{}'), coalesce(array_agg(x.failed order by x.at), '{}'),
             coalesce(array_agg(x.succeeded order by x.at), '{}')
      into b.at, b.failed, b.succeeded
      from unnest(b.at, b.failed, b.succeeded) x(at, failed, succeeded) where x.at > t - b.within and x.at <= t;
      n := cardinality(b.at);
      if n = 0 or t - b.at[n] > b.within / 50 then  -- one entry for what comes together, at its beginning
        n := n + 1;
        b.at[n] := t;
        b.failed[n] := 0;
        b.succeeded[n] := 0;
      end if;
      b.failed[n] := b.failed[n] + bad;
      b.succeeded[n] := b.succeeded[n] + m.succeeded;
      b.failing_since := case when bad = 0 then null
                              when m.succeeded > 0 then t  -- nobody knows which came first
                              else least(coalesce(b.failing_since, t), t) end;
      if b.forced is null and bad > 0 and (t - b.failing_since >= b.failing_for or (
        select case when b.rate is null then sum(x.failed) >= b.failures
                    else sum(x.failed) + sum(x.succeeded) >= b.calls
                         and sum(x.failed) >= b.rate::numeric * (sum(x.failed) + sum(x.succeeded)) end
        from unnest(b.failed, b.succeeded) x(failed, succeeded))) then
        change := 'opened';
      end if;
    else
      continue;
    end if;
    if change = 'opened' then
      b.opened := case when b.state = 'open' then b.opened else 0 end + 1;
      b.state := 'open';
      b.since := t;
      b.until := t + least(b.longest, b.pause * 2 ^ least(b.opened - 1, 20));
      b.probing := '{}';
      b.called := 0;
      b.called_at := null;
    elsif change = 'closed' then
      b.state := 'closed';
      b.since := t;
      b.until := null;
      b.opened := 0;
      b.probing := '{}';
      b.at := '{}';
      b.failed := '{}';
      b.succeeded := '{}';
    end if;
    if change is not null then
      b.failing_since := null;
    end if;
    update {schema}.breaker x
    set state = b.state, failing_since = b.failing_since, since = b.since, until = b.until, opened = b.opened, probing = b.probing, called = b.called,
        called_at = b.called_at, at = b.at, failed = b.failed, succeeded = b.succeeded, used_at = b.used_at
    where x.org_id = b.org_id and x.name = b.name and x.key = b.key;
    if change is not null then
      perform pg_notify({channel}, '');  -- rare, so it is not coalesced with the hints of enqueues
      org_id := b.org_id;
      name := b.name;
      key := b.key;
      failures := coalesce((select sum(f) from unnest(b.failed) f), 0);
      pause := coalesce(extract(epoch from b.until - t), 0);
      return next;
    end if;
  end loop;
end $$;

-- Who: a worker whose job needs a breaker that is half open. Answers `probe` if it may try, `closed` if all may again, or
-- `open` and in how many seconds to ask (0: when a probe has ended). A probe lasts as long as its job is running under its
-- lease, and for all its calls: one whose worker was killed stands in nobody's way for longer. The count is taken after the
-- lock, so that it sees the jobs of those that were admitted meanwhile. Locks: the row.
create or replace function {schema}.ask_probe(p_org text, p_name text, p_key text, p_epoch bigint)
returns table (answer text, wait float8, at timestamptz) language plpgsql as $$
declare
  b {schema}.breaker;
begin
  select * into b from {schema}.breaker x where x.org_id = p_org and x.name = p_name and x.key = p_key for update;
  answer := coalesce({schema}.breaker_state(b), 'closed');
  wait := coalesce({schema}.breaker_wait(b), 0);
  at := {schema}.now();
  if answer = 'half_open' then
    b.probing := array(select r.epoch from {schema}.running r
                       where r.epoch = any(b.probing) and r.lease_expires_at > {schema}.now());
    answer := case when p_epoch = any(b.probing) or cardinality(b.probing) < b.probes then 'probe' else 'open' end;
    if answer = 'probe' and p_epoch <> all(b.probing) then
      update {schema}.breaker x
      set probing = b.probing || p_epoch, called = 0, called_at = null, used_at = {schema}.now()
      where x.org_id = p_org and x.name = p_name and x.key = p_key;
    end if;
  end if;
  return next;
end $$;

-- Who: workers, every minute. Keys that nobody has called for an hour, or longer than their window, are forgotten.
create or replace function {schema}.forget_breakers(p_limit integer) returns integer language plpgsql as $$
declare
  count integer;
begin
  delete from {schema}.breaker b where b.ctid = any(array(
    select x.ctid from {schema}.breaker x
    where x.key <> '' and x.forced is null
      and greatest(x.used_at, x.until) < {schema}.now() - greatest(x.within, interval '1 hour')
    limit p_limit for update skip locked));
  get diagnostics count = row_count;
  return count;
end $$;

-- A person decides: p_to is `open`, `closed`, or null for automatic again. False: so it was already.
create or replace function {schema}.force_breaker(
  p_event text, p_to text, p_name text, p_key text, p_org text, p_actor_type text, p_actor_id text, p_reason text
) returns boolean language plpgsql as $$
declare
  org constant text := case when p_key = '' then 'SYSTEM' else p_org end;
  before {schema}.breaker;
  after {schema}.breaker;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform {schema}.check_text('name', p_name, 100);
  perform {schema}.check_text('reason', p_reason, 1000);
  if p_key is distinct from '' then
    perform {schema}.check_text('key', p_key, 200);
    perform {schema}.check_text('org', p_org, 200);
  end if;
  insert into {schema}.breaker (org_id, name, key, failures, rate, calls, within, pause, longest, probes, failing_for, used_at)
  select org, r.name, p_key, r.failures, r.rate, r.calls, r.within, r.pause, r.longest, r.probes, r.failing_for, {schema}.now()
  from {schema}.breaker r where r.org_id = 'SYSTEM' and r.name = p_name and r.key = '' and p_key <> ''
  on conflict do nothing;
  select * into before from {schema}.breaker b where b.org_id = org and b.name = p_name and b.key = p_key for update;
  if not found then
    perform {schema}.refuse('name', 'is no breaker that a worker has declared');
  end if;
  if before.forced is not distinct from p_to then
    return false;
  end if;
  update {schema}.breaker b
  set forced = p_to, forced_at = case when p_to is not null then {schema}.now() end,
      forced_by = case when p_to is not null then p_actor_id end, forced_reason = case when p_to is not null then p_reason end,
      used_at = {schema}.now()
  where b.org_id = org and b.name = p_name and b.key = p_key returning * into after;
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  values (org, {schema}.now(), p_event, p_actor_type, p_actor_id, jsonb_build_object(
    'breaker', p_name, 'key', nullif(p_key, ''), 'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', {schema}.breaker_facts(before), 'after', {schema}.breaker_facts(after)));
  perform pg_notify({channel}, '');
  return true;
end $$;

create or replace function {schema}.breaker_facts(b {schema}.breaker) returns jsonb language sql stable
  return jsonb_build_object('state', {schema}.breaker_state(b), 'since', b.since, 'forced', b.forced,
                            'forced_by', b.forced_by, 'forced_reason', b.forced_reason);

-- Hold the jobs that need a dependency, or one key of it, until somebody closes it or makes it automatic again.
create or replace function {schema}.open_breaker(
  p_name text, p_actor_type text, p_actor_id text, p_reason text, p_key text default '', p_org text default 'default'
) returns boolean language sql as $$
  select {schema}.force_breaker('breaker.forced_open', 'open', p_name, p_key, p_org, p_actor_type, p_actor_id, p_reason)
$$;

-- Let all calls through, whatever they meet, until somebody opens it or makes it automatic again.
create or replace function {schema}.close_breaker(
  p_name text, p_actor_type text, p_actor_id text, p_reason text, p_key text default '', p_org text default 'default'
) returns boolean language sql as $$
  select {schema}.force_breaker('breaker.forced_closed', 'closed', p_name, p_key, p_org, p_actor_type, p_actor_id, p_reason)
$$;

-- Let the calls decide again; false: nobody had forced it.
create or replace function {schema}.auto_breaker(
  p_name text, p_actor_type text, p_actor_id text, p_reason text, p_key text default '', p_org text default 'default'
) returns boolean language sql as $$
  select {schema}.force_breaker('breaker.automatic', null, p_name, p_key, p_org, p_actor_type, p_actor_id, p_reason)
$$;
