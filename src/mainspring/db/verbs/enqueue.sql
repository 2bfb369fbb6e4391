-- Enqueue: one JSON parameter for one job or a thousand, with dedupe and its answer in one call.
--
-- A function, so that every driver, ORM, trigger and psql enqueues in the caller's own transaction by the same words.
-- One JSON text made by the client is as fast as COPY and keeps the answer (docs/adr/0001).
-- SQLSTATEs of our own: MS001 validation (detail: the field), MS002 key reused (detail: the job), MS004 refused
-- by a trigger, MS005 lease lost, MS006 queue full (detail: the queue).

-- A UUID of version 7, for callers that bring none (PostgreSQL has uuidv7() only from 18 on).
create or replace function {schema}.uuid7() returns uuid language sql volatile
  return encode(set_bit(set_bit(overlay(uuid_send(gen_random_uuid())
    placing substring(int8send((extract(epoch from clock_timestamp()) * 1000)::bigint) from 3) from 1 for 6),
    52, 1), 53, 1), 'hex')::uuid;

-- Tell a worker that sleeps: at most one notification per 10 ms in the whole database, none while all are busy.
-- NOTIFY holds a global lock through its WAL flush, so it must stay rare. A lost hint costs one poll interval. A last one
-- that lies ahead was sent before the clock was set back, and is none.
create or replace function {schema}.wake() returns boolean language plpgsql as $$
declare
  t constant bigint := extract(epoch from clock_timestamp()) * 1000;
begin
  if (select last_value from {schema}.idle_until) > t and (select last_value from {schema}.woken_at) not between t - 9 and t + 1000 then
    perform setval('{schema}.woken_at', t), pg_notify({channel}, '');
    return true;
  end if;
  return false;
end $$;

-- Where one job stands: in exactly one of the ticket tables, read in one snapshot.
create or replace function {schema}.state_of(p_id uuid) returns table (state text, attempt smallint, finished_at timestamptz)
language sql stable as $$
  select case when w.due_at <= {schema}.now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end,
         w.attempt, null::timestamptz
  from {schema}.waiting w where w.id = p_id
  union all select 'running', r.attempt, null from {schema}.running r where r.id = p_id
  union all select f.state, f.attempt, f.finished_at from {schema}.finished f where f.id = p_id
$$;

-- A producer's clock may be off by a minute, not by more.
create or replace function {schema}.plausible(p_created_at timestamptz) returns timestamptz language plpgsql stable as $$
begin
  if p_created_at > {schema}.now() + interval '60 s' then
    raise exception 'created_at: more than 60 s ahead of the database''s clock' using errcode = 'MS001', detail = 'created_at';
  end if;
  return p_created_at;
end $$;

-- Inlined where it is used. `due_at` is never in the past: claims keep a lower bound on it.
create or replace function {schema}.envelopes(p_jobs json) returns setof {schema}.envelope language sql stable as $$
  select j.id, coalesce(j.org_id, 'default'), j.task, coalesce(j.queue, 'q:default'), coalesce(j.priority, 2::smallint),
         coalesce(j.max_attempts, 5::smallint), coalesce(j.cancellable, true), j.payload, j.project_id,
         coalesce(j.actor_type, 'system'), coalesce(j.actor_id, 'SYSTEM'), coalesce(j.request_id, j.id::text),
         coalesce(j.correlation_id, j.id::text), j.parent_id, j.traceparent, j.key, j.strand,
         case when j.created_at is null then {schema}.now() else {schema}.plausible(j.created_at) end,
         case when j.wait is not null then {schema}.now() + j.wait
              when j.delay is not null then {schema}.now() + j.delay
              else j.scheduled_for end,
         case when j.wait is not null then {schema}.now() + j.wait
              when j.delay is not null then {schema}.now() + j.delay
              else coalesce(greatest(j.scheduled_for, {schema}.now()), {schema}.now()) end,
         coalesce(j.mode, 'live'), j.ttl, coalesce(j.reset, false), coalesce(j.unless_live, false), j.ord
  from rows from (json_to_recordset(p_jobs) as (
    id uuid, org_id text, task text, queue text, priority smallint, max_attempts smallint, cancellable boolean,
    payload jsonb, project_id uuid, actor_type text, actor_id text, request_id text, correlation_id text, parent_id uuid,
    traceparent text, key text, strand text, created_at timestamptz, scheduled_for timestamptz, delay interval,
    mode text, ttl interval, wait interval, reset boolean, unless_live boolean)) with ordinality as j (
    id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type, actor_id, request_id,
    correlation_id, parent_id, traceparent, key, strand, created_at, scheduled_for, delay, mode, ttl, wait, reset,
    unless_live, ord)
$$;

-- The same task and payload under one key have the same fingerprint, whatever the order of the payload's fields. Of an
-- encrypted payload, which is never the same twice, the envelope brings one.
create or replace function {schema}.fingerprint(p_task text, p_payload jsonb) returns bytea language sql immutable
  return sha256(convert_to(p_task || coalesce(p_payload #>> '{$mainspring,fingerprint}', p_payload::text), 'utf8'));

-- Write a job and its ticket; `p_after` holds it behind another job of its key.
create or replace function {schema}.write_job(e {schema}.envelope, p_after uuid) returns void
language sql as $$
  insert into {schema}.job
  values (e.id, e.org_id, e.task, e.queue, e.priority, e.max_attempts, e.cancellable, e.payload, e.project_id, e.actor_type,
          e.actor_id, e.request_id, e.correlation_id, e.parent_id, e.traceparent, e.key, e.strand, e.created_at, e.scheduled_for);
  insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, after, due_then, strand)
  values (e.id, e.org_id, e.task, e.queue, e.priority, case when p_after is null then e.due_at else 'infinity' end,
          p_after, case when p_after is not null then e.due_at end, e.strand);
$$;

-- A failed, dead or cancelled job back to waiting, with a new payload. Its history stays in `attempt` and `audit`.
create or replace function {schema}.reset_job(p_id uuid, e {schema}.envelope) returns boolean
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
  perform {schema}.forget(array[p_id]);  -- its steps were done for another payload
  delete from {schema}.resolution r where r.org_id = e.org_id and r.job_id = p_id;  -- it was discarded, and is wanted again
  insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, strand)
  select j.id, j.org_id, j.task, j.queue, j.priority, e.due_at, j.strand from {schema}.job j where j.id = p_id;
  perform {schema}.reopen(p_id);
  insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id, correlation_id)
  select j.org_id, {schema}.now(), 'job.reset', j.id, j.task, 0, j.project_id, e.actor_type, e.actor_id, e.request_id,
         e.correlation_id
  from {schema}.job j where j.id = p_id;
  perform set_config('mainspring.verb', '', true);
  return true;
end $$;

-- Whether a job waits for another one; what a limit has put off is merely due later.
create or replace function {schema}.is_held(w {schema}.waiting) returns boolean language sql immutable
  return w.after is not null or w.gate is not distinct from 'parents';

-- A job that has not started takes over a new payload and due time. The ticket is locked first, so no claim starts it.
create or replace function {schema}.replace_job(p_id uuid, e {schema}.envelope) returns boolean
language plpgsql as $$
declare
  before timestamptz;
begin
  perform set_config('mainspring.verb', 'replace', true);
  select coalesce(w.due_then, w.due_at) into before from {schema}.waiting w where w.id = p_id for update;
  update {schema}.waiting w
  set due_at = case when {schema}.is_held(w) then w.due_at else e.due_at end,
      due_then = case when {schema}.is_held(w) then e.due_at end,
      gate = case when {schema}.is_held(w) then w.gate end  -- a limit looks at it again
  where w.id = p_id and w.attempt = 0;
  if not found then
    perform set_config('mainspring.verb', '', true);
    return false;
  end if;
  update {schema}.job j set payload = e.payload, scheduled_for = e.scheduled_for, max_attempts = e.max_attempts
  where j.id = p_id;
  perform set_config('mainspring.verb', '', true);
  perform {schema}.forget(array[p_id]);  -- put off or given back after some steps: they were done for another payload
  insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, detail)
  select j.org_id, {schema}.now(), 'job.replaced', j.id, j.task, 0, j.project_id, e.actor_type, e.actor_id, e.request_id,
         e.correlation_id, jsonb_build_object('before', jsonb_build_object('due_at', before),
                                              'after', jsonb_build_object('due_at', e.due_at))
  from {schema}.job j where j.id = p_id;
  return true;
end $$;

-- What the mode of a key that is taken makes of one more enqueue.
create or replace function {schema}.enqueue_again(e {schema}.envelope) returns table (job_id uuid, answer text, state text)
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

    -- Wanted only where nothing is under way for it? Then whatever waits or runs will do, also with another payload.
    if e.unless_live and was.state in ('scheduled', 'ready', 'retrying', 'running') then
      return query select k.job_id, 'existing', was.state;
      return;
    end if;

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

-- Back-pressure: refuse best-effort jobs of a queue that is full, with all that is enqueued beside them. What comes at the
-- same moment may still pass it. What a limit has put off, by a minute at most, is as ready as before, and so is what waits
-- at a gate. Looks at hardly more tickets than the limit: index waiting_claim, one range a lane, and waiting_parked.
create or replace function {schema}.check_room(p_jobs json) returns void language plpgsql set enable_seqscan = off as $$
declare
  q record;
begin
  for q in
    select mq.name, mq.max_depth from {schema}.queue mq
    where mq.org_id = 'SYSTEM' and mq.max_depth is not null and mq.name in (
      select coalesce(j.queue, 'q:default') from json_to_recordset(p_jobs) as j(queue text, best_effort boolean) where j.best_effort)
  loop
    if (select count(*) from (
          (select from generate_series(0, 3) p(priority) cross join lateral (
             select from {schema}.waiting w
             where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now() + interval '1 min'
               and coalesce(w.due_then, w.due_at) <= {schema}.now()
             limit q.max_depth) x
           limit q.max_depth)
          union all
          (select from {schema}.waiting w
           where w.queue = q.name and w.due_at = 'infinity' and w.gate <> 'parents' and w.due_then <= {schema}.now()
           limit q.max_depth)) y) >= q.max_depth then
      raise exception 'queue: % is full, % jobs or more are ready: best-effort jobs are refused', q.name, q.max_depth
        using errcode = 'MS006', detail = q.name;
    end if;
  end loop;
end $$;

-- Who: every client, every enqueue, in the caller's transaction where there is one. Answers one row a job, in order.
-- p_checked: by the client, so that a batch is not checked twice. p_linked: something will wait for how the new ones end.
create or replace function {schema}.enqueue_many(p_jobs json, p_checked boolean default false, p_linked boolean default false)
returns table (job_id uuid, answer text, state text) language plpgsql as $$
#variable_conflict use_column
declare
  ids     uuid[];
  answers text[];
  states  text[];
  e       {schema}.envelope;
  again   record;
begin
  if p_checked is not true then
    perform {schema}.check_jobs(p_jobs);
  end if;
  if strpos(p_jobs::text, '"best_effort"') > 0 then
    perform {schema}.check_room(p_jobs);
  end if;
  if strpos(p_jobs::text, '"key"') = 0 then  -- nothing to deduplicate: measured at half the cost of what follows
    return query
    with x as materialized (
      select * from {schema}.envelopes(p_jobs)
    ), written as (
      insert into {schema}.job
      select id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type, actor_id,
             request_id, correlation_id, parent_id, traceparent, null, strand, created_at, scheduled_for
      from x
    ), ticketed as (
      insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, strand, linked)
      select id, org_id, task, queue, priority, due_at, strand, p_linked from x
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
             request_id, correlation_id, parent_id, traceparent, key, strand, created_at, scheduled_for
      from fresh
    ), ticketed as (
      insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, strand, linked)
      select id, org_id, task, queue, priority, due_at, strand, p_linked from fresh returning id, due_at
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
        if p_linked and again.answer = 'created' then
          update {schema}.waiting w set linked = true where w.id = again.job_id;
        end if;
      end loop;
    end if;
    return query select * from unnest(ids, answers, states);
  end if;
  if (select last_value from {schema}.idle_until) > extract(epoch from clock_timestamp()) * 1000 then
    perform {schema}.wake();
  end if;
end $$;

-- Who: triggers, psql and other languages, in their own transaction; checked as the Python client checks. The fields of
-- p_allow_secrets may hold what looks like a secret.
create or replace function {schema}.enqueue(
  task text, payload jsonb default '{}', queue text default 'q:default', priority integer default 2,
  org_id text default 'default', key text default null, mode text default null, scheduled_for timestamptz default null,
  delay interval default null, project_id uuid default null, actor_type text default 'system',
  actor_id text default 'SYSTEM', request_id text default null, correlation_id text default null,
  parent_id uuid default null, traceparent text default null, max_attempts integer default 5,
  cancellable boolean default true, ttl interval default null, wait interval default null, reset boolean default false,
  id uuid default null, allow_secrets text[] default '{}', strand text default null, best_effort boolean default false
) returns table (job_id uuid, answer text, state text) language plpgsql as $$
#variable_conflict use_variable
begin
  if traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
    traceparent := null;
  end if;
  return query select * from {schema}.enqueue_many(json_build_array(json_build_object(
    'id', coalesce(id, {schema}.uuid7()), 'task', task, 'payload', payload, 'queue', queue, 'priority', priority,
    'org_id', org_id, 'key', key, 'mode', mode, 'scheduled_for', scheduled_for, 'delay', delay, 'project_id', project_id,
    'actor_type', actor_type, 'actor_id', actor_id, 'request_id', request_id, 'correlation_id', correlation_id,
    'parent_id', parent_id, 'traceparent', traceparent, 'max_attempts', max_attempts, 'cancellable', cancellable,
    'ttl', ttl, 'wait', wait, 'reset', reset, 'allow_secrets', allow_secrets, 'strand', strand,
    'best_effort', best_effort)));
end $$;
