-- Enqueue: one JSON parameter for one job or a thousand, with dedupe and its answer in one call.
--
-- A function, so that every driver, ORM, trigger and psql enqueues in the caller's own transaction by the same words.
-- One JSON text made by the client is as fast as COPY and keeps the answer (docs/adr/0001).
-- SQLSTATEs of our own: MS001 validation (detail: the field), MS002 key reused (detail: the job), MS004 refused
-- by a trigger, MS005 lease lost.

-- A UUID of version 7, for callers that bring none (PostgreSQL has uuidv7() only from 18 on).
create function {schema}.uuid7() returns uuid language sql volatile
  return encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    52, 1), 53, 1), 'hex')::uuid;

-- Tell a worker that sleeps: at most one notification per 10 ms in the whole database, none while all are busy.
-- NOTIFY holds a global lock through its WAL flush, so it must stay rare. A lost hint costs one poll interval.
create function {schema}.wake() returns boolean language plpgsql as $$
declare
  t constant bigint := extract(epoch from clock_timestamp()) * 1000;
begin
  if (select last_value from {schema}.idle_until) > t and (select last_value from {schema}.woken_at) <= t - 10 then
    perform setval('{schema}.woken_at', t), pg_notify({channel}, '');
    return true;
  end if;
  return false;
end $$;

-- Where one job stands: in exactly one of the ticket tables, read in one snapshot.
create function {schema}.state_of(p_id uuid) returns table (state text, attempt smallint, finished_at timestamptz)
language sql stable as $$
  select case when w.due_at <= {schema}.now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end,
         w.attempt, null::timestamptz
  from {schema}.waiting w where w.id = p_id
  union all select 'running', r.attempt, null from {schema}.running r where r.id = p_id
  union all select f.state, f.attempt, f.finished_at from {schema}.finished f where f.id = p_id
$$;

-- A parsed job: the wire format of mainspring.job.NewJob with every default filled in.
create type {schema}.envelope as (
  id uuid, org_id text, task text, queue text, priority smallint, max_attempts smallint, cancellable boolean,
  payload jsonb, project_id uuid, actor_type text, actor_id text, request_id text, correlation_id text, parent_id uuid,
  traceparent text, key text, created_at timestamptz, scheduled_for timestamptz, due_at timestamptz, mode text,
  ttl interval, reset boolean, ord bigint
);

-- A producer's clock may be off by a minute, not by more.
create function {schema}.plausible(p_created_at timestamptz) returns timestamptz language plpgsql stable as $$
begin
  if p_created_at > {schema}.now() + interval '60 s' then
    raise exception 'created_at: more than 60 s ahead of the database''s clock' using errcode = 'MS001', detail = 'created_at';
  end if;
  return p_created_at;
end $$;

-- Inlined where it is used. `due_at` is never in the past: claims keep a lower bound on it.
create function {schema}.envelopes(p_jobs json) returns setof {schema}.envelope language sql stable as $$
  select j.id, coalesce(j.org_id, 'default'), j.task, coalesce(j.queue, 'q:default'), coalesce(j.priority, 2::smallint),
         coalesce(j.max_attempts, 5::smallint), coalesce(j.cancellable, true), j.payload, j.project_id,
         coalesce(j.actor_type, 'system'), coalesce(j.actor_id, 'SYSTEM'), coalesce(j.request_id, j.id::text),
         coalesce(j.correlation_id, j.id::text), j.parent_id, j.traceparent, j.key,
         case when j.created_at is null then {schema}.now() else {schema}.plausible(j.created_at) end,
         case when j.wait is not null then {schema}.now() + j.wait
              when j.delay is not null then {schema}.now() + j.delay
              else j.scheduled_for end,
         case when j.wait is not null then {schema}.now() + j.wait
              when j.delay is not null then {schema}.now() + j.delay
              else coalesce(greatest(j.scheduled_for, {schema}.now()), {schema}.now()) end,
         coalesce(j.mode, 'live'), j.ttl, coalesce(j.reset, false), j.ord
  from rows from (json_to_recordset(p_jobs) as (
    id uuid, org_id text, task text, queue text, priority smallint, max_attempts smallint, cancellable boolean,
    payload jsonb, project_id uuid, actor_type text, actor_id text, request_id text, correlation_id text, parent_id uuid,
    traceparent text, key text, created_at timestamptz, scheduled_for timestamptz, delay interval, mode text,
    ttl interval, wait interval, reset boolean)) with ordinality as j (
    id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type, actor_id, request_id,
    correlation_id, parent_id, traceparent, key, created_at, scheduled_for, delay, mode, ttl, wait, reset, ord)
$$;

-- The same task and payload under one key have the same fingerprint, whatever the order of the payload's fields.
create function {schema}.fingerprint(p_task text, p_payload jsonb) returns bytea language sql immutable
  return sha256(convert_to(p_task || p_payload::text, 'utf8'));

-- Write a job and its ticket; `p_after` holds it behind another job of its key.
create function {schema}.write_job(e {schema}.envelope, p_after uuid) returns void
language sql as $$
  insert into {schema}.job
  values (e.id, e.org_id, e.task, e.queue, e.priority, e.max_attempts, e.cancellable, e.payload, e.project_id, e.actor_type,
          e.actor_id, e.request_id, e.correlation_id, e.parent_id, e.traceparent, e.key, e.created_at, e.scheduled_for);
  insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, after, due_then)
  values (e.id, e.org_id, e.task, e.queue, e.priority, case when p_after is null then e.due_at else 'infinity' end,
          p_after, case when p_after is not null then e.due_at end);
$$;

-- A failed, dead or cancelled job back to waiting, with a new payload. Its history stays in `attempt` and `audit`.
create function {schema}.reset_job(p_id uuid, e {schema}.envelope) returns boolean
language plpgsql as $$
begin
  perform set_config('mainspring.verb', 'reset', true);
  delete from {schema}.finished f where f.id = p_id and f.state in ('failed', 'dead', 'cancelled');
  if not found then
    perform set_config('mainspring.verb', '', true);
    return false;
  end if;
  update {schema}.job j set payload = e.payload, scheduled_for = e.scheduled_for, max_attempts = e.max_attempts
  where j.id = p_id;
  insert into {schema}.waiting (id, org_id, task, queue, priority, due_at)
  select j.id, j.org_id, j.task, j.queue, j.priority, e.due_at from {schema}.job j where j.id = p_id;
  insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id, correlation_id)
  select j.org_id, {schema}.now(), 'job.reset', j.id, j.task, 0, j.project_id, e.actor_type, e.actor_id, e.request_id,
         e.correlation_id
  from {schema}.job j where j.id = p_id;
  perform set_config('mainspring.verb', '', true);
  return true;
end $$;

-- A job that has not started takes over a new payload and due time. The ticket is locked first, so no claim starts it.
create function {schema}.replace_job(p_id uuid, e {schema}.envelope) returns boolean
language plpgsql as $$
begin
  perform set_config('mainspring.verb', 'replace', true);
  update {schema}.waiting w
  set due_at = case when w.after is null then e.due_at else w.due_at end,
      due_then = case when w.after is not null then e.due_at end
  where w.id = p_id and w.attempt = 0;
  if not found then
    perform set_config('mainspring.verb', '', true);
    return false;
  end if;
  update {schema}.job j set payload = e.payload, scheduled_for = e.scheduled_for, max_attempts = e.max_attempts
  where j.id = p_id;
  perform set_config('mainspring.verb', '', true);
  return true;
end $$;

-- What the mode of a key that is taken makes of one more enqueue.
create function {schema}.enqueue_again(e {schema}.envelope) returns table (job_id uuid, answer text, state text)
language plpgsql as $$
#variable_conflict use_column
declare
  k {schema}.idempotency;
  was record;
  free boolean;
  print constant bytea := {schema}.fingerprint(e.task, e.payload);
  new_state constant text := case when e.due_at > {schema}.now() then 'scheduled' else 'ready' end;
begin
  loop  -- until an answer holds under the lock of the key; tickets may move meanwhile
    select * into k from {schema}.idempotency i where i.org_id = e.org_id and i.key = e.key for update;
    if not found then
      insert into {schema}.idempotency (org_id, key, fingerprint, job_id, ttl, first_seen_at, last_seen_at)
      values (e.org_id, e.key, print, e.id, e.ttl, {schema}.now(), {schema}.now()) on conflict do nothing;
      continue when not found;
      perform {schema}.write_job(e, null);
      return query select e.id, 'created', new_state;
      return;
    end if;

    select s.state, s.attempt, s.finished_at, j.task = e.task as same_task into was
    from {schema}.state_of(k.job_id) s join {schema}.job j on j.id = k.job_id;

    -- Asked to run again after a failure? A job keeps its task: another one's payload is none for it.
    if (e.reset or e.mode = 'reset_failed') and was.state in ('failed', 'dead', 'cancelled') and was.same_task then
      continue when not {schema}.reset_job(k.job_id, e);
      update {schema}.idempotency i set fingerprint = print, last_seen_at = {schema}.now()
      where i.org_id = e.org_id and i.key = e.key;
      return query select k.job_id, 'reset', new_state;
      return;
    end if;

    free := case  -- for a new job?
      when e.mode in ('live', 'replace', 'debounce')
        then was.state is null or was.state in ('succeeded', 'failed', 'dead', 'cancelled', 'running') or was.attempt > 0
      when was.state is null  -- pruned
        then k.expires_at <= {schema}.now() or ((e.reset or e.mode = 'reset_failed') and k.status in ('failed', 'dead'))
      when e.mode = 'window'
        then was.finished_at + k.ttl <= {schema}.now() or (was.state = 'cancelled' and was.attempt = 0)
      else false
    end;
    if free then
      update {schema}.idempotency i
      set fingerprint = print, job_id = e.id, ttl = e.ttl, last_seen_at = {schema}.now(), status = null,
          expires_at = null, result_ref = null, error_ref = null
      where i.org_id = e.org_id and i.key = e.key;
      if was.state in ('running', 'scheduled', 'ready', 'retrying') then  -- live: behind the one that has started
        perform {schema}.write_job(e, k.job_id);
        return query select e.id, 'created', 'scheduled';
      else
        perform {schema}.write_job(e, null);
        return query select e.id, 'created', new_state;
      end if;
      return;
    end if;

    -- The job under the key stands.
    if e.mode in ('replace', 'debounce') and was.same_task then
      continue when not {schema}.replace_job(k.job_id, e);
      update {schema}.idempotency i set fingerprint = print, last_seen_at = {schema}.now()
      where i.org_id = e.org_id and i.key = e.key;
      return query select k.job_id, 'replaced', s.state from {schema}.state_of(k.job_id) s;
      return;
    end if;
    if k.fingerprint <> print then
      raise exception 'key: % is taken by job % with another task or payload', left(e.key, 100), k.job_id
        using errcode = 'MS002', detail = k.job_id::text;
    end if;
    update {schema}.idempotency i set last_seen_at = {schema}.now() where i.org_id = e.org_id and i.key = e.key;
    return query select k.job_id, 'existing', coalesce(was.state, k.status, 'ready');
    return;
  end loop;
end $$;

-- Who: every client, every enqueue, in the caller's transaction where there is one. Answers one row a job, in order.
create function {schema}.enqueue_many(p_jobs json) returns table (job_id uuid, answer text, state text)
language plpgsql as $$
#variable_conflict use_column
declare
  ids     uuid[];
  answers text[];
  states  text[];
  e       {schema}.envelope;
  again   record;
begin
  if strpos(p_jobs::text, '"key"') = 0 then  -- nothing to deduplicate: measured at half the cost of what follows
    return query
    with x as materialized (
      select * from {schema}.envelopes(p_jobs)
    ), written as (
      insert into {schema}.job
      select id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type, actor_id,
             request_id, correlation_id, parent_id, traceparent, null, created_at, scheduled_for
      from x
    ), ticketed as (
      insert into {schema}.waiting (id, org_id, task, queue, priority, due_at)
      select id, org_id, task, queue, priority, due_at from x
    )
    select id, 'created', case when due_at > {schema}.now() then 'scheduled' else 'ready' end from x;
  else
    with x as materialized (
      select * from {schema}.envelopes(p_jobs)
    ), taken as (  -- in one order by everybody, so that two batches never wait for each other in a circle
      insert into {schema}.idempotency (org_id, key, fingerprint, job_id, ttl, first_seen_at, last_seen_at)
      select org_id, key, {schema}.fingerprint(task, payload), id, ttl, {schema}.now(), {schema}.now()
      from x where key is not null order by org_id, key, ord
      on conflict do nothing returning job_id
    ), fresh as materialized (
      select * from x where key is null union all select x.* from x join taken on taken.job_id = x.id where x.key is not null
    ), written as (
      insert into {schema}.job
      select id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type, actor_id,
             request_id, correlation_id, parent_id, traceparent, key, created_at, scheduled_for
      from fresh
    ), ticketed as (
      insert into {schema}.waiting (id, org_id, task, queue, priority, due_at)
      select id, org_id, task, queue, priority, due_at from fresh returning id, due_at
    )
    select array_agg(x.id order by x.ord), array_agg(case when t.id is not null then 'created' end order by x.ord),
           array_agg(case when t.due_at > {schema}.now() then 'scheduled' else 'ready' end order by x.ord)
    into ids, answers, states
    from x left join ticketed t on t.id = x.id;

    if array_position(answers, null) is not null then  -- some keys were taken: what does their mode make of it?
      for e in
        select x.* from {schema}.envelopes(p_jobs) x where answers[x.ord] is null order by x.org_id, x.key, x.ord
      loop
        select * into again from {schema}.enqueue_again(e);
        ids[e.ord] := again.job_id;
        answers[e.ord] := again.answer;
        states[e.ord] := again.state;
      end loop;
    end if;
    return query select * from unnest(ids, answers, states);
  end if;
  if (select last_value from {schema}.idle_until) > extract(epoch from clock_timestamp()) * 1000 then
    perform {schema}.wake();
  end if;
end $$;

-- Who: triggers, psql and other languages. The same checks as the Python client, then enqueue_many.
create function {schema}.enqueue(
  task text, payload jsonb default '{}', queue text default 'q:default', priority integer default 2,
  org_id text default 'default', key text default null, mode text default null, scheduled_for timestamptz default null,
  delay interval default null, project_id uuid default null, actor_type text default 'system',
  actor_id text default 'SYSTEM', request_id text default null, correlation_id text default null,
  parent_id uuid default null, traceparent text default null, max_attempts integer default 5,
  cancellable boolean default true, ttl interval default null, wait interval default null, reset boolean default false,
  id uuid default null
) returns table (job_id uuid, answer text, state text) language plpgsql as $$
#variable_conflict use_variable
declare
  bad text;
  longest constant interval := '3653 days';
begin
  bad := case
    when coalesce(task, '') = '' or length(task) > 200 then 'task: must have 1 to 200 characters'
    when payload is null or jsonb_typeof(payload) <> 'object' then 'payload: must be a JSON object'
    when octet_length(payload::text) > 262144 then 'payload: larger than 256 KiB'
    when jsonb_path_exists(payload, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")')
      then 'payload: nested deeper than 64 levels'
    when coalesce(queue, '') = '' or length(queue) > 63 then 'queue: must have 1 to 63 characters'
    when queue = 'q:deadletter' then 'queue: nothing is enqueued to q:deadletter'
    when priority is null or priority not between 0 and 3 then 'priority: must be 0, 1, 2 or 3'
    when coalesce(org_id, '') = '' or length(org_id) > 200 then 'org_id: must have 1 to 200 characters'
    when actor_type is null or actor_type not in ('user', 'system', 'api_key')
      then 'actor_type: must be user, system or api_key'
    when coalesce(actor_id, '') = '' or length(actor_id) > 200 then 'actor_id: must have 1 to 200 characters'
    when request_id = '' or length(request_id) > 200 then 'request_id: must have 1 to 200 characters'
    when correlation_id = '' or length(correlation_id) > 200 then 'correlation_id: must have 1 to 200 characters'
    when max_attempts is null or max_attempts not between 1 and 1000 then 'max_attempts: must be between 1 and 1000'
    when key = '' or length(key) > 512 then 'key: must have 1 to 512 characters'
    when mode not in ('live', 'keep', 'window', 'reset_failed', 'replace', 'debounce') then 'mode: unknown'
    when key is null and (mode is not null or reset) then 'key: ' || coalesce(mode, 'reset') || ' needs one'
    when mode = 'debounce' and wait is null then 'wait: debounce needs it'
    when wait not between interval '0' and longest then 'wait: must be between 0 and 10 years'
    when ttl not between interval '0' and longest then 'ttl: must be between 0 and 10 years'
    when delay not between interval '0' and longest then 'delay: must be between 0 and 10 years'
    when delay is not null and scheduled_for is not null then 'delay: give either a delay or scheduled_for'
    when not isfinite(scheduled_for) or scheduled_for >= '2201-01-01Z' then 'scheduled_for: lies after the year 2200'
  end;
  if bad is not null then
    raise exception '%', bad
      using errcode = 'MS001', detail = split_part(bad, ':', 1),
            hint = case when bad like 'payload: larger%' then 'PAYLOAD_TOO_LARGE' else 'VALIDATION_ERROR' end;
  end if;
  if traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
    traceparent := null;
  end if;
  return query select * from {schema}.enqueue_many(json_build_array(json_build_object(
    'id', coalesce(id, {schema}.uuid7()), 'task', task, 'payload', payload, 'queue', queue, 'priority', priority,
    'org_id', org_id, 'key', key, 'mode', mode, 'scheduled_for', scheduled_for, 'delay', delay, 'project_id', project_id,
    'actor_type', actor_type, 'actor_id', actor_id, 'request_id', request_id, 'correlation_id', correlation_id,
    'parent_id', parent_id, 'traceparent', traceparent, 'max_attempts', max_attempts, 'cancellable', cancellable,
    'ttl', ttl, 'wait', wait, 'reset', reset)));
end $$;
