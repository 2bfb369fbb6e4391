-- What people do to a queue.

-- Stop claims from a queue. Running jobs finish. `claims_seen` below completes a pause.
create or replace function {schema}.pause(p_queue text, p_actor_type text, p_actor_id text, p_reason text) returns void
language plpgsql as $$
declare
  before {schema}.queue;
  after {schema}.queue;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform {schema}.check_text('queue', p_queue, 63);
  select * into before from {schema}.queue q where q.org_id = 'SYSTEM' and q.name = p_queue for update;
  insert into {schema}.queue (name, paused_at, paused_by, pause_reason)
  values (p_queue, {schema}.now(), p_actor_id, p_reason)
  on conflict (org_id, name) do update
  set paused_at = coalesce({schema}.queue.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
      pause_reason = excluded.pause_reason
  returning * into after;
  perform {schema}.record_queue('queue.paused', p_actor_type, p_actor_id, p_reason, p_queue, before, after);
end $$;

-- Start claims from a queue again; false when it was not paused.
create or replace function {schema}.resume(p_queue text, p_actor_type text, p_actor_id text, p_reason text default null)
returns boolean language plpgsql as $$
declare
  before {schema}.queue;
  after {schema}.queue;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform {schema}.check_text('queue', p_queue, 63);
  select * into before from {schema}.queue q
  where q.org_id = 'SYSTEM' and q.name = p_queue and q.paused_at is not null for update;
  if not found then
    return false;
  end if;
  update {schema}.queue q set paused_at = null, paused_by = null, pause_reason = null
  where q.org_id = 'SYSTEM' and q.name = p_queue returning * into after;
  perform {schema}.record_queue('queue.resumed', p_actor_type, p_actor_id, p_reason, p_queue, before, after);
  perform pg_notify({channel}, '');  -- rare, so it is not coalesced with the hints of enqueues
  return true;
end $$;

-- What somebody did to a queue, with what it was before and is after.
create or replace function {schema}.record_queue(
  p_event text, p_actor_type text, p_actor_id text, p_reason text, p_queue text, p_before {schema}.queue,
  p_after {schema}.queue) returns void
language sql as $$
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  select 'SYSTEM', {schema}.now(), p_event, p_actor_type, p_actor_id, jsonb_build_object(
    'queue', p_queue, 'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', jsonb_build_object('paused_at', p_before.paused_at, 'paused_by', p_before.paused_by,
                                 'pause_reason', p_before.pause_reason),
    'after', jsonb_build_object('paused_at', p_after.paused_at, 'paused_by', p_after.paused_by,
                                'pause_reason', p_after.pause_reason))
$$;

-- Wait until every claim that began before now has ended. Run in a transaction of its own, after the pause committed:
-- then no claim of the queue commits any more.
create or replace function {schema}.claims_seen() returns void language sql as $$
  select pg_advisory_xact_lock({claim_lock})
$$;

-- Refuse best-effort jobs of a queue while so many are ready in it; null: take them all. Others are never refused.
create or replace function {schema}.set_depth(p_queue text, p_most integer, p_actor_type text, p_actor_id text, p_reason text default null)
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

-- Who: a worker when it starts, and the testing kit. The queues that an application's code declares are written down:
-- p_queues [{name, start_target}]. Pauses and depths are somebody's word at run time and stay; a queue that this
-- application declares no longer loses its target, and is forgotten if nothing else was said of it.
create or replace function {schema}.declare_queues(p_app text, p_queues jsonb) returns void language plpgsql as $$
begin
  perform {schema}.check_text('app', p_app, 1000);
  perform pg_advisory_xact_lock(hashtextextended('{schema} queues', 0));
  insert into {schema}.queue as q (name, start_target, app)
  select e ->> 'name', (e ->> 'start_target')::interval, p_app from jsonb_array_elements(p_queues) e
  on conflict (org_id, name) do update set start_target = excluded.start_target, app = excluded.app
  where (q.start_target, q.app) is distinct from (excluded.start_target, excluded.app);
  delete from {schema}.queue q
  where q.org_id = 'SYSTEM' and q.app = p_app and q.paused_at is null and q.max_depth is null
    and q.name not in (select e ->> 'name' from jsonb_array_elements(p_queues) e);
  update {schema}.queue q set start_target = null, app = null
  where q.org_id = 'SYSTEM' and q.app = p_app
    and q.name not in (select e ->> 'name' from jsonb_array_elements(p_queues) e);
end $$;
