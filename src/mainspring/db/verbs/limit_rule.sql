-- The rules of limits: declared in code, set by people.

-- -- What people, and the code, say about limits -------------------------------------------------------------------------

-- A limit as it is shown and remembered.
create or replace function {schema}.rule_of(l {schema}.limit) returns jsonb language sql immutable
  return case when l.name is not null then jsonb_strip_nulls(jsonb_build_object(
    'queue', l.queue, 'task', l.task, 'by', l.by, 'rate', l.rate, 'per', l.per, 'concurrency', l.concurrency,
    'in_order', l.in_order)) end;

-- Refuse a limit that cannot hold, as mainspring.limit says it.
create or replace function {schema}.check_limit(l {schema}.limit) returns void language plpgsql immutable as $$
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
create or replace function {schema}.record_limit(
  p_event text, p_actor_type text, p_actor_id text, p_reason text, p_what jsonb, p_before jsonb, p_after jsonb) returns void
language sql as $$
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  select 'SYSTEM', {schema}.now(), p_event, p_actor_type, p_actor_id, p_what || jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'before', p_before, 'after', p_after)
$$;

-- The gates of a limit at whose bucket no claim is, locked. What is left at the others is soon forgotten.
create or replace function {schema}.free_buckets(p_name text) returns text[] language sql volatile set enable_seqscan = off as $$
  select array(select b.gate from {schema}.bucket b where b.org_id = 'SYSTEM' and b.name = p_name for update skip locked)
$$;

create or replace function {schema}.free_shares(p_name text) returns tid[] language sql volatile as $$
  select array(select s.ctid from {schema}.share s where s.org_id = 'SYSTEM' and s.name = p_name for update skip locked)
$$;

-- Jobs that a limit has put off ask again now, in their order. At most 10,000 at once: the others come back by themselves
-- within a minute. A claim without limits keeps a bound from below, so that what has none any more is due now.
-- Index: waiting_gate.
create or replace function {schema}.reconsider(p_name text, p_gone boolean) returns void language plpgsql set enable_seqscan = off as $$
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
create or replace function {schema}.count_in() returns boolean language plpgsql set enable_seqscan = off as $$
declare
  l {schema}.limit;
begin
  for l in select * from {schema}.limit x where not x.counted order by x.name for update skip locked loop
    delete from {schema}.slot s where s.org_id = 'SYSTEM' and starts_with(s.gate, l.name || '/');  -- of a limit that had this name before
    with linked as (
      update {schema}.running r set linked = true
      where r.id = any(array(
        select x.id from {schema}.running x
        where (x.queue = l.queue or x.task = l.task) and {schema}.gate_of(l, x.org_id, x.strand) is not null
        for update skip locked))
      returning r.id, {schema}.gate_of(l, r.org_id, r.strand) as gate
    )
    insert into {schema}.slot (gate, job_id, in_order) select t.gate, t.id, l.in_order from linked t;
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
create or replace function {schema}.put_limit(p_new {schema}.limit, p_actor_type text, p_actor_id text, p_reason text) returns void
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
    delete from {schema}.share s where s.ctid = any({schema}.free_shares(p_new.name));
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
create or replace function {schema}.set_limit(
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
create or replace function {schema}.declared_limit(p_name text, p_app text, p_code jsonb) returns {schema}.limit language sql stable as $$
  select (jsonb_populate_record(null::{schema}.limit, jsonb_build_object('by', 'all', 'in_order', false) || jsonb_strip_nulls(p_code)
            || jsonb_build_object('name', p_name, 'app', p_app, 'declared', true))).*
$$;

-- Let the code's word hold again; false when nobody had said otherwise.
create or replace function {schema}.reset_limit(p_name text, p_actor_type text, p_actor_id text, p_reason text default null)
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
create or replace function {schema}.drop_limit(p_name text, p_actor_type text, p_actor_id text, p_reason text default null)
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
  delete from {schema}.share s where s.ctid = any({schema}.free_shares(p_name));
  return true;
end $$;

-- Who: a worker when it starts, and the testing kit. What an application's code declares is written down: p_limits
-- [{name, queue, task, by, rate, per, concurrency, in_order}], p_fair [{queue, weights}]. Somebody's word at run time stays;
-- what this application declares no longer goes.
create or replace function {schema}.declare_limits(p_app text, p_limits jsonb, p_fair jsonb) returns void language plpgsql as $$
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
