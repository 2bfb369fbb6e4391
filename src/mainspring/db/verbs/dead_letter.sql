-- Dead letters, and what people decide about them.

-- The open dead letters: failed and dead jobs that nobody has decided about. Index: finished_open.
create or replace view {schema}.dead_letters with (security_invoker = true) as
select f.id, f.org_id, j.task, f.state, j.queue, f.attempt, j.max_attempts, f.crashes, j.created_at, f.finished_at,
       f.error ->> 'code' as code, f.error ->> 'message' as message,
       {schema}.error_fingerprint(j.task, f.error) as fingerprint, {schema}.payload_hash(j.payload) as payload_hash, j.key
from {schema}.finished f join {schema}.job j on j.id = f.id
where f.state in ('failed', 'dead')
  and not exists (select from {schema}.resolution r where r.org_id = f.org_id and r.job_id = f.id);

-- Those that a person means; null: any. Inlined where it is used.
create or replace function {schema}.find_dead(
  p_org text, p_task text, p_queue text, p_code text, p_fingerprint text, p_state text, p_since timestamptz,
  p_until timestamptz) returns setof {schema}.dead_letters language sql stable as $$
  select d.* from {schema}.dead_letters d
  where (p_org is null or d.org_id = p_org) and (p_task is null or d.task = p_task)
    and (p_queue is null or d.queue = p_queue) and (p_code is null or d.code = p_code)
    and (p_fingerprint is null or d.fingerprint = p_fingerprint) and (p_state is null or d.state = p_state)
    and (p_since is null or d.finished_at >= p_since) and (p_until is null or d.finished_at <= p_until)
$$;

-- Errors that look alike: the same task, code and place in the code, and the same message but for its ids, numbers and
-- quoted parts. Only the ends that tell are looked at, so that a thousand of them cost milliseconds.
create or replace function {schema}.error_fingerprint(p_task text, p_error jsonb) returns text language sql immutable parallel safe
  return left(encode(sha256(convert_to(concat_ws(
    e'\n', p_task, p_error ->> 'code',
    regexp_replace(left(p_error ->> 'message', 500),
      '"[^"]*"|''[^'']*''|`[^`]*`'
      '|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}'
      '|0x[0-9a-fA-F]+|\m[0-9a-fA-F]{8,}\M|[0-9]+', '#', 'g'),
    array_to_string(regexp_match(right(p_error ->> 'stack', 1000),  -- file and function of the last frame, without line
      '.*File "(?:[^"]*[/\\])?([^"/\\]+)", line \d+, in (\S+)'), ' ')), 'utf8')), 'hex'), 12);

create or replace function {schema}.payload_hash(p_payload jsonb) returns text language sql immutable parallel safe
  return encode(sha256(convert_to(p_payload::text, 'utf8')), 'hex');

-- A dead letter leaves the open list; nothing else changes. False when it is none, or is decided already.
create or replace function {schema}.discard(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text,
                                 p_bulk uuid default null) returns boolean
language plpgsql as $$
declare
  f {schema}.finished;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));
  select * into f from {schema}.finished x
  where x.id = p_id and (p_org is null or x.org_id = p_org) and x.state in ('failed', 'dead') for update;
  if not found then
    return false;
  end if;
  insert into {schema}.resolution (org_id, job_id, resolution, at, actor_type, actor_id, reason)
  values (f.org_id, p_id, 'discarded', {schema}.now(), p_actor_type, p_actor_id, p_reason) on conflict do nothing;
  if not found then
    return false;
  end if;
  perform {schema}.give_up(p_id);
  perform {schema}.record('job.discarded', p_id, f.attempt, jsonb_strip_nulls(jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'bulk', p_bulk,
    'before', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'error', f.error),
    'after', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'resolution', 'discarded'))));
  return true;
end $$;

-- A new job with a corrected payload does the work of a failed or dead one, which stays as it is: everything else of its
-- envelope is the same, the key moves to the new one, and the two point at each other. The new one is fresh: it has no
-- attempts behind it and is no suspect. Refused as lock_ended says. p_dry asks whether it would be done.
create or replace function {schema}.fix_forward(
  p_id uuid, p_org text, p_new uuid, p_payload jsonb, p_diff jsonb, p_actor_type text, p_actor_id text, p_reason text,
  p_dry boolean, out moved boolean, out in_the_way uuid)
language plpgsql as $$
declare
  j {schema}.job;
  n {schema}.job;
  f {schema}.finished;
  decided text;
  ended record;
begin
  moved := false;
  perform {schema}.check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));
  if p_payload is null or jsonb_typeof(p_payload) <> 'object' then
    perform {schema}.refuse('payload', 'is not a JSON object');
  end if;
  ended := {schema}.lock_ended(p_id, p_org);
  in_the_way := ended.in_the_way;
  moved := ended.may;
  if not moved then
    return;
  end if;
  j := ended.j;
  f := ended.f;
  decided := ended.decided;
  if p_dry then
    return;
  end if;
  n := j;
  n.id := p_new;
  n.payload := p_payload;
  n.created_at := {schema}.now();
  n.scheduled_for := null;
  insert into {schema}.job values (n.*);
  insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, strand)
  values (n.id, n.org_id, n.task, n.queue, n.priority, {schema}.now(), n.strand);
  perform {schema}.take_over(p_id, array[p_new]);
  perform {schema}.reopen(p_new);
  perform {schema}.take_key(n);
  insert into {schema}.resolution (org_id, job_id, resolution, at, actor_type, actor_id, reason, successor)
  values (j.org_id, p_id, 'fixed_forward', {schema}.now(), p_actor_type, p_actor_id, p_reason, p_new)
  on conflict (org_id, job_id) do update  -- it was discarded before
  set resolution = excluded.resolution, at = excluded.at, actor_type = excluded.actor_type, actor_id = excluded.actor_id,
      reason = excluded.reason, successor = excluded.successor;
  perform {schema}.record('job.fixed_forward', p_id, f.attempt, jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'successor', p_new, 'diff', p_diff,
    'before', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'resolution', decided, 'error', f.error,
                                 'payload_hash', {schema}.payload_hash(j.payload)),
    'after', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'resolution', 'fixed_forward',
                                'payload_hash', {schema}.payload_hash(p_payload))));
  perform {schema}.wake();
end $$;

-- Lock the key and the ticket of a dead letter without waiting; false when somebody else is at it. Acts on many wait for
-- nobody, so they cannot wait in a circle, and two of them at once share the work.
create or replace function {schema}.seize(p_id uuid) returns boolean language plpgsql as $$
declare
  j {schema}.job;
begin
  select * into j from {schema}.job x where x.id = p_id;
  if j.key is not null and exists (select from {schema}.idempotency i where i.org_id = j.org_id and i.key = j.key) then
    perform from {schema}.idempotency i where i.org_id = j.org_id and i.key = j.key for update skip locked;
    if not found then
      return false;
    end if;
  end if;
  perform from {schema}.finished f where f.id = p_id and f.state in ('failed', 'dead') for update skip locked;
  return found;
end $$;

-- Who: a person who replays many, batch by batch. Answers how many were replayed. p_every spreads them: the first of the
-- whole act is due at p_start, and p_before were replayed by earlier batches.
create or replace function {schema}.replay_many(
  p_ids uuid[], p_actor_type text, p_actor_id text, p_reason text, p_bulk uuid, p_start timestamptz, p_every interval,
  p_before integer) returns integer
language plpgsql as $$
declare
  one uuid;
  n integer := 0;
begin
  foreach one in array p_ids loop
    if {schema}.seize(one) and (
      select r.moved from {schema}.replay(one, null, p_actor_type, p_actor_id, p_reason,
                                          p_start + (p_before + n) * p_every, p_bulk) r) then
      n := n + 1;
    end if;
  end loop;
  return n;
end $$;

-- Who: a person who discards many, batch by batch. Answers how many were discarded.
create or replace function {schema}.discard_many(
  p_ids uuid[], p_actor_type text, p_actor_id text, p_reason text, p_bulk uuid) returns integer
language plpgsql as $$
declare
  one uuid;
  n integer := 0;
begin
  foreach one in array p_ids loop
    if {schema}.seize(one) and {schema}.discard(one, null, p_actor_type, p_actor_id, p_reason, p_bulk) then
      n := n + 1;
    end if;
  end loop;
  return n;
end $$;

-- Who: the same, once, before the first batch. Without an organisation it is recorded in the one that the transaction is
-- bound to, else in SYSTEM's trail.
create or replace function {schema}.record_bulk(p_org text, p_event text, p_actor_type text, p_actor_id text, p_detail jsonb) returns void
language plpgsql as $$
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, coalesce(p_detail ->> 'reason', ''));
  if p_event is null or p_event not in ('dead_letters.replay', 'dead_letters.discard') then
    perform {schema}.refuse('event', 'is no act on many dead letters');
  end if;
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  values (coalesce(p_org, nullif(current_setting('mainspring.org', true), ''), 'SYSTEM'), {schema}.now(), p_event,
          p_actor_type, p_actor_id, p_detail);
end $$;
