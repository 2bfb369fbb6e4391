-- Turns between organisations.

-- Jobs of a queue whose organisations take turns, each its share of what is wanted, by weight; what some leave, those that
-- have more take. Where less is wanted than there are organisations, chance decides whose turn it is, by weight too: so
-- many workers that take one job each, of tasks of their own, need not agree on an order. Walks the organisations, not the
-- backlog: at most 100 that have something due a claim, going on where the last one stopped.
-- Index: waiting_fair, which is there while a queue is fair.
create or replace function {schema}.find_fair(p_queue text, p_want integer, p_tasks text[], p_oldest boolean) returns setof {schema}.waiting
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

-- The index that fair queues need is there while there is one: it costs each job 1.6 µs. Gives up rather than let everybody
-- wait behind it for somebody who holds the table.
create or replace function {schema}.index_fair() returns void language plpgsql set lock_timeout = '2s' as $$
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
create or replace function {schema}.put_fair(p_queue text, p_weights jsonb, p_app text, p_actor_type text, p_actor_id text, p_reason text)
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

create or replace function {schema}.set_fair(p_queue text, p_weights jsonb, p_actor_type text, p_actor_id text, p_reason text default null)
returns void language plpgsql as $$
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('{schema} limits', 0));
  perform {schema}.put_fair(p_queue, coalesce(p_weights, '{}'), null, p_actor_type, p_actor_id, p_reason);
end $$;

-- By due time again; false when the queue was not fair.
create or replace function {schema}.unset_fair(p_queue text, p_actor_type text, p_actor_id text, p_reason text default null)
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

-- The weights of a queue whose organisations take turns; who is bound to an organisation is told its own.
create or replace function {schema}.weights_of(p_queue text) returns jsonb language sql stable as $$
  select case when o.org is null or o.org = 'SYSTEM' then f.weights
              else jsonb_strip_nulls(jsonb_build_object(o.org, f.weights -> o.org)) end
  from {schema}.fair f, (select nullif(current_setting('mainspring.org', true), '') as org) o
  where f.org_id = 'SYSTEM' and f.queue = p_queue
$$;
