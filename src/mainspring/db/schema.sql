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

CREATE FUNCTION mainspring.add_key(p_org text, p_id uuid, p_wrapped bytea) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".cipher_key (org_id, id, wrapped, created_at)
  values (p_org, p_id, p_wrapped, "mainspring".now()) on conflict do nothing
$$;

CREATE FUNCTION mainspring.cancel(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
  j "mainspring".job;
  w "mainspring".waiting;
  r "mainspring".running;
  ended text;
  was text;
  who jsonb := jsonb_build_object('by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason);
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
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
      was := case when w.due_at <= "mainspring".now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end;
      who := who || jsonb_build_object('before', jsonb_build_object('state', was),
                                       'after', jsonb_build_object('state', 'cancelled'));
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
        who := who || jsonb_build_object('before', jsonb_build_object('state', 'running'),
                                         'after', jsonb_build_object('state', 'cancelled'));
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

CREATE SEQUENCE mainspring.epoch
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1;

CREATE TABLE mainspring.audit (
    org_id text NOT NULL,
    id bigint DEFAULT 
CASE
    WHEN (pg_current_xact_id() IS NOT NULL) THEN nextval('mainspring.epoch'::regclass)
    ELSE NULL::bigint
END NOT NULL,
    at timestamp with time zone NOT NULL,
    event text NOT NULL,
    job_id uuid,
    task text,
    attempt smallint,
    project_id uuid,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    request_id text DEFAULT (gen_random_uuid())::text NOT NULL,
    correlation_id text DEFAULT (gen_random_uuid())::text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    epoch bigint,
    CONSTRAINT detail CHECK ((NOT jsonb_path_exists(detail, 'strict $.**{64}?(@.type() == "object" || @.type() == "array")'::jsonpath)))
);

CREATE FUNCTION mainspring.cancellation(p_job uuid) RETURNS jsonb
    LANGUAGE sql STABLE
    RETURN COALESCE((SELECT a.detail FROM mainspring.audit a WHERE ((a.job_id = cancellation.p_job) AND (a.event = 'job.cancel_requested'::text)) ORDER BY a.id DESC LIMIT 1), '{}'::jsonb);

CREATE FUNCTION mainspring.cancelled(p_reason text) RETURNS jsonb
    LANGUAGE sql STABLE
    RETURN jsonb_build_object('code', 'CANCELLED', 'class', 'permanent', 'message', COALESCE(p_reason, 'The job was cancelled.'::text));

CREATE FUNCTION mainspring.check_actor(p_actor_type text, p_actor_id text, p_reason text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  if p_actor_type is null or p_actor_type not in ('user', 'system', 'api_key') then
    raise exception 'actor_type: must be user, system or api_key' using errcode = 'MS001', detail = 'actor_type';
  end if;
  perform "mainspring".check_text('actor_id', p_actor_id, 200);
  perform "mainspring".check_text('reason', coalesce(p_reason, '-'), 1000);
end $$;

CREATE FUNCTION mainspring.check_instant(p_field text, p_text text) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $_$
declare
  at timestamptz;
begin
  if p_text ~ '(Z|[+-]\d\d(:?\d\d)?)$' then
    begin
      at := p_text::timestamptz;
    exception when data_exception then
      null;
    end;
  end if;
  if at is null or not isfinite(at) then
    perform "mainspring".refuse(p_field, 'is not a time with a time zone');
  elsif at >= '2201-01-01Z' then
    perform "mainspring".refuse(p_field, 'lies after the year 2200');
  elsif at < '0001-01-03Z' then
    perform "mainspring".refuse(p_field, 'lies before the year 1');
  end if;
end $_$;

CREATE FUNCTION mainspring.check_job(p_job json) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $_$
declare
  field text;
  item json;
  value text;
  kind text;
  allowed text[];
begin
  if json_typeof(p_job) is distinct from 'object' then
    perform "mainspring".refuse('jobs', 'is not an array of objects');
  end if;
  begin
    perform from json_each_text(p_job);
  exception when data_exception then
    -- NUL or half a surrogate pair, escaped: name the field that it stands in. Only the end of what stands before it is
    -- looked at: to match all of it costs the square of its length.
    value := left(p_job::text, greatest(regexp_instr(p_job::text, '\\u(?:0000|[dD][89a-fA-F])') - 1, 0));
    field := substring(right(value, 800) from '"(\w{1,40})"\s*:\s*"[^"]*$');
    field := case when field in ('task', 'queue', 'org_id', 'actor_type', 'actor_id', 'request_id', 'correlation_id', 'key')
             then field else 'payload' end;
    perform "mainspring".refuse(field, 'has a character that cannot be stored');
  end;
  if json_typeof(p_job -> 'allow_secrets') = 'array' then
    allowed := array(select json_array_elements_text(p_job -> 'allow_secrets'));
  end if;
  foreach field in array array['id', 'task', 'payload'] loop
    if p_job -> field is null then
      perform "mainspring".refuse(field, 'is missing');
    end if;
  end loop;
  for field, item in select * from json_each(p_job) loop
    kind := json_typeof(item);
    value := item #>> '{}';
    if (select count(*) from json_object_keys(p_job) k where k = field) > 1 then
      perform "mainspring".refuse(left(field, 40), 'appears twice');
    end if;
    continue when kind = 'null' and field not in ('id', 'task', 'payload', 'queue', 'priority', 'max_attempts',
                                                  'cancellable', 'org_id', 'actor_type', 'actor_id', 'reset');
    case field
      when 'task', 'queue', 'org_id', 'actor_id', 'request_id', 'correlation_id', 'key' then
        if kind not in ('string', 'null') then
          perform "mainspring".refuse(field, 'is not a text');
        end if;
        perform "mainspring".check_text(field, value, case field when 'queue' then 63 when 'key' then 512 else 200 end);
      when 'id', 'project_id', 'parent_id' then
        if value is null or value !~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$' then
          perform "mainspring".refuse(field, 'is not a UUID');
        end if;
      when 'priority' then
        if kind <> 'number' or value !~ '^[0-3]$' then
          perform "mainspring".refuse(field, 'is not a whole number from 0 to 3');
        end if;
      when 'max_attempts' then
        if kind <> 'number' or value !~ '^([1-9]\d{0,2}|1000)$' then
          perform "mainspring".refuse(field, 'is not a whole number from 1 to 1000');
        end if;
      when 'cancellable', 'reset', 'project_scoped', 'schedulable', 'by_payload' then
        if kind <> 'boolean' then
          perform "mainspring".refuse(field, 'is not true or false');
        end if;
      when 'actor_type' then
        if value is null or value not in ('user', 'system', 'api_key') then
          perform "mainspring".refuse(field, 'is not one of user, system, api_key');
        end if;
      when 'mode' then
        if value not in ('live', 'keep', 'window', 'reset_failed', 'replace', 'debounce') then
          perform "mainspring".refuse(field, 'is not one of live, keep, window, reset_failed, replace, debounce');
        end if;
      when 'created_at', 'scheduled_for' then
        perform "mainspring".check_instant(field, case kind when 'string' then value end);
      when 'delay', 'wait', 'ttl' then
        perform "mainspring".check_span(field, case kind when 'string' then value end);
      when 'traceparent' then
        if value !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
          perform "mainspring".refuse(field, 'is not a trace context');
        end if;
      when 'payload' then
        begin
          perform item::jsonb;
        exception when data_exception then
          perform "mainspring".refuse(field, 'has a character or a number that cannot be stored');
        end;
        perform "mainspring".check_payload(item::jsonb, allowed);
      when 'allow_secrets' then
        null;
      else
        perform "mainspring".check_text('jobs', field, 63);
        perform "mainspring".refuse(field, 'is not a field of a job');
    end case;
  end loop;
  if p_job ->> 'queue' = 'q:deadletter' then
    perform "mainspring".refuse('queue', 'q:deadletter holds dead jobs; nothing is enqueued to it');
  elsif (p_job ->> 'actor_id' is null) <> (p_job ->> 'actor_type' is null) then
    perform "mainspring".refuse(case when p_job ->> 'actor_id' is null then 'actor_id' else 'actor_type' end, 'is missing');
  elsif p_job ->> 'key' is null and (p_job ->> 'mode' is not null or p_job ->> 'reset' = 'true') then
    perform "mainspring".refuse('key', 'is missing: ' || coalesce(p_job ->> 'mode', 'reset') || ' needs one');
  elsif p_job ->> 'mode' = 'debounce' and p_job ->> 'wait' is null then
    perform "mainspring".refuse('wait', 'is missing');
  elsif p_job ->> 'delay' is not null and p_job ->> 'scheduled_for' is not null then
    perform "mainspring".refuse('delay', 'is given together with scheduled_for');
  end if;
end $_$;

CREATE FUNCTION mainspring.check_jobs(p_jobs json) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
begin
  if json_typeof(p_jobs) is distinct from 'array' then
    perform "mainspring".refuse('jobs', 'is not an array of objects');
  end if;
  perform "mainspring".check_job(j) from json_array_elements(p_jobs) j;
end $$;

CREATE FUNCTION mainspring.check_payload(p_payload jsonb, p_allowed text[]) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
begin
  if p_payload is null or jsonb_typeof(p_payload) <> 'object' then
    perform "mainspring".refuse('payload', 'is not a JSON object');
  elsif octet_length(p_payload::text) > 262144 then
    perform "mainspring".refuse('payload', 'is larger than 256 KiB', 'PAYLOAD_TOO_LARGE');
  elsif jsonb_path_exists(p_payload, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")') then
    perform "mainspring".refuse('payload', 'is nested deeper than 64 levels');
  elsif octet_length(p_payload::text) > 4300 and exists (
      select from jsonb_path_query(p_payload, 'strict $.** ? (@.type() == "number")') n where length(n::text) > 4300) then
    perform "mainspring".refuse('payload', 'holds a number that is too large');
  end if;
  if p_payload::text ~* 'secret|token|passw|passphrase|pwd|credential|key"|_live_|_test_|whsec_|eyj|private key|akia' then
    perform "mainspring".check_secrets(p_payload, 'payload', coalesce(p_allowed, '{}'));
  end if;
end $_$;

CREATE FUNCTION mainspring.check_secrets(p_value jsonb, p_path text, p_allowed text[]) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
declare
  name text;
  item jsonb;
  field text;
begin
  if jsonb_typeof(p_value) = 'object' then
    for name, item in select * from jsonb_each(p_value) loop
      field := p_path || '.' || case when length(name) > 40 then left(name, 40) || '…' else name end;
      field := regexp_replace(field, '[\u0001-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]', '�', 'g');
      continue when name = any(p_allowed);
      if name ~* '(password|passwd|passphrase|pwd|secret|token|credentials?|(api|access|private|secret|signing|encryption|master)[_-]?key)$' then
        perform "mainspring".refuse(field, 'looks like a secret: pass a reference to it instead');
      end if;
      perform "mainspring".check_secrets(item, field, p_allowed);
    end loop;
  elsif jsonb_typeof(p_value) = 'array' then
    for item, name in select e, n - 1 from jsonb_array_elements(p_value) with ordinality x(e, n) loop
      perform "mainspring".check_secrets(item, format('%s[%s]', p_path, name), p_allowed);
    end loop;
  elsif jsonb_typeof(p_value) = 'string' and p_value #>> '{}' ~
      '(?<![A-Za-z0-9])([sr]k_(live|test)_|whsec_)[A-Za-z0-9+/=_-]{8,}|(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*|\mAKIA[0-9A-Z]{16}\M|-----BEGIN [A-Z ]{0,30}PRIVATE KEY-----' then
    perform "mainspring".refuse(p_path, 'looks like a secret: pass a reference to it instead');
  end if;
end $_$;

CREATE FUNCTION mainspring.check_span(p_field text, p_text text) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $$
declare
  span interval;
begin
  begin
    span := p_text::interval;
  exception when data_exception then
    null;
  end;
  if span is null or span not between interval '0' and interval '3653 days' then
    perform "mainspring".refuse(p_field, 'is not a time span from 0 to 10 years');
  end if;
end $$;

CREATE FUNCTION mainspring.check_text(p_field text, p_value text, p_limit integer) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
begin
  if p_value is null then
    perform "mainspring".refuse(p_field, 'is missing');
  elsif p_value ~ '^[\s\u001c-\u001f\u0085\u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]*$' then
    perform "mainspring".refuse(p_field, 'is empty');
  elsif length(p_value) > p_limit then
    perform "mainspring".refuse(p_field, format('is longer than %s characters', p_limit));
  elsif p_value ~ '[\u0001-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]' then
    perform "mainspring".refuse(p_field, 'has a control character');
  end if;
end $_$;

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

CREATE FUNCTION mainspring.digest(a mainspring.audit) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256(convert_to((jsonb_build_array((a).org_id, (a).id, (EXTRACT(epoch FROM (a).at))::text, (a).event, (a).job_id, (a).task, (a).attempt, (a).project_id, (a).actor_type, (a).actor_id, (a).request_id, (a).correlation_id, (a).detail, (a).epoch))::text, 'utf8'::name));

CREATE FUNCTION mainspring.discard(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text, p_bulk uuid DEFAULT NULL::uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  f "mainspring".finished;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));
  select * into f from "mainspring".finished x
  where x.id = p_id and (p_org is null or x.org_id = p_org) and x.state in ('failed', 'dead') for update;
  if not found then
    return false;
  end if;
  insert into "mainspring".resolution (org_id, job_id, resolution, at, actor_type, actor_id, reason)
  values (f.org_id, p_id, 'discarded', "mainspring".now(), p_actor_type, p_actor_id, p_reason) on conflict do nothing;
  if not found then
    return false;
  end if;
  perform "mainspring".record('job.discarded', p_id, f.attempt, jsonb_strip_nulls(jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'bulk', p_bulk,
    'before', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'error', f.error),
    'after', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'resolution', 'discarded'))));
  return true;
end $$;

CREATE FUNCTION mainspring.discard_many(p_ids uuid[], p_actor_type text, p_actor_id text, p_reason text, p_bulk uuid) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  one uuid;
  n integer := 0;
begin
  foreach one in array p_ids loop
    if "mainspring".seize(one) and "mainspring".discard(one, null, p_actor_type, p_actor_id, p_reason, p_bulk) then
      n := n + 1;
    end if;
  end loop;
  return n;
end $$;

CREATE FUNCTION mainspring.enqueue(task text, payload jsonb DEFAULT '{}'::jsonb, queue text DEFAULT 'q:default'::text, priority integer DEFAULT 2, org_id text DEFAULT 'default'::text, key text DEFAULT NULL::text, mode text DEFAULT NULL::text, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, project_id uuid DEFAULT NULL::uuid, actor_type text DEFAULT 'system'::text, actor_id text DEFAULT 'SYSTEM'::text, request_id text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, parent_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text, max_attempts integer DEFAULT 5, cancellable boolean DEFAULT true, ttl interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, reset boolean DEFAULT false, id uuid DEFAULT NULL::uuid, allow_secrets text[] DEFAULT '{}'::text[]) RETURNS TABLE(job_id uuid, answer text, state text)
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_variable
begin
  if traceparent !~ '^[0-9a-f]{2}-[0-9a-f]{32}-[0-9a-f]{16}-[0-9a-f]{2}$' then
    traceparent := null;
  end if;
  return query select * from "mainspring".enqueue_many(json_build_array(json_build_object(
    'id', coalesce(id, "mainspring".uuid7()), 'task', task, 'payload', payload, 'queue', queue, 'priority', priority,
    'org_id', org_id, 'key', key, 'mode', mode, 'scheduled_for', scheduled_for, 'delay', delay, 'project_id', project_id,
    'actor_type', actor_type, 'actor_id', actor_id, 'request_id', request_id, 'correlation_id', correlation_id,
    'parent_id', parent_id, 'traceparent', traceparent, 'max_attempts', max_attempts, 'cancellable', cancellable,
    'ttl', ttl, 'wait', wait, 'reset', reset, 'allow_secrets', allow_secrets)));
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

CREATE FUNCTION mainspring.enqueue_many(p_jobs json, p_checked boolean DEFAULT false) RETURNS TABLE(job_id uuid, answer text, state text)
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
  if p_checked is not true then
    perform "mainspring".check_jobs(p_jobs);
  end if;
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

CREATE FUNCTION mainspring.erase(p_org text, p_actor_type text, p_actor_id text, p_reason text) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  n integer;
begin
  perform "mainspring".check_text('reason', p_reason, 1000);
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  delete from "mainspring".cipher_key k where k.org_id = p_org;
  get diagnostics n = row_count;
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  values (p_org, "mainspring".now(), 'cipher.erased', p_actor_type, p_actor_id, jsonb_build_object('reason', p_reason, 'keys', n));
  return n;
end $$;

CREATE FUNCTION mainspring.error_fingerprint(p_task text, p_error jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN "left"(encode(sha256(convert_to(concat_ws('
'::text, p_task, (p_error ->> 'code'::text), regexp_replace("left"((p_error ->> 'message'::text), 500), '"[^"]*"|''[^'']*''|`[^`]*`|[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}|0x[0-9a-fA-F]+|\m[0-9a-fA-F]{8,}\M|[0-9]+'::text, '#'::text, 'g'::text), array_to_string(regexp_match("right"((p_error ->> 'stack'::text), 1000), '.*File "(?:[^"]*[/\\])?([^"/\\]+)", line \d+, in (\S+)'::text), ' '::text)), 'utf8'::name)), 'hex'::text), 12);

CREATE FUNCTION mainspring.payload_hash(p_payload jsonb) RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN encode(sha256(convert_to((p_payload)::text, 'utf8'::name)), 'hex'::text);

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
    CONSTRAINT created_at CHECK (((created_at > '0001-01-02 00:00:00+00'::timestamp with time zone) AND (created_at < '9999-01-01 00:00:00+00'::timestamp with time zone))),
    CONSTRAINT job_actor_type_check CHECK ((actor_type = ANY (ARRAY['user'::text, 'system'::text, 'api_key'::text]))),
    CONSTRAINT job_max_attempts_check CHECK (((max_attempts >= 1) AND (max_attempts <= 1000))),
    CONSTRAINT job_payload_check CHECK ((jsonb_typeof(payload) = 'object'::text)),
    CONSTRAINT job_priority_check CHECK (((priority >= 0) AND (priority <= 3))),
    CONSTRAINT scheduled_for CHECK (((scheduled_for > '0001-01-02 00:00:00+00'::timestamp with time zone) AND (scheduled_for < '9999-01-01 00:00:00+00'::timestamp with time zone)))
);

CREATE TABLE mainspring.resolution (
    org_id text NOT NULL,
    job_id uuid NOT NULL,
    resolution text NOT NULL,
    at timestamp with time zone NOT NULL,
    actor_type text NOT NULL,
    actor_id text NOT NULL,
    reason text NOT NULL,
    successor uuid,
    CONSTRAINT resolution_check CHECK (((resolution = 'fixed_forward'::text) = (successor IS NOT NULL))),
    CONSTRAINT resolution_resolution_check CHECK ((resolution = ANY (ARRAY['discarded'::text, 'fixed_forward'::text])))
);

CREATE VIEW mainspring.dead_letters WITH (security_invoker='true') AS
 SELECT f.id,
    f.org_id,
    j.task,
    f.state,
    j.queue,
    f.attempt,
    j.max_attempts,
    f.crashes,
    j.created_at,
    f.finished_at,
    (f.error ->> 'code'::text) AS code,
    (f.error ->> 'message'::text) AS message,
    mainspring.error_fingerprint(j.task, f.error) AS fingerprint,
    mainspring.payload_hash(j.payload) AS payload_hash,
    j.key
   FROM (mainspring.finished f
     JOIN mainspring.job j ON ((j.id = f.id)))
  WHERE ((f.state = ANY (ARRAY['failed'::text, 'dead'::text])) AND (NOT (EXISTS ( SELECT
           FROM mainspring.resolution r
          WHERE ((r.org_id = f.org_id) AND (r.job_id = f.id))))));

CREATE FUNCTION mainspring.find_dead(p_org text, p_task text, p_queue text, p_code text, p_fingerprint text, p_state text, p_since timestamp with time zone, p_until timestamp with time zone) RETURNS SETOF mainspring.dead_letters
    LANGUAGE sql STABLE
    AS $$
  select d.* from "mainspring".dead_letters d
  where (p_org is null or d.org_id = p_org) and (p_task is null or d.task = p_task)
    and (p_queue is null or d.queue = p_queue) and (p_code is null or d.code = p_code)
    and (p_fingerprint is null or d.fingerprint = p_fingerprint) and (p_state is null or d.state = p_state)
    and (p_since is null or d.finished_at >= p_since) and (p_until is null or d.finished_at <= p_until)
$$;

CREATE FUNCTION mainspring.fingerprint(p_task text, p_payload jsonb) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    RETURN sha256(convert_to((p_task || COALESCE((p_payload #>> '{$mainspring,fingerprint}'::text[]), (p_payload)::text)), 'utf8'::name));

CREATE FUNCTION mainspring.fix_forward(p_id uuid, p_org text, p_new uuid, p_payload jsonb, p_diff jsonb, p_actor_type text, p_actor_id text, p_reason text, p_dry boolean, OUT moved boolean, OUT in_the_way uuid) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
  j "mainspring".job;
  n "mainspring".job;
  f "mainspring".finished;
  decided text;
begin
  moved := false;
  perform "mainspring".check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));
  if p_payload is null or jsonb_typeof(p_payload) <> 'object' then
    perform "mainspring".refuse('payload', 'is not a JSON object');
  end if;
  select * into j from "mainspring".job x where x.id = p_id and (p_org is null or x.org_id = p_org);
  if not found then
    return;
  end if;
  in_the_way := "mainspring".lock_key(j);
  if in_the_way is not null then
    return;
  end if;
  select * into f from "mainspring".finished x where x.id = p_id and x.state in ('failed', 'dead') for update;
  if not found then
    return;
  end if;
  select r.resolution into decided from "mainspring".resolution r where r.org_id = j.org_id and r.job_id = p_id;
  if decided = 'fixed_forward' then
    return;
  end if;
  moved := true;
  if p_dry then
    return;
  end if;
  n := j;
  n.id := p_new;
  n.payload := p_payload;
  n.created_at := "mainspring".now();
  n.scheduled_for := null;
  insert into "mainspring".job values (n.*);
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at)
  values (n.id, n.org_id, n.task, n.queue, n.priority, "mainspring".now());
  perform "mainspring".take_key(n);
  insert into "mainspring".resolution (org_id, job_id, resolution, at, actor_type, actor_id, reason, successor)
  values (j.org_id, p_id, 'fixed_forward', "mainspring".now(), p_actor_type, p_actor_id, p_reason, p_new)
  on conflict (org_id, job_id) do update  -- it was discarded before
  set resolution = excluded.resolution, at = excluded.at, actor_type = excluded.actor_type, actor_id = excluded.actor_id,
      reason = excluded.reason, successor = excluded.successor;
  perform "mainspring".record('job.fixed_forward', p_id, f.attempt, jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'successor', p_new, 'diff', p_diff,
    'before', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'resolution', decided, 'error', f.error,
                                 'payload_hash', "mainspring".payload_hash(j.payload)),
    'after', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'resolution', 'fixed_forward',
                                'payload_hash', "mainspring".payload_hash(p_payload))));
  perform "mainspring".wake();
end $$;

CREATE FUNCTION mainspring.forget(p_ids uuid[]) RETURNS void
    LANGUAGE sql
    AS $$
  delete from "mainspring".step s using "mainspring".job j where j.id = any(p_ids) and s.org_id = j.org_id and s.job_id = j.id;
  delete from "mainspring".checkpoint c using "mainspring".job j where j.id = any(p_ids) and c.org_id = j.org_id and c.job_id = j.id;
  delete from "mainspring".progress p using "mainspring".job j where j.id = any(p_ids) and p.org_id = j.org_id and p.job_id = j.id
$$;

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
  if "mainspring".verb() not in ('reset', 'replace') then
    raise exception 'a job is written once: only reset and replace may change its payload'
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

CREATE FUNCTION mainspring.held(p_worker text, p_epoch bigint) RETURNS mainspring.running
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  r "mainspring".running;
begin
  select * into r from "mainspring".running x where x.epoch = p_epoch and x.worker = p_worker for key share;
  if not found then
    raise exception 'the lease of epoch % is lost', p_epoch using errcode = 'MS005';
  end if;
  return r;
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

CREATE FUNCTION mainspring.lock_key(j mainspring.job) RETURNS uuid
    LANGUAGE plpgsql
    AS $$
begin
  if j.key is null then
    return null;
  end if;
  perform from "mainspring".idempotency i where i.org_id = j.org_id and i.key = j.key for update;
  return (select i.job_id from "mainspring".idempotency i, "mainspring".state_of(i.job_id) s
          where i.org_id = j.org_id and i.key = j.key and i.job_id <> j.id
            and s.state in ('scheduled', 'ready', 'retrying', 'running'));
end $$;

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
    LANGUAGE plpgsql
    AS $$
declare
  before "mainspring".queue;
  after "mainspring".queue;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform "mainspring".check_text('queue', p_queue, 63);
  select * into before from "mainspring".queue q where q.org_id = 'SYSTEM' and q.name = p_queue for update;
  insert into "mainspring".queue (name, paused_at, paused_by, pause_reason)
  values (p_queue, "mainspring".now(), p_actor_id, p_reason)
  on conflict (org_id, name) do update
  set paused_at = coalesce("mainspring".queue.paused_at, excluded.paused_at), paused_by = excluded.paused_by,
      pause_reason = excluded.pause_reason
  returning * into after;
  perform "mainspring".record_queue('queue.paused', p_actor_type, p_actor_id, p_reason, p_queue, before, after);
end $$;

CREATE FUNCTION mainspring.plausible(p_created_at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE plpgsql STABLE
    AS $$
begin
  if p_created_at > "mainspring".now() + interval '60 s' then
    raise exception 'created_at: more than 60 s ahead of the database''s clock' using errcode = 'MS001', detail = 'created_at';
  end if;
  return p_created_at;
end $$;

CREATE FUNCTION mainspring.prioritize(p_id uuid, p_org text, p_priority integer, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  before integer;
  attempt smallint;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  if p_priority is null or p_priority not between 0 and 3 then
    perform "mainspring".refuse('priority', 'is not 0, 1, 2 or 3');
  end if;
  select w.priority, w.attempt into before, attempt from "mainspring".waiting w
  where w.id = p_id and (p_org is null or w.org_id = p_org) for update;
  if not found then
    return null;
  end if;
  update "mainspring".waiting w set priority = p_priority where w.id = p_id;
  perform "mainspring".record('job.prioritized', p_id, attempt, jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', jsonb_build_object('priority', before), 'after', jsonb_build_object('priority', p_priority)));
  return before;
end $$;

CREATE FUNCTION mainspring.prune(p_states text[], p_before timestamp with time zone, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  gone uuid[];
begin
  if p_states is null or not p_states <@ '{succeeded,failed,dead,cancelled}' then
    perform "mainspring".refuse('states', 'are not among cancelled, dead, failed, succeeded');
  elsif p_before is null then
    perform "mainspring".refuse('before', 'is missing');
  elsif p_limit is null or p_limit not between 1 and 100000 then
    perform "mainspring".refuse('limit', 'is not between 1 and 100000');
  end if;
  perform set_config('mainspring.verb', 'prune', true);
  with old as materialized (
    select y.id from "mainspring".finished y
    where y.finished_at < p_before and y.state = any(p_states)
      and (y.state in ('succeeded', 'cancelled')
           or exists (select from "mainspring".resolution r where r.org_id = y.org_id and r.job_id = y.id))
    limit p_limit for update skip locked
  ), named as materialized (
    select i.job_id from old join "mainspring".job j on j.id = old.id
    join "mainspring".idempotency i on i.org_id = j.org_id and i.key = j.key and i.job_id = j.id
    for update of i skip locked
  ), f as (
    delete from "mainspring".finished x where x.id in (select old.id from old) and (
      x.id in (select named.job_id from named) or not exists (
        select from "mainspring".job j join "mainspring".idempotency i on i.org_id = j.org_id and i.key = j.key
        where j.id = x.id and i.job_id = x.id))
    returning *
  ), keys as (
    update "mainspring".idempotency i
    set status = case f.state when 'succeeded' then 'succeeded' when 'dead' then 'dead' else 'failed' end,
        expires_at = f.finished_at + i.ttl,
        result_ref = case when f.state = 'succeeded' then f.id::text end,
        error_ref = case when f.state <> 'succeeded' then f.id::text end
    from f join "mainspring".job j on j.id = f.id where i.org_id = j.org_id and i.key = j.key and i.job_id = f.id
  ), trail as (
    insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                                correlation_id, epoch)
    select j.org_id, e.at, e.event, j.id, j.task, e.attempt, j.project_id, j.actor_type, j.actor_id, j.request_id,
           j.correlation_id, e.epoch
    from f join "mainspring".job j on j.id = f.id
    cross join lateral (
      select 'job.enqueued' as event, j.created_at as at, 0::smallint as attempt, null::bigint as epoch
      union all select 'job.started', a.started_at, a.attempt, a.epoch
                from "mainspring".attempt a where a.org_id = j.org_id and a.job_id = j.id
      union all select 'job.started', f.started_at, f.attempt, f.epoch where f.state = 'succeeded'
      union all select 'job.succeeded', f.finished_at, f.attempt, null where f.state = 'succeeded') e
  )
  select array_agg(f.id) into gone from f;
  delete from "mainspring".attempt a using "mainspring".job j where j.id = any(gone) and a.org_id = j.org_id and a.job_id = j.id;
  perform "mainspring".forget(gone);
  delete from "mainspring".resolution r using "mainspring".job j where j.id = any(gone) and r.org_id = j.org_id and r.job_id = j.id;
  delete from "mainspring".job j where j.id = any(gone);
  perform set_config('mainspring.verb', '', true);
  return coalesce(cardinality(gone), 0);
end $$;

CREATE FUNCTION mainspring.raise_idle(p_millis integer) RETURNS void
    LANGUAGE sql
    AS $$
  select setval('"mainspring".idle_until',
                greatest(last_value, (extract(epoch from clock_timestamp()) * 1000)::bigint + p_millis))
  from "mainspring".idle_until
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

CREATE TABLE mainspring.progress (
    org_id text NOT NULL,
    job_id uuid NOT NULL,
    done double precision NOT NULL,
    total double precision,
    note text,
    epoch bigint NOT NULL,
    serial bigint NOT NULL,
    reported_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0');

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
    CONSTRAINT due_at CHECK ((due_at > '0001-01-02 00:00:00+00'::timestamp with time zone)),
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
    decided.resolution,
    decided.successor AS fixed_by,
    fixed.job_id AS fixes,
        CASE
            WHEN (p.job_id IS NOT NULL) THEN json_build_object('done', p.done, 'total', p.total, 'note', p.note, 'at', p.reported_at)
            ELSE NULL::json
        END AS progress,
    w.after AS held_by
   FROM (((((((mainspring.job j
     LEFT JOIN mainspring.waiting w ON ((w.id = j.id)))
     LEFT JOIN mainspring.running r ON ((r.id = j.id)))
     LEFT JOIN mainspring.finished f ON ((f.id = j.id)))
     LEFT JOIN mainspring.progress p ON (((p.org_id = j.org_id) AND (p.job_id = j.id))))
     LEFT JOIN mainspring.resolution decided ON (((decided.org_id = j.org_id) AND (decided.job_id = j.id))))
     LEFT JOIN mainspring.resolution fixed ON (((fixed.org_id = j.org_id) AND (fixed.successor = j.id))))
     LEFT JOIN LATERAL ( SELECT a.started_at,
            a.ended_at,
            a.error
           FROM mainspring.attempt a
          WHERE ((a.org_id = j.org_id) AND (a.job_id = j.id) AND ((f.state IS NULL) OR (f.state <> 'succeeded'::text)))
          ORDER BY a.epoch DESC
         LIMIT 1) last ON (true));

CREATE FUNCTION mainspring.readable(j mainspring.jobs) RETURNS json
    LANGUAGE plpgsql STABLE
    AS $_$
begin
  if jsonb_path_exists(j.payload, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")') then
    j.payload := '{"": "nested deeper than 64 levels"}';
  end if;
  return row_to_json(j);
end $_$;

CREATE FUNCTION mainspring.record(p_event text, p_job uuid, p_attempt smallint, p_detail jsonb) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, detail)
  select j.org_id, "mainspring".now(), p_event, j.id, j.task, p_attempt, j.project_id, j.actor_type, j.actor_id, j.request_id,
         j.correlation_id, coalesce(p_detail, '{}')
  from "mainspring".job j where j.id = p_job
$$;

CREATE FUNCTION mainspring.record_bulk(p_org text, p_event text, p_actor_type text, p_actor_id text, p_detail jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, coalesce(p_detail ->> 'reason', ''));
  if p_event is null or p_event not in ('dead_letters.replay', 'dead_letters.discard') then
    perform "mainspring".refuse('event', 'is no act on many dead letters');
  end if;
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  values (coalesce(p_org, nullif(current_setting('mainspring.org', true), ''), 'SYSTEM'), "mainspring".now(), p_event,
          p_actor_type, p_actor_id, p_detail);
end $$;

CREATE FUNCTION mainspring.record_business(p_event text, p_detail jsonb, p_org text, p_job uuid DEFAULT NULL::uuid, p_attempt smallint DEFAULT NULL::smallint, p_project uuid DEFAULT NULL::uuid, p_actor_type text DEFAULT 'system'::text, p_actor_id text DEFAULT 'SYSTEM'::text, p_request_id text DEFAULT NULL::text, p_correlation_id text DEFAULT NULL::text) RETURNS bigint
    LANGUAGE plpgsql
    AS $_$
declare
  j "mainspring".job;
  new_id bigint;
begin
  perform "mainspring".check_text('event', p_event, 100);
  if p_event !~ '^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)+$' then
    perform "mainspring".refuse('event', 'is not of the form noun.verb');
  end if;
  if p_event ~ '^(job|queue|worker|schedule|schema|audit|cipher|dead_letters)\.' then
    perform "mainspring".refuse('event', 'is a name of the engine');
  end if;
  if p_detail is null or jsonb_typeof(p_detail) <> 'object' then
    perform "mainspring".refuse('detail', 'is not a JSON object');
  end if;
  if octet_length(p_detail::text) > 16384 then
    perform "mainspring".refuse('detail', 'is larger than 16 KiB');
  end if;
  if jsonb_path_exists(p_detail, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")') then
    perform "mainspring".refuse('detail', 'is nested deeper than 64 levels');
  end if;
  perform "mainspring".check_text('org', p_org, 200);
  perform "mainspring".check_actor(p_actor_type, p_actor_id, null);
  perform "mainspring".check_text('request_id', coalesce(p_request_id, '-'), 200);
  perform "mainspring".check_text('correlation_id', coalesce(p_correlation_id, '-'), 200);
  if p_job is not null then
    select * into j from "mainspring".job x where x.id = p_job and x.org_id = p_org;
    if not found then
      perform "mainspring".refuse('job', 'is no job of the organisation');
    end if;
  end if;
  insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, detail)
  values (p_org, "mainspring".now(), p_event, j.id, j.task, coalesce(p_attempt, (select r.attempt from "mainspring".running r where r.id = j.id), case when j.id is not null then 0 end),
          coalesce(p_project, j.project_id), p_actor_type, p_actor_id,
          coalesce(p_request_id, j.request_id, gen_random_uuid()::text),
          coalesce(p_correlation_id, j.correlation_id, gen_random_uuid()::text), p_detail)
  returning id into new_id;
  return new_id;
end $_$;

CREATE TABLE mainspring.queue (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    name text NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    pause_reason text,
    start_target interval
);

CREATE FUNCTION mainspring.record_queue(p_event text, p_actor_type text, p_actor_id text, p_reason text, p_queue text, p_before mainspring.queue, p_after mainspring.queue) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  select 'SYSTEM', "mainspring".now(), p_event, p_actor_type, p_actor_id, jsonb_build_object(
    'queue', p_queue, 'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', jsonb_build_object('paused_at', p_before.paused_at, 'paused_by', p_before.paused_by,
                                 'pause_reason', p_before.pause_reason),
    'after', jsonb_build_object('paused_at', p_after.paused_at, 'paused_by', p_after.paused_by,
                                'pause_reason', p_after.pause_reason))
$$;

CREATE FUNCTION mainspring.record_start(r mainspring.running) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, epoch)
  select r.org_id, r.started_at, 'job.started', r.id, r.task, r.attempt, j.project_id, j.actor_type, j.actor_id,
         j.request_id, j.correlation_id, r.epoch
  from "mainspring".job j where j.id = r.id
$$;

CREATE FUNCTION mainspring.refuse(p_field text, p_problem text, p_code text DEFAULT 'VALIDATION_ERROR'::text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  raise exception '%: %', p_field, p_problem using errcode = 'MS001', detail = p_field, hint = p_code;
end $$;

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

CREATE FUNCTION mainspring.remember(p_worker text, p_epoch bigint, p_name text, p_result json) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  r constant "mainspring".running := "mainspring".held(p_worker, p_epoch);
begin
  insert into "mainspring".step (org_id, job_id, name, result, epoch, worker, done_at)
  values (r.org_id, r.id, p_name, p_result, r.epoch, r.worker, "mainspring".now())
  on conflict do nothing;
  return r.cancel_requested_at is not null;
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
declare
  before timestamptz;
begin
  perform set_config('mainspring.verb', 'replace', true);
  select coalesce(w.due_then, w.due_at) into before from "mainspring".waiting w where w.id = p_id for update;
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
  perform "mainspring".forget(array[p_id]);  -- put off or given back after some steps: they were done for another payload
  insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, detail)
  select j.org_id, "mainspring".now(), 'job.replaced', j.id, j.task, 0, j.project_id, e.actor_type, e.actor_id, e.request_id,
         e.correlation_id, jsonb_build_object('before', jsonb_build_object('due_at', before),
                                              'after', jsonb_build_object('due_at', e.due_at))
  from "mainspring".job j where j.id = p_id;
  return true;
end $$;

CREATE FUNCTION mainspring.replay(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text, p_due timestamp with time zone DEFAULT NULL::timestamp with time zone, p_bulk uuid DEFAULT NULL::uuid, OUT moved boolean, OUT in_the_way uuid) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
  j "mainspring".job;
  f "mainspring".finished;
  decided text;
  due constant timestamptz := greatest(p_due, "mainspring".now());
begin
  moved := false;
  perform "mainspring".check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));  -- whoever decides says why
  select * into j from "mainspring".job x where x.id = p_id and (p_org is null or x.org_id = p_org);
  if not found then
    return;
  end if;
  in_the_way := "mainspring".lock_key(j);
  if in_the_way is not null then
    return;
  end if;
  select * into f from "mainspring".finished x where x.id = p_id and x.state in ('failed', 'dead') for update;
  if not found then
    return;
  end if;
  select r.resolution into decided from "mainspring".resolution r where r.org_id = j.org_id and r.job_id = p_id;
  if decided = 'fixed_forward' then
    return;
  end if;
  moved := true;
  delete from "mainspring".resolution r where r.org_id = j.org_id and r.job_id = p_id;
  perform set_config('mainspring.verb', 'replay', true);
  delete from "mainspring".finished x where x.id = p_id;
  perform set_config('mainspring.verb', '', true);
  perform "mainspring".take_key(j);
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, suspect)
  values (j.id, j.org_id, j.task, j.queue, j.priority, due, f.state = 'failed');
  perform "mainspring".record('job.replayed', p_id, f.attempt, jsonb_strip_nulls(jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'bulk', p_bulk,
    'before', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'resolution', decided, 'error', f.error),
    'after', jsonb_build_object('state', case when due > "mainspring".now() then 'scheduled' else 'ready' end,
                                'attempt', 0, 'due_at', due))));
  perform "mainspring".wake();
end $$;

CREATE FUNCTION mainspring.replay_many(p_ids uuid[], p_actor_type text, p_actor_id text, p_reason text, p_bulk uuid, p_start timestamp with time zone, p_every interval, p_before integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  one uuid;
  n integer := 0;
begin
  foreach one in array p_ids loop
    if "mainspring".seize(one) and (
      select r.moved from "mainspring".replay(one, null, p_actor_type, p_actor_id, p_reason,
                                          p_start + (p_before + n) * p_every, p_bulk) r) then
      n := n + 1;
    end if;
  end loop;
  return n;
end $$;

CREATE FUNCTION mainspring.report(p_worker text, p_reports json) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
  insert into "mainspring".progress (org_id, job_id, done, total, note, epoch, serial, reported_at)
  select r.org_id, r.id, x.done, x.total, x.note, r.epoch, x.serial, "mainspring".now()
  from json_to_recordset(p_reports)
       as x (epoch bigint, serial bigint, done double precision, total double precision, note text)
  join "mainspring".running r on r.epoch = x.epoch and r.worker = p_worker
  on conflict (org_id, job_id) do update
  set done = excluded.done, total = excluded.total, note = excluded.note, epoch = excluded.epoch,
      serial = excluded.serial, reported_at = excluded.reported_at
  where ("mainspring".progress.epoch, "mainspring".progress.serial) < (excluded.epoch, excluded.serial)
$$;

CREATE FUNCTION mainspring.reschedule(p_id uuid, p_org text, p_at timestamp with time zone, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
  w "mainspring".waiting;
  before timestamptz;
  due constant timestamptz := greatest(p_at, "mainspring".now());
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  if p_at is null or not isfinite(p_at) or p_at >= '2201-01-01Z' then
    perform "mainspring".refuse('at', 'is not a time up to the year 2200');
  end if;
  select coalesce(x.due_then, x.due_at) into before from "mainspring".waiting x
  where x.id = p_id and (p_org is null or x.org_id = p_org) for update;
  update "mainspring".waiting x
  set due_at = case when x.after is null then due else x.due_at end,
      due_then = case when x.after is not null then due end
  where x.id = p_id and (p_org is null or x.org_id = p_org) returning * into w;
  if not found then
    return null;
  end if;
  perform "mainspring".record('job.rescheduled', p_id, w.attempt, jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', jsonb_build_object('due_at', before), 'after', jsonb_build_object('due_at', due)));
  perform "mainspring".wake();
  return case when w.due_at <= "mainspring".now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end;
end $$;

CREATE FUNCTION mainspring.rescue(p_limit integer, p_crash_budget integer) RETURNS TABLE(job_id uuid, worker text, state text, task text, queue text, org_id text, project_id uuid, request_id text, correlation_id text, attempt smallint)
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
    select j.max_attempts, j.project_id, j.request_id, j.correlation_id
    into max_attempts, project_id, request_id, correlation_id from "mainspring".job j where j.id = r.id;
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
    task := r.task;
    queue := r.queue;
    org_id := r.org_id;
    attempt := r.attempt;
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
  perform "mainspring".forget(array[p_id]);  -- its steps were done for another payload
  delete from "mainspring".resolution r where r.org_id = e.org_id and r.job_id = p_id;  -- it was discarded, and is wanted again
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at)
  select j.id, j.org_id, j.task, j.queue, j.priority, e.due_at from "mainspring".job j where j.id = p_id;
  insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id, correlation_id)
  select j.org_id, "mainspring".now(), 'job.reset', j.id, j.task, 0, j.project_id, e.actor_type, e.actor_id, e.request_id,
         e.correlation_id
  from "mainspring".job j where j.id = p_id;
  perform set_config('mainspring.verb', '', true);
  return true;
end $$;

CREATE FUNCTION mainspring.resume(p_queue text, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  before "mainspring".queue;
  after "mainspring".queue;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform "mainspring".check_text('queue', p_queue, 63);
  select * into before from "mainspring".queue q
  where q.org_id = 'SYSTEM' and q.name = p_queue and q.paused_at is not null for update;
  if not found then
    return false;
  end if;
  update "mainspring".queue q set paused_at = null, paused_by = null, pause_reason = null
  where q.org_id = 'SYSTEM' and q.name = p_queue returning * into after;
  perform "mainspring".record_queue('queue.resumed', p_actor_type, p_actor_id, p_reason, p_queue, before, after);
  perform pg_notify('mainspring', '');  -- rare, so it is not coalesced with the hints of enqueues
  return true;
end $$;

CREATE FUNCTION mainspring.rotate_key(p_org text, p_id uuid, p_wrapped bytea, p_actor_type text, p_actor_id text, p_reason text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  perform "mainspring".check_text('reason', p_reason, 1000);
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  loop  -- somebody else may make one meanwhile: then theirs is retired as well
    update "mainspring".cipher_key k set retired_at = "mainspring".now() where k.org_id = p_org and k.retired_at is null;
    insert into "mainspring".cipher_key (org_id, id, wrapped, created_at) values (p_org, p_id, p_wrapped, "mainspring".now())
    on conflict (org_id) where retired_at is null do nothing;
    exit when found;
  end loop;
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  values (p_org, "mainspring".now(), 'cipher.rotated', p_actor_type, p_actor_id,
          jsonb_build_object('reason', p_reason, 'key', p_id));
end $$;

CREATE FUNCTION mainspring.save_checkpoint(p_worker text, p_epoch bigint, p_value json) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  r constant "mainspring".running := "mainspring".held(p_worker, p_epoch);
begin
  insert into "mainspring".checkpoint (org_id, job_id, value, epoch, worker, saved_at)
  values (r.org_id, r.id, p_value, r.epoch, r.worker, "mainspring".now())
  on conflict (org_id, job_id) do update
  set value = excluded.value, epoch = excluded.epoch, worker = excluded.worker, saved_at = excluded.saved_at;
  return r.cancel_requested_at is not null;
end $$;

CREATE FUNCTION mainspring.seal(p_org text, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET jit TO 'off'
    AS $$
declare
  last "mainspring".seal;
  new "mainspring".seal;
  horizon xid8;
  bound constant text := coalesce(current_setting('mainspring.org', true), '');
begin
  if pg_current_xact_id_if_assigned() is not null or bound not in ('', p_org)
     or not pg_try_advisory_xact_lock(hashtextextended('mainspring seal "mainspring" ' || p_org, 0)) then
    return 0;
  end if;
  if session_user <> current_user then
    perform set_config('mainspring.org', p_org, true);
  end if;
  select * into last from "mainspring".seal s where s.org_id = p_org order by s.number desc limit 1;
  last.floor := coalesce(last.floor, 0);
  horizon := pg_snapshot_xmin(pg_current_snapshot());  -- every older transaction has ended
  select array_agg(x.id order by x.id), string_agg("mainspring".digest(x.a), '' order by x.id) into new.ids, new.digests
  from (
    select a.id, a from "mainspring".audit a
    where a.org_id = p_org and a.id > last.floor and age(a.xmin) > age(horizon::xid)
      and a.id not in (select unnest(s.ids) from "mainspring".seal s where s.org_id = p_org and s.last_id > last.floor)
    order by a.id limit p_limit) x;
  if new.ids is null then
    perform set_config('mainspring.org', bound, true);
    return 0;
  end if;
  new.org_id := p_org;
  new.number := coalesce(last.number, 0) + 1;
  new.last_id := greatest(new.ids[cardinality(new.ids)], last.last_id);
  select coalesce(max(s.last_id), 0) into new.floor from (
    select s.last_id from "mainspring".seal s
    where s.org_id = p_org and s.tx < horizon
      and (cardinality(new.ids) < p_limit or s.last_id <= new.ids[cardinality(new.ids)])
    order by s.number desc limit 1) s;
  new.floor := greatest(last.floor, least(new.floor, (
    select min(a.id) - 1 from "mainspring".audit a
    where a.org_id = p_org and a.id > last.floor and a.id <= new.floor and age(a.xmin) <= age(horizon::xid))));
  new.tx := pg_current_xact_id();  -- only now: after the rows were read
  new.sealed_at := "mainspring".now();
  new.previous := last.hash;
  new.hash := "mainspring".seal_hash(new);
  insert into "mainspring".seal values (new.*);
  perform set_config('mainspring.org', bound, true);
  return cardinality(new.ids);
end $$;

CREATE TABLE mainspring.seal (
    org_id text NOT NULL,
    number bigint NOT NULL,
    ids bigint[] NOT NULL,
    digests bytea NOT NULL,
    last_id bigint NOT NULL,
    floor bigint NOT NULL,
    tx xid8 NOT NULL,
    sealed_at timestamp with time zone NOT NULL,
    previous bytea,
    hash bytea NOT NULL,
    CONSTRAINT seal_check CHECK ((octet_length(digests) = (32 * cardinality(ids)))),
    CONSTRAINT seal_check1 CHECK (((number = 1) = (previous IS NULL))),
    CONSTRAINT seal_ids_check CHECK ((cardinality(ids) >= 1)),
    CONSTRAINT seal_number_check CHECK ((number >= 1))
);

CREATE FUNCTION mainspring.seal_hash(s mainspring.seal) RETURNS bytea
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN sha256((convert_to((jsonb_build_array((s).org_id, (s).number, (s).ids, (s).last_id, (s).floor, ((s).tx)::text, (EXTRACT(epoch FROM (s).sealed_at))::text, encode((s).previous, 'hex'::text)))::text, 'utf8'::name) || (s).digests));

CREATE FUNCTION mainspring.seize(p_id uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  j "mainspring".job;
begin
  select * into j from "mainspring".job x where x.id = p_id;
  if j.key is not null and exists (select from "mainspring".idempotency i where i.org_id = j.org_id and i.key = j.key) then
    perform from "mainspring".idempotency i where i.org_id = j.org_id and i.key = j.key for update skip locked;
    if not found then
      return false;
    end if;
  end if;
  perform from "mainspring".finished f where f.id = p_id and f.state in ('failed', 'dead') for update skip locked;
  return found;
end $$;

CREATE FUNCTION mainspring.settle(p_worker text, p_moves json) RETURNS TABLE(epoch bigint, verb text)
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
  for m in select * from json_to_recordset(p_moves) as (epoch bigint, verb text, delay interval, error jsonb, started boolean) loop
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
    -- A job that was claimed and given back before its handler was entered leaves no trace: nothing happened.
    if m.verb = 'snooze' or (m.verb = 'release' and m.started) then
      perform "mainspring".record_start(r);
    end if;
    if m.verb in ('fail', 'bury', 'snooze', 'stop') or (m.verb = 'release' and m.started) then
      perform "mainspring".record(case m.verb when 'fail' then 'job.retried' when 'bury' then 'job.deadlettered'
                                          when 'snooze' then 'job.deferred' when 'release' then 'job.released'
                                          else 'job.cancelled' end,
                              r.id, r.attempt, coalesce(asked, jsonb_build_object('delay', m.delay)));
    end if;
    epoch := m.epoch;
    verb := m.verb;
    return next;
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

CREATE FUNCTION mainspring.take_key(j mainspring.job) RETURNS void
    LANGUAGE sql
    AS $$
  update "mainspring".idempotency i
  set job_id = j.id, fingerprint = "mainspring".fingerprint(j.task, j.payload), status = null, expires_at = null,
      result_ref = null, error_ref = null
  where i.org_id = j.org_id and i.key = j.key
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

CREATE TABLE mainspring.checkpoint (
    org_id text NOT NULL,
    job_id uuid NOT NULL,
    value json NOT NULL,
    epoch bigint NOT NULL,
    worker text NOT NULL,
    saved_at timestamp with time zone NOT NULL
);

CREATE TABLE mainspring.cipher_key (
    org_id text NOT NULL,
    id uuid NOT NULL,
    wrapped bytea NOT NULL,
    created_at timestamp with time zone NOT NULL,
    retired_at timestamp with time zone
);

CREATE UNLOGGED SEQUENCE mainspring.idle_until
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

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

CREATE TABLE mainspring.step (
    org_id text NOT NULL,
    job_id uuid NOT NULL,
    name text NOT NULL,
    result json NOT NULL,
    epoch bigint NOT NULL,
    worker text NOT NULL,
    done_at timestamp with time zone NOT NULL
);

CREATE VIEW mainspring.trail WITH (security_invoker='true') AS
 SELECT a.org_id,
    COALESCE(a.epoch,
        CASE a.event
            WHEN 'job.enqueued'::text THEN (0)::bigint
            WHEN 'job.succeeded'::text THEN '9223372036854775807'::bigint
            ELSE a.id
        END) AS place,
    a.at,
    a.event,
    a.job_id,
    a.task,
    a.task AS job_type,
    a.attempt,
    a.project_id,
    a.actor_type,
    a.actor_id,
    a.request_id,
    a.correlation_id,
    a.detail,
        CASE
            WHEN (a.event ~~ 'job.%'::text) THEN COALESCE((a.detail ->> 'by'::text), a.actor_id)
            ELSE a.actor_id
        END AS by,
    a.id
   FROM mainspring.audit a
UNION ALL
 SELECT j.org_id,
    e.place,
    e.at,
    e.event,
    j.id AS job_id,
    j.task,
    j.task AS job_type,
    e.attempt,
    j.project_id,
    j.actor_type,
    j.actor_id,
    j.request_id,
    j.correlation_id,
    '{}'::jsonb AS detail,
    j.actor_id AS by,
    NULL::bigint AS id
   FROM (mainspring.job j
     CROSS JOIN LATERAL ( SELECT 'job.enqueued'::text AS event,
            j.created_at AS at,
            (0)::smallint AS attempt,
            (0)::bigint AS place
        UNION ALL
         SELECT 'job.started'::text,
            a.started_at,
            a.attempt,
            a.epoch
           FROM mainspring.attempts a
          WHERE ((a.org_id = j.org_id) AND (a.job_id = j.id))
        UNION ALL
         SELECT 'job.succeeded'::text,
            f.finished_at,
            f.attempt,
            '9223372036854775807'::bigint
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
    tasks text[] DEFAULT '{}'::text[] NOT NULL,
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

ALTER TABLE ONLY mainspring.checkpoint
    ADD CONSTRAINT checkpoint_pkey PRIMARY KEY (org_id, job_id);

ALTER TABLE ONLY mainspring.cipher_key
    ADD CONSTRAINT cipher_key_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.finished
    ADD CONSTRAINT finished_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (org_id, key);

ALTER TABLE ONLY mainspring.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (org_id, line, number);

ALTER TABLE ONLY mainspring.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (org_id, job_id);

ALTER TABLE ONLY mainspring.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (org_id, name);

ALTER TABLE ONLY mainspring.resolution
    ADD CONSTRAINT resolution_pkey PRIMARY KEY (org_id, job_id);

ALTER TABLE ONLY mainspring.running
    ADD CONSTRAINT running_epoch_key UNIQUE (epoch);

ALTER TABLE ONLY mainspring.running
    ADD CONSTRAINT running_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.seal
    ADD CONSTRAINT seal_pkey PRIMARY KEY (org_id, number);

ALTER TABLE ONLY mainspring.step
    ADD CONSTRAINT step_pkey PRIMARY KEY (org_id, job_id, name);

ALTER TABLE ONLY mainspring.waiting
    ADD CONSTRAINT waiting_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (org_id, id);

CREATE INDEX attempt_ended ON mainspring.attempt USING btree (ended_at);

CREATE INDEX audit_id ON mainspring.audit USING btree (id);

CREATE INDEX audit_job ON mainspring.audit USING btree (job_id) WHERE (job_id IS NOT NULL);

CREATE UNIQUE INDEX cipher_key_current ON mainspring.cipher_key USING btree (org_id) WHERE (retired_at IS NULL);

CREATE INDEX finished_age ON mainspring.finished USING brin (finished_at) WITH (autosummarize='on');

CREATE INDEX finished_open ON mainspring.finished USING btree (state, finished_at) WHERE (state <> 'succeeded'::text);

CREATE INDEX idempotency_expiry ON mainspring.idempotency USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE UNIQUE INDEX resolution_successor ON mainspring.resolution USING btree (org_id, successor) WHERE (successor IS NOT NULL);

CREATE INDEX running_cancel ON mainspring.running USING btree (worker) WHERE (cancel_requested_at IS NOT NULL);

CREATE INDEX running_lease ON mainspring.running USING btree (lease_expires_at);

CREATE INDEX seal_last ON mainspring.seal USING btree (org_id, last_id);

CREATE INDEX waiting_claim ON mainspring.waiting USING btree (queue, priority, due_at, id);

CREATE INDEX waiting_held ON mainspring.waiting USING btree (after) WHERE (after IS NOT NULL);

CREATE INDEX waiting_rescued ON mainspring.waiting USING btree (due_at) WHERE (crashes > 0);

CREATE TRIGGER audit_guard BEFORE DELETE OR UPDATE ON mainspring.audit FOR EACH ROW EXECUTE FUNCTION mainspring.guard_append_only();

CREATE TRIGGER audit_guard_truncate BEFORE TRUNCATE ON mainspring.audit FOR EACH STATEMENT EXECUTE FUNCTION mainspring.guard_append_only();

CREATE TRIGGER finished_guard BEFORE DELETE OR UPDATE ON mainspring.finished FOR EACH ROW EXECUTE FUNCTION mainspring.guard_finished();

CREATE TRIGGER job_guard BEFORE DELETE OR UPDATE ON mainspring.job FOR EACH ROW EXECUTE FUNCTION mainspring.guard_job();

CREATE TRIGGER seal_guard BEFORE DELETE OR UPDATE ON mainspring.seal FOR EACH ROW EXECUTE FUNCTION mainspring.guard_append_only();

CREATE TRIGGER seal_guard_truncate BEFORE TRUNCATE ON mainspring.seal FOR EACH STATEMENT EXECUTE FUNCTION mainspring.guard_append_only();
