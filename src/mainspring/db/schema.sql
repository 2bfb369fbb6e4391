-- The schema as all migrations leave it, for reading: `make schema` writes this file, nothing runs it.

CREATE SCHEMA mainspring;

CREATE TYPE mainspring.envelope AS (
	id uuid,
	org_id text,
	task text,
	queue text,
	priority smallint,
	max_attempts smallint,
	cancellable boolean,
	payload jsonb,
	project_id uuid,
	actor_type text,
	actor_id text,
	request_id text,
	correlation_id text,
	parent_id uuid,
	traceparent text,
	key text,
	created_at timestamp with time zone,
	scheduled_for timestamp with time zone,
	due_at timestamp with time zone,
	mode text,
	ttl interval,
	reset boolean,
	ord bigint
);

CREATE FUNCTION mainspring.cancel(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
  j "mainspring".job;
  w "mainspring".waiting;
  r "mainspring".running;
  ended text;
  who constant jsonb := jsonb_build_object('by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason);
begin
  select * into j from "mainspring".job x where x.id = p_id and (p_org is null or x.org_id = p_org);
  if not found then
    return 'not_found';
  end if;
  -- Enqueue locks the key before the ticket; so do we, where we need both.
  perform from "mainspring".idempotency i where i.org_id = j.org_id and i.key = j.key
    and exists (select from "mainspring".waiting x where x.id = p_id and x.after is not null) for update;
  loop
    delete from "mainspring".waiting x where x.id = p_id returning * into w;
    if found then
      insert into "mainspring".finished (id, org_id, state, attempt, crashes, snoozes, finished_at, error)
      values (w.id, w.org_id, 'cancelled', w.attempt, w.crashes, w.snoozes, "mainspring".now(),
              "mainspring".cancelled(p_reason) || jsonb_build_object('attempt', w.attempt, 'at', "mainspring".now()));
      perform "mainspring".release_behind(p_id);
      if w.after is not null then  -- the key goes back to the job that this one waited for
        update "mainspring".idempotency i set job_id = b.id, fingerprint = "mainspring".fingerprint(b.task, b.payload)
        from "mainspring".job b
        where i.org_id = j.org_id and i.key = j.key and i.job_id = p_id and b.id = w.after;
      end if;
      perform "mainspring".record('job.cancel_requested', p_id, w.attempt, who);
      perform "mainspring".record('job.cancelled', p_id, w.attempt, who);
      return 'cancelled';
    end if;
    select * into r from "mainspring".running x where x.id = p_id for update;
    if found then
      if not j.cancellable then
        return 'not_cancellable';
      end if;
      if r.cancel_requested_at is null then
        update "mainspring".running x set cancel_requested_at = "mainspring".now() where x.id = p_id;
        perform "mainspring".record('job.cancel_requested', p_id, r.attempt, who);
        perform pg_notify('mainspring', '');  -- rare: workers look for cancelled jobs when woken
      end if;
      return 'cancel_requested';
    end if;
    select f.state into ended from "mainspring".finished f where f.id = p_id;
    if found then
      return case when ended = 'cancelled' then 'cancelled' else 'already_finished' end;
    end if;
    if not exists (select from "mainspring".job x where x.id = p_id) then
      return 'not_found';
    end if;
  end loop;
end $$;

CREATE TABLE mainspring.audit (
    org_id text NOT NULL,
    id bigint NOT NULL,
    at timestamp with time zone NOT NULL,
    event text NOT NULL,
    job_id uuid,
    task text,
    attempt smallint,
    project_id uuid,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    request_id text,
    correlation_id text,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL
);

CREATE FUNCTION mainspring.cancellation(p_job uuid) RETURNS jsonb
    LANGUAGE sql STABLE
    RETURN COALESCE((SELECT a.detail FROM mainspring.audit a WHERE ((a.job_id = cancellation.p_job) AND (a.event = 'job.cancel_requested'::text)) ORDER BY a.id DESC LIMIT 1), '{}'::jsonb);

CREATE FUNCTION mainspring.cancelled(p_reason text) RETURNS jsonb
    LANGUAGE sql STABLE
    RETURN jsonb_build_object('code', 'CANCELLED', 'class', 'permanent', 'message', COALESCE(p_reason, 'The job was cancelled.'::text));

CREATE FUNCTION mainspring.claim(p_worker text, p_lease interval, p_total integer, p_queues text[], p_limits integer[], p_low0 timestamp with time zone[], p_low1 timestamp with time zone[], p_low2 timestamp with time zone[], p_low3 timestamp with time zone[], p_tasks text[], p_oldest boolean, p_rescued boolean) RETURNS TABLE(id uuid, task text, payload text, org_id text, project_id uuid, actor_type text, actor_id text, request_id text, correlation_id text, traceparent text, key text, created_at timestamp with time zone, scheduled_for timestamp with time zone, max_attempts smallint, epoch bigint, attempt smallint, crashes smallint, snoozes smallint, suspect boolean, queue text, priority smallint, due_at timestamp with time zone, claimed_at timestamp with time zone)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
begin
  perform pg_advisory_xact_lock_shared((864492496828913283));
  return query
  with rescued as materialized (
    select w.ctid as tid from "mainspring".waiting w
    where p_rescued and w.crashes > 0 and w.due_at <= "mainspring".now() and w.queue = any(p_queues) and w.task = any(p_tasks)
      and not exists (
        select from "mainspring".queue mq where mq.org_id = 'SYSTEM' and mq.name = w.queue and mq.paused_at is not null)
    order by w.due_at, w.id limit least(p_total, 1) for update of w skip locked
  ), ready as materialized (
    select x.tid
    from unnest(p_queues, p_limits, p_low0, p_low1, p_low2, p_low3) q(name, n, l0, l1, l2, l3)
    cross join lateral (
      select y.tid
      from (
        select p.priority, p.low
        from (values (0::smallint, q.l0), (1::smallint, q.l1), (2::smallint, q.l2), (3::smallint, q.l3)) p(priority, low)
        order by case when p_oldest then (
          select w.due_at from "mainspring".waiting w
          where w.queue = q.name and w.priority = p.priority and w.due_at <= "mainspring".now() and w.due_at >= p.low
          order by w.due_at limit 1) end, p.priority
      ) p
      cross join lateral (
        select w.ctid as tid from "mainspring".waiting w
        where w.queue = q.name and w.priority = p.priority and w.due_at <= "mainspring".now() and w.due_at >= p.low
          and w.task = any(p_tasks) and w.crashes = 0
        order by w.due_at, w.id limit q.n for update of w skip locked) y
      limit q.n) x
    where not exists (
      select from "mainspring".queue mq where mq.org_id = 'SYSTEM' and mq.name = q.name and mq.paused_at is not null)
    limit p_total - (select count(*) from rescued)  -- lazy: locks exactly the rows it takes
  ), d as (
    delete from "mainspring".waiting w
    where w.ctid = any(array(select tid from ready union all select tid from rescued))
    returning w.id, w.org_id, w.task, w.queue, w.priority, w.due_at, (w.attempt + 1)::smallint as attempt, w.crashes,
              w.snoozes, w.suspect, nextval('"mainspring".epoch') as epoch
  ), r as (
    insert into "mainspring".running (id, epoch, worker, org_id, task, queue, priority, due_at, attempt, crashes, snoozes,
                                  suspect, started_at, lease_expires_at)
    select d.id, d.epoch, p_worker, d.org_id, d.task, d.queue, d.priority, d.due_at, d.attempt, d.crashes, d.snoozes,
           d.suspect, "mainspring".now(), "mainspring".now() + p_lease
    from d
  )
  select d.id, d.task, j.payload::text, d.org_id, j.project_id, j.actor_type, j.actor_id, j.request_id, j.correlation_id,
         j.traceparent, j.key, j.created_at, j.scheduled_for, j.max_attempts, d.epoch, d.attempt, d.crashes, d.snoozes,
         d.suspect, d.queue, d.priority, d.due_at, "mainspring".now()
  from d cross join lateral (select * from "mainspring".job j where j.id = d.id limit 1) j
  order by d.priority, d.due_at, d.id;  -- the order of row addresses is not the order of due times
end $$;

CREATE FUNCTION mainspring.claims_seen() RETURNS void
    LANGUAGE sql
    AS $$
  select pg_advisory_xact_lock((864492496828913283))
$$;

CREATE FUNCTION mainspring.complete(p_worker text, p_epochs bigint[], p_results jsonb[] DEFAULT NULL::jsonb[]) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
begin
  return query
  with g as (
    delete from "mainspring".running r where r.epoch = any(p_epochs) and r.worker = p_worker returning r.*
  ), f as (
    insert into "mainspring".finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, result)
    select g.id, g.org_id, 'succeeded', g.attempt, g.crashes, g.snoozes, g.worker, g.epoch, g.started_at, "mainspring".now(),
           case when p_results is not null then p_results[array_position(p_epochs, g.epoch)] end
    from g
  ), h as (  -- a job of the same key may wait behind
    update "mainspring".waiting w set due_at = greatest(w.due_then, "mainspring".now()), after = null, due_then = null
    where exists (select from "mainspring".waiting x where x.after is not null)  -- asked once a batch; rarely true
      and w.after = any(array(select g.id from g)) and w.after is not null
  ), late as (  -- success wins over a cancellation that came too late
    insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                                correlation_id)
    select g.org_id, "mainspring".now(), 'job.cancel_too_late', g.id, g.task, g.attempt, j.project_id, j.actor_type,
           j.actor_id, j.request_id, j.correlation_id
    from g cross join lateral (select * from "mainspring".job j where j.id = g.id limit 1) j
    where g.cancel_requested_at is not null
  )
  select g.epoch from g;
end $$;

CREATE FUNCTION mainspring.complete_one(p_worker text, p_epoch bigint, p_result jsonb) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  r "mainspring".running;
begin
  delete from "mainspring".running x where x.epoch = p_epoch and x.worker = p_worker returning * into r;
  if not found then
    raise exception 'the lease of epoch % is lost', p_epoch using errcode = 'MS005';
  end if;
  insert into "mainspring".finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, result)
  values (r.id, r.org_id, 'succeeded', r.attempt, r.crashes, r.snoozes, r.worker, r.epoch, r.started_at, "mainspring".now(), p_result);
  if exists (select from "mainspring".waiting w where w.after = r.id and w.after is not null) then
    perform "mainspring".release_behind(r.id);
  end if;
  if r.cancel_requested_at is not null then
    perform "mainspring".record('job.cancel_too_late', r.id, r.attempt, null);
  end if;
end $$;

CREATE FUNCTION mainspring.enqueue(task text, payload jsonb DEFAULT '{}'::jsonb, queue text DEFAULT 'q:default'::text, priority integer DEFAULT 2, org_id text DEFAULT 'default'::text, key text DEFAULT NULL::text, mode text DEFAULT NULL::text, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, project_id uuid DEFAULT NULL::uuid, actor_type text DEFAULT 'system'::text, actor_id text DEFAULT 'SYSTEM'::text, request_id text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, parent_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text, max_attempts integer DEFAULT 5, cancellable boolean DEFAULT true, ttl interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, reset boolean DEFAULT false, id uuid DEFAULT NULL::uuid) RETURNS TABLE(job_id uuid, answer text, state text)
    LANGUAGE plpgsql
    AS $_$
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
  return query select * from "mainspring".enqueue_many(json_build_array(json_build_object(
    'id', coalesce(id, "mainspring".uuid7()), 'task', task, 'payload', payload, 'queue', queue, 'priority', priority,
    'org_id', org_id, 'key', key, 'mode', mode, 'scheduled_for', scheduled_for, 'delay', delay, 'project_id', project_id,
    'actor_type', actor_type, 'actor_id', actor_id, 'request_id', request_id, 'correlation_id', correlation_id,
    'parent_id', parent_id, 'traceparent', traceparent, 'max_attempts', max_attempts, 'cancellable', cancellable,
    'ttl', ttl, 'wait', wait, 'reset', reset)));
end $_$;

CREATE FUNCTION mainspring.enqueue_again(e mainspring.envelope) RETURNS TABLE(job_id uuid, answer text, state text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
  k "mainspring".idempotency;
  was record;
  free boolean;
  print constant bytea := "mainspring".fingerprint(e.task, e.payload);
  new_state constant text := case when e.due_at > "mainspring".now() then 'scheduled' else 'ready' end;
begin
  loop  -- until an answer holds under the lock of the key; tickets may move meanwhile
    select * into k from "mainspring".idempotency i where i.org_id = e.org_id and i.key = e.key for update;
    if not found then
      insert into "mainspring".idempotency (org_id, key, fingerprint, job_id, ttl, first_seen_at, last_seen_at)
      values (e.org_id, e.key, print, e.id, e.ttl, "mainspring".now(), "mainspring".now()) on conflict do nothing;
      continue when not found;
      perform "mainspring".write_job(e, null);
      return query select e.id, 'created', new_state;
      return;
    end if;

    select s.state, s.attempt, s.finished_at, j.task = e.task as same_task into was
    from "mainspring".state_of(k.job_id) s join "mainspring".job j on j.id = k.job_id;

    -- Asked to run again after a failure? A job keeps its task: another one's payload is none for it.
    if (e.reset or e.mode = 'reset_failed') and was.state in ('failed', 'dead', 'cancelled') and was.same_task then
      continue when not "mainspring".reset_job(k.job_id, e);
      update "mainspring".idempotency i set fingerprint = print, last_seen_at = "mainspring".now()
      where i.org_id = e.org_id and i.key = e.key;
      return query select k.job_id, 'reset', new_state;
      return;
    end if;

    free := case  -- for a new job?
      when e.mode in ('live', 'replace', 'debounce')
        then was.state is null or was.state in ('succeeded', 'failed', 'dead', 'cancelled', 'running') or was.attempt > 0
      when was.state is null  -- pruned
        then k.expires_at <= "mainspring".now() or ((e.reset or e.mode = 'reset_failed') and k.status in ('failed', 'dead'))
      when e.mode = 'window'
        then was.finished_at + k.ttl <= "mainspring".now() or (was.state = 'cancelled' and was.attempt = 0)
      else false
    end;
    if free then
      update "mainspring".idempotency i
      set fingerprint = print, job_id = e.id, ttl = e.ttl, last_seen_at = "mainspring".now(), status = null,
          expires_at = null, result_ref = null, error_ref = null
      where i.org_id = e.org_id and i.key = e.key;
      if was.state in ('running', 'scheduled', 'ready', 'retrying') then  -- live: behind the one that has started
        perform "mainspring".write_job(e, k.job_id);
        return query select e.id, 'created', 'scheduled';
      else
        perform "mainspring".write_job(e, null);
        return query select e.id, 'created', new_state;
      end if;
      return;
    end if;

    -- The job under the key stands.
    if e.mode in ('replace', 'debounce') and was.same_task then
      continue when not "mainspring".replace_job(k.job_id, e);
      update "mainspring".idempotency i set fingerprint = print, last_seen_at = "mainspring".now()
      where i.org_id = e.org_id and i.key = e.key;
      return query select k.job_id, 'replaced', s.state from "mainspring".state_of(k.job_id) s;
      return;
    end if;
    if k.fingerprint <> print then
      raise exception 'key: % is taken by job % with another task or payload', left(e.key, 100), k.job_id
        using errcode = 'MS002', detail = k.job_id::text;
    end if;
    update "mainspring".idempotency i set last_seen_at = "mainspring".now() where i.org_id = e.org_id and i.key = e.key;
    return query select k.job_id, 'existing', coalesce(was.state, k.status, 'ready');
    return;
  end loop;
end $$;

CREATE FUNCTION mainspring.enqueue_many(p_jobs json) RETURNS TABLE(job_id uuid, answer text, state text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
  ids     uuid[];
  answers text[];
  states  text[];
  e       "mainspring".envelope;
  again   record;
begin
  if strpos(p_jobs::text, '"key"') = 0 then  -- nothing to deduplicate: measured at half the cost of what follows
    return query
    with x as materialized (
      select * from "mainspring".envelopes(p_jobs)
    ), written as (
      insert into "mainspring".job
      select id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type, actor_id,
             request_id, correlation_id, parent_id, traceparent, null, created_at, scheduled_for
      from x
    ), ticketed as (
      insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at)
      select id, org_id, task, queue, priority, due_at from x
    )
    select id, 'created', case when due_at > "mainspring".now() then 'scheduled' else 'ready' end from x;
  else
    with x as materialized (
      select * from "mainspring".envelopes(p_jobs)
    ), taken as (  -- in one order by everybody, so that two batches never wait for each other in a circle
      insert into "mainspring".idempotency (org_id, key, fingerprint, job_id, ttl, first_seen_at, last_seen_at)
      select org_id, key, "mainspring".fingerprint(task, payload), id, ttl, "mainspring".now(), "mainspring".now()
      from x where key is not null order by org_id, key, ord
      on conflict do nothing returning job_id
    ), fresh as materialized (
      select * from x where key is null union all select x.* from x join taken on taken.job_id = x.id where x.key is not null
    ), written as (
      insert into "mainspring".job
      select id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type, actor_id,
             request_id, correlation_id, parent_id, traceparent, key, created_at, scheduled_for
      from fresh
    ), ticketed as (
      insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at)
      select id, org_id, task, queue, priority, due_at from fresh returning id, due_at
    )
    select array_agg(x.id order by x.ord), array_agg(case when t.id is not null then 'created' end order by x.ord),
           array_agg(case when t.due_at > "mainspring".now() then 'scheduled' else 'ready' end order by x.ord)
    into ids, answers, states
    from x left join ticketed t on t.id = x.id;

    if array_position(answers, null) is not null then  -- some keys were taken: what does their mode make of it?
      for e in
        select x.* from "mainspring".envelopes(p_jobs) x where answers[x.ord] is null order by x.org_id, x.key, x.ord
      loop
        select * into again from "mainspring".enqueue_again(e);
        ids[e.ord] := again.job_id;
        answers[e.ord] := again.answer;
        states[e.ord] := again.state;
      end loop;
    end if;
    return query select * from unnest(ids, answers, states);
  end if;
  if (select last_value from "mainspring".idle_until) > extract(epoch from clock_timestamp()) * 1000 then
    perform "mainspring".wake();
  end if;
end $$;

CREATE FUNCTION mainspring.envelopes(p_jobs json) RETURNS SETOF mainspring.envelope
    LANGUAGE sql STABLE
    AS $$
  select j.id, coalesce(j.org_id, 'default'), j.task, coalesce(j.queue, 'q:default'), coalesce(j.priority, 2::smallint),
         coalesce(j.max_attempts, 5::smallint), coalesce(j.cancellable, true), j.payload, j.project_id,
         coalesce(j.actor_type, 'system'), coalesce(j.actor_id, 'SYSTEM'), coalesce(j.request_id, j.id::text),
         coalesce(j.correlation_id, j.id::text), j.parent_id, j.traceparent, j.key,
         case when j.created_at is null then "mainspring".now() else "mainspring".plausible(j.created_at) end,
         case when j.wait is not null then "mainspring".now() + j.wait
              when j.delay is not null then "mainspring".now() + j.delay
              else j.scheduled_for end,
         case when j.wait is not null then "mainspring".now() + j.wait
              when j.delay is not null then "mainspring".now() + j.delay
              else coalesce(greatest(j.scheduled_for, "mainspring".now()), "mainspring".now()) end,
         coalesce(j.mode, 'live'), j.ttl, coalesce(j.reset, false), j.ord
  from rows from (json_to_recordset(p_jobs) as (
    id uuid, org_id text, task text, queue text, priority smallint, max_attempts smallint, cancellable boolean,
    payload jsonb, project_id uuid, actor_type text, actor_id text, request_id text, correlation_id text, parent_id uuid,
    traceparent text, key text, created_at timestamptz, scheduled_for timestamptz, delay interval, mode text,
    ttl interval, wait interval, reset boolean)) with ordinality as j (
    id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type, actor_id, request_id,
    correlation_id, parent_id, traceparent, key, created_at, scheduled_for, delay, mode, ttl, wait, reset, ord)
$$;

CREATE FUNCTION mainspring.fingerprint(p_task text, p_payload jsonb) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    RETURN sha256(convert_to((p_task || (p_payload)::text), 'utf8'::name));

CREATE FUNCTION mainspring.guard_append_only() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  raise exception '% is append-only', tg_table_name using errcode = 'MS004';
end $$;

CREATE FUNCTION mainspring.guard_finished() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if tg_op = 'DELETE' and ("mainspring".verb() = 'prune'
     or ("mainspring".verb() = 'replay' and old.state in ('failed', 'dead'))
     or ("mainspring".verb() = 'reset' and old.state in ('failed', 'dead', 'cancelled'))) then
    return old;
  end if;
  raise exception 'a finished job does not change: % of a % job refused', lower(tg_op), old.state using errcode = 'MS004';
end $$;

CREATE FUNCTION mainspring.guard_job() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if tg_op = 'DELETE' then
    if "mainspring".verb() <> 'prune' then
      raise exception 'a job is removed by prune only' using errcode = 'MS004';
    end if;
    return old;
  end if;
  if "mainspring".verb() not in ('reset', 'replace', 'fix') then
    raise exception 'a job is written once: only reset, replace and fix-forward may change its payload'
      using errcode = 'MS004';
  end if;
  if (to_jsonb(new) - '{payload,scheduled_for,max_attempts}'::text[])
     is distinct from (to_jsonb(old) - '{payload,scheduled_for,max_attempts}'::text[]) then
    raise exception 'only the payload, due time and attempt limit of a job may change' using errcode = 'MS004';
  end if;
  if exists (select from "mainspring".running r where r.id = old.id) then
    raise exception 'job % is running: its payload cannot change', old.id using errcode = 'MS004';
  end if;
  return new;
end $$;

CREATE TABLE mainspring.idempotency (
    org_id text NOT NULL,
    key text NOT NULL,
    fingerprint bytea NOT NULL,
    job_id uuid NOT NULL,
    ttl interval,
    first_seen_at timestamp with time zone NOT NULL,
    last_seen_at timestamp with time zone NOT NULL,
    status text,
    expires_at timestamp with time zone,
    result_ref text,
    error_ref text,
    CONSTRAINT idempotency_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'running'::text, 'succeeded'::text, 'failed'::text, 'dead'::text])))
);

CREATE FUNCTION mainspring.job_of(p_org text, p_key text) RETURNS uuid
    LANGUAGE sql STABLE
    RETURN (SELECT i.job_id FROM mainspring.idempotency i WHERE ((i.org_id = job_of.p_org) AND (i.key = job_of.p_key)));

CREATE FUNCTION mainspring.next_due(p_queues text[]) RETURNS interval
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select min(x.due_at) - "mainspring".now()
  from unnest(p_queues) q(name) cross join (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
  cross join lateral (
    select w.due_at from "mainspring".waiting w
    where w.queue = q.name and w.priority = p.priority and w.due_at > "mainspring".now() and w.due_at < 'infinity'
    order by w.due_at limit 1) x
$$;

CREATE FUNCTION mainspring.now() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN statement_timestamp();

CREATE FUNCTION mainspring.pause(p_queue text, p_actor_type text, p_actor_id text, p_reason text) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".queue (name, paused_at, paused_by, pause_reason)
  values (p_queue, "mainspring".now(), p_actor_id, p_reason)
  on conflict (org_id, name) do update
  set paused_at = coalesce("mainspring".queue.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
      pause_reason = excluded.pause_reason;
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  values ('SYSTEM', "mainspring".now(), 'queue.paused', p_actor_type, p_actor_id, jsonb_build_object('queue', p_queue, 'reason', p_reason));
$$;

CREATE FUNCTION mainspring.plausible(p_created_at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
begin
  if p_created_at > "mainspring".now() + interval '60 s' then
    raise exception 'created_at: more than 60 s ahead of the database''s clock' using errcode = 'MS001', detail = 'created_at';
  end if;
  return p_created_at;
end $$;

CREATE FUNCTION mainspring.prioritize(p_id uuid, p_org text, p_priority integer, p_actor_type text, p_actor_id text) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  before integer;
  attempt smallint;
begin
  if p_priority is null or p_priority not between 0 and 3 then
    raise exception 'priority: must be 0, 1, 2 or 3' using errcode = 'MS001', detail = 'priority';
  end if;
  select w.priority, w.attempt into before, attempt from "mainspring".waiting w
  where w.id = p_id and (p_org is null or w.org_id = p_org) for update;
  if not found then
    return null;
  end if;
  update "mainspring".waiting w set priority = p_priority where w.id = p_id;
  perform "mainspring".record('job.prioritized', p_id, attempt,
                          jsonb_build_object('by', p_actor_id, 'by_type', p_actor_type, 'from', before, 'to', p_priority));
  return before;
end $$;

CREATE FUNCTION mainspring.prune(p_states text[], p_before timestamp with time zone, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  gone uuid[];
begin
  perform set_config('mainspring.verb', 'prune', true);
  with f as (
    delete from "mainspring".finished x where x.id in (
      select y.id from "mainspring".finished y
      where y.finished_at < p_before and y.state = any(p_states) limit p_limit for update skip locked)
    returning *
  ), keys as (
    update "mainspring".idempotency i
    set status = case f.state when 'succeeded' then 'succeeded' when 'dead' then 'dead' else 'failed' end,
        expires_at = f.finished_at + i.ttl,
        result_ref = case when f.state = 'succeeded' then f.id::text end,
        error_ref = case when f.state <> 'succeeded' then f.id::text end
    from f join "mainspring".job j on j.id = f.id where i.org_id = j.org_id and i.key = j.key and i.job_id = f.id
  ), trail as (
    insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id, correlation_id)
    select j.org_id, e.at, e.event, j.id, j.task, e.attempt, j.project_id, j.actor_type, j.actor_id, j.request_id, j.correlation_id
    from f join "mainspring".job j on j.id = f.id
    cross join lateral (
      select 'job.enqueued' as event, j.created_at as at, 0::smallint as attempt
      union all select 'job.started', a.started_at, a.attempt from "mainspring".attempt a where a.org_id = j.org_id and a.job_id = j.id
      union all select 'job.started', f.started_at, f.attempt where f.state = 'succeeded'
      union all select 'job.succeeded', f.finished_at, f.attempt where f.state = 'succeeded') e
  )
  select array_agg(f.id) into gone from f;
  delete from "mainspring".attempt a using "mainspring".job j where j.id = any(gone) and a.org_id = j.org_id and a.job_id = j.id;
  delete from "mainspring".job j where j.id = any(gone);
  perform set_config('mainspring.verb', '', true);
  return coalesce(cardinality(gone), 0);
end $$;

CREATE FUNCTION mainspring.raise_idle(p_millis integer) RETURNS void
    LANGUAGE sql
    AS $$
  select setval('"mainspring".idle_until',
                greatest((select last_value from "mainspring".idle_until), (extract(epoch from clock_timestamp()) * 1000)::bigint + p_millis))
$$;

CREATE FUNCTION mainspring.record(p_event text, p_job uuid, p_attempt smallint, p_detail jsonb) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, detail)
  select j.org_id, "mainspring".now(), p_event, j.id, j.task, p_attempt, j.project_id, j.actor_type, j.actor_id, j.request_id,
         j.correlation_id, coalesce(p_detail, '{}')
  from "mainspring".job j where j.id = p_job
$$;

CREATE FUNCTION mainspring.release_behind(p_id uuid) RETURNS void
    LANGUAGE sql
    AS $$
  update "mainspring".waiting w set due_at = greatest(w.due_then, "mainspring".now()), after = null, due_then = null
  where w.after = p_id and w.after is not null
$$;

CREATE FUNCTION mainspring.release_held() RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  n integer;
begin
  update "mainspring".waiting w set due_at = greatest(w.due_then, "mainspring".now()), after = null, due_then = null
  where w.after is not null
    and not exists (select from "mainspring".running r where r.id = w.after)
    and not exists (select from "mainspring".waiting x where x.id = w.after);
  get diagnostics n = row_count;
  return n;
end $$;

CREATE FUNCTION mainspring.renew(p_worker text, p_lease interval, p_epochs bigint[]) RETURNS TABLE(epoch bigint, cancel boolean)
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
  update "mainspring".running r set lease_expires_at = "mainspring".now() + p_lease
  where r.epoch = any(p_epochs) and r.worker = p_worker
  returning r.epoch, r.cancel_requested_at is not null
$$;

CREATE FUNCTION mainspring.replace_job(p_id uuid, e mainspring.envelope) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  perform set_config('mainspring.verb', 'replace', true);
  update "mainspring".waiting w
  set due_at = case when w.after is null then e.due_at else w.due_at end,
      due_then = case when w.after is not null then e.due_at end
  where w.id = p_id and w.attempt = 0;
  if not found then
    perform set_config('mainspring.verb', '', true);
    return false;
  end if;
  update "mainspring".job j set payload = e.payload, scheduled_for = e.scheduled_for, max_attempts = e.max_attempts
  where j.id = p_id;
  perform set_config('mainspring.verb', '', true);
  return true;
end $$;

CREATE FUNCTION mainspring.replay(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text, OUT moved boolean, OUT in_the_way uuid) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
  j "mainspring".job;
  f "mainspring".finished;
begin
  moved := false;
  select * into j from "mainspring".job x where x.id = p_id and (p_org is null or x.org_id = p_org);
  if not found then
    return;
  end if;
  if j.key is not null then
    perform from "mainspring".idempotency i where i.org_id = j.org_id and i.key = j.key for update;
    select i.job_id into in_the_way from "mainspring".idempotency i, "mainspring".state_of(i.job_id) s
    where i.org_id = j.org_id and i.key = j.key and i.job_id <> p_id
      and s.state in ('scheduled', 'ready', 'retrying', 'running');
    if found then
      return;
    end if;
  end if;
  perform set_config('mainspring.verb', 'replay', true);
  delete from "mainspring".finished x where x.id = p_id and x.state in ('failed', 'dead') returning * into f;
  moved := found;
  perform set_config('mainspring.verb', '', true);
  if not moved then
    return;
  end if;
  update "mainspring".idempotency i
  set job_id = p_id, fingerprint = "mainspring".fingerprint(j.task, j.payload), status = null, expires_at = null,
      result_ref = null, error_ref = null
  where i.org_id = j.org_id and i.key = j.key;
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, suspect)
  values (j.id, j.org_id, j.task, j.queue, j.priority, "mainspring".now(), f.state = 'failed');
  perform "mainspring".record('job.replayed', p_id, f.attempt, jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'from', f.state, 'error', f.error));
  perform "mainspring".wake();
end $$;

CREATE FUNCTION mainspring.reschedule(p_id uuid, p_org text, p_at timestamp with time zone, p_actor_type text, p_actor_id text) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
  w "mainspring".waiting;
  before timestamptz;
begin
  select coalesce(x.due_then, x.due_at) into before from "mainspring".waiting x where x.id = p_id for update;
  update "mainspring".waiting x
  set due_at = case when x.after is null then greatest(p_at, "mainspring".now()) else x.due_at end,
      due_then = case when x.after is not null then greatest(p_at, "mainspring".now()) end
  where x.id = p_id and (p_org is null or x.org_id = p_org) returning * into w;
  if not found then
    return null;
  end if;
  perform "mainspring".record('job.rescheduled', p_id, w.attempt,
                          jsonb_build_object('by', p_actor_id, 'by_type', p_actor_type, 'from', before, 'to', p_at));
  perform "mainspring".wake();
  return case when w.due_at <= "mainspring".now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end;
end $$;

CREATE FUNCTION mainspring.rescue(p_limit integer, p_crash_budget integer) RETURNS TABLE(job_id uuid, worker text, state text)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
#variable_conflict use_column
declare
  r "mainspring".running;
  max_attempts smallint;
  problem jsonb;
  asked jsonb;
begin
  for r in
    delete from "mainspring".running x where x.id in (
      select y.id from "mainspring".running y where y.lease_expires_at <= "mainspring".now()
      order by y.lease_expires_at limit p_limit for update skip locked)
    returning *
  loop
    select j.max_attempts into max_attempts from "mainspring".job j where j.id = r.id;
    problem := jsonb_build_object('code', 'LEASE_EXPIRED', 'class', 'retryable', 'attempt', r.attempt, 'at', "mainspring".now(),
      'message', format('Worker %s stopped renewing its lease.', r.worker));
    insert into "mainspring".attempt (org_id, job_id, epoch, attempt, worker, started_at, ended_at, outcome, error)
    values (r.org_id, r.id, r.epoch, r.attempt, r.worker, r.started_at, "mainspring".now(), 'expired', problem);
    perform "mainspring".record('job.lease_expired', r.id, r.attempt, jsonb_build_object('worker', r.worker));
    state := case when r.cancel_requested_at is not null then 'cancelled'
                  when r.attempt >= max_attempts or r.crashes + 1 >= p_crash_budget then 'dead' else 'ready' end;
    if state <> 'ready' then
      asked := case when state = 'cancelled' then "mainspring".cancellation(r.id) end;
      insert into "mainspring".finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, error)
      values (r.id, r.org_id, state, r.attempt, r.crashes + 1, r.snoozes, r.worker, r.epoch, r.started_at, "mainspring".now(),
              problem || case when state = 'cancelled' then "mainspring".cancelled(asked ->> 'reason') else '{}' end);
      perform "mainspring".release_behind(r.id);
      perform "mainspring".record(case state when 'dead' then 'job.deadlettered' else 'job.cancelled' end, r.id, r.attempt, asked);
    else
      insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, attempt, crashes, snoozes, suspect)
      values (r.id, r.org_id, r.task, r.queue, r.priority, "mainspring".now(), r.attempt, r.crashes + 1, r.snoozes, r.suspect);
    end if;
    job_id := r.id;
    worker := r.worker;
    return next;
  end loop;
end $$;

CREATE FUNCTION mainspring.reset_job(p_id uuid, e mainspring.envelope) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  perform set_config('mainspring.verb', 'reset', true);
  delete from "mainspring".finished f where f.id = p_id and f.state in ('failed', 'dead', 'cancelled');
  if not found then
    perform set_config('mainspring.verb', '', true);
    return false;
  end if;
  update "mainspring".job j set payload = e.payload, scheduled_for = e.scheduled_for, max_attempts = e.max_attempts
  where j.id = p_id;
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at)
  select j.id, j.org_id, j.task, j.queue, j.priority, e.due_at from "mainspring".job j where j.id = p_id;
  insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id, correlation_id)
  select j.org_id, "mainspring".now(), 'job.reset', j.id, j.task, 0, j.project_id, e.actor_type, e.actor_id, e.request_id,
         e.correlation_id
  from "mainspring".job j where j.id = p_id;
  perform set_config('mainspring.verb', '', true);
  return true;
end $$;

CREATE FUNCTION mainspring.resume(p_queue text, p_actor_type text, p_actor_id text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  update "mainspring".queue q set paused_at = null, paused_by = null, pause_reason = null
  where q.org_id = 'SYSTEM' and q.name = p_queue and q.paused_at is not null;
  if not found then
    return false;
  end if;
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  values ('SYSTEM', "mainspring".now(), 'queue.resumed', p_actor_type, p_actor_id, jsonb_build_object('queue', p_queue));
  perform pg_notify('mainspring', '');  -- rare, so it is not coalesced with the hints of enqueues
  return true;
end $$;

CREATE FUNCTION mainspring.settle(p_worker text, p_moves json) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
  m record;
  r "mainspring".running;
  asked jsonb;
begin
  for m in select * from json_to_recordset(p_moves) as (epoch bigint, verb text, delay interval, error jsonb) loop
    delete from "mainspring".running x where x.epoch = m.epoch and x.worker = p_worker returning * into r;
    continue when not found;
    if m.verb not in ('fail', 'reject', 'bury', 'snooze', 'release', 'stop') then
      raise exception 'verb: % does not settle an attempt', m.verb using errcode = 'MS001', detail = 'verb';
    end if;
    if r.cancel_requested_at is not null and m.verb in ('fail', 'snooze', 'release') then
      m.verb := 'stop';
    end if;
    asked := case when m.verb = 'stop' then "mainspring".cancellation(r.id) end;
    m.error := case when m.verb = 'stop' then coalesce(m.error, "mainspring".cancelled(asked ->> 'reason')) else m.error end
               || jsonb_build_object('attempt', r.attempt, 'at', "mainspring".now());
    if m.verb in ('fail', 'snooze', 'release') then
      insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, attempt, crashes, snoozes, retrying, suspect)
      values (r.id, r.org_id, r.task, r.queue, r.priority, "mainspring".now() + coalesce(m.delay, '0'),
              case when m.verb = 'fail' then r.attempt else r.attempt - 1 end, r.crashes,
              r.snoozes + (m.verb = 'snooze')::int, m.verb = 'fail', r.suspect);
    else
      insert into "mainspring".finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, error)
      values (r.id, r.org_id, case m.verb when 'reject' then 'failed' when 'bury' then 'dead' else 'cancelled' end,
              r.attempt, r.crashes, r.snoozes, r.worker, r.epoch, r.started_at, "mainspring".now(), m.error);
      perform "mainspring".release_behind(r.id);
    end if;
    if m.verb in ('fail', 'reject', 'bury', 'stop') then
      insert into "mainspring".attempt (org_id, job_id, epoch, attempt, worker, started_at, ended_at, outcome, error)
      values (r.org_id, r.id, r.epoch, r.attempt, r.worker, r.started_at, "mainspring".now(),
              case m.verb when 'fail' then 'retried' when 'reject' then 'failed' when 'bury' then 'dead' else 'cancelled' end,
              m.error);
    end if;
    if m.verb in ('fail', 'reject', 'bury') then
      perform "mainspring".record('job.failed', r.id, r.attempt,
                              jsonb_build_object('final', m.verb <> 'fail', 'code', m.error -> 'code'));
    end if;
    if m.verb <> 'reject' and m.verb <> 'release' then
      perform "mainspring".record(case m.verb when 'fail' then 'job.retried' when 'bury' then 'job.deadlettered'
                                          when 'snooze' then 'job.deferred' else 'job.cancelled' end,
                              r.id, r.attempt, coalesce(asked, jsonb_build_object('delay', m.delay)));
    end if;
    return next m.epoch;
  end loop;
end $$;

CREATE FUNCTION mainspring.state_of(p_id uuid) RETURNS TABLE(state text, attempt smallint, finished_at timestamp with time zone)
    LANGUAGE sql STABLE
    AS $$
  select case when w.due_at <= "mainspring".now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end,
         w.attempt, null::timestamptz
  from "mainspring".waiting w where w.id = p_id
  union all select 'running', r.attempt, null from "mainspring".running r where r.id = p_id
  union all select f.state, f.attempt, f.finished_at from "mainspring".finished f where f.id = p_id
$$;

CREATE FUNCTION mainspring.uuid7() RETURNS uuid
    LANGUAGE sql
    RETURN (encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send(((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid;

CREATE FUNCTION mainspring.verb() RETURNS text
    LANGUAGE sql STABLE
    RETURN COALESCE(current_setting('mainspring.verb'::text, true), ''::text);

CREATE FUNCTION mainspring.wake() RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  t constant bigint := extract(epoch from clock_timestamp()) * 1000;
begin
  if (select last_value from "mainspring".idle_until) > t and (select last_value from "mainspring".woken_at) <= t - 10 then
    perform setval('"mainspring".woken_at', t), pg_notify('mainspring', '');
    return true;
  end if;
  return false;
end $$;

CREATE FUNCTION mainspring.write_job(e mainspring.envelope, p_after uuid) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".job
  values (e.id, e.org_id, e.task, e.queue, e.priority, e.max_attempts, e.cancellable, e.payload, e.project_id, e.actor_type,
          e.actor_id, e.request_id, e.correlation_id, e.parent_id, e.traceparent, e.key, e.created_at, e.scheduled_for);
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, after, due_then)
  values (e.id, e.org_id, e.task, e.queue, e.priority, case when p_after is null then e.due_at else 'infinity' end,
          p_after, case when p_after is not null then e.due_at end);
$$;

CREATE TABLE mainspring.attempt (
    org_id text NOT NULL,
    job_id uuid NOT NULL,
    epoch bigint NOT NULL,
    attempt smallint NOT NULL,
    worker text NOT NULL,
    started_at timestamp with time zone NOT NULL,
    ended_at timestamp with time zone NOT NULL,
    outcome text NOT NULL,
    error jsonb,
    CONSTRAINT attempt_outcome_check CHECK ((outcome = ANY (ARRAY['retried'::text, 'failed'::text, 'dead'::text, 'cancelled'::text, 'expired'::text, 'succeeded'::text])))
);

CREATE TABLE mainspring.finished (
    id uuid NOT NULL,
    org_id text NOT NULL,
    state text NOT NULL,
    attempt smallint NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    snoozes smallint DEFAULT 0 NOT NULL,
    worker text,
    epoch bigint,
    started_at timestamp with time zone,
    finished_at timestamp with time zone NOT NULL,
    error jsonb,
    result jsonb,
    CONSTRAINT finished_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'failed'::text, 'dead'::text, 'cancelled'::text])))
);

CREATE TABLE mainspring.running (
    id uuid NOT NULL,
    epoch bigint NOT NULL,
    worker text NOT NULL,
    org_id text NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    due_at timestamp with time zone NOT NULL,
    attempt smallint NOT NULL,
    crashes smallint NOT NULL,
    snoozes smallint NOT NULL,
    suspect boolean NOT NULL,
    started_at timestamp with time zone NOT NULL,
    lease_expires_at timestamp with time zone NOT NULL,
    cancel_requested_at timestamp with time zone
)
WITH (autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0');

CREATE VIEW mainspring.attempts WITH (security_invoker='true') AS
 SELECT a.org_id,
    a.job_id,
    a.epoch,
    a.attempt,
    a.worker,
    a.started_at,
    a.ended_at,
    a.outcome,
    a.error
   FROM mainspring.attempt a
UNION ALL
 SELECT f.org_id,
    f.id AS job_id,
    f.epoch,
    f.attempt,
    f.worker,
    f.started_at,
    f.finished_at AS ended_at,
    'succeeded'::text AS outcome,
    NULL::jsonb AS error
   FROM mainspring.finished f
  WHERE (f.state = 'succeeded'::text)
UNION ALL
 SELECT r.org_id,
    r.id AS job_id,
    r.epoch,
    r.attempt,
    r.worker,
    r.started_at,
    NULL::timestamp with time zone AS ended_at,
    'running'::text AS outcome,
    NULL::jsonb AS error
   FROM mainspring.running r;

ALTER TABLE mainspring.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME mainspring.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);

CREATE SEQUENCE mainspring.epoch
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE UNLOGGED SEQUENCE mainspring.idle_until
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE TABLE mainspring.job (
    id uuid NOT NULL,
    org_id text NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    max_attempts smallint NOT NULL,
    cancellable boolean NOT NULL,
    payload jsonb NOT NULL,
    project_id uuid,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    request_id text NOT NULL,
    correlation_id text NOT NULL,
    parent_id uuid,
    traceparent text,
    key text,
    created_at timestamp with time zone NOT NULL,
    scheduled_for timestamp with time zone,
    CONSTRAINT job_actor_type_check CHECK ((actor_type = ANY (ARRAY['user'::text, 'system'::text, 'api_key'::text]))),
    CONSTRAINT job_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
    CONSTRAINT job_payload_check CHECK ((jsonb_typeof(payload) = 'object'::text)),
    CONSTRAINT job_priority_check CHECK (((priority >= 0) AND (priority <= 3)))
);

CREATE TABLE mainspring.waiting (
    id uuid NOT NULL,
    org_id text NOT NULL,
    task text NOT NULL,
    queue text NOT NULL,
    priority smallint NOT NULL,
    due_at timestamp with time zone NOT NULL,
    attempt smallint DEFAULT 0 NOT NULL,
    crashes smallint DEFAULT 0 NOT NULL,
    snoozes smallint DEFAULT 0 NOT NULL,
    retrying boolean DEFAULT false NOT NULL,
    suspect boolean DEFAULT false NOT NULL,
    after uuid,
    due_then timestamp with time zone,
    CONSTRAINT waiting_check CHECK (((after IS NULL) = (due_then IS NULL)))
)
WITH (autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0');

CREATE VIEW mainspring.jobs WITH (security_invoker='true') AS
 SELECT j.id,
    j.task,
        CASE
            WHEN (r.id IS NOT NULL) THEN 'running'::text
            WHEN (f.id IS NOT NULL) THEN f.state
            WHEN (w.id IS NULL) THEN NULL::text
            WHEN (w.due_at <= mainspring.now()) THEN 'ready'::text
            WHEN w.retrying THEN 'retrying'::text
            ELSE 'scheduled'::text
        END AS state,
    j.org_id,
    j.project_id,
    j.actor_type,
    j.actor_id,
    j.request_id,
    j.correlation_id,
    j.parent_id,
    j.traceparent,
    COALESCE(j.key, (j.id)::text) AS idempotency_key,
        CASE
            WHEN (f.state = 'dead'::text) THEN 'q:deadletter'::text
            ELSE j.queue
        END AS queue,
    COALESCE(w.priority, r.priority, j.priority) AS priority,
    j.payload,
    COALESCE(w.attempt, r.attempt, f.attempt) AS attempt,
    j.max_attempts,
    COALESCE(w.crashes, r.crashes, f.crashes) AS crashes,
    COALESCE(w.snoozes, r.snoozes, f.snoozes) AS snoozes,
    j.cancellable,
    j.created_at,
    j.scheduled_for,
        CASE
            WHEN (w.due_at < 'infinity'::timestamp with time zone) THEN w.due_at
            ELSE COALESCE(w.due_then, r.due_at)
        END AS due_at,
    COALESCE(r.started_at, f.started_at, last.started_at) AS started_at,
    f.finished_at,
    COALESCE(f.finished_at, r.started_at, last.ended_at, j.created_at) AS updated_at,
    r.worker,
    r.epoch,
    r.lease_expires_at,
    r.cancel_requested_at,
    f.result,
    COALESCE(f.error, last.error) AS error,
    w.after AS held_by
   FROM ((((mainspring.job j
     LEFT JOIN mainspring.waiting w ON ((w.id = j.id)))
     LEFT JOIN mainspring.running r ON ((r.id = j.id)))
     LEFT JOIN mainspring.finished f ON ((f.id = j.id)))
     LEFT JOIN LATERAL ( SELECT a.started_at,
            a.ended_at,
            a.error
           FROM mainspring.attempt a
          WHERE ((a.org_id = j.org_id) AND (a.job_id = j.id) AND ((f.state IS NULL) OR (f.state <> 'succeeded'::text)))
          ORDER BY a.epoch DESC
         LIMIT 1) last ON (true));

CREATE VIEW mainspring.keys WITH (security_invoker='true') AS
 SELECT i.org_id,
    i.key,
    i.job_id,
    i.first_seen_at,
    i.last_seen_at,
        CASE s.state
            WHEN 'succeeded'::text THEN 'succeeded'::text
            WHEN 'failed'::text THEN 'failed'::text
            WHEN 'cancelled'::text THEN 'failed'::text
            WHEN 'dead'::text THEN 'dead'::text
            WHEN 'running'::text THEN 'running'::text
            ELSE
            CASE
                WHEN (s.state IS NULL) THEN i.status
                ELSE 'pending'::text
            END
        END AS status,
    COALESCE(i.expires_at, (s.finished_at + i.ttl)) AS expires_at,
    COALESCE(i.result_ref,
        CASE
            WHEN (s.state = 'succeeded'::text) THEN (i.job_id)::text
            ELSE NULL::text
        END) AS result_ref,
    COALESCE(i.error_ref,
        CASE
            WHEN (s.state = ANY (ARRAY['failed'::text, 'dead'::text, 'cancelled'::text])) THEN (i.job_id)::text
            ELSE NULL::text
        END) AS error_ref
   FROM (mainspring.idempotency i
     LEFT JOIN LATERAL mainspring.state_of(i.job_id) s(state, attempt, finished_at) ON (true))
UNION ALL
 SELECT j.org_id,
    (j.id)::text AS key,
    j.id AS job_id,
    j.created_at AS first_seen_at,
    j.created_at AS last_seen_at,
        CASE s.state
            WHEN 'succeeded'::text THEN 'succeeded'::text
            WHEN 'failed'::text THEN 'failed'::text
            WHEN 'cancelled'::text THEN 'failed'::text
            WHEN 'dead'::text THEN 'dead'::text
            WHEN 'running'::text THEN 'running'::text
            ELSE 'pending'::text
        END AS status,
    NULL::timestamp with time zone AS expires_at,
        CASE
            WHEN (s.state = 'succeeded'::text) THEN (j.id)::text
            ELSE NULL::text
        END AS result_ref,
        CASE
            WHEN (s.state = ANY (ARRAY['failed'::text, 'dead'::text, 'cancelled'::text])) THEN (j.id)::text
            ELSE NULL::text
        END AS error_ref
   FROM (mainspring.job j
     CROSS JOIN LATERAL mainspring.state_of(j.id) s(state, attempt, finished_at))
  WHERE (j.key IS NULL);

CREATE TABLE mainspring.migration (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    line text NOT NULL,
    number integer NOT NULL,
    name text NOT NULL,
    breaking boolean NOT NULL,
    digest text DEFAULT ''::text NOT NULL,
    applied_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL
);

CREATE TABLE mainspring.queue (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    name text NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    pause_reason text,
    start_target interval
);

CREATE VIEW mainspring.trail WITH (security_invoker='true') AS
 SELECT a.org_id,
    a.at,
    a.event,
    a.job_id,
    a.task,
    a.attempt,
    a.project_id,
    a.actor_type,
    a.actor_id,
    a.request_id,
    a.correlation_id,
    a.detail
   FROM mainspring.audit a
UNION ALL
 SELECT j.org_id,
    e.at,
    e.event,
    j.id AS job_id,
    j.task,
    e.attempt,
    j.project_id,
    j.actor_type,
    j.actor_id,
    j.request_id,
    j.correlation_id,
    '{}'::jsonb AS detail
   FROM (mainspring.job j
     CROSS JOIN LATERAL ( SELECT 'job.enqueued'::text AS event,
            j.created_at AS at,
            (0)::smallint AS attempt
        UNION ALL
         SELECT 'job.started'::text,
            a.started_at,
            a.attempt
           FROM mainspring.attempts a
          WHERE ((a.org_id = j.org_id) AND (a.job_id = j.id))
        UNION ALL
         SELECT 'job.succeeded'::text,
            f.finished_at,
            f.attempt
           FROM mainspring.finished f
          WHERE ((f.id = j.id) AND (f.state = 'succeeded'::text))) e);

CREATE UNLOGGED SEQUENCE mainspring.woken_at
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE TABLE mainspring.worker (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    id text NOT NULL,
    host text NOT NULL,
    pid integer NOT NULL,
    version text NOT NULL,
    queues text[] NOT NULL,
    concurrency integer NOT NULL,
    started_at timestamp with time zone NOT NULL,
    seen_at timestamp with time zone NOT NULL,
    running integer DEFAULT 0 NOT NULL,
    stopping boolean DEFAULT false NOT NULL
)
WITH (fillfactor='50');

ALTER TABLE ONLY mainspring.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (org_id, job_id, epoch);

ALTER TABLE ONLY mainspring.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.finished
    ADD CONSTRAINT finished_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (org_id, key);

ALTER TABLE ONLY mainspring.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (org_id, line, number);

ALTER TABLE ONLY mainspring.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (org_id, name);

ALTER TABLE ONLY mainspring.running
    ADD CONSTRAINT running_epoch_key UNIQUE (epoch);

ALTER TABLE ONLY mainspring.running
    ADD CONSTRAINT running_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.waiting
    ADD CONSTRAINT waiting_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (org_id, id);

CREATE INDEX audit_job ON mainspring.audit USING btree (job_id) WHERE (job_id IS NOT NULL);

CREATE INDEX finished_age ON mainspring.finished USING brin (finished_at);

CREATE INDEX finished_open ON mainspring.finished USING btree (state, finished_at) WHERE (state <> 'succeeded'::text);

CREATE INDEX idempotency_expiry ON mainspring.idempotency USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX running_cancel ON mainspring.running USING btree (worker) WHERE (cancel_requested_at IS NOT NULL);

CREATE INDEX running_lease ON mainspring.running USING btree (lease_expires_at);

CREATE INDEX waiting_claim ON mainspring.waiting USING btree (queue, priority, due_at, id);

CREATE INDEX waiting_held ON mainspring.waiting USING btree (after) WHERE (after IS NOT NULL);

CREATE INDEX waiting_rescued ON mainspring.waiting USING btree (due_at) WHERE (crashes > 0);

CREATE TRIGGER audit_guard BEFORE DELETE OR UPDATE ON mainspring.audit FOR EACH ROW EXECUTE FUNCTION mainspring.guard_append_only();

CREATE TRIGGER finished_guard BEFORE DELETE OR UPDATE ON mainspring.finished FOR EACH ROW EXECUTE FUNCTION mainspring.guard_finished();

CREATE TRIGGER job_guard BEFORE DELETE OR UPDATE ON mainspring.job FOR EACH ROW EXECUTE FUNCTION mainspring.guard_job();
