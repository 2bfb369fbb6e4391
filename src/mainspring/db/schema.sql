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
	strand text,
	created_at timestamp with time zone,
	scheduled_for timestamp with time zone,
	due_at timestamp with time zone,
	mode text,
	ttl interval,
	reset boolean,
	unless_live boolean,
	ord bigint
);

CREATE FUNCTION mainspring.add_endpoint(p_org text, p_id uuid, p_url text, p_events text[], p_description text, p_prefix text, p_headers text, p_secret text, p_actor_type text, p_actor_id text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  perform "mainspring".check_text('org', p_org, 200);
  perform "mainspring".check_text('url', p_url, 2048);
  perform "mainspring".check_actor(p_actor_type, p_actor_id, null);
  if (select count(*) from (select from "mainspring".webhook_endpoint e where e.org_id = p_org limit 1000) x) = 1000 then
    perform "mainspring".refuse('org', 'has 1000 endpoints already');
  end if;
  insert into "mainspring".webhook_endpoint (org_id, id, url, events, description, prefix, headers, changed_at, created_at)
  values (p_org, p_id, p_url, coalesce(p_events, '{}'), p_description, p_prefix, p_headers, "mainspring".now(), "mainspring".now());
  insert into "mainspring".webhook_secret (org_id, endpoint, id, secret, created_at)
  values (p_org, p_id, "mainspring".uuid7(), p_secret, "mainspring".now());
  perform "mainspring".record_endpoint('webhook.endpoint_added', p_org, p_id, p_actor_type, p_actor_id,
                                   -- a query may hold a secret
                                   jsonb_build_object('url', split_part(p_url, '?', 1), 'events', p_events));
end $$;

CREATE FUNCTION mainspring.add_key(p_org text, p_id uuid, p_wrapped bytea) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".cipher_key (org_id, id, wrapped, created_at)
  values (p_org, p_id, p_wrapped, "mainspring".now()) on conflict do nothing
$$;

CREATE FUNCTION mainspring.add_members(p_id uuid, p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  m "mainspring".member;
begin
  for m in select * from "mainspring".member x where x.job_id = p_id loop
    perform "mainspring".join_batch(m.org_id, m.batch_id, p_ids, array_fill('existing'::text, array[cardinality(p_ids)]), null);
  end loop;
end $$;

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
    gate text,
    due_then timestamp with time zone,
    strand text,
    tied boolean DEFAULT false NOT NULL,
    CONSTRAINT due_at CHECK ((due_at > '0001-01-02 00:00:00+00'::timestamp with time zone)),
    CONSTRAINT waiting_check CHECK ((((after IS NULL) AND (gate IS NULL)) = (due_then IS NULL)))
)
WITH (autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0');

CREATE FUNCTION mainspring.admit(p_found mainspring.waiting[], OUT let_in uuid[], OUT permit interval) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'on'
    SET jit TO 'off'
    AS $$
declare
  gates text[];    -- at which they ask: slots before rates, because who knows when one is free, and whole queues last
  names text[];
  counts integer[];  -- how many each lets in
  rooms integer[];   -- how many more it would
  refused uuid[] := '{}';
  closed integer[] := '{}';  -- the gate that refused them
  ordered boolean;
  t timestamptz;
  waited interval;
  j record;
  l "mainspring".limit;
  shut integer;
  good interval;
begin
  select array_agg(y.gate order by y.whole, y.rated, y.gate), array_agg(y.name order by y.whole, y.rated, y.gate),
         array_agg(y.n order by y.whole, y.rated, y.gate), bool_or(y.in_order)
  into gates, names, counts, ordered
  from (
    select "mainspring".gate_of(x, f.org_id, f.strand) as gate, x.name, x.in_order, x.rate is not null as rated,
           x.queue is not null and x.by = 'all' as whole, count(*)::integer as n
    from "mainspring".limit x join unnest(p_found) f on f.task = x.task or f.queue = x.queue
    where "mainspring".gate_of(x, f.org_id, f.strand) is not null
    group by 1, 2, 3, 4, 5) y;
  let_in := array(select f.id from unnest(p_found) f);
  if gates is null then
    return;
  end if;
  if not "mainspring".lock_gates(gates) then
    let_in := '{}';
    return;
  end if;
  waited := clock_timestamp() - transaction_timestamp();  -- before: a permit ends no later than it is written down
  t := "mainspring".instant();
  rooms := array(
    select coalesce("mainspring".room(x, z.gate, t), 1000000)  -- null: it was dropped meanwhile
    from unnest(gates, names) with ordinality z(gate, name, ord)
    left join "mainspring".limit x on x.org_id = 'SYSTEM' and x.name = z.name order by z.ord);
  if not ordered and not exists (select from unnest(rooms, counts) z(room, n) where z.room < z.n) then
    rooms := array(select z.room - z.n from unnest(rooms, counts) with ordinality z(room, n, ord) order by z.ord);
  else
    counts := array_fill(0, array[cardinality(gates)]);
    for j in
      select f.id, array_agg(g.nth) filter (where not p.in_place) as asks,
             min(g.nth) filter (where not p.in_place and not p.first) as behind
      from unnest(p_found) with ordinality f
      join "mainspring".limit x on f.task = x.task or f.queue = x.queue
      cross join lateral (select "mainspring".gate_of(x, f.org_id, f.strand) as gate) o
      cross join lateral (select array_position(gates, o.gate) as nth) g
      cross join lateral (
        select x.in_order and exists (
                 select from "mainspring".slot s where s.org_id = 'SYSTEM' and s.gate = o.gate and s.job_id = f.id) as in_place,
               -- Behind one that another claim is about to take? One that waits for others has its place when they are done.
               not x.in_order or not exists (
                 select from "mainspring".waiting w
                 where w.org_id = f.org_id and w.strand = f.strand and (w.task = x.task or w.queue = x.queue)
                   and w.after is null and w.gate is distinct from 'parents'
                   and (coalesce(w.due_then, w.due_at), w.id) < (coalesce(f.due_then, f.due_at), f.id)) as first) p
      where o.gate is not null
      group by f.id, f.ordinality
      order by bool_or(p.in_place) desc, bool_or(f.gate is not distinct from o.gate) desc, f.ordinality
    loop
      shut := least(j.behind, (select min(n) from unnest(j.asks) n where rooms[n] <= 0));
      if shut is not null then
        refused := refused || j.id;
        closed := closed || shut;
        continue;
      end if;
      for n in 1 .. coalesce(cardinality(j.asks), 0) loop
        rooms[j.asks[n]] := rooms[j.asks[n]] - 1;
        counts[j.asks[n]] := counts[j.asks[n]] + 1;
      end loop;
    end loop;
    let_in := array(select f.id from unnest(p_found) f where f.id <> all(refused));
  end if;
  insert into "mainspring".slot (gate, job_id, in_order)
  select "mainspring".gate_of(x, f.org_id, f.strand), f.id, x.in_order
  from "mainspring".limit x join unnest(p_found) f on f.task = x.task or f.queue = x.queue
  where x.concurrency is not null and "mainspring".gate_of(x, f.org_id, f.strand) is not null and f.id = any(let_in)
  on conflict do nothing;
  for i in 1 .. cardinality(gates) loop
    select * into l from "mainspring".limit x where x.org_id = 'SYSTEM' and x.name = names[i];
    continue when l.rate is null or counts[i] = 0;
    good := "mainspring".validity(l, gates[i], rooms[i], t);
    permit := least(permit, good);
    perform "mainspring".enter(l, gates[i], t, t + good, counts[i], rooms[i]);
  end loop;
  permit := permit + waited;  -- counted by the worker from when it asked
  if refused = '{}' then
    return;
  end if;
  with opening as materialized (
    select c.nth, gates[c.nth] as gate, x.rate, x.per / x.rate as step, b.next_at,
           case when x.rate is not null then "mainspring".opens_at(x, gates[c.nth], t) end as opens_at
    from (select distinct n as nth from unnest(closed) n) c
    join "mainspring".limit x on x.org_id = 'SYSTEM' and x.name = names[c.nth]
    left join "mainspring".bucket b on b.org_id = 'SYSTEM' and b.gate = gates[c.nth]
    where x.task is not null or x.by <> 'all'  -- those of a whole queue stay where they are
  ), asked as (
    select f.id, r.ord, o.*, coalesce(f.due_then, f.due_at) as due_then,
           f.priority + 1 + case when f.gate = o.gate then 4 else 0 end as line
    from unnest(refused, closed) with ordinality r(id, nth, ord)
    join opening o on o.nth = r.nth join unnest(p_found) f on f.id = r.id
  ), booked as (
    select a.id, a.gate, a.due_then, a.line, a.step,
           case when a.rate is null then t + least(greatest((t - a.due_then) / 2, interval '1 s'), interval '1 min')
             else least(t + interval '1 min', greatest(a.opens_at, a.next_at[a.line])
                        + (row_number() over (partition by a.gate, a.line order by a.ord) - 1) * a.step) end as due_at
    from asked a
  ), moved as (
    update "mainspring".waiting w set due_at = b.due_at, due_then = b.due_then, gate = b.gate from booked b where w.id = b.id
  )
  update "mainspring".bucket u
  set next_at = array(select coalesce(x.ends[array_position(x.lines, n)], u.next_at[n]) from generate_series(1, 8) n order by n)
  from (select y.gate, array_agg(y.line) as lines, array_agg(y.ends) as ends
        from (select b.gate, b.line, least(max(b.due_at + b.step), t + interval '1 min') as ends
              from booked b where b.step is not null group by 1, 2) y
        group by y.gate) x
  where u.org_id = 'SYSTEM' and u.gate = x.gate;
end $$;

CREATE FUNCTION mainspring.ask_probe(p_org text, p_name text, p_key text, p_epoch bigint) RETURNS TABLE(answer text, wait double precision, at timestamp with time zone)
    LANGUAGE plpgsql
    AS $$
declare
  b "mainspring".breaker;
begin
  select * into b from "mainspring".breaker x where x.org_id = p_org and x.name = p_name and x.key = p_key for update;
  answer := coalesce("mainspring".breaker_state(b), 'closed');
  wait := coalesce("mainspring".breaker_wait(b), 0);
  at := "mainspring".now();
  if answer = 'half_open' then
    b.probing := array(select r.epoch from "mainspring".running r
                       where r.epoch = any(b.probing) and r.lease_expires_at > "mainspring".now());
    answer := case when p_epoch = any(b.probing) or cardinality(b.probing) < b.probes then 'probe' else 'open' end;
    if answer = 'probe' and p_epoch <> all(b.probing) then
      update "mainspring".breaker x set probing = b.probing || p_epoch, used_at = "mainspring".now()
      where x.org_id = p_org and x.name = p_name and x.key = p_key;
    end if;
  end if;
  return next;
end $$;

CREATE TABLE mainspring.batch (
    org_id text NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    on_failure text NOT NULL,
    on_finish uuid,
    created_at timestamp with time zone NOT NULL,
    closed_at timestamp with time zone,
    stopped_at timestamp with time zone,
    stop_reason text,
    finished_at timestamp with time zone,
    CONSTRAINT batch_on_failure_check CHECK ((on_failure = ANY (ARRAY['keep_going'::text, 'stop'::text])))
);

CREATE FUNCTION mainspring.ask_to_stop(b mainspring.batch) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  r record;
begin
  for r in
    update "mainspring".running x set cancel_requested_at = "mainspring".now()
    where x.id in (select y.id from "mainspring".running y where y.id = any(array(select "mainspring".unasked(b))) for update skip locked)
    returning x.id, x.attempt
  loop
    perform "mainspring".record('job.cancel_requested', r.id, r.attempt, jsonb_build_object(
      'by', 'SYSTEM', 'by_type', 'system', 'reason', b.stop_reason));
    perform pg_notify('mainspring', '');  -- sent once a transaction
  end loop;
end $$;

CREATE FUNCTION mainspring.auto_breaker(p_name text, p_actor_type text, p_actor_id text, p_reason text, p_key text DEFAULT ''::text, p_org text DEFAULT 'default'::text) RETURNS boolean
    LANGUAGE sql
    AS $$
  select "mainspring".force_breaker('breaker.automatic', null, p_name, p_key, p_org, p_actor_type, p_actor_id, p_reason)
$$;

CREATE FUNCTION mainspring.now() RETURNS timestamp with time zone
    LANGUAGE sql STABLE PARALLEL SAFE
    RETURN statement_timestamp();

CREATE TABLE mainspring.breaker (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    name text NOT NULL,
    key text DEFAULT ''::text NOT NULL,
    failures integer,
    rate real,
    calls integer,
    within interval NOT NULL,
    pause interval NOT NULL,
    longest interval NOT NULL,
    probes smallint NOT NULL,
    state text DEFAULT 'closed'::text NOT NULL,
    since timestamp with time zone,
    until timestamp with time zone,
    opened integer DEFAULT 0 NOT NULL,
    probing bigint[] DEFAULT '{}'::bigint[] NOT NULL,
    at timestamp with time zone[] DEFAULT '{}'::timestamp with time zone[] NOT NULL,
    failed integer[] DEFAULT '{}'::integer[] NOT NULL,
    succeeded integer[] DEFAULT '{}'::integer[] NOT NULL,
    used_at timestamp with time zone NOT NULL,
    forced text,
    forced_at timestamp with time zone,
    forced_by text,
    forced_reason text,
    CONSTRAINT breaker_calls_check CHECK (((calls >= 1) AND (calls <= 100000))),
    CONSTRAINT breaker_check CHECK ((((failures IS NULL) = (rate IS NOT NULL)) AND ((rate IS NULL) = (calls IS NULL)))),
    CONSTRAINT breaker_check1 CHECK (((state = 'open'::text) = (until IS NOT NULL))),
    CONSTRAINT breaker_check2 CHECK (((forced IS NULL) = (forced_at IS NULL))),
    CONSTRAINT breaker_check3 CHECK ((longest >= pause)),
    CONSTRAINT breaker_failures_check CHECK (((failures >= 1) AND (failures <= 100000))),
    CONSTRAINT breaker_forced_check CHECK ((forced = ANY (ARRAY['open'::text, 'closed'::text]))),
    CONSTRAINT breaker_pause_check CHECK ((pause > '00:00:00'::interval)),
    CONSTRAINT breaker_probes_check CHECK (((probes >= 1) AND (probes <= 1000))),
    CONSTRAINT breaker_rate_check CHECK (((rate > (0)::double precision) AND (rate <= (1)::double precision))),
    CONSTRAINT breaker_state_check CHECK ((state = ANY (ARRAY['closed'::text, 'open'::text]))),
    CONSTRAINT breaker_within_check CHECK ((within > '00:00:00'::interval))
)
WITH (fillfactor='50');

CREATE FUNCTION mainspring.breaker_state(b mainspring.breaker) RETURNS text
    LANGUAGE sql STABLE
    RETURN CASE WHEN ((b).forced IS NOT NULL) THEN (b).forced WHEN (((b).state = 'open'::text) AND (((b).until <= mainspring.now()) OR ((b).since > (mainspring.now() + '00:01:00'::interval)))) THEN 'half_open'::text ELSE (b).state END;

CREATE FUNCTION mainspring.breaker_facts(b mainspring.breaker) RETURNS jsonb
    LANGUAGE sql STABLE
    RETURN jsonb_build_object('state', mainspring.breaker_state(b), 'since', (b).since, 'forced', (b).forced, 'forced_by', (b).forced_by, 'forced_reason', (b).forced_reason);

CREATE FUNCTION mainspring.breaker_wait(b mainspring.breaker) RETURNS double precision
    LANGUAGE sql STABLE
    RETURN (CASE mainspring.breaker_state(b) WHEN 'open'::text THEN EXTRACT(epoch FROM CASE WHEN ((b).forced IS NULL) THEN ((b).until - mainspring.now()) ELSE (b).pause END) ELSE (0)::numeric END)::double precision;

CREATE FUNCTION mainspring.briefest(p_per interval) RETURNS interval
    LANGUAGE sql IMMUTABLE
    RETURN GREATEST((p_per * (0.04)::double precision), '00:00:00.02'::interval);

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
      if w.tied then
        perform "mainspring".untie(array[p_id]);
      end if;
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

CREATE FUNCTION mainspring.cancel_batch(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  b "mainspring".batch;
  was text;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  select * into b from "mainspring".batch x
  where x.id = p_id and (p_org is null or x.org_id = p_org) and x.finished_at is null for update;
  if not found then
    return false;
  end if;
  was := case when b.stopped_at is not null then 'stopping' when b.closed_at is null then 'open' else 'running' end;
  update "mainspring".batch x
  set stopped_at = coalesce(x.stopped_at, "mainspring".now()), closed_at = coalesce(x.closed_at, "mainspring".now()),
      stop_reason = coalesce(p_reason, x.stop_reason, 'Its batch was cancelled.')
  where x.org_id = b.org_id and x.id = b.id returning * into b;
  perform "mainspring".record_batch('batch.cancelled', b, p_actor_type, p_actor_id, jsonb_build_object(
    'reason', p_reason, 'before', jsonb_build_object('state', was), 'after', jsonb_build_object('state', 'stopping')));
  perform "mainspring".ask_to_stop(b);
  perform "mainspring".ripple(null, array[b.id]);
  return true;
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

CREATE FUNCTION mainspring.check_batch(p_batch json) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $_$
begin
  if json_typeof(p_batch) is distinct from 'object' then
    perform "mainspring".refuse('batch', 'is not an object');
  elsif coalesce(p_batch ->> 'id', '') !~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$' then
    perform "mainspring".refuse('id', 'is not a UUID');
  elsif p_batch ->> 'on_failure' not in ('keep_going', 'stop') then
    perform "mainspring".refuse('on_failure', 'is not one of keep_going, stop');
  elsif json_typeof(p_batch -> 'open') not in ('boolean', 'null') then
    perform "mainspring".refuse('open', 'is not true or false');
  elsif json_typeof(p_batch -> 'on_finish') not in ('object', 'null') then
    perform "mainspring".refuse('on_finish', 'is not a job');
  end if;
  perform "mainspring".check_text('name', coalesce(p_batch ->> 'name', '-'), 200);
  perform "mainspring".check_text('org_id', coalesce(p_batch ->> 'org_id', 'default'), 200);
end $_$;

CREATE FUNCTION mainspring.check_cron(p_text text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
declare
  fields text[];
  days text;
  weekdays text;
  months integer[];
  numbers integer[];
begin
  if p_text is null then
    perform "mainspring".refuse('cron', 'is missing');
  elsif length(p_text) > 200 then
    perform "mainspring".refuse('cron', 'is longer than 200 characters');
  end if;
  fields := regexp_split_to_array(btrim(upper(p_text), e' \t'), '[ \t]+');
  if cardinality(fields) <> 5 then
    perform "mainspring".refuse('cron', 'has not five fields: minute, hour, day of month, month, day of week');
  end if;
  days := array_to_string(array(select x from unnest(string_to_array(fields[3], ',')) x where x <> 'L'), ',');
  weekdays := array_to_string(array(
    select x from unnest(string_to_array(fields[5], ',')) x
    where x !~ '^([0-7]L|([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[1-5])$'), ',');
  if "mainspring".cron_values(fields[1], 0, 59, '{}') is null then
    perform "mainspring".refuse('cron', 'has a wrong minute');
  elsif "mainspring".cron_values(fields[2], 0, 23, '{}') is null then
    perform "mainspring".refuse('cron', 'has a wrong hour');
  end if;
  numbers := "mainspring".cron_values(days, 1, 31, '{}');
  if numbers is null and (days <> '' or fields[3] ~ ',,|^,|,$') then
    perform "mainspring".refuse('cron', 'has a wrong day of month');
  end if;
  months := "mainspring".cron_values(fields[4], 1, 12, '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}');
  if months is null then
    perform "mainspring".refuse('cron', 'has a wrong month');
  elsif "mainspring".cron_values(weekdays, 0, 7, '{SUN,MON,TUE,WED,THU,FRI,SAT}') is null
        and (weekdays <> '' or fields[5] ~ ',,|^,|,$') then
    perform "mainspring".refuse('cron', 'has a wrong day of week');
  end if;
  if days = fields[3] and (fields[3] like '*%' or fields[5] like '*%')
     and (select min(d) from unnest(numbers) d)
       > (select max(case when m = 2 then 29 when m in (4, 6, 9, 11) then 30 else 31 end) from unnest(months) m) then
    perform "mainspring".refuse('cron', 'never fires: no such month has such a day');
  end if;
end $_$;

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
    field := case when field in ('task', 'queue', 'org_id', 'actor_type', 'actor_id', 'request_id', 'correlation_id', 'key',
                          'strand') then field else 'payload' end;
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
                                                  'cancellable', 'org_id', 'actor_type', 'actor_id', 'reset', 'unless_live');
    case field
      when 'task', 'queue', 'org_id', 'actor_id', 'request_id', 'correlation_id', 'key', 'strand' then
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
      when 'cancellable', 'reset', 'unless_live', 'project_scoped', 'schedulable', 'by_payload', 'best_effort' then
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
  elsif p_job ->> 'key' is null and (p_job ->> 'mode' is not null or 'true' in (p_job ->> 'reset', p_job ->> 'unless_live')) then
    perform "mainspring".refuse('key', 'is missing: ' || coalesce(
      p_job ->> 'mode', case when p_job ->> 'reset' = 'true' then 'reset' else 'unless_live' end) || ' needs one');
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

CREATE TABLE mainspring."limit" (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    name text NOT NULL,
    queue text,
    task text,
    by text DEFAULT 'all'::text NOT NULL,
    rate integer,
    per interval,
    concurrency integer,
    in_order boolean DEFAULT false NOT NULL,
    declared boolean DEFAULT false NOT NULL,
    app text,
    code jsonb,
    counted boolean DEFAULT true NOT NULL,
    set_at timestamp with time zone NOT NULL,
    set_by text NOT NULL,
    CONSTRAINT in_order CHECK (((NOT in_order) OR ((by = 'strand'::text) AND (concurrency = 1)))),
    CONSTRAINT limit_by_check CHECK ((by = ANY (ARRAY['all'::text, 'org'::text, 'strand'::text]))),
    CONSTRAINT limit_concurrency_check CHECK (((concurrency >= 1) AND (concurrency <= 1000000))),
    CONSTRAINT limit_per_check CHECK (((per >= '00:00:00.1'::interval) AND (per <= '1 day'::interval))),
    CONSTRAINT limit_rate_check CHECK (((rate >= 1) AND (rate <= 1000000))),
    CONSTRAINT rate_per CHECK (((rate IS NULL) = (per IS NULL))),
    CONSTRAINT target CHECK ((num_nonnulls(queue, task) = 1)),
    CONSTRAINT what CHECK ((num_nonnulls(rate, concurrency) = 1))
);

CREATE FUNCTION mainspring.check_limit(l mainspring."limit") RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  perform "mainspring".check_text('name', l.name, 240);
  if strpos(l.name, '/') > 0 then
    perform "mainspring".refuse('name', 'has a slash, which stands between a limit and the key that it counts by');
  elsif num_nonnulls(l.queue, l.task) <> 1 then
    perform "mainspring".refuse('queue', 'give either a queue or a task');
  elsif l.queue = 'q:deadletter' then
    perform "mainspring".refuse('queue', 'q:deadletter holds dead jobs; nothing runs there');
  end if;
  perform "mainspring".check_text('queue', coalesce(l.queue, '-'), 63);
  perform "mainspring".check_text('task', coalesce(l.task, '-'), 200);
  if l."by" is null or l."by" not in ('all', 'org', 'strand') then
    perform "mainspring".refuse('by', 'is not one of all, org, strand');
  elsif num_nonnulls(l.rate, l.concurrency) <> 1 then
    perform "mainspring".refuse('rate', 'give either a rate or a concurrency');
  elsif l.rate not between 1 and 1000000 then
    perform "mainspring".refuse('rate', 'is not a whole number from 1 to 1000000');
  elsif l.concurrency not between 1 and 1000000 then
    perform "mainspring".refuse('concurrency', 'is not a whole number from 1 to 1000000');
  elsif l.rate is not null and l.per is null then
    perform "mainspring".refuse('per', 'is missing');
  elsif l.rate is null and l.per is not null then
    perform "mainspring".refuse('per', 'is given together with a concurrency');
  elsif l.per not between interval '100 ms' and interval '1 day' then
    perform "mainspring".refuse('per', 'is not a time span from 100 ms to 1 day');
  elsif l.in_order and (l."by" <> 'strand' or l.concurrency is distinct from 1) then
    perform "mainspring".refuse('in_order', 'is for jobs of one strand, one at a time');
  end if;
end $$;

CREATE FUNCTION mainspring.check_links(p_links json, p_count integer) RETURNS void
    LANGUAGE plpgsql STABLE
    AS $_$
declare
  l json;
  i text;
begin
  if json_typeof(p_links) is distinct from 'array' then
    perform "mainspring".refuse('links', 'is not an array');
  end if;
  for l in select * from json_array_elements(p_links) loop
    if json_typeof(l -> 'parents') is distinct from 'array' or json_typeof(l -> 'anyway') not in ('boolean', 'null') then
      perform "mainspring".refuse('links', 'are not objects with child, parents and anyway');
    end if;
    for i in select l ->> 'child' union all select * from json_array_elements_text(l -> 'parents') loop
      if i is null or i !~ '^[0-9]{1,6}$' or i::integer >= p_count then
        perform "mainspring".refuse('links', 'names a place that no job has');
      end if;
    end loop;
  end loop;
end $_$;

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

CREATE FUNCTION mainspring.check_room(p_jobs json) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  q record;
begin
  for q in
    select mq.name, mq.max_depth from "mainspring".queue mq
    where mq.org_id = 'SYSTEM' and mq.max_depth is not null and mq.name in (
      select coalesce(j.queue, 'q:default') from json_to_recordset(p_jobs) as j(queue text, best_effort boolean) where j.best_effort)
  loop
    if (select count(*) from (
          select from generate_series(0, 3) p(priority) cross join lateral (
            select from "mainspring".waiting w
            where w.queue = q.name and w.priority = p.priority and w.due_at <= "mainspring".now() + interval '1 min'
              and coalesce(w.due_then, w.due_at) <= "mainspring".now()
            limit q.max_depth) x
          limit q.max_depth) y) >= q.max_depth then
      raise exception 'queue: % is full, % jobs or more are ready: best-effort jobs are refused', q.name, q.max_depth
        using errcode = 'MS006', detail = q.name;
    end if;
  end loop;
end $$;

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

CREATE FUNCTION mainspring.claim(p_worker text, p_lease interval, p_total integer, p_queues text[], p_limits integer[], p_low0 timestamp with time zone[], p_low1 timestamp with time zone[], p_low2 timestamp with time zone[], p_low3 timestamp with time zone[], p_tasks text[], p_oldest boolean, p_rescued boolean) RETURNS TABLE(id uuid, task text, payload text, org_id text, project_id uuid, actor_type text, actor_id text, request_id text, correlation_id text, traceparent text, key text, created_at timestamp with time zone, scheduled_for timestamp with time zone, max_attempts smallint, epoch bigint, attempt smallint, crashes smallint, snoozes smallint, suspect boolean, queue text, priority smallint, due_at timestamp with time zone, claimed_at timestamp with time zone, strand text, permit interval)
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
  if exists (select from "mainspring".limit l where l.queue = any(p_queues) or l.task = any(p_tasks))
     or exists (select from "mainspring".fair f where f.queue = any(p_queues)) then
    return query select * from "mainspring".claim_limited(
      p_worker, p_lease, p_total, p_queues, p_limits, p_tasks, p_oldest, p_rescued);
    return;
  end if;
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
              w.snoozes, w.suspect, w.strand, w.tied, nextval('"mainspring".epoch') as epoch
  ), r as (
    insert into "mainspring".running (id, epoch, worker, org_id, task, queue, priority, due_at, attempt, crashes, snoozes,
                                  suspect, strand, tied, started_at, lease_expires_at)
    select d.id, d.epoch, p_worker, d.org_id, d.task, d.queue, d.priority, d.due_at, d.attempt, d.crashes, d.snoozes,
           d.suspect, d.strand, d.tied, "mainspring".now(), "mainspring".now() + p_lease
    from d
  )
  select d.id, d.task, j.payload::text, d.org_id, j.project_id, j.actor_type, j.actor_id, j.request_id, j.correlation_id,
         j.traceparent, j.key, j.created_at, j.scheduled_for, j.max_attempts, d.epoch, d.attempt, d.crashes, d.snoozes,
         d.suspect, d.queue, d.priority, d.due_at, "mainspring".now(), d.strand, null::interval
  from d cross join lateral (select * from "mainspring".job j where j.id = d.id limit 1) j
  order by d.priority, d.due_at, d.id;  -- the order of row addresses is not the order of due times
end $$;

CREATE FUNCTION mainspring.claim_limited(p_worker text, p_lease interval, p_total integer, p_queues text[], p_limits integer[], p_tasks text[], p_oldest boolean, p_rescued boolean) RETURNS TABLE(id uuid, task text, payload text, org_id text, project_id uuid, actor_type text, actor_id text, request_id text, correlation_id text, traceparent text, key text, created_at timestamp with time zone, scheduled_for timestamp with time zone, max_attempts smallint, epoch bigint, attempt smallint, crashes smallint, snoozes smallint, suspect boolean, queue text, priority smallint, due_at timestamp with time zone, claimed_at timestamp with time zone, strand text, permit interval)
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
#variable_conflict use_column
declare
  l "mainspring".limit;
  rooms integer[];
  free integer[];
  fair text[];
  jobs "mainspring".waiting[];
  more "mainspring".waiting[];
  ids uuid[];
  good interval;
  i integer;
  moved integer := 0;
  capped boolean := exists (
    select from "mainspring".limit x where x.concurrency is not null and (x.queue = any(p_queues) or x.task = any(p_tasks)));
begin
  if exists (select from "mainspring".limit x where not x.counted) and not "mainspring".count_in() then
    return;
  end if;
  -- A queue in which nothing is due has no room: most are empty most of the time, and their limits need not be asked.
  rooms := array(
    select case when exists (
             select from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
             cross join lateral (
               select from "mainspring".waiting w
               where w.queue = q.name and w.priority = p.priority and w.due_at <= "mainspring".now() limit 1) y)
           then q.n else 0 end
    from unnest(p_queues, p_limits) with ordinality q(name, n, nth) order by q.nth);
  -- How much the limits of whole queues leave, without waiting: looked at again, alone, once something is found.
  for l in select * from "mainspring".limit x where x.queue = any(p_queues) and x.by = 'all' loop
    i := array_position(p_queues, l.queue);
    continue when rooms[i] <= 0;
    rooms[i] := least(rooms[i], "mainspring".room(l, l.name || '/', "mainspring".instant()));
  end loop;
  if not 0 < any(rooms) then
    return;
  end if;
  select array_agg(f.queue) into fair from "mainspring".fair f where f.queue = any(p_queues);

  loop
    jobs := null;
    free := rooms;
    if p_rescued then
      select array_agg(y) into jobs from (
        select w.* from "mainspring".waiting w
        where w.crashes > 0 and w.due_at <= "mainspring".now() and w.queue = any(p_queues) and w.task = any(p_tasks)
          and free[array_position(p_queues, w.queue)] > 0
          and not exists (
            select from "mainspring".queue mq where mq.org_id = 'SYSTEM' and mq.name = w.queue and mq.paused_at is not null)
        order by w.due_at, w.id limit least(p_total, 1) for update of w skip locked) y;
      if jobs is not null then
        i := array_position(p_queues, (jobs[1]).queue);
        free[i] := free[i] - 1;
      end if;
    end if;
    select array_agg(y) into more from (
      select x.*
      from unnest(p_queues, free) q(name, n)
      cross join lateral (
        select y.*
        from (
          select p.priority
          from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
          order by case when p_oldest then (
            select w.due_at from "mainspring".waiting w
            where w.queue = q.name and w.priority = p.priority and w.due_at <= "mainspring".now()
            order by w.due_at limit 1) end, p.priority
        ) p
        cross join lateral (
          select w.* from "mainspring".waiting w
          where w.queue = q.name and w.priority = p.priority and w.due_at <= "mainspring".now() and w.task = any(p_tasks)
            and w.crashes = 0
          order by w.due_at, w.id limit q.n for update of w skip locked) y
        limit q.n) x
      where q.n > 0 and (fair is null or q.name <> all(fair)) and not exists (
        select from "mainspring".queue mq where mq.org_id = 'SYSTEM' and mq.name = q.name and mq.paused_at is not null)
      limit p_total - coalesce(cardinality(jobs), 0)) y;
    jobs := jobs || more;
    if fair is not null then
      for i in 1 .. cardinality(p_queues) loop
        continue when not p_queues[i] = any(fair) or free[i] <= 0 or coalesce(cardinality(jobs), 0) >= p_total;
        continue when exists (
          select from "mainspring".queue mq where mq.org_id = 'SYSTEM' and mq.name = p_queues[i] and mq.paused_at is not null);
        select array_agg(w) into more
        from "mainspring".find_fair(p_queues[i], least(free[i], p_total - coalesce(cardinality(jobs), 0)), p_tasks, p_oldest) w;
        jobs := jobs || more;
      end loop;
    end if;
    if jobs is null then
      return;
    end if;

    select a.let_in, a.permit into ids, good from "mainspring".admit(jobs) a;
    exit when cardinality(ids) > 0;
    -- All were put off: what stood behind them may be let in. Not where some stay at the head, or a gate is busy.
    moved := moved + cardinality(jobs);
    if exists (select from "mainspring".waiting w
               where w.id = any(array(select j.id from unnest(jobs) j)) and w.due_at <= "mainspring".now()) then
      return;
    elsif moved > 2000 then
      perform set_config('mainspring.more', 'on', true);  -- and others have their turn: `next_due` says so
      return;
    end if;
  end loop;

  return query
  with d as (
    delete from "mainspring".waiting w where w.id = any(ids)
    returning w.id, w.org_id, w.task, w.queue, w.priority, w.due_at, (w.attempt + 1)::smallint as attempt, w.crashes,
              w.snoozes, w.suspect, w.strand,
              w.tied or (capped and exists (select from "mainspring".slot s where s.job_id = w.id)) as tied,
              nextval('"mainspring".epoch') as epoch
  ), r as (
    insert into "mainspring".running (id, epoch, worker, org_id, task, queue, priority, due_at, attempt, crashes, snoozes,
                                  suspect, strand, tied, started_at, lease_expires_at)
    select d.id, d.epoch, p_worker, d.org_id, d.task, d.queue, d.priority, d.due_at, d.attempt, d.crashes, d.snoozes,
           d.suspect, d.strand, d.tied, "mainspring".now(), "mainspring".now() + p_lease
    from d
  )
  select d.id, d.task, j.payload::text, d.org_id, j.project_id, j.actor_type, j.actor_id, j.request_id, j.correlation_id,
         j.traceparent, j.key, j.created_at, j.scheduled_for, j.max_attempts, d.epoch, d.attempt, d.crashes, d.snoozes,
         d.suspect, d.queue, d.priority, d.due_at, "mainspring".now(), d.strand, p.permit
  from d cross join lateral (select * from "mainspring".job j where j.id = d.id limit 1) j
  cross join lateral (  -- null: no limit concerns it; a day: it holds a slot, and may start when it likes
    select case when count(*) > 0
             then case when bool_or(x.rate is not null) then good else interval '1 day' end end as permit
    from "mainspring".limit x where x.queue = d.queue or x.task = d.task) p
  order by d.priority, d.due_at, d.id;
end $$;

CREATE FUNCTION mainspring.claims_seen() RETURNS void
    LANGUAGE sql
    AS $$
  select pg_advisory_xact_lock((864492496828913283))
$$;

CREATE FUNCTION mainspring.close_alert(p_org text, p_name text, p_subject text DEFAULT ''::text, p_actor_type text DEFAULT 'system'::text, p_actor_id text DEFAULT 'SYSTEM'::text, p_reason text DEFAULT NULL::text, p_told boolean DEFAULT false) RETURNS json
    LANGUAGE plpgsql
    AS $$
declare
  a "mainspring".alert;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  update "mainspring".alert x
  set closed_at = "mainspring".now(), closed_by = p_actor_id, told = case when p_told then 'closed' else x.told end
  where x.org_id = p_org and x.name = p_name and x.subject = coalesce(p_subject, '') and x.closed_at is null
  returning x.* into a;
  if not found then
    return null;
  end if;
  if p_reason is not null then
    insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
    values (a.org_id, a.closed_at, 'alert.closed', p_actor_type, p_actor_id, jsonb_build_object(
      'alert', a.name, 'subject', a.subject, 'opened_at', a.opened_at, 'by', p_actor_id, 'by_type', p_actor_type,
      'reason', p_reason));
  end if;
  return row_to_json(a);
end $$;

CREATE FUNCTION mainspring.close_batch(p_id uuid, p_org text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  update "mainspring".batch b set closed_at = "mainspring".now()
  where b.id = p_id and (p_org is null or b.org_id = p_org) and b.closed_at is null;
  perform "mainspring".ripple(null, array[p_id]);
  return exists (select from "mainspring".batch b where b.id = p_id and (p_org is null or b.org_id = p_org));
end $$;

CREATE FUNCTION mainspring.close_breaker(p_name text, p_actor_type text, p_actor_id text, p_reason text, p_key text DEFAULT ''::text, p_org text DEFAULT 'default'::text) RETURNS boolean
    LANGUAGE sql
    AS $$
  select "mainspring".force_breaker('breaker.forced_closed', 'closed', p_name, p_key, p_org, p_actor_type, p_actor_id, p_reason)
$$;

CREATE FUNCTION mainspring.complete(p_worker text, p_epochs bigint[], p_results jsonb[] DEFAULT NULL::jsonb[]) RETURNS SETOF bigint
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET jit TO 'off'
    SET plan_cache_mode TO 'force_generic_plan'
    AS $$
declare
  done bigint[];
  tied uuid[];
begin
  with g as (
    delete from "mainspring".running r where r.epoch = any(p_epochs) and r.worker = p_worker returning r.*
  ), f as (
    insert into "mainspring".finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, result)
    select g.id, g.org_id, 'succeeded', g.attempt, g.crashes, g.snoozes, g.worker, g.epoch, g.started_at, "mainspring".now(),
           case when p_results is not null then p_results[array_position(p_epochs, g.epoch)] end
    from g
  ), h as (  -- a job of the same key may wait behind
    update "mainspring".waiting w
    set due_at = case when w.gate is null then greatest(w.due_then, "mainspring".now()) else w.due_at end, after = null,
        due_then = case when w.gate is not null then w.due_then end
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
  select array_agg(g.epoch), array_agg(g.id) filter (where g.tied) into done, tied from g;
  if tied is not null then
    perform "mainspring".untie(tied);
  end if;
  return query select unnest(done);
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
  if r.tied then
    perform "mainspring".untie(array[r.id]);
  end if;
  if r.cancel_requested_at is not null then
    perform "mainspring".record('job.cancel_too_late', r.id, r.attempt, null);
  end if;
end $$;

CREATE FUNCTION mainspring.conclude(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  children uuid[];
  batches uuid[];
  stopped uuid[];
begin
  select n.children, n.batches into children, batches from "mainspring".note_ends(p_ids) n;
  select array_agg(distinct b.id) into stopped
  from "mainspring".member m join "mainspring".batch b on b.org_id = m.org_id and b.id = m.batch_id
  where m.job_id = any(p_ids) and m.state is null and b.stopped_at is not null and b.finished_at is null;
  perform "mainspring".ripple(children, batches || stopped);
end $$;

CREATE FUNCTION mainspring.count_in() RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  l "mainspring".limit;
begin
  for l in select * from "mainspring".limit x where not x.counted order by x.name for update skip locked loop
    delete from "mainspring".slot s where s.org_id = 'SYSTEM' and starts_with(s.gate, l.name || '/');  -- of a limit that had this name before
    with tied as (
      update "mainspring".running r set tied = true
      where r.id = any(array(
        select x.id from "mainspring".running x
        where (x.queue = l.queue or x.task = l.task) and "mainspring".gate_of(l, x.org_id, x.strand) is not null
        for update skip locked))
      returning r.id, "mainspring".gate_of(l, r.org_id, r.strand) as gate
    )
    insert into "mainspring".slot (gate, job_id, in_order) select t.gate, t.id, l.in_order from tied t;
    update "mainspring".limit x set counted = true
    where x.org_id = 'SYSTEM' and x.name = l.name and not exists (
      select from "mainspring".running r
      where (r.queue = l.queue or r.task = l.task) and "mainspring".gate_of(l, r.org_id, r.strand) is not null
        and not exists (select from "mainspring".slot s where s.job_id = r.id and s.gate = "mainspring".gate_of(l, r.org_id, r.strand)));
  end loop;
  return not exists (select from "mainspring".limit x where not x.counted);
end $$;

CREATE FUNCTION mainspring.create_schedule(name text, task text, cron text DEFAULT NULL::text, every interval DEFAULT NULL::interval, zone text DEFAULT 'UTC'::text, payload jsonb DEFAULT '{}'::jsonb, org_id text DEFAULT 'default'::text, queue text DEFAULT 'q:default'::text, priority integer DEFAULT 2, catch_up text DEFAULT 'latest'::text, within interval DEFAULT NULL::interval, most integer DEFAULT NULL::integer, running text DEFAULT 'allow'::text, jitter interval DEFAULT '00:00:00'::interval, gap text DEFAULT 'shift'::text, overlap text DEFAULT 'first'::text, max_attempts integer DEFAULT 5, actor_type text DEFAULT 'system'::text, actor_id text DEFAULT 'SYSTEM'::text, reason text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
#variable_conflict use_variable
declare
  job constant jsonb := jsonb_build_object(
    'task', task, 'payload', payload, 'queue', queue, 'priority', priority, 'max_attempts', max_attempts, 'org_id', org_id,
    'actor_type', 'system', 'actor_id', 'SYSTEM');
  answer text;
begin
  perform "mainspring".check_text('name', name, 200);
  perform "mainspring".check_job((job || jsonb_build_object('id', "mainspring".uuid7()))::json);
  if (cron is null) = (every is null) then
    perform "mainspring".refuse('cron', 'or every: give one of them');
  elsif zone is null or zone !~ '^[A-Za-z0-9_+-]{1,30}(/[A-Za-z0-9_+-]{1,30}){0,2}$'
        or not exists (select from pg_catalog.pg_timezone_names z where z.name = zone) then
    perform "mainspring".refuse('zone', 'is not a time zone, such as Europe/London');
  elsif catch_up is null or catch_up not in ('skip', 'latest', 'all') then
    perform "mainspring".refuse('catch_up', 'is not one of skip, latest, all');
  elsif within is not null and (catch_up = 'skip' or within not between interval '1 minute' and interval '3653 days') then
    perform "mainspring".refuse('within', 'is not a time span from 1 minute to 10 years, or belongs to skip');
  elsif most is not null and (catch_up <> 'all' or most not between 1 and 1000) then
    perform "mainspring".refuse('most', 'is not a whole number from 1 to 1000, or does not belong to all');
  elsif running is null or running not in ('allow', 'skip') then
    perform "mainspring".refuse('running', 'is not one of allow, skip');
  elsif jitter is null or jitter not between interval '0' and interval '1 day' then
    perform "mainspring".refuse('jitter', 'is not a time span from 0 to 1 day');
  elsif gap is null or gap not in ('shift', 'skip') then
    perform "mainspring".refuse('gap', 'is not one of shift, skip');
  elsif overlap is null or overlap not in ('first', 'last', 'both') then
    perform "mainspring".refuse('overlap', 'is not one of first, last, both');
  elsif every is not null and every not between interval '1 s' and interval '3653 days' then
    perform "mainspring".refuse('every', 'is not a time span from 1 second to 10 years');
  elsif cron is not null then
    perform "mainspring".check_cron(cron);
  end if;
  answer := "mainspring".save_schedule(org_id, name, jsonb_build_object(
    'rule', case when cron is null
      then jsonb_build_object('kind', 'every', 'interval', format('PT%sS', extract(epoch from every)), 'zone', zone)
      else jsonb_build_object('kind', 'cron', 'expression', cron, 'zone', zone, 'gap', gap, 'overlap', overlap) end,
    'description', coalesce(cron || format(' (%s)', zone), 'every ' || every), 'zone', zone, 'task', task, 'job', job,
    'fill', '{}'::text[], 'catch_up', catch_up, 'within', within, 'most', most, 'running', running, 'jitter', jitter,
    'by_zone', false, 'by_entity', false, 'page', 100, 'spread', interval '0'),
    null, false, actor_type, actor_id, reason);
  if answer is null then
    perform "mainspring".refuse('name', 'is taken by another schedule');
  end if;
end $_$;

CREATE FUNCTION mainspring.cron_values(p_field text, p_low integer, p_high integer, p_names text[]) RETURNS integer[]
    LANGUAGE plpgsql IMMUTABLE
    AS $_$
declare
  item text;
  part text[];
  first integer;
  last integer;
  found integer[] := '{}';
begin
  foreach item in array string_to_array(p_field, ',') loop
    part := regexp_match(item, '^(?:(\*)|([0-9]{1,2}|[A-Z]{3})(?:-([0-9]{1,2}|[A-Z]{3}))?)(?:/([0-9]{1,4}))?$');
    if part is null or part[4]::integer = 0 then
      return null;
    end if;
    first := case when part[1] is not null then p_low when part[2] ~ '^[0-9]' then part[2]::integer
                  else p_low - 1 + array_position(p_names, part[2]) end;
    last := case when part[1] is not null then p_high when part[3] is null and part[4] is not null then p_high
                 when part[3] is null then first when part[3] ~ '^[0-9]' then part[3]::integer
                 else p_low - 1 + array_position(p_names, part[3]) end;
    if first is null or last is null or first < p_low or last > p_high or first > last then
      return null;
    end if;
    found := found || array(select generate_series(first, last, coalesce(part[4]::integer, 1)));
  end loop;
  return nullif(found, '{}');
end $_$;

CREATE FUNCTION mainspring.declare_breakers(p_rules json) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  m record;
begin
  for m in
    select * from json_to_recordset(p_rules) as r (
      name text, failures integer, rate real, calls integer, within interval, pause interval, longest interval, probes smallint)
    order by r.name
  loop
    insert into "mainspring".breaker (name, failures, rate, calls, within, pause, longest, probes, used_at)
    values (m.name, m.failures, m.rate, m.calls, m.within, m.pause, m.longest, m.probes, "mainspring".now())
    on conflict do nothing;
    update "mainspring".breaker b
    set failures = m.failures, rate = m.rate, calls = m.calls, within = m.within, pause = m.pause, longest = m.longest,
        probes = m.probes
    where b.name = m.name
      and (b.failures, b.rate, b.calls, b.within, b.pause, b.longest, b.probes)
          is distinct from (m.failures, m.rate, m.calls, m.within, m.pause, m.longest, m.probes);
  end loop;
end $$;

CREATE FUNCTION mainspring.declare_limits(p_app text, p_limits jsonb, p_fair jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  item jsonb;
  was "mainspring".limit;
  new "mainspring".limit;
  turn "mainspring".fair;
begin
  perform "mainspring".check_text('app', p_app, 1000);
  perform pg_advisory_xact_lock(hashtextextended('"mainspring" limits', 0));
  for item in select * from jsonb_array_elements(p_limits) loop
    new := "mainspring".declared_limit(item ->> 'name', p_app, item - 'name');
    select * into was from "mainspring".limit x where x.org_id = 'SYSTEM' and x.name = new.name;
    if was.name is null or (was.declared and "mainspring".rule_of(was) <> "mainspring".rule_of(new)) then
      perform "mainspring".put_limit(new, 'system', 'SYSTEM', 'declared by ' || p_app);
    else
      update "mainspring".limit x
      set app = p_app, code = case when not was.declared then "mainspring".rule_of(new) end
      where x.org_id = 'SYSTEM' and x.name = new.name
        and (x.app, x.code) is distinct from (p_app, case when not was.declared then "mainspring".rule_of(new) end);
    end if;
  end loop;
  for was in
    select * from "mainspring".limit x
    where x.app = p_app and x.name not in (select e ->> 'name' from jsonb_array_elements(p_limits) e)
  loop
    if was.declared then
      perform "mainspring".drop_limit(was.name, 'system', 'SYSTEM', 'no longer declared by ' || p_app);
    else
      update "mainspring".limit x set app = null, code = null where x.org_id = 'SYSTEM' and x.name = was.name;
    end if;
  end loop;
  for item in select * from jsonb_array_elements(p_fair) loop
    select * into turn from "mainspring".fair f where f.org_id = 'SYSTEM' and f.queue = item ->> 'queue';
    if turn.queue is null or (turn.declared and (turn.weights, turn.app) is distinct from (item -> 'weights', p_app)) then
      perform "mainspring".put_fair(item ->> 'queue', item -> 'weights', p_app, 'system', 'SYSTEM', 'declared by ' || p_app);
    end if;
  end loop;
  for turn in
    select * from "mainspring".fair f
    where f.app = p_app and f.queue not in (select e ->> 'queue' from jsonb_array_elements(p_fair) e)
  loop
    perform "mainspring".unset_fair(turn.queue, 'system', 'SYSTEM', 'no longer declared by ' || p_app);
  end loop;
end $$;

CREATE FUNCTION mainspring.declared_limit(p_name text, p_app text, p_code jsonb) RETURNS mainspring."limit"
    LANGUAGE sql STABLE
    AS $$
  select (jsonb_populate_record(null::"mainspring".limit, jsonb_build_object('by', 'all', 'in_order', false) || jsonb_strip_nulls(p_code)
            || jsonb_build_object('name', p_name, 'app', p_app, 'declared', true))).*
$$;

CREATE TABLE mainspring.schedule (
    org_id text NOT NULL,
    name text NOT NULL,
    rule jsonb NOT NULL,
    description text NOT NULL,
    zone text NOT NULL,
    task text NOT NULL,
    job jsonb NOT NULL,
    fill text[] DEFAULT '{}'::text[] NOT NULL,
    catch_up text DEFAULT 'latest'::text NOT NULL,
    within interval,
    most integer,
    running text DEFAULT 'allow'::text NOT NULL,
    jitter interval DEFAULT '00:00:00'::interval NOT NULL,
    by_zone boolean DEFAULT false NOT NULL,
    by_entity boolean DEFAULT false NOT NULL,
    page integer DEFAULT 100 NOT NULL,
    spread interval DEFAULT '00:00:00'::interval NOT NULL,
    declared_by text,
    undeclared_at timestamp with time zone,
    zones_at timestamp with time zone,
    paused_at timestamp with time zone,
    paused_by text,
    pause_reason text,
    created_at timestamp with time zone NOT NULL,
    changed_at timestamp with time zone NOT NULL,
    CONSTRAINT schedule_catch_up_check CHECK ((catch_up = ANY (ARRAY['skip'::text, 'latest'::text, 'all'::text]))),
    CONSTRAINT schedule_fill_check CHECK ((fill <@ '{zone,instant}'::text[])),
    CONSTRAINT schedule_job_check CHECK (((jsonb_typeof(job) = 'object'::text) AND (jsonb_typeof((job -> 'payload'::text)) = 'object'::text))),
    CONSTRAINT schedule_most_check CHECK (((most >= 1) AND (most <= 1000))),
    CONSTRAINT schedule_page_check CHECK (((page >= 1) AND (page <= 1000))),
    CONSTRAINT schedule_running_check CHECK ((running = ANY (ARRAY['allow'::text, 'skip'::text])))
);

CREATE FUNCTION mainspring.definition(s mainspring.schedule) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    RETURN (to_jsonb(s) - '{org_id,name,zones_at,paused_at,paused_by,pause_reason,created_at,changed_at,undeclared_at}'::text[]);

CREATE FUNCTION mainspring.delete_schedule(p_org text, p_name text, p_actor_type text, p_actor_id text, p_reason text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  old "mainspring".schedule;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  select * into old from "mainspring".schedule s where s.org_id = p_org and s.name = p_name for update;
  if not found then
    return false;
  elsif old.declared_by is not null and old.undeclared_at is null then
    perform "mainspring".refuse('name', format('is declared by %s: remove it from the code, or pause it', old.declared_by));
  end if;
  delete from "mainspring".schedule_zone z where z.org_id = p_org and z.schedule = p_name;
  delete from "mainspring".fan_out o where o.org_id = p_org and o.schedule = p_name and o.finished_at is null;
  delete from "mainspring".schedule s where s.org_id = p_org and s.name = p_name;
  perform "mainspring".record_schedule('schedule.deleted', p_actor_type, p_actor_id, p_reason, p_org, p_name,
                                   "mainspring".definition(old), null);
  return true;
end $$;

CREATE FUNCTION mainspring.delivery_job(p_job json, p_org text, p_id uuid, p_delivery uuid, p_endpoint uuid) RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    RETURN ((p_job)::jsonb || jsonb_build_object('id', p_id, 'org_id', p_org, 'strand', p_endpoint, 'payload', jsonb_build_object('delivery_id', p_delivery, 'endpoint_id', p_endpoint)));

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
  perform "mainspring".give_up(p_id);
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

CREATE FUNCTION mainspring.drop_limit(p_name text, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  before "mainspring".limit;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('"mainspring" limits', 0));
  delete from "mainspring".limit x where x.org_id = 'SYSTEM' and x.name = p_name returning * into before;
  if not found then
    return false;
  end if;
  perform "mainspring".record_limit('limit.dropped', p_actor_type, p_actor_id, p_reason, jsonb_build_object('limit', p_name),
                                "mainspring".rule_of(before), null);
  perform "mainspring".reconsider(p_name, true);
  delete from "mainspring".bucket b where b.org_id = 'SYSTEM' and b.gate = any("mainspring".free_buckets(p_name));
  delete from "mainspring".unused u where u.org_id = 'SYSTEM' and u.name = p_name;
  return true;
end $$;

CREATE FUNCTION mainspring.drop_waiting(p_ids uuid[], p_reason text) RETURNS uuid[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  w "mainspring".waiting;
  dropped uuid[] := '{}';
begin
  for w in delete from "mainspring".waiting x where x.id = any(p_ids) and x.after is null returning * loop
    insert into "mainspring".finished (id, org_id, state, attempt, crashes, snoozes, finished_at, error)
    values (w.id, w.org_id, 'cancelled', w.attempt, w.crashes, w.snoozes, "mainspring".now(),
            "mainspring".cancelled(p_reason) || jsonb_build_object('attempt', w.attempt, 'at', "mainspring".now()));
    perform "mainspring".release_behind(w.id);
    perform "mainspring".record('job.cancelled', w.id, w.attempt, jsonb_build_object(
      'by', 'SYSTEM', 'by_type', 'system', 'reason', p_reason));
    dropped := dropped || w.id;
  end loop;
  perform "mainspring".leave(dropped);
  return dropped;
end $$;

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
    strand text,
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

CREATE FUNCTION mainspring.end_of(p_id uuid, p_known text) RETURNS text
    LANGUAGE sql STABLE
    RETURN (SELECT CASE WHEN (r.resolution = 'discarded'::text) THEN 'discarded'::text ELSE COALESCE(f.state, k.state) END AS "coalesce" FROM (((SELECT end_of.p_id AS id, CASE WHEN ((end_of.p_known = ANY (ARRAY['succeeded'::text, 'failed'::text, 'dead'::text, 'cancelled'::text])) AND (NOT (EXISTS (SELECT FROM mainspring.job j WHERE (j.id = end_of.p_id))))) THEN end_of.p_known ELSE NULL::text END AS state) k LEFT JOIN mainspring.finished f ON ((f.id = k.id))) LEFT JOIN mainspring.resolution r ON (((r.org_id = f.org_id) AND (r.job_id = f.id)))));

CREATE FUNCTION mainspring.enqueue(task text, payload jsonb DEFAULT '{}'::jsonb, queue text DEFAULT 'q:default'::text, priority integer DEFAULT 2, org_id text DEFAULT 'default'::text, key text DEFAULT NULL::text, mode text DEFAULT NULL::text, scheduled_for timestamp with time zone DEFAULT NULL::timestamp with time zone, delay interval DEFAULT NULL::interval, project_id uuid DEFAULT NULL::uuid, actor_type text DEFAULT 'system'::text, actor_id text DEFAULT 'SYSTEM'::text, request_id text DEFAULT NULL::text, correlation_id text DEFAULT NULL::text, parent_id uuid DEFAULT NULL::uuid, traceparent text DEFAULT NULL::text, max_attempts integer DEFAULT 5, cancellable boolean DEFAULT true, ttl interval DEFAULT NULL::interval, wait interval DEFAULT NULL::interval, reset boolean DEFAULT false, id uuid DEFAULT NULL::uuid, allow_secrets text[] DEFAULT '{}'::text[], strand text DEFAULT NULL::text, best_effort boolean DEFAULT false) RETURNS TABLE(job_id uuid, answer text, state text)
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
    'ttl', ttl, 'wait', wait, 'reset', reset, 'allow_secrets', allow_secrets, 'strand', strand,
    'best_effort', best_effort)));
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

    -- Wanted only where nothing is under way for it? Then whatever waits or runs will do, also with another payload.
    if e.unless_live and was.state in ('scheduled', 'ready', 'retrying', 'running') then
      return query select k.job_id, 'existing', was.state;
      return;
    end if;

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

CREATE FUNCTION mainspring.enqueue_batch(p_batch json, p_jobs json, p_checked boolean DEFAULT false) RETURNS TABLE(job_id uuid, answer text, state text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
  b "mainspring".batch;
  org constant text := coalesce(p_batch ->> 'org_id', 'default');
  last record;
  ids uuid[];
  answers text[];
  states text[];
begin
  if p_checked is not true then
    perform "mainspring".check_batch(p_batch);
  end if;
  if p_batch ->> 'name' is not null then
    insert into "mainspring".batch (org_id, id, name, on_failure, created_at, closed_at)
    values (org, (p_batch ->> 'id')::uuid, p_batch ->> 'name', coalesce(p_batch ->> 'on_failure', 'keep_going'),
            "mainspring".now(), case when coalesce((p_batch ->> 'open')::boolean, false) then null else "mainspring".now() end)
    on conflict do nothing returning * into b;
    if not found then
      perform "mainspring".refuse('batch', 'exists already');
    end if;
  end if;
  if p_batch ->> 'name' is not null and json_typeof(p_batch -> 'on_finish') = 'object' then
    select * into last from "mainspring".enqueue_many(json_build_array(p_batch -> 'on_finish'), p_checked);
    if last.answer <> 'created' then
      perform "mainspring".refuse('on_finish', 'its key is taken');
    elsif not exists (select from "mainspring".job j where j.id = last.job_id and j.org_id = org) then
      perform "mainspring".refuse('org_id', 'is not that of the batch');
    end if;
    update "mainspring".waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
    where w.id = last.job_id;
    update "mainspring".batch x set on_finish = last.job_id where x.org_id = org and x.id = b.id;
  end if;
  select array_agg(e.job_id order by e.n), array_agg(e.answer order by e.n), array_agg(e.state order by e.n)
  into ids, answers, states
  from "mainspring".enqueue_many(p_jobs, p_checked, true) with ordinality e(job_id, answer, state, n);
  if b.id is null then  -- after the keys of its jobs, in the order of whoever replays one of them
    select * into b from "mainspring".batch x where x.org_id = org and x.id = (p_batch ->> 'id')::uuid for share;
    if not found then
      perform "mainspring".refuse('batch', 'does not exist');
    elsif b.finished_at is not null then
      perform "mainspring".refuse('batch', 'has finished');
    elsif b.stopped_at is not null then
      perform "mainspring".refuse('batch', 'was stopped');
    end if;
  end if;
  perform "mainspring".join_batch(org, b.id, ids, answers, states);
  perform "mainspring".ripple(null, array[b.id]);  -- it may be empty, or everything in it has ended before
  return query select * from unnest(ids, answers, states);
end $$;

CREATE FUNCTION mainspring.enqueue_flow(p_jobs json, p_links json, p_checked boolean DEFAULT false) RETURNS TABLE(job_id uuid, answer text, state text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
  ids uuid[];
  answers text[];
  states text[];
  older uuid[];
  children uuid[];
  waits text[];
  parents uuid[];
  ends text[];
  places integer[];
  anyways boolean[];
  org text;
  wrong uuid;
begin
  perform "mainspring".check_links(p_links, json_array_length(p_jobs));
  select array_agg(e.job_id order by e.n), array_agg(e.answer order by e.n), array_agg(e.state order by e.n)
  into ids, answers, states
  from "mainspring".enqueue_many(p_jobs, p_checked, true) with ordinality e(job_id, answer, state, n);
  select min(j.org_id) into org from "mainspring".job j where j.id = any(ids);
  if exists (select from "mainspring".job j where j.id = any(ids) and j.org_id <> org) then
    perform "mainspring".refuse('org_id', 'is not the same for all jobs of the flow');
  end if;
  older := array(select i from unnest(ids, answers) x(i, a) where a <> 'created');
  perform "mainspring".tie(older);
  select array_agg(l.child), array_agg(l.answer), array_agg(l.parent), array_agg(l.parent_state), array_agg(l.place),
         array_agg(l.anyway)
  into children, waits, parents, ends, places, anyways
  from "mainspring".links_of(p_links, ids, answers, states) l;
  select x.child into wrong from unnest(children, waits, parents) x(child, answer, parent)
  where x.child = x.parent or (x.answer <> 'created' and not exists (
    select from "mainspring".dependency d where d.org_id = org and d.child = x.child and d.parent = x.parent)) limit 1;
  if found then
    perform "mainspring".refuse('key', format('%s is taken by a job that does not wait for these others', (
      select left(j.key, 100) from "mainspring".job j where j.id = wrong)));
  end if;
  insert into "mainspring".dependency (org_id, child, parent, place, anyway, state)
  select org, x.child, x.parent, x.place, x.anyway, case when x.state is not null then "mainspring".end_of(x.parent, x.state) end
  from unnest(children, parents, places, anyways, ends) x(child, parent, place, anyway, state)
  on conflict do nothing;
  perform "mainspring".hold(array(select distinct c from unnest(children, waits) x(c, a) where a <> 'existing'));
  if cardinality(older) > 0 then  -- one that it waits for may be given up already
    perform "mainspring".ripple(children, null);
  end if;
  return query select x.id, x.answer, coalesce(s.state, x.state) from unnest(ids, answers, states) with ordinality x(id, answer, state, n)
    left join lateral "mainspring".state_of(x.id) s on true order by x.n;
end $$;

CREATE FUNCTION mainspring.enqueue_many(p_jobs json, p_checked boolean DEFAULT false, p_tied boolean DEFAULT false) RETURNS TABLE(job_id uuid, answer text, state text)
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
  if strpos(p_jobs::text, '"best_effort"') > 0 then
    perform "mainspring".check_room(p_jobs);
  end if;
  if strpos(p_jobs::text, '"key"') = 0 then  -- nothing to deduplicate: measured at half the cost of what follows
    return query
    with x as materialized (
      select * from "mainspring".envelopes(p_jobs)
    ), written as (
      insert into "mainspring".job
      select id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type, actor_id,
             request_id, correlation_id, parent_id, traceparent, null, strand, created_at, scheduled_for
      from x
    ), ticketed as (
      insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, strand, tied)
      select id, org_id, task, queue, priority, due_at, strand, p_tied from x
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
             request_id, correlation_id, parent_id, traceparent, key, strand, created_at, scheduled_for
      from fresh
    ), ticketed as (
      insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, strand, tied)
      select id, org_id, task, queue, priority, due_at, strand, p_tied from fresh returning id, due_at
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
        if p_tied and again.answer = 'created' then
          update "mainspring".waiting w set tied = true where w.id = again.job_id;
        end if;
      end loop;
    end if;
    return query select * from unnest(ids, answers, states);
  end if;
  if (select last_value from "mainspring".idle_until) > extract(epoch from clock_timestamp()) * 1000 then
    perform "mainspring".wake();
  end if;
end $$;

CREATE FUNCTION mainspring.enter(l mainspring."limit", p_gate text, p_at timestamp with time zone, p_until timestamp with time zone, p_count integer, p_room integer) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  ats timestamptz[];
  counts integer[];
begin
  select array_agg(x.at order by x.at), array_agg(x.n order by x.at) into ats, counts
  from (
    select max(e.at) as at, sum(e.n)::integer as n
    from (
      select y.at, y.n from "mainspring".bucket b, unnest(b.at, b.count) y(at, n)
      where b.org_id = 'SYSTEM' and b.gate = p_gate and y.at > p_at - "mainspring".lookback(l.per)
      union all select p_until, p_count) e
    group by date_bin(l.per / 100, e.at, 'epoch')) x;
  insert into "mainspring".bucket as b (gate, name, at, count, used_at, full_at)
  values (p_gate, l.name, ats, counts, p_at, case when p_room < l.rate * 0.5 then p_at else '-infinity' end)
  on conflict (org_id, gate) do update
  set at = excluded.at, count = excluded.count, used_at = excluded.used_at,
      full_at = case when p_room < l.rate * 0.5 then p_at else least(b.full_at, p_at) end;
end $$;

CREATE FUNCTION mainspring.envelopes(p_jobs json) RETURNS SETOF mainspring.envelope
    LANGUAGE sql STABLE
    AS $$
  select j.id, coalesce(j.org_id, 'default'), j.task, coalesce(j.queue, 'q:default'), coalesce(j.priority, 2::smallint),
         coalesce(j.max_attempts, 5::smallint), coalesce(j.cancellable, true), j.payload, j.project_id,
         coalesce(j.actor_type, 'system'), coalesce(j.actor_id, 'SYSTEM'), coalesce(j.request_id, j.id::text),
         coalesce(j.correlation_id, j.id::text), j.parent_id, j.traceparent, j.key, j.strand,
         case when j.created_at is null then "mainspring".now() else "mainspring".plausible(j.created_at) end,
         case when j.wait is not null then "mainspring".now() + j.wait
              when j.delay is not null then "mainspring".now() + j.delay
              else j.scheduled_for end,
         case when j.wait is not null then "mainspring".now() + j.wait
              when j.delay is not null then "mainspring".now() + j.delay
              else coalesce(greatest(j.scheduled_for, "mainspring".now()), "mainspring".now()) end,
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

CREATE FUNCTION mainspring.find_fair(p_queue text, p_want integer, p_tasks text[], p_oldest boolean) RETURNS SETOF mainspring.waiting
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    SET enable_sort TO 'on'
    SET jit TO 'off'
    AS $$
declare
  lanes constant smallint[] := array(
    select p from unnest('{0,1,2,3}'::smallint[]) p
    order by case when p_oldest then (
      select w.due_at from "mainspring".waiting w
      where w.queue = p_queue and w.priority = p and w.due_at <= "mainspring".now() order by w.due_at limit 1) end, p);
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
  select f.cursor, f.weights into start, heavy from "mainspring".fair f where f.org_id = 'SYSTEM' and f.queue = p_queue;
  foreach lane in array lanes loop
    exit when left_over <= 0;
    -- From the cursor on, then from the beginning up to it.
    with recursive walk as (
      select start as org_id, timestamptz 'infinity' as due_at, false as around, 0 as depth, 0 as due
      union all
      select x.*, h.depth + 1, h.due + (x.due_at <= "mainspring".now())::integer
      from walk h cross join lateral (
        select y.org_id, y.due_at, h.around from (
          select w.org_id, w.due_at from "mainspring".waiting w
          where w.queue = p_queue and w.priority = lane and w.org_id > h.org_id order by w.org_id, w.due_at limit 1) y
        where not h.around or y.org_id <= start
        union all
        select y.org_id, y.due_at, true from (
          select w.org_id, w.due_at from "mainspring".waiting w
          where w.queue = p_queue and w.priority = lane and not h.around order by w.org_id, w.due_at limit 1) y
        where y.org_id <= start
        limit 1) x
      where h.due < 100 and h.depth < 1000
    ), chance as (
      select k.*, z.weight, -ln(1 - random()) / z.weight as turn
      from walk k cross join lateral (select coalesce((heavy ->> k.org_id)::integer, 1) as weight) z
    )
    select array_agg(k.org_id order by k.turn) filter (where k.due_at <= "mainspring".now()),
           array_agg(k.weight order by k.turn) filter (where k.due_at <= "mainspring".now()),
           sum(k.weight) filter (where k.due_at <= "mainspring".now()),
           case when max(k.due) = 100 or max(k.depth) = 1000 then (array_agg(k.org_id order by k.depth desc))[1] end
    into orgs, weights, total, walked
    from chance k;
    if walked is not null then
      update "mainspring".fair f set cursor = walked
      where f.org_id = 'SYSTEM' and f.queue = p_queue and f.cursor <> walked
        and exists (select from "mainspring".fair x where x.org_id = 'SYSTEM' and x.queue = p_queue for update skip locked);
    end if;
    continue when orgs is null;
    counts := array_fill(0, array[cardinality(orgs)]);
    for i in 1 .. cardinality(orgs) loop
      exit when left_over <= 0;
      share := least(left_over, greatest(1, p_want * weights[i] / total));
      return query
        select w.* from "mainspring".waiting w
        where w.queue = p_queue and w.priority = lane and w.org_id = orgs[i] and w.due_at <= "mainspring".now()
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
        select w.* from "mainspring".waiting w
        where w.queue = p_queue and w.priority = lane and w.org_id = orgs[i] and w.due_at <= "mainspring".now()
          and w.task = any(p_tasks) and w.crashes = 0
        order by w.due_at, w.id offset counts[i] limit left_over for update of w skip locked;
      get diagnostics n = row_count;
      left_over := left_over - n;
    end loop;
  end loop;
end $$;

CREATE FUNCTION mainspring.fingerprint(p_task text, p_payload jsonb) RETURNS bytea
    LANGUAGE sql IMMUTABLE
    RETURN sha256(convert_to((p_task || COALESCE((p_payload #>> '{$mainspring,fingerprint}'::text[]), (p_payload)::text)), 'utf8'::name));

CREATE TABLE mainspring.fire (
    org_id text NOT NULL,
    id uuid NOT NULL,
    schedule text NOT NULL,
    zone text NOT NULL,
    instant timestamp with time zone NOT NULL,
    local text NOT NULL,
    how text NOT NULL,
    reason text,
    instants integer DEFAULT 1 NOT NULL,
    job_id uuid,
    at timestamp with time zone NOT NULL,
    CONSTRAINT fire_how_check CHECK ((how = ANY (ARRAY['fired'::text, 'skipped'::text, 'missed'::text, 'run_now'::text])))
);

CREATE TABLE mainspring.schedule_zone (
    org_id text NOT NULL,
    schedule text NOT NULL,
    zone text DEFAULT ''::text NOT NULL,
    declared boolean NOT NULL,
    after timestamp with time zone NOT NULL,
    next_at timestamp with time zone,
    local timestamp without time zone,
    tzdata text,
    job_id uuid,
    problem text
)
WITH (fillfactor='50', autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0');

CREATE FUNCTION mainspring.fires_after(p_org text, p_name text) RETURNS timestamp with time zone
    LANGUAGE sql STABLE
    RETURN GREATEST(mainspring.now(), (SELECT max(z.after) AS max FROM mainspring.schedule_zone z WHERE ((z.org_id = fires_after.p_org) AND (z.schedule = fires_after.p_name))), (SELECT max(f.instant) AS max FROM mainspring.fire f WHERE ((f.org_id = fires_after.p_org) AND (f.schedule = fires_after.p_name) AND (f.how <> 'run_now'::text))));

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
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, strand)
  values (n.id, n.org_id, n.task, n.queue, n.priority, "mainspring".now(), n.strand);
  perform "mainspring".take_over(p_id, array[p_new]);
  perform "mainspring".reopen(p_new);
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

CREATE FUNCTION mainspring.force_breaker(p_event text, p_to text, p_name text, p_key text, p_org text, p_actor_type text, p_actor_id text, p_reason text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  org constant text := case when p_key = '' then 'SYSTEM' else p_org end;
  before "mainspring".breaker;
  after "mainspring".breaker;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform "mainspring".check_text('name', p_name, 100);
  perform "mainspring".check_text('reason', p_reason, 1000);
  if p_key is distinct from '' then
    perform "mainspring".check_text('key', p_key, 200);
    perform "mainspring".check_text('org', p_org, 200);
  end if;
  insert into "mainspring".breaker (org_id, name, key, failures, rate, calls, within, pause, longest, probes, used_at)
  select org, r.name, p_key, r.failures, r.rate, r.calls, r.within, r.pause, r.longest, r.probes, "mainspring".now()
  from "mainspring".breaker r where r.org_id = 'SYSTEM' and r.name = p_name and r.key = '' and p_key <> ''
  on conflict do nothing;
  select * into before from "mainspring".breaker b where b.org_id = org and b.name = p_name and b.key = p_key for update;
  if not found then
    perform "mainspring".refuse('name', 'is no breaker that a worker has declared');
  end if;
  if before.forced is not distinct from p_to then
    return false;
  end if;
  update "mainspring".breaker b
  set forced = p_to, forced_at = case when p_to is not null then "mainspring".now() end,
      forced_by = case when p_to is not null then p_actor_id end, forced_reason = case when p_to is not null then p_reason end,
      used_at = "mainspring".now()
  where b.org_id = org and b.name = p_name and b.key = p_key returning * into after;
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  values (org, "mainspring".now(), p_event, p_actor_type, p_actor_id, jsonb_build_object(
    'breaker', p_name, 'key', nullif(p_key, ''), 'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', "mainspring".breaker_facts(before), 'after', "mainspring".breaker_facts(after)));
  perform pg_notify('mainspring', '');
  return true;
end $$;

CREATE FUNCTION mainspring.forget(p_ids uuid[]) RETURNS void
    LANGUAGE sql
    AS $$
  delete from "mainspring".step s using "mainspring".job j where j.id = any(p_ids) and s.org_id = j.org_id and s.job_id = j.id;
  delete from "mainspring".checkpoint c using "mainspring".job j where j.id = any(p_ids) and c.org_id = j.org_id and c.job_id = j.id;
  delete from "mainspring".progress p using "mainspring".job j where j.id = any(p_ids) and p.org_id = j.org_id and p.job_id = j.id
$$;

CREATE FUNCTION mainspring.forget_breakers(p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  count integer;
begin
  delete from "mainspring".breaker b where b.ctid = any(array(
    select x.ctid from "mainspring".breaker x
    where x.key <> '' and x.forced is null
      and greatest(x.used_at, x.until) < "mainspring".now() - greatest(x.within, interval '1 hour')
    limit p_limit for update skip locked));
  get diagnostics count = row_count;
  return count;
end $$;

CREATE FUNCTION mainspring.forget_buckets(p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  n integer;
begin
  delete from "mainspring".bucket b where b.ctid = any(array(
    select x.ctid from "mainspring".bucket x where x.used_at < "mainspring".now() - interval '25 hours'
    limit p_limit for update skip locked));
  get diagnostics n = row_count;
  delete from "mainspring".unused u where u.at < "mainspring".now() - interval '25 hours';
  return n;
end $$;

CREATE FUNCTION mainspring.forget_recipient(p_org text, p_recipient text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  delete from "mainspring".recipient x where x.org_id = p_org and x.recipient_id = p_recipient;
  return found;
end $$;

CREATE FUNCTION mainspring.free_buckets(p_name text) RETURNS text[]
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
  select array(select b.gate from "mainspring".bucket b where b.org_id = 'SYSTEM' and b.name = p_name for update skip locked)
$$;

CREATE FUNCTION mainspring.free_gate(p_gate text, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  dependency constant text := split_part(p_gate, ':', 2);
  part constant text := substr(p_gate, length('breaker:' || dependency) + 2);
  count integer;
begin
  update "mainspring".waiting w set due_at = least(w.due_at, "mainspring".now()), gate = null, due_then = null
  where w.ctid = any(array(
    select x.ctid from "mainspring".waiting x
    where x.gate = p_gate and x.gate is not null and not exists (
      select from "mainspring".breaker b
      where b.org_id = case when part = '' then 'SYSTEM' else x.org_id end and b.name = dependency and b.key = part
        and "mainspring".breaker_state(b) <> 'closed')
    order by x.priority, x.due_then, x.id limit p_limit for update of x skip locked));
  get diagnostics count = row_count;
  if count > 0 then
    perform pg_notify('mainspring', '');
  end if;
  return count;
end $$;

CREATE FUNCTION mainspring.free_gates(p_limit integer) RETURNS integer
    LANGUAGE sql
    AS $$
  select coalesce(sum("mainspring".free_gate(g.gate, p_limit)), 0)::integer
  from (select distinct 'breaker:' || b.name || case when b.key = '' then '' else ':' || b.key end as gate
        from "mainspring".breaker b where "mainspring".breaker_state(b) = 'closed') g
$$;

CREATE FUNCTION mainspring.gate_of(l mainspring."limit", p_org text, p_strand text) RETURNS text
    LANGUAGE sql IMMUTABLE
    RETURN (((l).name || '/'::text) || CASE (l).by WHEN 'all'::text THEN ''::text WHEN 'org'::text THEN p_org ELSE ((replace(replace(p_org, '%'::text, '%25'::text), '/'::text, '%2F'::text) || '/'::text) || p_strand) END);

CREATE FUNCTION mainspring.give_up(p_id uuid) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  children uuid[];
begin
  with x as (
    update "mainspring".dependency d set state = 'discarded' where d.parent = p_id and not d.met returning d.child)
  select array_agg(distinct x.child) into children from x;
  perform "mainspring".ripple(children, null);
end $$;

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

CREATE FUNCTION mainspring.guard_fire() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
begin
  if tg_op = 'DELETE' and "mainspring".verb() = 'prune' then
    return old;
  end if;
  raise exception 'a fire is written once' using errcode = 'MS004';
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
    strand text,
    tied boolean DEFAULT false NOT NULL,
    started_at timestamp with time zone NOT NULL,
    lease_expires_at timestamp with time zone NOT NULL,
    cancel_requested_at timestamp with time zone
)
WITH (autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0');

CREATE FUNCTION mainspring.hand_back(r mainspring.running) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
  insert into "mainspring".unused (gate, epoch, name, at)
  select b.gate, r.epoch, l.name, r.started_at + "mainspring".briefest(l.per)
  from "mainspring".limit l join "mainspring".bucket b on b.org_id = 'SYSTEM' and b.gate = "mainspring".gate_of(l, r.org_id, r.strand)
  where l.rate is not null and (l.queue = r.queue or l.task = r.task) and l.set_at < r.started_at
  on conflict do nothing
$$;

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

CREATE FUNCTION mainspring.hold(p_ids uuid[]) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  update "mainspring".waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
  where w.id = any(p_ids)
    and exists (select from "mainspring".dependency d where d.org_id = w.org_id and d.child = w.id and not d.met)
$$;

CREATE FUNCTION mainspring.index_fair() RETURNS void
    LANGUAGE plpgsql
    SET lock_timeout TO '2s'
    AS $$
declare
  wanted constant boolean := exists (select from "mainspring".fair f);
begin
  if wanted = (to_regclass('"mainspring".waiting_fair') is not null) then
    return;
  elsif wanted then
    execute 'create index waiting_fair on "mainspring".waiting (queue, priority, org_id, due_at, id)';
  else
    execute 'drop index "mainspring".waiting_fair';
  end if;
exception when lock_not_available then
  raise exception 'fair: the index of fair queues could not be changed within 2 s, because an open transaction holds the table of '
    'jobs that wait; nothing was changed, try again' using errcode = 'lock_not_available';
end $$;

CREATE FUNCTION mainspring.instant() RETURNS timestamp with time zone
    LANGUAGE sql
    RETURN clock_timestamp();

CREATE FUNCTION mainspring.is_held(w mainspring.waiting) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    RETURN (((w).after IS NOT NULL) OR (NOT ((w).gate IS DISTINCT FROM 'parents'::text)));

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

CREATE FUNCTION mainspring.join_batch(p_org text, p_id uuid, p_ids uuid[], p_answers text[], p_states text[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  if exists (select from "mainspring".job j where j.id = any(p_ids) and j.org_id <> p_org) then
    perform "mainspring".refuse('org_id', 'is not that of the batch');
  end if;
  perform "mainspring".tie(array(select i from unnest(p_ids, p_answers) x(i, a) where a <> 'created'));
  insert into "mainspring".member (org_id, batch_id, job_id, state)
  select distinct on (x.id) p_org, p_id, x.id, case when x.answer <> 'created' then
    replace("mainspring".end_of(x.id, x.state), 'discarded', 'failed') end
  from unnest(p_ids, p_answers, p_states) x(id, answer, state)
  on conflict do nothing;
end $$;

CREATE FUNCTION mainspring.leave(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  g record;
  lane smallint;
begin
  for g in
    with gone as (
      delete from "mainspring".slot s
      where s.job_id = any(p_ids) and (not s.in_order or exists (select from "mainspring".finished f where f.id = s.job_id))
      returning s.gate, s.in_order)
    select gone.gate, gone.in_order, count(*) as n from gone group by 1, 2 order by 1
  loop
    -- In order it is the next one's turn, whatever its priority.
    lane := case when g.in_order then (
      select p.lane from generate_series(0, 3) p(lane) cross join lateral (
        select x.due_then, x.id from "mainspring".waiting x where x.gate = g.gate and x.priority = p.lane
        order by x.due_then, x.id limit 1) x
      order by x.due_then, x.id limit 1) else 0 end;
    -- Due when it was first: its place in the order depends on it, and limited claims know no bound from below.
    update "mainspring".waiting w set due_at = w.due_then, gate = null, due_then = null
    where w.id = any(array(
      select x.id from "mainspring".waiting x where x.gate = g.gate and x.priority >= lane
      order by x.priority, x.due_then, x.id limit g.n for update skip locked));
    perform "mainspring".wake();
  end loop;
end $$;

CREATE FUNCTION mainspring.links_of(p_links json, p_ids uuid[], p_answers text[], p_states text[]) RETURNS TABLE(child uuid, answer text, parent uuid, parent_state text, place integer, anyway boolean)
    LANGUAGE sql STABLE
    SET enable_nestloop TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  with named as materialized (
    select * from unnest(p_ids, p_answers, p_states) with ordinality n(id, answer, state, place)
  ), listed as materialized (  -- parsed once, however many parents there are
    select (l ->> 'child')::bigint + 1 as child, coalesce((l ->> 'anyway')::boolean, false) as anyway, l -> 'parents' as parents
    from json_array_elements(p_links) l
  ), link as materialized (
    select x.child, p.i::bigint + 1 as parent, p.n as place, x.anyway
    from listed x cross join lateral json_array_elements_text(x.parents) with ordinality p(i, n)
  )
  select c.id, c.answer, p.id, case when p.answer <> 'created' then coalesce(p.state, '') end, min(l.place)::integer,
         bool_or(l.anyway)
  from link l join named c on c.place = l.child join named p on p.place = l.parent
  group by 1, 2, 3, 4
$$;

CREATE FUNCTION mainspring.lock_gates(p_gates text[]) RETURNS boolean
    LANGUAGE plpgsql
    SET lock_timeout TO '250ms'
    SET enable_seqscan TO 'off'
    AS $$
declare
  t timestamptz;
begin
  perform pg_advisory_xact_lock(hashtext('"mainspring" gates'), g.n)
  from (select distinct hashtext(x) & 63 as n from unnest(p_gates) x order by 1) g;
  t := "mainspring".instant();
  update "mainspring".bucket b set at = array(select least(a, t) from unnest(b.at) a)
  from "mainspring".limit l
  where b.org_id = 'SYSTEM' and b.gate = any(p_gates) and l.org_id = 'SYSTEM' and l.name = b.name
    and b.at[cardinality(b.at)] > t + l.per;
  delete from "mainspring".unused u using "mainspring".limit l
  where u.org_id = 'SYSTEM' and u.gate = any(p_gates) and l.org_id = 'SYSTEM' and l.name = u.name
    and (u.at <= t - "mainspring".lookback(l.per) or u.at > t + l.per);
  return true;
exception when lock_not_available then
  return false;
end $$;

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

CREATE FUNCTION mainspring.look_at_batches(p_batches uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  locked uuid[];
  b "mainspring".batch;
  one record;
  dropped uuid[] := '{}';
begin
  select array_agg(x.id) into locked from (
    select y.id from "mainspring".batch y where y.id = any(p_batches) and y.finished_at is null
    order by y.id for update skip locked) x;
  insert into "mainspring".loose_end (org_id, kind, what)
  select y.org_id, 'batch', y.id from "mainspring".batch y
  where y.id = any(array(select unnest(p_batches) except select unnest(locked))) and y.finished_at is null;
  for b in select * from "mainspring".batch y where y.id = any(locked) loop
    select m.job_id, m.state into one from "mainspring".member m
    where b.on_failure = 'stop' and b.stopped_at is null
      and m.org_id = b.org_id and m.batch_id = b.id and m.state in ('failed', 'dead') limit 1;
    if found then
      update "mainspring".batch y
      set stopped_at = "mainspring".now(), stop_reason = format('Job %s of its batch is %s.', one.job_id, one.state)
      where y.org_id = b.org_id and y.id = b.id returning * into b;
      perform "mainspring".record_batch('batch.stopped', b, 'system', 'SYSTEM', jsonb_build_object('reason', b.stop_reason));
    end if;
    if b.stopped_at is not null then
      dropped := dropped || "mainspring".stop_members(b);
    end if;
    continue when b.closed_at is null or (  -- exists() would not keep the order
      select m.job_id from "mainspring".member m where m.org_id = b.org_id and m.batch_id = b.id and m.state is null
      order by m.job_id desc limit 1) is not null;
    perform from "mainspring".waiting w where w.id = b.on_finish and w.gate = 'parents' for update skip locked;
    if not found and exists (select from "mainspring".waiting w where w.id = b.on_finish and w.gate = 'parents') then
      insert into "mainspring".loose_end (org_id, kind, what) values (b.org_id, 'batch', b.id);
      continue;
    end if;
    update "mainspring".batch y set finished_at = "mainspring".now() where y.org_id = b.org_id and y.id = b.id;
    perform "mainspring".open_gate(array[b.on_finish]);
    perform "mainspring".wake();
    perform "mainspring".record_batch('batch.finished', b, 'system', 'SYSTEM', (
      select jsonb_build_object('total', count(*), 'succeeded', count(*) filter (where m.state = 'succeeded'),
               'failed', count(*) filter (where m.state = 'failed'), 'dead', count(*) filter (where m.state = 'dead'),
               'cancelled', count(*) filter (where m.state = 'cancelled'), 'on_finish', b.on_finish)
      from "mainspring".member m where m.org_id = b.org_id and m.batch_id = b.id));
  end loop;
  return dropped;
end $$;

CREATE FUNCTION mainspring.look_at_children(p_children uuid[]) RETURNS uuid[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  locked uuid[];
  free uuid[];
  lost record;
  dropped uuid[] := '{}';
begin
  select array_agg(x.id) into locked from (
    select w.id from "mainspring".waiting w where w.id = any(p_children) and w.gate = 'parents'
    order by w.id for update skip locked) x;
  insert into "mainspring".loose_end (org_id, kind, what)
  select w.org_id, 'child', w.id from "mainspring".waiting w
  where w.id = any(array(select unnest(p_children) except select unnest(locked))) and w.gate = 'parents';
  if locked is null then
    return dropped;
  end if;
  -- A new statement: it sees what committed before the locks were ours.
  select array_agg(w.id) into free from "mainspring".waiting w
  where w.id = any(locked)
    and not exists (select from "mainspring".dependency d where d.org_id = w.org_id and d.child = w.id and not d.met);
  if free is not null then
    perform "mainspring".open_gate(free);
    perform "mainspring".wake();
  end if;
  for lost in
    select min(d.parent::text) as parent, min(d.state) as state, array_agg(distinct d.child) as children
    from "mainspring".dependency d
    where d.child = any(locked) and not d.met and not d.anyway and d.state in ('cancelled', 'discarded')
    group by d.parent
  loop
    dropped := dropped || "mainspring".drop_waiting(lost.children, format('Job %s, which it waited for, was %s.', lost.parent, lost.state));
  end loop;
  insert into "mainspring".loose_end (org_id, kind, what)  -- one behind another of its key goes when that has ended
  select distinct w.org_id, 'child', w.id from "mainspring".waiting w join "mainspring".dependency d on d.org_id = w.org_id and d.child = w.id
  where w.id = any(locked) and not d.anyway and d.state in ('cancelled', 'discarded');
  return dropped;
end $$;

CREATE FUNCTION mainspring.lookback(p_per interval) RETURNS interval
    LANGUAGE sql IMMUTABLE
    RETURN (make_interval(secs => (EXTRACT(epoch FROM p_per))::double precision) + LEAST((p_per * (0.005)::double precision), '00:00:00.005'::interval));

CREATE FUNCTION mainspring.next_due(p_queues text[]) RETURNS interval
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  opens timestamptz;
begin
  if current_setting('mainspring.more', true) = 'on' then  -- a limited claim of this turn was not done
    return interval '0';
  end if;
  if exists (select from "mainspring".limit l where l.queue = any(p_queues)) then
    opens := "mainspring".next_open(p_queues);
  end if;
  return (select least(min(x.due_at), opens) - "mainspring".now()
  from unnest(p_queues) q(name) cross join (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
  cross join lateral (
    select w.due_at from "mainspring".waiting w
    where w.queue = q.name and w.priority = p.priority and w.due_at > "mainspring".now() and w.due_at < 'infinity'
    order by w.due_at limit 1) x);
end $$;

CREATE FUNCTION mainspring.next_open(p_queues text[]) RETURNS timestamp with time zone
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
  select min("mainspring".opens_at(l, l.name || '/', "mainspring".now()))
  from "mainspring".limit l
  where l.queue = any(p_queues) and l.by = 'all' and l.rate is not null
    and "mainspring".room(l, l.name || '/', "mainspring".now()) <= 0
    and exists (select from (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority),
                lateral (select from "mainspring".waiting w where w.queue = l.queue and w.priority = p.priority
                           and w.due_at <= "mainspring".now() limit 1) x)
$$;

CREATE FUNCTION mainspring.note_ends(p_ended uuid[], OUT children uuid[], OUT batches uuid[]) RETURNS record
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
begin
  with x as (
    update "mainspring".member m set state = f.state from "mainspring".finished f
    where m.job_id = any(p_ended) and f.id = m.job_id and m.state is distinct from f.state returning m.batch_id)
  select array_agg(distinct x.batch_id) into batches from x;
  with x as (
    update "mainspring".dependency d set state = f.state from "mainspring".finished f
    where d.parent = any(p_ended) and f.id = d.parent and coalesce(d.state, '') not in (f.state, 'discarded')
    returning d.child)
  select array_agg(distinct x.child) into children from x;
end $$;

CREATE FUNCTION mainspring.open_alert(p_org text, p_name text, p_subject text DEFAULT ''::text, p_text text DEFAULT ''::text, p_severity text DEFAULT 'warning'::text, p_detail jsonb DEFAULT '{}'::jsonb, p_told boolean DEFAULT false) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  opened boolean;
begin
  perform "mainspring".check_text('org', p_org, 200);
  perform "mainspring".check_text('name', p_name, 100);
  perform "mainspring".check_text('subject', coalesce(nullif(p_subject, ''), '-'), 200);
  if p_severity is null or p_severity not in ('critical', 'warning') then
    perform "mainspring".refuse('severity', 'is not critical or warning');
  end if;
  insert into "mainspring".alert as a (org_id, id, name, subject, severity, text, detail, opened_at, last_at, told)
  values (p_org, "mainspring".uuid7(), p_name, coalesce(p_subject, ''), p_severity, coalesce(p_text, ''),
          coalesce(p_detail, '{}'), "mainspring".now(), "mainspring".now(), case when p_told then 'opened' end)
  on conflict (org_id, name, subject) where closed_at is null
  do update set count = a.count + 1, last_at = excluded.last_at
  returning a.count = 1 into opened;
  return opened;
end $$;

CREATE FUNCTION mainspring.open_breaker(p_name text, p_actor_type text, p_actor_id text, p_reason text, p_key text DEFAULT ''::text, p_org text DEFAULT 'default'::text) RETURNS boolean
    LANGUAGE sql
    AS $$
  select "mainspring".force_breaker('breaker.forced_open', 'open', p_name, p_key, p_org, p_actor_type, p_actor_id, p_reason)
$$;

CREATE FUNCTION mainspring.open_gate(p_ids uuid[]) RETURNS void
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
  update "mainspring".waiting w
  set gate = null, due_at = case when w.after is null then greatest(w.due_then, "mainspring".now()) else w.due_at end,
      due_then = case when w.after is not null then w.due_then end
  where w.id = any(p_ids) and w.gate = 'parents'
$$;

CREATE FUNCTION mainspring.opens_at(l mainspring."limit", p_gate text, p_at timestamp with time zone) RETURNS timestamp with time zone
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
  select coalesce(min(e.at), p_at) + "mainspring".lookback(l.per)
  from "mainspring".bucket b, unnest(b.at) e(at)
  where b.org_id = 'SYSTEM' and b.gate = p_gate and e.at > p_at - "mainspring".lookback(l.per)
$$;

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

CREATE FUNCTION mainspring.pause_schedule(p_org text, p_name text, p_actor_type text, p_actor_id text, p_reason text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  old "mainspring".schedule;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  select * into old from "mainspring".schedule s where s.org_id = p_org and s.name = p_name for update;
  if not found then
    return null;
  elsif old.paused_at is not null then
    return false;
  end if;
  update "mainspring".schedule s set paused_at = "mainspring".now(), paused_by = p_actor_id, pause_reason = p_reason
  where s.org_id = p_org and s.name = p_name;
  update "mainspring".schedule_zone z set next_at = null where z.org_id = p_org and z.schedule = p_name;
  perform "mainspring".record_schedule('schedule.paused', p_actor_type, p_actor_id, p_reason, p_org, p_name,
    jsonb_build_object('paused_at', null),
    jsonb_build_object('paused_at', "mainspring".now(), 'paused_by', p_actor_id, 'pause_reason', p_reason));
  return true;
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
      and not exists (  -- whoever waits for it may ask for its result
        select from "mainspring".dependency d where d.parent = y.id
          and (exists (select from "mainspring".waiting w where w.id = d.child)
               or exists (select from "mainspring".running r where r.id = d.child)))
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
    where not (j.org_id = 'SYSTEM' and j.task like 'mainspring.%')  -- a heartbeat a minute is nobody's history
  )
  select array_agg(f.id) into gone from f;
  delete from "mainspring".attempt a using "mainspring".job j where j.id = any(gone) and a.org_id = j.org_id and a.job_id = j.id;
  perform "mainspring".forget(gone);
  perform "mainspring".prune_flows(gone, p_before);
  delete from "mainspring".resolution r using "mainspring".job j where j.id = any(gone) and r.org_id = j.org_id and r.job_id = j.id;
  delete from "mainspring".job j where j.id = any(gone);
  perform set_config('mainspring.verb', '', true);
  return coalesce(cardinality(gone), 0);
end $$;

CREATE FUNCTION mainspring.prune_fires(p_before timestamp with time zone, p_limit integer) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  gone integer;
begin
  if p_before is null then
    perform "mainspring".refuse('before', 'is missing');
  elsif p_limit is null or p_limit not between 1 and 100000 then
    perform "mainspring".refuse('limit', 'is not between 1 and 100000');
  end if;
  perform set_config('mainspring.verb', 'prune', true);
  with old as materialized (
    select f.org_id, f.id from "mainspring".fire f
    where f.at < p_before and not exists (
      select from "mainspring".fan_out o where o.org_id = f.org_id and o.fire_id = f.id and o.finished_at is null)
    limit p_limit
  ), cursors as (
    delete from "mainspring".fan_out o using old where o.org_id = old.org_id and o.fire_id = old.id
  ), fires as (
    delete from "mainspring".fire f using old where f.org_id = old.org_id and f.id = old.id returning 1
  )
  select count(*) into gone from fires;
  perform set_config('mainspring.verb', '', true);
  return gone;
end $$;

CREATE FUNCTION mainspring.prune_flows(p_gone uuid[], p_before timestamp with time zone) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  b "mainspring".batch;
begin
  delete from "mainspring".dependency d using "mainspring".job j where j.id = any(p_gone) and d.org_id = j.org_id and d.child = j.id;
  for b in
    select * from "mainspring".batch x where x.finished_at < p_before and (  -- the last of its jobs goes last
      select j.id from "mainspring".member m join "mainspring".job j on j.id = m.job_id
      where m.org_id = x.org_id and m.batch_id = x.id and j.id <> all(coalesce(p_gone, '{}'))
      order by m.job_id desc limit 1) is null
    limit 100 for update skip locked
  loop
    delete from "mainspring".member m where m.org_id = b.org_id and m.batch_id = b.id;
    delete from "mainspring".batch x where x.org_id = b.org_id and x.id = b.id;
  end loop;
end $$;

CREATE FUNCTION mainspring.publish(p_org text, p_event_id uuid, p_type text, p_aggregate_type text, p_aggregate_id text, p_body text, p_job json, p_only uuid DEFAULT NULL::uuid) RETURNS TABLE(delivery uuid, endpoint uuid)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
  jobs json;
begin
  with wanted as materialized (
    select e.id as endpoint, "mainspring".uuid7() as id from "mainspring".webhook_endpoint e
    where e.org_id = p_org and e.state <> 'disabled' and case
      when p_only is not null then e.id = p_only
      else cardinality(e.events) = 0 or p_type = any(e.events) or exists (
        select from unnest(e.events) f where right(f, 2) = '.*' and starts_with(p_type, left(f, -1))) end
  ), made as (
    insert into "mainspring".webhook_delivery (org_id, id, endpoint, event_id, event_type, aggregate_type, aggregate_id, body,
                                           job_id, created_at)
    select p_org, w.id, w.endpoint, p_event_id, p_type, p_aggregate_type, p_aggregate_id, p_body, w.id, "mainspring".now()
    from wanted w order by w.endpoint  -- in one order by everybody
    on conflict (org_id, endpoint, event_id) do nothing
    returning id, endpoint
  )
  select json_agg("mainspring".delivery_job(p_job, p_org, m.id, m.id, m.endpoint)) into jobs from made m;
  if jobs is null then
    return;
  end if;
  perform from "mainspring".enqueue_many(jobs, true);
  return query select (j ->> 'id')::uuid, (j ->> 'strand')::uuid from json_array_elements(jobs) j;
end $$;

CREATE FUNCTION mainspring.put_fair(p_queue text, p_weights jsonb, p_app text, p_actor_type text, p_actor_id text, p_reason text) RETURNS void
    LANGUAGE plpgsql
    AS $_$
declare
  before jsonb;
  org text;
  weight jsonb;
begin
  perform "mainspring".check_text('queue', p_queue, 63);
  if p_queue = 'q:deadletter' then
    perform "mainspring".refuse('queue', 'q:deadletter holds dead jobs; nothing runs there');
  elsif p_weights is null or jsonb_typeof(p_weights) <> 'object' then
    perform "mainspring".refuse('weights', 'is not an object of organisations and whole numbers');
  end if;
  for org, weight in select * from jsonb_each(p_weights) loop
    perform "mainspring".check_text('weights', org, 200);
    if weight::text !~ '^([1-9]\d{0,2}|1000)$' then
      perform "mainspring".refuse('weights', 'is not a whole number from 1 to 1000');
    end if;
  end loop;
  select f.weights into before from "mainspring".fair f where f.org_id = 'SYSTEM' and f.queue = p_queue;
  insert into "mainspring".fair (queue, weights, declared, app, set_at, set_by)
  values (p_queue, p_weights, p_app is not null, p_app, "mainspring".now(), p_actor_id)
  on conflict (org_id, queue) do update
  set weights = excluded.weights, declared = excluded.declared, app = excluded.app, set_at = excluded.set_at,
      set_by = excluded.set_by;
  perform "mainspring".index_fair();
  perform "mainspring".record_limit('queue.fair', p_actor_type, p_actor_id, p_reason, jsonb_build_object('queue', p_queue),
                                jsonb_build_object('weights', before), jsonb_build_object('weights', p_weights));
end $_$;

CREATE FUNCTION mainspring.put_limit(p_new mainspring."limit", p_actor_type text, p_actor_id text, p_reason text) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  before "mainspring".limit;
  same boolean;
begin
  perform "mainspring".check_limit(p_new);
  select * into before from "mainspring".limit x where x.org_id = 'SYSTEM' and x.name = p_new.name for update;
  same := (before.queue, before.task, before."by", before.in_order, before.rate is null)
          is not distinct from (p_new.queue, p_new.task, p_new."by", p_new.in_order, p_new.rate is null);
  if not same then
    if p_new.concurrency is not null then
      perform pg_advisory_xact_lock((864492496828913283));
    end if;
    delete from "mainspring".bucket b where b.org_id = 'SYSTEM' and b.gate = any("mainspring".free_buckets(p_new.name));
    delete from "mainspring".unused u where u.org_id = 'SYSTEM' and u.name = p_new.name;
  end if;
  insert into "mainspring".limit (name, queue, task, by, rate, per, concurrency, in_order, declared, app, code, counted, set_at, set_by)
  values (p_new.name, p_new.queue, p_new.task, p_new."by", p_new.rate, p_new.per, p_new.concurrency, p_new.in_order, p_new.declared,
          p_new.app, p_new.code, case when same then before.counted else p_new.concurrency is null end, "mainspring".now(), p_actor_id)
  on conflict (org_id, name) do update
  set queue = excluded.queue, task = excluded.task, by = excluded.by, rate = excluded.rate, per = excluded.per,
      concurrency = excluded.concurrency, in_order = excluded.in_order, declared = excluded.declared, app = excluded.app,
      code = excluded.code, counted = excluded.counted, set_at = excluded.set_at, set_by = excluded.set_by;
  perform "mainspring".record_limit('limit.set', p_actor_type, p_actor_id, p_reason, jsonb_build_object('limit', p_new.name),
                                "mainspring".rule_of(before), "mainspring".rule_of(p_new));
  perform "mainspring".reconsider(p_new.name, false);
end $$;

CREATE FUNCTION mainspring.raise_idle(p_millis integer) RETURNS void
    LANGUAGE sql
    AS $$
  select setval('"mainspring".idle_until',  -- never sooner than said before, unless that was before the clock was set back
                case when last_value between t.until and t.until + 600000 then last_value else t.until end)
  from "mainspring".idle_until
  cross join (select (extract(epoch from clock_timestamp()) * 1000)::bigint + p_millis as until) t
$$;

CREATE FUNCTION mainspring.read_inbox(p_org text, p_recipient text, p_ids uuid[]) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  count integer;
begin
  update "mainspring".inbox x set read_at = "mainspring".now()
  where x.org_id = p_org and x.recipient_id = p_recipient and x.id = any(p_ids) and x.read_at is null;
  get diagnostics count = row_count;
  return count;
end $$;

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

CREATE FUNCTION mainspring.receive(p_org text, p_provider text, p_event text, p_type text, p_body text, p_job uuid) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  insert into "mainspring".inbound (org_id, provider, event_id, type, body, job_id, received_at)
  values (p_org, p_provider, p_event, p_type, p_body, p_job, "mainspring".now())
  on conflict do nothing;
  return found;
end $$;

CREATE FUNCTION mainspring.reconsider(p_name text, p_gone boolean) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
begin
  update "mainspring".waiting w
  set due_at = case when p_gone then greatest(w.due_then, "mainspring".now()) else w.due_then end, gate = null, due_then = null
  where w.id = any(array(
    select x.id from "mainspring".waiting x where x.gate is not null and starts_with(x.gate, p_name || '/')
    order by x.due_then limit 10000 for update skip locked));
  update "mainspring".bucket b set next_at = default
  where b.org_id = 'SYSTEM' and b.gate = any("mainspring".free_buckets(p_name));
  perform pg_notify('mainspring', '');  -- rare
end $$;

CREATE FUNCTION mainspring.record(p_event text, p_job uuid, p_attempt smallint, p_detail jsonb) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, detail)
  select j.org_id, "mainspring".now(), p_event, j.id, j.task, p_attempt, j.project_id, j.actor_type, j.actor_id, j.request_id,
         j.correlation_id, coalesce(p_detail, '{}')
  from "mainspring".job j where j.id = p_job
$$;

CREATE FUNCTION mainspring.record_batch(p_event text, b mainspring.batch, p_actor_type text, p_actor_id text, p_detail jsonb) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  values (b.org_id, "mainspring".now(), p_event, p_actor_type, p_actor_id,
          jsonb_build_object('batch', b.id, 'name', b.name) || p_detail)
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
  if p_event ~ '^(job|batch|queue|limit|breaker|worker|schedule|schema|audit|cipher|dead_letters|notification|webhook|alert)\.' then
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

CREATE FUNCTION mainspring.record_endpoint(p_event text, p_org text, p_id uuid, p_actor_type text, p_actor_id text, p_detail jsonb) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  values (p_org, "mainspring".now(), p_event, p_actor_type, p_actor_id,
          jsonb_build_object('endpoint', p_id, 'by', p_actor_id, 'by_type', p_actor_type) || jsonb_strip_nulls(p_detail))
$$;

CREATE FUNCTION mainspring.record_limit(p_event text, p_actor_type text, p_actor_id text, p_reason text, p_what jsonb, p_before jsonb, p_after jsonb) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  select 'SYSTEM', "mainspring".now(), p_event, p_actor_type, p_actor_id, p_what || jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'before', p_before, 'after', p_after)
$$;

CREATE TABLE mainspring.queue (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    name text NOT NULL,
    paused_at timestamp with time zone,
    paused_by text,
    pause_reason text,
    start_target interval,
    max_depth integer
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

CREATE FUNCTION mainspring.record_schedule(p_event text, p_actor_type text, p_actor_id text, p_reason text, p_org text, p_name text, p_before jsonb, p_after jsonb) RETURNS void
    LANGUAGE sql
    AS $$
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  select p_org, "mainspring".now(), p_event, p_actor_type, p_actor_id, jsonb_build_object(
    'schedule', p_name, 'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', p_before, 'after', p_after)
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

CREATE FUNCTION mainspring.redeliver(p_org text, p_id uuid, p_job json, p_actor_type text, p_actor_id text, p_reason text) RETURNS TABLE(answer text, job uuid)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
  d "mainspring".webhook_delivery;
  standing text;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));
  select * into d from "mainspring".webhook_delivery x where x.id = p_id and (p_org is null or x.org_id = p_org) for update;
  if not found then
    return;
  end if;
  job := d.job_id;
  if exists (select from "mainspring".waiting w where w.id = job) or exists (select from "mainspring".running r where r.id = job) then
    answer := 'pending';
    return next;
    return;
  end if;
  select e.state into standing from "mainspring".webhook_endpoint e where e.org_id = d.org_id and e.id = d.endpoint;
  if standing is null or standing = 'disabled' then
    perform "mainspring".refuse('endpoint', case when standing is null then 'was removed' else 'is disabled: resume it first' end);
  end if;
  answer := 'replayed';
  if not (select r.moved from "mainspring".replay(job, d.org_id, p_actor_type, p_actor_id, p_reason) r) then
    answer := 'enqueued';
    job := "mainspring".uuid7();
    perform from "mainspring".enqueue_many(
      json_build_array("mainspring".delivery_job(p_job, d.org_id, job, d.id, d.endpoint)), true);
  end if;
  update "mainspring".webhook_delivery x set job_id = job, delivered_at = null where x.org_id = d.org_id and x.id = p_id;
  perform "mainspring".record_endpoint('webhook.redelivered', d.org_id, d.endpoint, p_actor_type, p_actor_id, jsonb_build_object(
    'delivery', p_id, 'job', job, 'reason', p_reason,
    'before', case when d.delivered_at is null then 'failed' else 'delivered' end));
  return next;
end $$;

CREATE FUNCTION mainspring.refuse(p_field text, p_problem text, p_code text DEFAULT 'VALIDATION_ERROR'::text) RETURNS void
    LANGUAGE plpgsql IMMUTABLE
    AS $$
begin
  raise exception '%: %', p_field, p_problem using errcode = 'MS001', detail = p_field, hint = p_code;
end $$;

CREATE FUNCTION mainspring.release_behind(p_id uuid) RETURNS void
    LANGUAGE sql
    AS $$
  update "mainspring".waiting w
  set due_at = case when w.gate is null then greatest(w.due_then, "mainspring".now()) else w.due_at end, after = null,
      due_then = case when w.gate is not null then w.due_then end
  where w.after = p_id and w.after is not null
$$;

CREATE FUNCTION mainspring.release_held() RETURNS integer
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  n integer;
begin
  update "mainspring".waiting w
  set due_at = case when w.gate is null then greatest(w.due_then, "mainspring".now()) else w.due_at end, after = null,
      due_then = case when w.gate is not null then w.due_then end
  where w.after is not null
    and not exists (select from "mainspring".running r where r.id = w.after)
    and not exists (select from "mainspring".waiting x where x.id = w.after);
  get diagnostics n = row_count;
  perform "mainspring".tie_up();
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

CREATE FUNCTION mainspring.remove_endpoint(p_org text, p_id uuid, p_actor_type text, p_actor_id text, p_reason text) RETURNS boolean
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  delete from "mainspring".webhook_endpoint e where e.org_id = p_org and e.id = p_id;
  if not found then
    return false;
  end if;
  delete from "mainspring".webhook_secret s where s.org_id = p_org and s.endpoint = p_id;
  perform "mainspring".cancel(d.job_id, p_org, p_actor_type, p_actor_id, coalesce(p_reason, 'its endpoint was removed'))
  from "mainspring".webhook_delivery d
  where d.org_id = p_org and d.endpoint = p_id and d.delivered_at is null
    and exists (select from "mainspring".job j where j.id = d.job_id and not exists (
      select from "mainspring".finished f where f.id = j.id));
  perform "mainspring".record_endpoint('webhook.endpoint_removed', p_org, p_id, p_actor_type, p_actor_id,
                                   jsonb_build_object('reason', p_reason));
  return true;
end $$;

CREATE FUNCTION mainspring.renew(p_worker text, p_lease interval, p_epochs bigint[]) RETURNS TABLE(epoch bigint, cancel boolean)
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
  update "mainspring".running r set lease_expires_at = "mainspring".now() + p_lease
  where r.epoch = any(p_epochs) and r.worker = p_worker
  returning r.epoch, r.cancel_requested_at is not null
$$;

CREATE FUNCTION mainspring.reopen(p_id uuid) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  b record;
  tied boolean := false;
begin
  -- By id, so that two jobs of the same batches can be reopened at once.
  perform from "mainspring".batch x where x.id in (select m.batch_id from "mainspring".member m where m.job_id = p_id) order by x.id for update;
  for b in update "mainspring".member m set state = null where m.job_id = p_id returning m.org_id, m.batch_id loop
    tied := true;
    perform "mainspring".reopen_batch(b.org_id, b.batch_id);
  end loop;
  update "mainspring".dependency d set state = null where d.parent = p_id;
  if found then
    tied := true;  -- what would run anyway and has not started waits again
    update "mainspring".waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
    from "mainspring".dependency d where d.parent = p_id and w.id = d.child and w.attempt = 0 and w.gate is distinct from 'parents';
  end if;
  if tied then
    update "mainspring".waiting w set tied = true where w.id = p_id;
  end if;
end $$;

CREATE FUNCTION mainspring.reopen_batch(p_org text, p_id uuid) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  b "mainspring".batch;
  j "mainspring".job;
  was text;
begin
  select * into b from "mainspring".batch x where x.org_id = p_org and x.id = p_id for update;
  update "mainspring".batch x set finished_at = null, stopped_at = null, stop_reason = null
  where x.org_id = p_org and x.id = p_id and (x.finished_at is not null or x.stopped_at is not null);
  select * into j from "mainspring".job x where x.id = b.on_finish;
  if b.finished_at is null or not found then
    return;
  end if;
  update "mainspring".waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
  where w.id = j.id and w.attempt = 0;
  if found then
    return;
  end if;
  was := (select s.state from "mainspring".state_of(j.id) s);
  b.on_finish := "mainspring".uuid7();
  insert into "mainspring".job
  select (x).* from (select jsonb_populate_record(j, jsonb_build_object(
    'id', b.on_finish, 'created_at', "mainspring".now(), 'scheduled_for', null)) as x) y;
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, after, gate, due_then, strand)
  values (b.on_finish, j.org_id, j.task, j.queue, j.priority, 'infinity',
          case when was in ('running', 'ready', 'retrying', 'scheduled') then j.id end, 'parents', "mainspring".now(), j.strand);
  select * into j from "mainspring".job x where x.id = b.on_finish;
  perform "mainspring".take_key(j);
  update "mainspring".batch x set on_finish = b.on_finish where x.org_id = p_org and x.id = p_id;
end $$;

CREATE FUNCTION mainspring.replace_job(p_id uuid, e mainspring.envelope) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  before timestamptz;
begin
  perform set_config('mainspring.verb', 'replace', true);
  select coalesce(w.due_then, w.due_at) into before from "mainspring".waiting w where w.id = p_id for update;
  update "mainspring".waiting w
  set due_at = case when "mainspring".is_held(w) then w.due_at else e.due_at end,
      due_then = case when "mainspring".is_held(w) then e.due_at end,
      gate = case when "mainspring".is_held(w) then w.gate end  -- a limit looks at it again
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
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, suspect, strand)
  values (j.id, j.org_id, j.task, j.queue, j.priority, due, f.state = 'failed', j.strand);
  perform "mainspring".reopen(p_id);
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

CREATE FUNCTION mainspring.report_calls(p_calls json) RETURNS TABLE(org_id text, name text, key text, change text, failures integer, pause double precision)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
  m record;
  b "mainspring".breaker;
  t timestamptz;
  bad integer;
  n integer;
begin
  for m in
    select c.org_id, c.name, c.key, coalesce(c.succeeded, 0) as succeeded, coalesce(c.ages, '{}') as ages, c.probe
    from json_to_recordset(p_calls) as c (org_id text, name text, key text, succeeded integer, ages float8[], probe bigint)
    order by c.org_id, c.name, c.key
  loop
    insert into "mainspring".breaker (org_id, name, key, failures, rate, calls, within, pause, longest, probes, used_at)
    select m.org_id, r.name, m.key, r.failures, r.rate, r.calls, r.within, r.pause, r.longest, r.probes, "mainspring".now()
    from "mainspring".breaker r
    where r.org_id = 'SYSTEM' and r.name = m.name and r.key = '' and not exists (
      select from "mainspring".breaker k where k.org_id = m.org_id and k.name = m.name and k.key = m.key)
    on conflict do nothing;
    select * into b from "mainspring".breaker x where x.org_id = m.org_id and x.name = m.name and x.key = m.key for update;
    continue when not found;
    t := "mainspring".instant();  -- after the lock
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
      if b.forced is null and bad > 0 and (
        select case when b.rate is null then sum(x.failed) >= b.failures
                    else sum(x.failed) + sum(x.succeeded) >= b.calls
                         and sum(x.failed) >= b.rate::numeric * (sum(x.failed) + sum(x.succeeded)) end
        from unnest(b.failed, b.succeeded) x(failed, succeeded)) then
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
    update "mainspring".breaker x
    set state = b.state, since = b.since, until = b.until, opened = b.opened, probing = b.probing, at = b.at,
        failed = b.failed, succeeded = b.succeeded, used_at = b.used_at
    where x.org_id = b.org_id and x.name = b.name and x.key = b.key;
    if change is not null then
      perform pg_notify('mainspring', '');  -- rare, so it is not coalesced with the hints of enqueues
      org_id := b.org_id;
      name := b.name;
      key := b.key;
      failures := coalesce((select sum(f) from unnest(b.failed) f), 0);
      pause := coalesce(extract(epoch from b.until - t), 0);
      return next;
    end if;
  end loop;
end $$;

CREATE FUNCTION mainspring.request_notifications(p_notes json, p_jobs json, p_best_effort boolean) RETURNS TABLE(id uuid, answer text, job_id uuid, state text, recipient_id text)
    LANGUAGE plpgsql
    AS $$
begin
  if not p_best_effort then
    return query select * from "mainspring".write_notifications(p_notes, p_jobs);
    return;
  end if;
  begin
    return query select * from "mainspring".write_notifications(p_notes, p_jobs);
  exception when others then
    return query select null::uuid, 'refused', null::uuid, sqlerrm, null;
  end;
end $$;

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
  set due_at = case when "mainspring".is_held(x) then x.due_at else due end,
      due_then = case when "mainspring".is_held(x) then due end,
      gate = case when "mainspring".is_held(x) then x.gate end  -- a limit looks at it again
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
      insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, attempt, crashes, snoozes, suspect, strand, tied)
      values (r.id, r.org_id, r.task, r.queue, r.priority, "mainspring".now(), r.attempt, r.crashes + 1, r.snoozes, r.suspect,
              r.strand, r.tied);
    end if;
    if r.tied then
      perform "mainspring".untie(array[r.id]);
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

CREATE FUNCTION mainspring.resend_notification(p_org text, p_id uuid, p_job json, p_actor_type text, p_actor_id text, p_reason text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  n "mainspring".notification;
  before text;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason), "mainspring".check_text('reason', p_reason, 1000);
  select * into n from "mainspring".notification x where x.org_id = p_org and x.id = p_id for update;
  if not found then
    return null;
  end if;
  before := (select l.status from "mainspring".notification_log l where l.org_id = p_org and l.id = p_id);
  if before in ('pending', 'sending') then
    return false;
  end if;
  perform from "mainspring".enqueue_many(json_build_array(p_job), true);
  update "mainspring".notification x
  set status = 'pending', reason = null, sent_at = null, reserved_at = null, html = null, provider = null, provider_id = null,
      error = null, resends = x.resends + 1, due_at = "mainspring".now(), job_id = (p_job ->> 'id')::uuid
  where x.org_id = p_org and x.id = p_id;
  insert into "mainspring".audit (org_id, at, event, actor_type, actor_id, detail)
  values (n.org_id, "mainspring".now(), 'notification.resent', p_actor_type, p_actor_id, jsonb_build_object(
    'notification', n.id, 'template', n.template, 'channel', n.channel, 'by', p_actor_id, 'by_type', p_actor_type,
    'reason', p_reason, 'before', jsonb_build_object('status', before, 'sent_at', n.sent_at, 'job_id', n.job_id),
    'after', jsonb_build_object('status', 'pending', 'sent_at', null, 'job_id', p_job ->> 'id')));
  return true;
end $$;

CREATE FUNCTION mainspring.reserve_notification(p_org text, p_id uuid, p_job_id uuid, p_title text, p_text text, p_html text, p_most integer, p_window interval, OUT answer text, OUT since timestamp with time zone, OUT wait double precision) RETURNS record
    LANGUAGE plpgsql
    AS $$
declare
  n "mainspring".notification;
  full_at timestamptz;
begin
  if p_most is not null then
    select * into n from "mainspring".notification x where x.org_id = p_org and x.id = p_id;
    perform pg_advisory_xact_lock(hashtextextended('"mainspring" ' || n.org_id || ' ' || n.recipient_id || ' ' || n.channel, 0));
  end if;
  select * into n from "mainspring".notification x where x.org_id = p_org and x.id = p_id and x.job_id = p_job_id for update;
  if not found then
    answer := 'gone';
  elsif n.status in ('sent', 'skipped') then
    answer := n.status;
  else
    if p_most is not null and n.status = 'pending' then
      select coalesce(x.sent_at, x.reserved_at) into full_at from "mainspring".notification x
      where x.org_id = n.org_id and x.recipient_id = n.recipient_id and x.channel = n.channel
        and x.status in ('sending', 'sent') and x.class <> 'critical'
        and coalesce(x.sent_at, x.reserved_at) > "mainspring".now() - p_window
      order by coalesce(x.sent_at, x.reserved_at) desc offset p_most - 1 limit 1;
    end if;
    if full_at is not null then
      answer := 'wait';
      wait := extract(epoch from full_at + p_window - "mainspring".now());
      update "mainspring".notification x set due_at = full_at + p_window where x.org_id = p_org and x.id = p_id;
    else
      answer := 'reserved';
      since := n.reserved_at;
      update "mainspring".notification x
      set status = 'sending', attempts = x.attempts + 1, reserved_at = coalesce(x.reserved_at, "mainspring".now()),
          title = p_title, text = p_text, html = p_html
      where x.org_id = p_org and x.id = p_id;
    end if;
  end if;
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
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, strand)
  select j.id, j.org_id, j.task, j.queue, j.priority, e.due_at, j.strand from "mainspring".job j where j.id = p_id;
  perform "mainspring".reopen(p_id);
  insert into "mainspring".audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id, correlation_id)
  select j.org_id, "mainspring".now(), 'job.reset', j.id, j.task, 0, j.project_id, e.actor_type, e.actor_id, e.request_id,
         e.correlation_id
  from "mainspring".job j where j.id = p_id;
  perform set_config('mainspring.verb', '', true);
  return true;
end $$;

CREATE FUNCTION mainspring.reset_limit(p_name text, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  l "mainspring".limit;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('"mainspring" limits', 0));
  select * into l from "mainspring".limit x where x.org_id = 'SYSTEM' and x.name = p_name and x.code is not null;
  if not found then
    return false;
  end if;
  perform "mainspring".put_limit("mainspring".declared_limit(l.name, l.app, l.code), p_actor_type, p_actor_id, p_reason);
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

CREATE FUNCTION mainspring.resume_schedule(p_org text, p_name text, p_catch_up boolean, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  old "mainspring".schedule;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  select * into old from "mainspring".schedule s where s.org_id = p_org and s.name = p_name for update;
  if not found then
    return null;
  elsif old.paused_at is null then
    return false;
  end if;
  update "mainspring".schedule s
  set paused_at = null, paused_by = null, pause_reason = null,
      zones_at = case when p_catch_up then s.zones_at else "mainspring".now() end
  where s.org_id = p_org and s.name = p_name;
  update "mainspring".schedule_zone z
  set after = case when p_catch_up then z.after else greatest(z.after, "mainspring".now()) end, next_at = "mainspring".now()
  where z.org_id = p_org and z.schedule = p_name;
  perform "mainspring".record_schedule('schedule.resumed', p_actor_type, p_actor_id, p_reason, p_org, p_name,
    jsonb_build_object('paused_at', old.paused_at, 'paused_by', old.paused_by, 'pause_reason', old.pause_reason),
    jsonb_build_object('paused_at', null, 'catch_up', p_catch_up));
  perform pg_notify('mainspring', 'schedule');
  return true;
end $$;

CREATE FUNCTION mainspring.retry_failed(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text) RETURNS integer
    LANGUAGE plpgsql
    AS $$
declare
  b "mainspring".batch;
  ids uuid[];
  n integer;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));
  select * into b from "mainspring".batch x where x.id = p_id and (p_org is null or x.org_id = p_org) for update;
  if not found then
    return null;
  end if;
  select array_agg(m.job_id order by m.job_id) into ids from "mainspring".member m
  where m.org_id = b.org_id and m.batch_id = b.id and m.state in ('failed', 'dead')
    and not exists (select from "mainspring".resolution r where r.org_id = m.org_id and r.job_id = m.job_id);
  n := "mainspring".replay_many(coalesce(ids, '{}'), p_actor_type, p_actor_id, p_reason, b.id, "mainspring".now(), null, 0);
  if n > 0 then
    perform "mainspring".record_batch('batch.retried', b, p_actor_type, p_actor_id, jsonb_build_object(
      'reason', p_reason, 'jobs', n,
      'before', jsonb_build_object('state', case when b.finished_at is not null then 'finished' when b.stopped_at is not null
                                                 then 'stopping' else 'running' end),
      'after', jsonb_build_object('state', 'running')));
  end if;
  return n;
end $$;

CREATE FUNCTION mainspring.ripple(p_children uuid[], p_batches uuid[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  children uuid[] := p_children;
  batches uuid[] := p_batches;
  dropped uuid[];
begin
  while children is not null or batches is not null loop
    dropped := '{}';
    if children is not null then
      dropped := "mainspring".look_at_children(children);
    end if;
    if batches is not null then
      dropped := dropped || "mainspring".look_at_batches(batches);
    end if;
    select n.children, n.batches into children, batches from "mainspring".note_ends(dropped) n;
  end loop;
end $$;

CREATE FUNCTION mainspring.room(l mainspring."limit", p_gate text, p_at timestamp with time zone) RETURNS integer
    LANGUAGE sql
    SET enable_seqscan TO 'off'
    AS $$
  select case when l.rate is null
    then l.concurrency - (select count(*) from "mainspring".slot s where s.org_id = 'SYSTEM' and s.gate = p_gate)::integer
    else l.rate - coalesce((
      select sum(e.n) from "mainspring".bucket b, unnest(b.at, b.count) e(at, n)
      where b.org_id = 'SYSTEM' and b.gate = p_gate and e.at > p_at - "mainspring".lookback(l.per)
        and e.at <= p_at + l.per), 0)::integer + (
      select count(*) from "mainspring".unused u
      where u.org_id = 'SYSTEM' and u.gate = p_gate and u.at > p_at - "mainspring".lookback(l.per)
        and u.at <= p_at + l.per)::integer end
$$;

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

CREATE FUNCTION mainspring.rotate_secret(p_org text, p_id uuid, p_secret text, p_overlap interval, p_actor_type text, p_actor_id text, p_reason text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  if p_overlap is null or p_overlap < '0' or p_overlap > '30 days' then
    perform "mainspring".refuse('overlap', 'is not a time span from 0 to 30 days');
  end if;
  perform from "mainspring".webhook_endpoint e where e.org_id = p_org and e.id = p_id for update;
  if not found then
    return false;
  end if;
  delete from "mainspring".webhook_secret s
  where s.org_id = p_org and s.endpoint = p_id and (p_overlap = '0' or s.expires_at <= "mainspring".now());
  if (select count(*) from "mainspring".webhook_secret s where s.org_id = p_org and s.endpoint = p_id) >= 5 then
    perform "mainspring".refuse('overlap', 'five secrets are valid already: wait until one expires, or say 0');
  end if;
  update "mainspring".webhook_secret s set expires_at = least(s.expires_at, "mainspring".now() + p_overlap)
  where s.org_id = p_org and s.endpoint = p_id;
  insert into "mainspring".webhook_secret (org_id, endpoint, id, secret, created_at)
  values (p_org, p_id, "mainspring".uuid7(), p_secret, "mainspring".now());
  perform "mainspring".record_endpoint('webhook.secret_rotated', p_org, p_id, p_actor_type, p_actor_id,
                                   jsonb_build_object('reason', p_reason, 'overlap', p_overlap));
  return true;
end $$;

CREATE FUNCTION mainspring.rule_of(l mainspring."limit") RETURNS jsonb
    LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN ((l).name IS NOT NULL) THEN jsonb_strip_nulls(jsonb_build_object('queue', (l).queue, 'task', (l).task, 'by', (l).by, 'rate', (l).rate, 'per', (l).per, 'concurrency', (l).concurrency, 'in_order', (l).in_order)) ELSE NULL::jsonb END;

CREATE FUNCTION mainspring.run_schedule(p_org text, p_name text, p_zone text, p_fire uuid, p_job json, p_local text, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS TABLE(job_id uuid)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
  s "mainspring".schedule;
  made uuid;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  select * into s from "mainspring".schedule x where x.org_id = p_org and x.name = p_name for share;
  if not found then
    return;
  end if;
  if s.by_entity then
    insert into "mainspring".fan_out (org_id, fire_id, schedule, zone, instant, begun_at, look_at, by_hand)
    values (p_org, p_fire, p_name, p_zone, "mainspring".now(), "mainspring".now(), "mainspring".now(), true);
    perform pg_notify('mainspring', 'schedule');
  else
    select e.job_id into made from "mainspring".enqueue_many(json_build_array(p_job)) e;
    update "mainspring".schedule_zone z set job_id = made where z.org_id = p_org and z.schedule = p_name and z.zone = p_zone;
  end if;
  insert into "mainspring".fire (org_id, id, schedule, zone, instant, local, how, reason, job_id, at)
  values (p_org, p_fire, p_name, p_zone, "mainspring".now(), p_local, 'run_now', p_reason, made, "mainspring".now());
  perform "mainspring".record_schedule('schedule.run', p_actor_type, p_actor_id, p_reason, p_org, p_name, null,
    jsonb_build_object('fire', p_fire, 'zone', p_zone, 'job_id', made));
  return query select made;
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

CREATE FUNCTION mainspring.save_recipient(p_org text, p_recipient text, p_about jsonb) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  r "mainspring".recipient;
begin
  perform "mainspring".check_text('org', p_org, 200), "mainspring".check_text('recipient', p_recipient, 200);
  insert into "mainspring".recipient (org_id, recipient_id, updated_at) values (p_org, p_recipient, "mainspring".now())
  on conflict do nothing;
  select * into r from "mainspring".recipient x where x.org_id = p_org and x.recipient_id = p_recipient for update;
  r := jsonb_populate_record(r, p_about - '{org_id,recipient_id,updated_at}'::text[]);
  update "mainspring".recipient x
  set email = r.email, phone = r.phone, push_token = r.push_token, zone = r.zone, quiet_from = r.quiet_from,
      quiet_to = r.quiet_to, opt_out = r.opt_out, spam_limit = r.spam_limit, updated_at = "mainspring".now()
  where x.org_id = p_org and x.recipient_id = p_recipient;
end $$;

CREATE FUNCTION mainspring.save_schedule(p_org text, p_name text, p_definition jsonb, p_declared_by text, p_replace boolean, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS text
    LANGUAGE plpgsql
    AS $$
declare
  new "mainspring".schedule;
  old "mainspring".schedule;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform "mainspring".check_text('org', p_org, 200);
  perform "mainspring".check_text('name', p_name, 200);
  new := jsonb_populate_record(null::"mainspring".schedule, p_definition || jsonb_build_object(
    'org_id', p_org, 'name', p_name, 'declared_by', p_declared_by, 'created_at', "mainspring".now(),
    'changed_at', "mainspring".now()));
  insert into "mainspring".schedule select new.* on conflict do nothing;
  if found then
    insert into "mainspring".schedule_zone (org_id, schedule, declared, after, next_at)
    select p_org, p_name, p_declared_by is not null, x.at, x.at from "mainspring".fires_after(p_org, p_name) x(at) where not new.by_zone;
    perform "mainspring".record_schedule('schedule.created', p_actor_type, p_actor_id, p_reason, p_org, p_name, null,
                                     "mainspring".definition(new));
    perform pg_notify('mainspring', 'schedule');
    return 'created';
  end if;
  select * into old from "mainspring".schedule s where s.org_id = p_org and s.name = p_name for update;
  if old.declared_by is not null and old.undeclared_at is null and p_declared_by is null or not p_replace then
    return null;
  end if;
  if "mainspring".definition(old) = "mainspring".definition(new) then
    update "mainspring".schedule s set undeclared_at = null
    where s.org_id = p_org and s.name = p_name and s.undeclared_at is not null;
    return 'same';
  end if;
  update "mainspring".schedule s
  set (rule, description, zone, task, job, fill, catch_up, within, most, running, jitter, by_zone, by_entity, page, spread,
       declared_by, undeclared_at, zones_at, changed_at)
    = (new.rule, new.description, new.zone, new.task, new.job, new.fill, new.catch_up, new.within, new.most, new.running,
       new.jitter, new.by_zone, new.by_entity, new.page, new.spread, new.declared_by, null,
       case when old.by_zone = new.by_zone then old.zones_at end, "mainspring".now())
  where s.org_id = p_org and s.name = p_name;
  if old.by_zone <> new.by_zone then
    insert into "mainspring".schedule_zone (org_id, schedule, declared, after, next_at)
    select p_org, p_name, p_declared_by is not null, x.at, case when old.paused_at is null then x.at end
    from "mainspring".fires_after(p_org, p_name) x(at) where not new.by_zone;
    delete from "mainspring".schedule_zone z where z.org_id = p_org and z.schedule = p_name and (z.zone = '') = new.by_zone;
  elsif old.rule <> new.rule then
    update "mainspring".schedule_zone z
    set after = greatest(z.after, "mainspring".now()), local = null,
        next_at = case when old.paused_at is null then "mainspring".now() end
    where z.org_id = p_org and z.schedule = p_name;
  end if;
  update "mainspring".schedule_zone z set declared = p_declared_by is not null
  where z.org_id = p_org and z.schedule = p_name and z.declared <> (p_declared_by is not null);
  perform "mainspring".record_schedule('schedule.changed', p_actor_type, p_actor_id, p_reason, p_org, p_name,
                                   "mainspring".definition(old), "mainspring".definition(new));
  perform pg_notify('mainspring', 'schedule');
  return 'changed';
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

CREATE FUNCTION mainspring.set_depth(p_queue text, p_most integer, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  before integer;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform "mainspring".check_text('queue', p_queue, 63);
  if p_most not between 1 and 1000000 then
    perform "mainspring".refuse('most', 'is not a whole number from 1 to 1000000');
  end if;
  select q.max_depth into before from "mainspring".queue q where q.org_id = 'SYSTEM' and q.name = p_queue for update;
  insert into "mainspring".queue (name, max_depth) values (p_queue, p_most)
  on conflict (org_id, name) do update set max_depth = excluded.max_depth;
  perform "mainspring".record_limit('queue.depth', p_actor_type, p_actor_id, p_reason, jsonb_build_object('queue', p_queue),
                                jsonb_build_object('max_depth', before), jsonb_build_object('max_depth', p_most));
end $$;

CREATE FUNCTION mainspring.set_endpoint(p_org text, p_id uuid, p_becomes text, p_actor_type text, p_actor_id text, p_reason text) RETURNS text
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  before text;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  if p_becomes is null or p_becomes not in ('active', 'paused', 'disabled') then
    perform "mainspring".refuse('state', 'is not one of active, paused, disabled');
  end if;
  select e.state into before from "mainspring".webhook_endpoint e where e.org_id = p_org and e.id = p_id for update;
  if not found or before = p_becomes then
    return before;
  end if;
  update "mainspring".webhook_endpoint e
  set state = p_becomes, reason = case when p_becomes <> 'active' then p_reason end, changed_at = "mainspring".now()
  where e.org_id = p_org and e.id = p_id;
  if p_becomes = 'active' then
    update "mainspring".waiting w set due_at = least(w.due_at, "mainspring".now())
    where w.gate is null and w.after is null and w.id = any(array(
      select d.job_id from "mainspring".webhook_delivery d
      where d.org_id = p_org and d.endpoint = p_id and d.delivered_at is null));
    perform "mainspring".wake();
  end if;
  perform "mainspring".record_endpoint(
    case p_becomes when 'active' then 'webhook.endpoint_resumed' else 'webhook.endpoint_' || p_becomes end, p_org, p_id,
    p_actor_type, p_actor_id, jsonb_build_object('reason', p_reason, 'before', before, 'after', p_becomes));
  return before;
end $$;

CREATE FUNCTION mainspring.set_fair(p_queue text, p_weights jsonb, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('"mainspring" limits', 0));
  perform "mainspring".put_fair(p_queue, coalesce(p_weights, '{}'), null, p_actor_type, p_actor_id, p_reason);
end $$;

CREATE FUNCTION mainspring.set_limit(p_name text, p_queue text, p_task text, p_by text, p_rate integer, p_per interval, p_concurrency integer, p_in_order boolean, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS void
    LANGUAGE plpgsql
    AS $$
declare
  l "mainspring".limit;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('"mainspring" limits', 0));
  select * into l from "mainspring".limit x where x.org_id = 'SYSTEM' and x.name = p_name;
  l.code := case when l.declared then "mainspring".rule_of(l) else l.code end;
  l.name := p_name;
  l.queue := p_queue;
  l.task := p_task;
  l."by" := coalesce(p_by, 'all');
  l.rate := p_rate;
  l.per := p_per;
  l.concurrency := p_concurrency;
  l.in_order := coalesce(p_in_order, false);
  l.declared := false;
  perform "mainspring".put_limit(l, p_actor_type, p_actor_id, p_reason);
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
  for m in select * from json_to_recordset(p_moves) as (epoch bigint, verb text, delay interval, error jsonb, started boolean, gate text) loop
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
      insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, attempt, crashes, snoozes, retrying, suspect,
                                    strand, tied, gate, due_then)
      values (r.id, r.org_id, r.task, r.queue, r.priority, "mainspring".now() + coalesce(m.delay, '0'),
              case when m.verb = 'fail' then r.attempt else r.attempt - 1 end, r.crashes,
              r.snoozes + (m.verb = 'snooze')::int, m.verb = 'fail', r.suspect, r.strand, r.tied, m.gate,
              case when m.gate is not null then r.due_at end);
    else
      insert into "mainspring".finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, error)
      values (r.id, r.org_id, case m.verb when 'reject' then 'failed' when 'bury' then 'dead' else 'cancelled' end,
              r.attempt, r.crashes, r.snoozes, r.worker, r.epoch, r.started_at, "mainspring".now(), m.error);
      perform "mainspring".release_behind(r.id);
    end if;
    if r.tied then
      perform "mainspring".untie(array[r.id]);
    end if;
    if m.verb = 'release' and m.started is false then
      perform "mainspring".hand_back(r);  -- the permit of a rate, which it did not use
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

CREATE FUNCTION mainspring.speed() RETURNS double precision
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN 1;

CREATE FUNCTION mainspring.split(p_worker text, p_epoch bigint, p_ids uuid[], p_detail jsonb) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  r constant "mainspring".running := "mainspring".held(p_worker, p_epoch);
begin
  if r.cancel_requested_at is not null then
    return false;
  end if;
  perform "mainspring".take_over(r.id, p_ids);
  perform "mainspring".record('job.split', r.id, r.attempt, p_detail || jsonb_build_object('halves', p_ids));
  return true;
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

CREATE FUNCTION mainspring.stop_members(b mainspring.batch) RETURNS uuid[]
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  locked uuid[];
  dropped uuid[];
begin
  select array_agg(x.id) into locked from (
    select w.id from "mainspring".member m join "mainspring".waiting w on w.id = m.job_id
    where m.org_id = b.org_id and m.batch_id = b.id and m.state is null and w.after is null
    order by w.id limit 1000 for update of w skip locked) x;
  dropped := "mainspring".drop_waiting(locked, b.stop_reason);
  if exists (select from "mainspring".unasked(b))
     or exists (select from "mainspring".member m join "mainspring".waiting w on w.id = m.job_id
                where m.org_id = b.org_id and m.batch_id = b.id and m.state is null) then
    insert into "mainspring".loose_end (org_id, kind, what) values (b.org_id, 'batch', b.id);
  end if;
  return dropped;
end $$;

CREATE FUNCTION mainspring.take_key(j mainspring.job) RETURNS void
    LANGUAGE sql
    AS $$
  update "mainspring".idempotency i
  set job_id = j.id, fingerprint = "mainspring".fingerprint(j.task, j.payload), status = null, expires_at = null,
      result_ref = null, error_ref = null
  where i.org_id = j.org_id and i.key = j.key
$$;

CREATE FUNCTION mainspring.take_over(p_id uuid, p_new uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  m "mainspring".member;
begin
  for m in delete from "mainspring".member x where x.job_id = p_id returning * loop
    insert into "mainspring".member (org_id, batch_id, job_id) select m.org_id, m.batch_id, n from unnest(p_new) n;
    insert into "mainspring".loose_end (org_id, kind, what)  -- stopped meanwhile: they are not to run
    select b.org_id, 'batch', b.id from "mainspring".batch b
    where b.org_id = m.org_id and b.id = m.batch_id and b.stopped_at is not null and b.finished_at is null;
  end loop;
  insert into "mainspring".dependency (org_id, child, parent, place, anyway)
  select d.org_id, d.child, n, d.place, d.anyway from "mainspring".dependency d, unnest(p_new) n where d.parent = p_id;
  delete from "mainspring".dependency d where d.parent = p_id;
  insert into "mainspring".dependency (org_id, child, parent, place, anyway, state)  -- what it asks of its parents, they may ask
  select d.org_id, n, d.parent, d.place, d.anyway, d.state from "mainspring".dependency d, unnest(p_new) n where d.child = p_id;
  update "mainspring".batch b set on_finish = p_new[1] where b.on_finish = p_id;
  update "mainspring".waiting w set tied = true
  where w.id = any(p_new) and not w.tied and (exists (select from "mainspring".member x where x.job_id = w.id)
                                              or exists (select from "mainspring".dependency d where d.parent = w.id));
end $$;

CREATE FUNCTION mainspring.tie(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    AS $$
declare
  sure uuid[];
begin
  with locked as (
    select w.id from "mainspring".waiting w where w.id = any(p_ids) order by w.id for update
  ), marked as (
    update "mainspring".waiting w set tied = true where w.id in (select id from locked) and not w.tied
  )
  select array_agg(locked.id) into sure from locked;
  select sure || array_agg(x.id) into sure from (
    select f.id from "mainspring".finished f where f.id = any(p_ids) order by f.id for share) x;
  insert into "mainspring".loose_end (org_id, kind, what)
  select j.org_id, 'job', j.id from "mainspring".job j where j.id = any(array(select unnest(p_ids) except select unnest(sure)));
end $$;

CREATE FUNCTION mainspring.tie_up() RETURNS void
    LANGUAGE plpgsql
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
declare
  e record;
  children uuid[];
  batches uuid[];
begin
  for e in
    with gone as (
      delete from "mainspring".loose_end x where x.id in (
        select y.id from "mainspring".loose_end y order by y.id limit 1000 for update skip locked)
      returning x.kind, x.what)
    select distinct gone.kind, gone.what from gone
  loop
    case e.kind
      when 'child' then
        children := children || e.what;
      when 'batch' then
        batches := batches || e.what;
      else
        perform from "mainspring".waiting w where w.id = e.what for update skip locked;
        if found then
          update "mainspring".waiting w set tied = true where w.id = e.what;
          continue;
        end if;
        perform from "mainspring".finished f where f.id = e.what for share skip locked;
        if found then
          perform "mainspring".conclude(array[e.what]);
        else
          insert into "mainspring".loose_end (org_id, kind, what)
          select j.org_id, e.kind, j.id from "mainspring".job j where j.id = e.what;
        end if;
    end case;
  end loop;
  perform "mainspring".ask_to_stop(b) from "mainspring".batch b
  where b.id = any(batches) and b.stopped_at is not null and b.finished_at is null;
  perform "mainspring".ripple(children, batches);
end $$;

CREATE FUNCTION mainspring.timer(p_org text, p_key text) RETURNS TABLE(job_id uuid, task text, state text, due_at timestamp with time zone, behind uuid)
    LANGUAGE sql STABLE
    AS $$
  select w.id, w.task,
         case when w.due_at <= "mainspring".now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end,
         coalesce(w.due_then, w.due_at), w.after
  from "mainspring".idempotency i join "mainspring".waiting w on w.id = i.job_id
  where i.org_id = p_org and i.key = p_key
  union all
  select r.id, r.task, 'running', r.due_at, null
  from "mainspring".idempotency i join "mainspring".running r on r.id = i.job_id
  where i.org_id = p_org and i.key = p_key
$$;

CREATE FUNCTION mainspring.unasked(b mainspring.batch) RETURNS SETOF uuid
    LANGUAGE sql STABLE
    SET enable_seqscan TO 'off'
    SET enable_hashjoin TO 'off'
    SET enable_mergejoin TO 'off'
    AS $$
  select r.id from "mainspring".member m join "mainspring".running r on r.id = m.job_id join "mainspring".job j on j.id = r.id
  where m.org_id = b.org_id and m.batch_id = b.id and m.state is null and r.cancel_requested_at is null and j.cancellable
$$;

CREATE FUNCTION mainspring.undeclare_schedules(p_registries text[], p_orgs text[], p_names text[]) RETURNS TABLE(org_id text, name text)
    LANGUAGE sql
    AS $$
  update "mainspring".schedule s set undeclared_at = "mainspring".now()
  where s.declared_by = any(p_registries) and s.undeclared_at is null and not exists (
    select from unnest(p_orgs, p_names) m(org_id, name) where m.org_id = s.org_id and m.name = s.name)
  returning s.org_id, s.name
$$;

CREATE FUNCTION mainspring.unset_fair(p_queue text, p_actor_type text, p_actor_id text, p_reason text DEFAULT NULL::text) RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  before jsonb;
begin
  perform "mainspring".check_actor(p_actor_type, p_actor_id, p_reason);
  perform pg_advisory_xact_lock(hashtextextended('"mainspring" limits', 0));
  delete from "mainspring".fair f where f.org_id = 'SYSTEM' and f.queue = p_queue returning f.weights into before;
  if not found then
    return false;
  end if;
  perform "mainspring".index_fair();
  perform "mainspring".record_limit('queue.unfair', p_actor_type, p_actor_id, p_reason, jsonb_build_object('queue', p_queue),
                                jsonb_build_object('weights', before), null);
  return true;
end $$;

CREATE FUNCTION mainspring.untie(p_ids uuid[]) RETURNS void
    LANGUAGE plpgsql
    AS $$
begin
  perform "mainspring".leave(p_ids);
  perform "mainspring".conclude(p_ids);
end $$;

CREATE FUNCTION mainspring.uuid7() RETURNS uuid
    LANGUAGE sql
    RETURN (encode(set_bit(set_bit(OVERLAY(uuid_send(gen_random_uuid()) PLACING SUBSTRING(int8send(((EXTRACT(epoch FROM clock_timestamp()) * (1000)::numeric))::bigint) FROM 3) FROM 1 FOR 6), (52)::bigint, 1), (53)::bigint, 1), 'hex'::text))::uuid;

CREATE TABLE mainspring.bucket (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    gate text NOT NULL,
    name text NOT NULL,
    at timestamp with time zone[] DEFAULT '{}'::timestamp with time zone[] NOT NULL,
    count integer[] DEFAULT '{}'::integer[] NOT NULL,
    next_at timestamp with time zone[] DEFAULT array_fill('-infinity'::timestamp with time zone, ARRAY[8]) NOT NULL,
    full_at timestamp with time zone DEFAULT '-infinity'::timestamp with time zone NOT NULL,
    used_at timestamp with time zone NOT NULL
)
WITH (fillfactor='50', autovacuum_vacuum_threshold='100', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0');

CREATE FUNCTION mainspring.validity(l mainspring."limit", p_gate text, p_room integer, p_at timestamp with time zone) RETURNS interval
    LANGUAGE sql STABLE
    RETURN LEAST('00:00:05'::interval, CASE WHEN (((p_room)::numeric >= (((l).rate)::numeric * 0.5)) AND (NOT (EXISTS (SELECT FROM mainspring.bucket b WHERE ((b.org_id = 'SYSTEM'::text) AND (b.gate = validity.p_gate) AND (b.full_at > (validity.p_at - ((validity.l).per * (20)::double precision)))))))) THEN (l).per ELSE mainspring.briefest((l).per) END);

CREATE FUNCTION mainspring.verb() RETURNS text
    LANGUAGE sql STABLE
    RETURN COALESCE(current_setting('mainspring.verb'::text, true), ''::text);

CREATE FUNCTION mainspring.wake() RETURNS boolean
    LANGUAGE plpgsql
    AS $$
declare
  t constant bigint := extract(epoch from clock_timestamp()) * 1000;
begin
  if (select last_value from "mainspring".idle_until) > t and (select last_value from "mainspring".woken_at) not between t - 9 and t + 1000 then
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
          e.actor_id, e.request_id, e.correlation_id, e.parent_id, e.traceparent, e.key, e.strand, e.created_at, e.scheduled_for);
  insert into "mainspring".waiting (id, org_id, task, queue, priority, due_at, after, due_then, strand)
  values (e.id, e.org_id, e.task, e.queue, e.priority, case when p_after is null then e.due_at else 'infinity' end,
          p_after, case when p_after is not null then e.due_at end, e.strand);
$$;

CREATE FUNCTION mainspring.write_notifications(p_notes json, p_jobs json) RETURNS TABLE(id uuid, answer text, job_id uuid, state text, recipient_id text)
    LANGUAGE plpgsql
    AS $$
#variable_conflict use_column
declare
  m record;
  ids uuid[] := '{}';
  new boolean[] := '{}';
  wanted json;
begin
  for m in
    select x.*, who.id as who, j.value ->> 'id' as job, n.ord
    from json_array_elements(p_notes) with ordinality n(value, ord)
    join json_array_elements(p_jobs) with ordinality j(value, ord) on j.ord = n.ord
    cross join lateral json_to_record(n.value) as x (
      org_id text, id uuid, recipient_id text, fallback text, channel text, template text, class text, necessary boolean,
      data jsonb, payload_hash text, bucket timestamptz, due_at timestamptz, at timestamptz)
    cross join lateral (select case when x.fallback is null or exists (
      select from "mainspring".recipient r where r.org_id = x.org_id and r.recipient_id = x.recipient_id)
      then x.recipient_id else x.fallback end) who (id)
    order by x.org_id, who.id, x.channel, x.template, x.payload_hash, n.ord  -- by everybody in this order
  loop
    insert into "mainspring".notification (
      org_id, id, recipient_id, channel, template, class, necessary, data, payload_hash, bucket, due_at, job_id, created_at)
    values (
      m.org_id, m.id, m.who, m.channel, m.template, m.class, m.necessary, m.data, m.payload_hash,
      date_bin('15 min', coalesce(m.bucket, "mainspring".now()), '2000-01-01Z'),
      greatest(m.due_at, "mainspring".now()), m.job::uuid, "mainspring".now())
    on conflict on constraint notification_once do nothing;
    new[m.ord] := found;
    ids[m.ord] := m.id;
    if not found then
      ids[m.ord] := (  -- it was asked for before
        select n.id from "mainspring".notification n
        where n.org_id = m.org_id and n.recipient_id = m.who and n.channel = m.channel
          and n.template = m.template and n.payload_hash = m.payload_hash
          and n.bucket = date_bin('15 min', coalesce(m.bucket, "mainspring".now()), '2000-01-01Z'));
    elsif m.at < "mainspring".now() - interval '60 s' then
      perform "mainspring".refuse('at', 'lies more than 60 s in the past');
    end if;
  end loop;
  select json_agg(j.value order by j.ord) into wanted
  from json_array_elements(p_jobs) with ordinality j(value, ord) where new[j.ord];
  if wanted is not null then
    perform from "mainspring".enqueue_many(wanted, true);  -- checked by the client
  end if;
  return query
    select n.id, case when new[o.ord] then 'created' else 'existing' end, n.job_id, coalesce(s.state, 'succeeded'),
           n.recipient_id
    from unnest(ids) with ordinality o(id, ord)
    join json_array_elements(p_notes) with ordinality x(value, ord) on x.ord = o.ord
    join "mainspring".notification n on n.org_id = x.value ->> 'org_id' and n.id = o.id
    left join lateral "mainspring".state_of(n.job_id) s on true
    order by o.ord;
end $$;

CREATE TABLE mainspring.alert (
    org_id text NOT NULL,
    id uuid NOT NULL,
    name text NOT NULL,
    subject text DEFAULT ''::text NOT NULL,
    severity text NOT NULL,
    text text DEFAULT ''::text NOT NULL,
    detail jsonb DEFAULT '{}'::jsonb NOT NULL,
    opened_at timestamp with time zone NOT NULL,
    last_at timestamp with time zone NOT NULL,
    count integer DEFAULT 1 NOT NULL,
    closed_at timestamp with time zone,
    closed_by text,
    told text,
    CONSTRAINT alert_check CHECK (((closed_at IS NULL) = (closed_by IS NULL))),
    CONSTRAINT alert_check1 CHECK (((told IS DISTINCT FROM 'closed'::text) OR (closed_at IS NOT NULL))),
    CONSTRAINT alert_count_check CHECK ((count > 0)),
    CONSTRAINT alert_detail_check CHECK (((jsonb_typeof(detail) = 'object'::text) AND (octet_length((detail)::text) <= 65536))),
    CONSTRAINT alert_detail_check1 CHECK ((NOT jsonb_path_exists(detail, 'strict $.**{64}?(@.type() == "object" || @.type() == "array")'::jsonpath))),
    CONSTRAINT alert_name_check CHECK (((length(name) >= 1) AND (length(name) <= 100))),
    CONSTRAINT alert_severity_check CHECK ((severity = ANY (ARRAY['critical'::text, 'warning'::text]))),
    CONSTRAINT alert_subject_check CHECK ((length(subject) <= 200)),
    CONSTRAINT alert_text_check CHECK ((octet_length(text) <= 2000)),
    CONSTRAINT alert_told_check CHECK ((told = ANY (ARRAY['opened'::text, 'closed'::text])))
)
WITH (fillfactor='70');

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

CREATE TABLE mainspring.member (
    org_id text NOT NULL,
    batch_id uuid NOT NULL,
    job_id uuid NOT NULL,
    state text,
    CONSTRAINT member_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'failed'::text, 'dead'::text, 'cancelled'::text])))
);

CREATE VIEW mainspring.batches WITH (security_invoker='true') AS
 SELECT b.id,
    b.org_id,
    b.name,
        CASE
            WHEN (b.finished_at IS NOT NULL) THEN 'finished'::text
            WHEN (b.stopped_at IS NOT NULL) THEN 'stopping'::text
            WHEN (b.closed_at IS NULL) THEN 'open'::text
            ELSE 'running'::text
        END AS state,
    b.on_failure,
    b.on_finish,
    n.total,
    n.succeeded,
    n.failed,
    n.dead,
    n.cancelled,
    n.running,
    (n.open - n.running) AS waiting,
    b.created_at,
    b.closed_at,
    b.stopped_at,
    b.stop_reason,
    b.finished_at
   FROM (mainspring.batch b
     CROSS JOIN LATERAL ( SELECT count(*) AS total,
            count(*) FILTER (WHERE (m.state = 'succeeded'::text)) AS succeeded,
            count(*) FILTER (WHERE (m.state = 'failed'::text)) AS failed,
            count(*) FILTER (WHERE (m.state = 'dead'::text)) AS dead,
            count(*) FILTER (WHERE (m.state = 'cancelled'::text)) AS cancelled,
            count(*) FILTER (WHERE (m.state IS NULL)) AS open,
            count(*) FILTER (WHERE ((m.state IS NULL) AND (EXISTS ( SELECT
                   FROM mainspring.running r
                  WHERE (r.id = m.job_id))))) AS running
           FROM mainspring.member m
          WHERE ((m.org_id = b.org_id) AND (m.batch_id = b.id))) n);

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

CREATE TABLE mainspring.webhook_delivery (
    org_id text NOT NULL,
    id uuid NOT NULL,
    endpoint uuid NOT NULL,
    event_id uuid NOT NULL,
    event_type text NOT NULL,
    aggregate_type text NOT NULL,
    aggregate_id text NOT NULL,
    body text NOT NULL,
    job_id uuid NOT NULL,
    attempts integer DEFAULT 0 NOT NULL,
    attempted_at timestamp with time zone,
    http_status smallint,
    error text,
    response_headers jsonb,
    response_body bytea,
    response_cut boolean DEFAULT false NOT NULL,
    delivered_at timestamp with time zone,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT webhook_delivery_aggregate_id_check CHECK (((length(aggregate_id) >= 1) AND (length(aggregate_id) <= 200))),
    CONSTRAINT webhook_delivery_aggregate_type_check CHECK (((length(aggregate_type) >= 1) AND (length(aggregate_type) <= 100))),
    CONSTRAINT webhook_delivery_body_check CHECK ((octet_length(body) <= 1048576)),
    CONSTRAINT webhook_delivery_error_check CHECK ((length(error) <= 1000)),
    CONSTRAINT webhook_delivery_event_type_check CHECK (((length(event_type) >= 1) AND (length(event_type) <= 100))),
    CONSTRAINT webhook_delivery_response_body_check CHECK ((octet_length(response_body) <= 131072))
);

CREATE VIEW mainspring.deliveries WITH (security_invoker='true') AS
 SELECT d.org_id,
    d.id,
    d.endpoint,
    d.event_id,
    d.event_type,
    d.aggregate_type,
    d.aggregate_id,
        CASE
            WHEN (d.delivered_at IS NOT NULL) THEN 'delivered'::text
            WHEN ((EXISTS ( SELECT
               FROM mainspring.waiting w
              WHERE (w.id = d.job_id))) OR (EXISTS ( SELECT
               FROM mainspring.running r
              WHERE (r.id = d.job_id)))) THEN 'pending'::text
            ELSE 'failed'::text
        END AS status,
    d.attempts,
    d.attempted_at,
    d.http_status,
        CASE
            WHEN (d.delivered_at IS NULL) THEN COALESCE(d.error, (f.error ->> 'code'::text))
            ELSE NULL::text
        END AS error,
    d.response_cut,
    d.delivered_at,
    d.job_id,
    d.created_at
   FROM (mainspring.webhook_delivery d
     LEFT JOIN mainspring.finished f ON (((f.id = d.job_id) AND (d.delivered_at IS NULL))));

CREATE TABLE mainspring.dependency (
    org_id text NOT NULL,
    child uuid NOT NULL,
    parent uuid NOT NULL,
    place integer NOT NULL,
    anyway boolean DEFAULT false NOT NULL,
    state text,
    met boolean GENERATED ALWAYS AS (COALESCE(((state = 'succeeded'::text) OR (anyway AND (state IS NOT NULL))), false)) STORED NOT NULL,
    CONSTRAINT dependency_state_check CHECK ((state = ANY (ARRAY['succeeded'::text, 'failed'::text, 'dead'::text, 'cancelled'::text, 'discarded'::text])))
);

CREATE TABLE mainspring.fair (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    queue text NOT NULL,
    weights jsonb DEFAULT '{}'::jsonb NOT NULL,
    cursor text DEFAULT ''::text NOT NULL,
    declared boolean DEFAULT false NOT NULL,
    app text,
    set_at timestamp with time zone NOT NULL,
    set_by text NOT NULL
)
WITH (fillfactor='50');

CREATE TABLE mainspring.fan_out (
    org_id text NOT NULL,
    fire_id uuid NOT NULL,
    schedule text NOT NULL,
    zone text NOT NULL,
    instant timestamp with time zone NOT NULL,
    begun_at timestamp with time zone NOT NULL,
    after jsonb,
    mark jsonb,
    jobs integer DEFAULT 0 NOT NULL,
    refused integer DEFAULT 0 NOT NULL,
    by_hand boolean DEFAULT false NOT NULL,
    problem text,
    look_at timestamp with time zone NOT NULL,
    finished_at timestamp with time zone
);

CREATE UNLOGGED SEQUENCE mainspring.idle_until
    START WITH 0
    INCREMENT BY 1
    MINVALUE 0
    NO MAXVALUE
    CACHE 1;

CREATE TABLE mainspring.inbound (
    org_id text NOT NULL,
    provider text NOT NULL,
    event_id text NOT NULL,
    type text NOT NULL,
    body text NOT NULL,
    job_id uuid,
    received_at timestamp with time zone NOT NULL,
    CONSTRAINT inbound_body_check CHECK ((octet_length(body) <= 1048576)),
    CONSTRAINT inbound_event_id_check CHECK (((length(event_id) >= 1) AND (length(event_id) <= 255))),
    CONSTRAINT inbound_provider_check CHECK (((length(provider) >= 1) AND (length(provider) <= 100))),
    CONSTRAINT inbound_type_check CHECK (((length(type) >= 1) AND (length(type) <= 255)))
);

CREATE TABLE mainspring.inbox (
    org_id text NOT NULL,
    id uuid NOT NULL,
    recipient_id text NOT NULL,
    title text NOT NULL,
    text text NOT NULL,
    link text,
    created_at timestamp with time zone NOT NULL,
    read_at timestamp with time zone
);

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

CREATE TABLE mainspring.loose_end (
    org_id text NOT NULL,
    id bigint DEFAULT nextval('mainspring.epoch'::regclass) NOT NULL,
    kind text NOT NULL,
    what uuid NOT NULL,
    CONSTRAINT loose_end_kind_check CHECK ((kind = ANY (ARRAY['job'::text, 'child'::text, 'batch'::text])))
);

CREATE TABLE mainspring.migration (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    line text NOT NULL,
    number integer NOT NULL,
    name text NOT NULL,
    breaking boolean NOT NULL,
    digest text DEFAULT ''::text NOT NULL,
    applied_at timestamp with time zone DEFAULT statement_timestamp() NOT NULL
);

CREATE TABLE mainspring.notification (
    org_id text NOT NULL,
    id uuid NOT NULL,
    recipient_id text NOT NULL,
    channel text NOT NULL,
    template text NOT NULL,
    class text NOT NULL,
    necessary boolean NOT NULL,
    data jsonb NOT NULL,
    payload_hash text NOT NULL,
    bucket timestamp with time zone NOT NULL,
    due_at timestamp with time zone NOT NULL,
    status text DEFAULT 'pending'::text NOT NULL,
    reason text,
    title text,
    text text,
    html text,
    attempts integer DEFAULT 0 NOT NULL,
    resends integer DEFAULT 0 NOT NULL,
    reserved_at timestamp with time zone,
    sent_at timestamp with time zone,
    provider text,
    provider_id text,
    error text,
    job_id uuid NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT notification_channel_check CHECK ((channel = ANY (ARRAY['email'::text, 'sms'::text, 'push'::text, 'in_app'::text]))),
    CONSTRAINT notification_check CHECK (((status = 'sent'::text) = (sent_at IS NOT NULL))),
    CONSTRAINT notification_check1 CHECK (((status = 'sending'::text) = (reserved_at IS NOT NULL))),
    CONSTRAINT notification_check2 CHECK (((status = 'skipped'::text) = (reason IS NOT NULL))),
    CONSTRAINT notification_class_check CHECK ((class = ANY (ARRAY['critical'::text, 'time_bound'::text, 'normal'::text]))),
    CONSTRAINT notification_data_check CHECK (((jsonb_typeof(data) = 'object'::text) AND (octet_length((data)::text) <= 262144))),
    CONSTRAINT notification_recipient_id_check CHECK (((length(recipient_id) >= 1) AND (length(recipient_id) <= 200))),
    CONSTRAINT notification_status_check CHECK ((status = ANY (ARRAY['pending'::text, 'sending'::text, 'sent'::text, 'skipped'::text]))),
    CONSTRAINT notification_template_check CHECK (((length(template) >= 1) AND (length(template) <= 200)))
)
WITH (fillfactor='70');

CREATE VIEW mainspring.notification_log WITH (security_invoker='true') AS
 SELECT n.org_id,
    n.id,
    n.recipient_id,
    n.channel,
    n.template,
    n.class,
    (n.class = 'critical'::text) AS critical,
    n.necessary,
    n.title,
    n.text,
        CASE
            WHEN (n.status = ANY (ARRAY['sent'::text, 'skipped'::text])) THEN n.status
            WHEN (w.id IS NOT NULL) THEN 'pending'::text
            WHEN (r.id IS NOT NULL) THEN n.status
            ELSE 'failed'::text
        END AS status,
    n.reason,
        CASE
            WHEN (n.status <> ALL (ARRAY['sent'::text, 'skipped'::text])) THEN COALESCE((f.error ->> 'code'::text), n.error)
            ELSE NULL::text
        END AS error,
    n.attempts,
    n.resends,
    n.bucket,
    COALESCE(w.due_at, n.due_at) AS due_at,
    n.reserved_at,
    n.sent_at,
    n.provider,
    n.provider_id,
    n.payload_hash,
    n.job_id,
    n.created_at
   FROM (((mainspring.notification n
     LEFT JOIN mainspring.waiting w ON (((w.id = n.job_id) AND (n.status = ANY (ARRAY['pending'::text, 'sending'::text])))))
     LEFT JOIN mainspring.running r ON (((r.id = n.job_id) AND (n.status = ANY (ARRAY['pending'::text, 'sending'::text])))))
     LEFT JOIN mainspring.finished f ON (((f.id = n.job_id) AND (n.status = ANY (ARRAY['pending'::text, 'sending'::text])))));

CREATE TABLE mainspring.recipient (
    org_id text NOT NULL,
    recipient_id text NOT NULL,
    email text,
    phone text,
    push_token text,
    zone text DEFAULT 'UTC'::text NOT NULL,
    quiet_from time without time zone DEFAULT '22:00:00'::time without time zone NOT NULL,
    quiet_to time without time zone DEFAULT '07:00:00'::time without time zone NOT NULL,
    opt_out text[] DEFAULT '{}'::text[] NOT NULL,
    spam_limit integer,
    updated_at timestamp with time zone NOT NULL,
    CONSTRAINT recipient_email_check CHECK (((length(email) >= 1) AND (length(email) <= 320))),
    CONSTRAINT recipient_opt_out_check CHECK ((cardinality(opt_out) <= 1000)),
    CONSTRAINT recipient_phone_check CHECK (((length(phone) >= 1) AND (length(phone) <= 50))),
    CONSTRAINT recipient_push_token_check CHECK (((length(push_token) >= 1) AND (length(push_token) <= 4096))),
    CONSTRAINT recipient_recipient_id_check CHECK (((length(recipient_id) >= 1) AND (length(recipient_id) <= 200))),
    CONSTRAINT recipient_spam_limit_check CHECK (((spam_limit >= 1) AND (spam_limit <= 100000))),
    CONSTRAINT recipient_zone_check CHECK (((length(zone) >= 1) AND (length(zone) <= 200)))
);

CREATE TABLE mainspring.slot (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    gate text NOT NULL,
    job_id uuid NOT NULL,
    in_order boolean NOT NULL
)
WITH (autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0');

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

CREATE TABLE mainspring.unused (
    org_id text DEFAULT 'SYSTEM'::text NOT NULL,
    gate text NOT NULL,
    epoch bigint NOT NULL,
    name text NOT NULL,
    at timestamp with time zone NOT NULL
)
WITH (autovacuum_vacuum_threshold='500', autovacuum_vacuum_scale_factor='0', autovacuum_vacuum_cost_delay='0');

CREATE TABLE mainspring.webhook_endpoint (
    org_id text NOT NULL,
    id uuid NOT NULL,
    url text NOT NULL,
    events text[] DEFAULT '{}'::text[] NOT NULL,
    description text,
    prefix text NOT NULL,
    headers text,
    state text DEFAULT 'active'::text NOT NULL,
    reason text,
    changed_at timestamp with time zone NOT NULL,
    created_at timestamp with time zone NOT NULL,
    CONSTRAINT webhook_endpoint_description_check CHECK ((length(description) <= 1000)),
    CONSTRAINT webhook_endpoint_events_check CHECK ((cardinality(events) <= 100)),
    CONSTRAINT webhook_endpoint_headers_check CHECK ((octet_length(headers) <= 65536)),
    CONSTRAINT webhook_endpoint_prefix_check CHECK (((length(prefix) >= 1) AND (length(prefix) <= 50))),
    CONSTRAINT webhook_endpoint_reason_check CHECK ((length(reason) <= 1000)),
    CONSTRAINT webhook_endpoint_state_check CHECK ((state = ANY (ARRAY['active'::text, 'paused'::text, 'disabled'::text]))),
    CONSTRAINT webhook_endpoint_url_check CHECK ((length(url) <= 2048))
);

CREATE TABLE mainspring.webhook_secret (
    org_id text NOT NULL,
    endpoint uuid NOT NULL,
    id uuid NOT NULL,
    secret text NOT NULL,
    created_at timestamp with time zone NOT NULL,
    expires_at timestamp with time zone,
    CONSTRAINT webhook_secret_secret_check CHECK (((length(secret) >= 1) AND (length(secret) <= 2000)))
);

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

ALTER TABLE ONLY mainspring.alert
    ADD CONSTRAINT alert_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.attempt
    ADD CONSTRAINT attempt_pkey PRIMARY KEY (org_id, job_id, epoch);

ALTER TABLE ONLY mainspring.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.batch
    ADD CONSTRAINT batch_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.breaker
    ADD CONSTRAINT breaker_pkey PRIMARY KEY (org_id, name, key);

ALTER TABLE ONLY mainspring.bucket
    ADD CONSTRAINT bucket_pkey PRIMARY KEY (org_id, gate);

ALTER TABLE ONLY mainspring.checkpoint
    ADD CONSTRAINT checkpoint_pkey PRIMARY KEY (org_id, job_id);

ALTER TABLE ONLY mainspring.cipher_key
    ADD CONSTRAINT cipher_key_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.dependency
    ADD CONSTRAINT dependency_pkey PRIMARY KEY (org_id, child, parent);

ALTER TABLE ONLY mainspring.fair
    ADD CONSTRAINT fair_pkey PRIMARY KEY (org_id, queue);

ALTER TABLE ONLY mainspring.fan_out
    ADD CONSTRAINT fan_out_pkey PRIMARY KEY (org_id, fire_id);

ALTER TABLE ONLY mainspring.finished
    ADD CONSTRAINT finished_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.fire
    ADD CONSTRAINT fire_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.idempotency
    ADD CONSTRAINT idempotency_pkey PRIMARY KEY (org_id, key);

ALTER TABLE ONLY mainspring.inbound
    ADD CONSTRAINT inbound_pkey PRIMARY KEY (org_id, provider, event_id);

ALTER TABLE ONLY mainspring.inbox
    ADD CONSTRAINT inbox_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.job
    ADD CONSTRAINT job_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring."limit"
    ADD CONSTRAINT limit_pkey PRIMARY KEY (org_id, name);

ALTER TABLE ONLY mainspring.loose_end
    ADD CONSTRAINT loose_end_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.member
    ADD CONSTRAINT member_pkey PRIMARY KEY (org_id, batch_id, job_id);

ALTER TABLE ONLY mainspring.migration
    ADD CONSTRAINT migration_pkey PRIMARY KEY (org_id, line, number);

ALTER TABLE ONLY mainspring.notification
    ADD CONSTRAINT notification_once UNIQUE (org_id, recipient_id, channel, template, payload_hash, bucket);

ALTER TABLE ONLY mainspring.notification
    ADD CONSTRAINT notification_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.progress
    ADD CONSTRAINT progress_pkey PRIMARY KEY (org_id, job_id);

ALTER TABLE ONLY mainspring.queue
    ADD CONSTRAINT queue_pkey PRIMARY KEY (org_id, name);

ALTER TABLE ONLY mainspring.recipient
    ADD CONSTRAINT recipient_pkey PRIMARY KEY (org_id, recipient_id);

ALTER TABLE ONLY mainspring.resolution
    ADD CONSTRAINT resolution_pkey PRIMARY KEY (org_id, job_id);

ALTER TABLE ONLY mainspring.running
    ADD CONSTRAINT running_epoch_key UNIQUE (epoch);

ALTER TABLE ONLY mainspring.running
    ADD CONSTRAINT running_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.schedule
    ADD CONSTRAINT schedule_pkey PRIMARY KEY (org_id, name);

ALTER TABLE ONLY mainspring.schedule_zone
    ADD CONSTRAINT schedule_zone_pkey PRIMARY KEY (org_id, schedule, zone);

ALTER TABLE ONLY mainspring.seal
    ADD CONSTRAINT seal_pkey PRIMARY KEY (org_id, number);

ALTER TABLE ONLY mainspring.slot
    ADD CONSTRAINT slot_pkey PRIMARY KEY (org_id, gate, job_id);

ALTER TABLE ONLY mainspring.step
    ADD CONSTRAINT step_pkey PRIMARY KEY (org_id, job_id, name);

ALTER TABLE ONLY mainspring.unused
    ADD CONSTRAINT unused_pkey PRIMARY KEY (org_id, gate, epoch);

ALTER TABLE ONLY mainspring.waiting
    ADD CONSTRAINT waiting_pkey PRIMARY KEY (id);

ALTER TABLE ONLY mainspring.webhook_delivery
    ADD CONSTRAINT webhook_delivery_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.webhook_endpoint
    ADD CONSTRAINT webhook_endpoint_pkey PRIMARY KEY (org_id, id);

ALTER TABLE ONLY mainspring.webhook_secret
    ADD CONSTRAINT webhook_secret_pkey PRIMARY KEY (org_id, endpoint, id);

ALTER TABLE ONLY mainspring.worker
    ADD CONSTRAINT worker_pkey PRIMARY KEY (org_id, id);

CREATE INDEX alert_closed ON mainspring.alert USING btree (closed_at) WHERE (closed_at IS NOT NULL);

CREATE INDEX alert_name ON mainspring.alert USING btree (name) WHERE (closed_at IS NULL);

CREATE UNIQUE INDEX alert_open ON mainspring.alert USING btree (org_id, name, subject) WHERE (closed_at IS NULL);

CREATE INDEX alert_opened ON mainspring.alert USING btree (opened_at);

CREATE INDEX alert_untold ON mainspring.alert USING btree (opened_at) WHERE (told IS DISTINCT FROM
CASE
    WHEN (closed_at IS NULL) THEN 'opened'::text
    ELSE 'closed'::text
END);

CREATE INDEX attempt_ended ON mainspring.attempt USING btree (ended_at);

CREATE INDEX audit_id ON mainspring.audit USING btree (id);

CREATE INDEX audit_job ON mainspring.audit USING btree (job_id) WHERE (job_id IS NOT NULL);

CREATE INDEX batch_age ON mainspring.batch USING btree (finished_at) WHERE (finished_at IS NOT NULL);

CREATE INDEX batch_id ON mainspring.batch USING btree (id);

CREATE INDEX batch_on_finish ON mainspring.batch USING btree (on_finish) WHERE (on_finish IS NOT NULL);

CREATE UNIQUE INDEX cipher_key_current ON mainspring.cipher_key USING btree (org_id) WHERE (retired_at IS NULL);

CREATE INDEX dependency_open ON mainspring.dependency USING btree (org_id, child) WHERE (NOT met);

CREATE INDEX dependency_parent ON mainspring.dependency USING btree (parent);

CREATE INDEX fan_out_open ON mainspring.fan_out USING btree (look_at) WHERE (finished_at IS NULL);

CREATE INDEX finished_age ON mainspring.finished USING brin (finished_at) WITH (autosummarize='on');

CREATE INDEX finished_open ON mainspring.finished USING btree (state, finished_at) WHERE (state <> 'succeeded'::text);

CREATE INDEX fire_at ON mainspring.fire USING btree (org_id, schedule, at);

CREATE UNIQUE INDEX fire_once ON mainspring.fire USING btree (org_id, schedule, zone, instant) WHERE (how <> 'run_now'::text);

CREATE INDEX idempotency_expiry ON mainspring.idempotency USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE INDEX inbound_received ON mainspring.inbound USING btree (received_at);

CREATE INDEX inbox_created ON mainspring.inbox USING btree (created_at);

CREATE INDEX inbox_recipient ON mainspring.inbox USING btree (org_id, recipient_id, created_at);

CREATE INDEX loose_end_age ON mainspring.loose_end USING btree (id);

CREATE INDEX member_failed ON mainspring.member USING btree (org_id, batch_id, job_id) WHERE (state = ANY (ARRAY['failed'::text, 'dead'::text]));

CREATE INDEX member_job ON mainspring.member USING btree (job_id);

CREATE INDEX member_open ON mainspring.member USING btree (org_id, batch_id, job_id) WHERE (state IS NULL);

CREATE INDEX notification_created ON mainspring.notification USING btree (created_at);

CREATE INDEX notification_recent ON mainspring.notification USING btree (org_id, recipient_id, channel, COALESCE(sent_at, reserved_at)) WHERE (status = ANY (ARRAY['sending'::text, 'sent'::text]));

CREATE UNIQUE INDEX resolution_successor ON mainspring.resolution USING btree (org_id, successor) WHERE (successor IS NOT NULL);

CREATE INDEX running_cancel ON mainspring.running USING btree (worker) WHERE (cancel_requested_at IS NOT NULL);

CREATE INDEX running_lease ON mainspring.running USING btree (lease_expires_at);

CREATE INDEX schedule_zone_next ON mainspring.schedule_zone USING btree (next_at) WHERE (next_at IS NOT NULL);

CREATE INDEX seal_last ON mainspring.seal USING btree (org_id, last_id);

CREATE INDEX slot_job ON mainspring.slot USING btree (job_id);

CREATE INDEX waiting_claim ON mainspring.waiting USING btree (queue, priority, due_at, id);

CREATE INDEX waiting_gate ON mainspring.waiting USING btree (gate, priority, due_then, id) WHERE (gate IS NOT NULL);

CREATE INDEX waiting_held ON mainspring.waiting USING btree (after) WHERE (after IS NOT NULL);

CREATE INDEX waiting_rescued ON mainspring.waiting USING btree (due_at) WHERE (crashes > 0);

CREATE INDEX waiting_retrying ON mainspring.waiting USING btree (queue) WHERE retrying;

CREATE INDEX waiting_strand ON mainspring.waiting USING btree (org_id, strand, COALESCE(due_then, due_at), id) WHERE (strand IS NOT NULL);

CREATE INDEX webhook_delivery_age ON mainspring.webhook_delivery USING btree (created_at);

CREATE UNIQUE INDEX webhook_delivery_event ON mainspring.webhook_delivery USING btree (org_id, endpoint, event_id);

CREATE INDEX webhook_delivery_open ON mainspring.webhook_delivery USING btree (org_id, endpoint) WHERE (delivered_at IS NULL);

CREATE UNIQUE INDEX webhook_secret_current ON mainspring.webhook_secret USING btree (org_id, endpoint) WHERE (expires_at IS NULL);

CREATE INDEX webhook_secret_expiry ON mainspring.webhook_secret USING btree (expires_at) WHERE (expires_at IS NOT NULL);

CREATE TRIGGER audit_guard BEFORE DELETE OR UPDATE ON mainspring.audit FOR EACH ROW EXECUTE FUNCTION mainspring.guard_append_only();

CREATE TRIGGER audit_guard_truncate BEFORE TRUNCATE ON mainspring.audit FOR EACH STATEMENT EXECUTE FUNCTION mainspring.guard_append_only();

CREATE TRIGGER finished_guard BEFORE DELETE OR UPDATE ON mainspring.finished FOR EACH ROW EXECUTE FUNCTION mainspring.guard_finished();

CREATE TRIGGER fire_guard BEFORE DELETE OR UPDATE ON mainspring.fire FOR EACH ROW EXECUTE FUNCTION mainspring.guard_fire();

CREATE TRIGGER job_guard BEFORE DELETE OR UPDATE ON mainspring.job FOR EACH ROW EXECUTE FUNCTION mainspring.guard_job();

CREATE TRIGGER seal_guard BEFORE DELETE OR UPDATE ON mainspring.seal FOR EACH ROW EXECUTE FUNCTION mainspring.guard_append_only();

CREATE TRIGGER seal_guard_truncate BEFORE TRUNCATE ON mainspring.seal FOR EACH STATEMENT EXECUTE FUNCTION mainspring.guard_append_only();
