-- What a worker does: claim, renew, complete, settle, rescue.
--
-- The form of these statements and their pinned settings belong together (docs/adr/0001): prepared on empty tables and
-- met by 60,000 jobs, free joins fell to 150 jobs a second; ctid arrays, one-row laterals and `epoch = any` with the
-- settings pinned keep 30,000. The settings stand in the functions, so that no session state is needed and poolers in
-- transaction mode work. With hash joins off, never join a CTE to a CTE here: return what is needed from the delete.

-- Who: the exchange of each worker, every few milliseconds while there is work. Index: waiting_claim, one range a lane.
-- Locks: the claimed tickets only (skip locked), so claims never wait for each other; and a shared advisory lock that
-- lets `pause` wait until claims that did not see it have ended.
-- p_limits and the order of p_queues share a claim between queues; p_low0 … p_low3 bound the scan from below per queue
-- and priority; p_oldest starts with the lane whose head is oldest, so that low priorities are not starved.
-- p_rescued admits one job that crashed a worker before (index waiting_rescued): asked for by a worker that runs none, so
-- that a killer does not bury the innocents beside it.
create function {schema}.claim(
  p_worker text, p_lease interval, p_total integer, p_queues text[], p_limits integer[], p_low0 timestamptz[],
  p_low1 timestamptz[], p_low2 timestamptz[], p_low3 timestamptz[], p_tasks text[], p_oldest boolean, p_rescued boolean
) returns table (
  id uuid, task text, payload text, org_id text, project_id uuid, actor_type text, actor_id text, request_id text,
  correlation_id text, traceparent text, key text, created_at timestamptz, scheduled_for timestamptz,
  max_attempts smallint, epoch bigint, attempt smallint, crashes smallint, snoozes smallint, suspect boolean,
  queue text, priority smallint, due_at timestamptz, claimed_at timestamptz, strand text, permit interval
) language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
  set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  perform pg_advisory_xact_lock_shared({claim_lock});
  if exists (select from {schema}.limit l where l.queue = any(p_queues) or l.task = any(p_tasks))
     or exists (select from {schema}.fair f where f.queue = any(p_queues)) then
    return query select * from {schema}.claim_limited(
      p_worker, p_lease, p_total, p_queues, p_limits, p_tasks, p_oldest, p_rescued);
    return;
  end if;
  return query
  with rescued as materialized (
    select w.ctid as tid from {schema}.waiting w
    where p_rescued and w.crashes > 0 and w.due_at <= {schema}.now() and w.queue = any(p_queues) and w.task = any(p_tasks)
      and not exists (
        select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = w.queue and mq.paused_at is not null)
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
          select w.due_at from {schema}.waiting w
          where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now() and w.due_at >= p.low
          order by w.due_at limit 1) end, p.priority
      ) p
      cross join lateral (
        select w.ctid as tid from {schema}.waiting w
        where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now() and w.due_at >= p.low
          and w.task = any(p_tasks) and w.crashes = 0
        order by w.due_at, w.id limit q.n for update of w skip locked) y
      limit q.n) x
    where not exists (
      select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = q.name and mq.paused_at is not null)
    limit p_total - (select count(*) from rescued)  -- lazy: locks exactly the rows it takes
  ), d as (
    delete from {schema}.waiting w
    where w.ctid = any(array(select tid from ready union all select tid from rescued))
    returning w.id, w.org_id, w.task, w.queue, w.priority, w.due_at, (w.attempt + 1)::smallint as attempt, w.crashes,
              w.snoozes, w.suspect, w.strand, w.tied, nextval('{schema}.epoch') as epoch
  ), r as (
    insert into {schema}.running (id, epoch, worker, org_id, task, queue, priority, due_at, attempt, crashes, snoozes,
                                  suspect, strand, tied, started_at, lease_expires_at)
    select d.id, d.epoch, p_worker, d.org_id, d.task, d.queue, d.priority, d.due_at, d.attempt, d.crashes, d.snoozes,
           d.suspect, d.strand, d.tied, {schema}.now(), {schema}.now() + p_lease
    from d
  )
  select d.id, d.task, j.payload::text, d.org_id, j.project_id, j.actor_type, j.actor_id, j.request_id, j.correlation_id,
         j.traceparent, j.key, j.created_at, j.scheduled_for, j.max_attempts, d.epoch, d.attempt, d.crashes, d.snoozes,
         d.suspect, d.queue, d.priority, d.due_at, {schema}.now(), d.strand, null::interval
  from d cross join lateral (select * from {schema}.job j where j.id = d.id limit 1) j
  order by d.priority, d.due_at, d.id;  -- the order of row addresses is not the order of due times
end $$;

-- A job of the same key may wait behind one that has ended; others may hold it still. Index: waiting_held.
create function {schema}.release_behind(p_id uuid) returns void language sql as $$
  update {schema}.waiting w
  set due_at = case when w.gate is null then greatest(w.due_then, {schema}.now()) else w.due_at end, after = null,
      due_then = case when w.gate is not null then w.due_then end
  where w.after = p_id and w.after is not null
$$;

-- Who: the exchange, for attempts that succeeded. Answers the epochs that were ours; the others lost their lease.
-- p_results, where given, goes with p_epochs element by element.
create function {schema}.complete(p_worker text, p_epochs bigint[], p_results jsonb[] default null) returns setof bigint
language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  done bigint[];
  tied uuid[];
begin
  with g as (
    delete from {schema}.running r where r.epoch = any(p_epochs) and r.worker = p_worker returning r.*
  ), f as (
    insert into {schema}.finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, result)
    select g.id, g.org_id, 'succeeded', g.attempt, g.crashes, g.snoozes, g.worker, g.epoch, g.started_at, {schema}.now(),
           case when p_results is not null then p_results[array_position(p_epochs, g.epoch)] end
    from g
  ), h as (  -- a job of the same key may wait behind
    update {schema}.waiting w
    set due_at = case when w.gate is null then greatest(w.due_then, {schema}.now()) else w.due_at end, after = null,
        due_then = case when w.gate is not null then w.due_then end
    where exists (select from {schema}.waiting x where x.after is not null)  -- asked once a batch; rarely true
      and w.after = any(array(select g.id from g)) and w.after is not null
  ), late as (  -- success wins over a cancellation that came too late
    insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                                correlation_id)
    select g.org_id, {schema}.now(), 'job.cancel_too_late', g.id, g.task, g.attempt, j.project_id, j.actor_type,
           j.actor_id, j.request_id, j.correlation_id
    from g cross join lateral (select * from {schema}.job j where j.id = g.id limit 1) j
    where g.cancel_requested_at is not null
  )
  select array_agg(g.epoch), array_agg(g.id) filter (where g.tied) into done, tied from g;
  if tied is not null then
    perform {schema}.untie(tied);
  end if;
  return query select unnest(done);
end $$;

-- Who: the end of a handler's own transaction. Raises when the lease is lost, so that its COMMIT can be sent unseen.
-- Simple statements: for one job they cost a third of `complete`.
create function {schema}.complete_one(p_worker text, p_epoch bigint, p_result jsonb) returns void language plpgsql
  set enable_seqscan = off
as $$
declare
  r {schema}.running;
begin
  delete from {schema}.running x where x.epoch = p_epoch and x.worker = p_worker returning * into r;
  if not found then
    raise exception 'the lease of epoch % is lost', p_epoch using errcode = 'MS005';
  end if;
  insert into {schema}.finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, result)
  values (r.id, r.org_id, 'succeeded', r.attempt, r.crashes, r.snoozes, r.worker, r.epoch, r.started_at, {schema}.now(), p_result);
  if exists (select from {schema}.waiting w where w.after = r.id and w.after is not null) then
    perform {schema}.release_behind(r.id);
  end if;
  if r.tied then
    perform {schema}.untie(array[r.id]);
  end if;
  if r.cancel_requested_at is not null then
    perform {schema}.record('job.cancel_too_late', r.id, r.attempt, null);
  end if;
end $$;

-- Write events of jobs to the audit trail, with the mandatory fields of their envelope.
create function {schema}.record(p_event text, p_job uuid, p_attempt smallint, p_detail jsonb) returns void
language sql as $$
  insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, detail)
  select j.org_id, {schema}.now(), p_event, j.id, j.task, p_attempt, j.project_id, j.actor_type, j.actor_id, j.request_id,
         j.correlation_id, coalesce(p_detail, '{}')
  from {schema}.job j where j.id = p_job
$$;

-- An attempt that leaves no row in `attempt` leaves its start here.
create function {schema}.record_start(r {schema}.running) returns void language sql as $$
  insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, epoch)
  select r.org_id, r.started_at, 'job.started', r.id, r.task, r.attempt, j.project_id, j.actor_type, j.actor_id,
         j.request_id, j.correlation_id, r.epoch
  from {schema}.job j where j.id = r.id
$$;

-- Who asked for the cancellation of a running job, and why, as its request was recorded.
create function {schema}.cancellation(p_job uuid) returns jsonb language sql stable
  return coalesce((select a.detail from {schema}.audit a
                   where a.job_id = p_job and a.event = 'job.cancel_requested' order by a.id desc limit 1), '{}');

-- The error of a cancelled job.
create function {schema}.cancelled(p_reason text) returns jsonb language sql stable
  return jsonb_build_object('code', 'CANCELLED', 'class', 'permanent',
                            'message', coalesce(p_reason, 'The job was cancelled.'));

-- Who: the exchange, for attempts that ended otherwise. p_moves: [{epoch, verb, delay, error, started, gate}], the verbs of
-- mainspring.states. Fenced like complete; answers the epochs that were ours, each with the verb that was done: an attempt
-- whose cancellation was asked for is not tried again, and `fail`, `snooze` and `release` of it become `stop`.
create function {schema}.settle(p_worker text, p_moves json) returns table (epoch bigint, verb text) language plpgsql
  set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  m record;
  r {schema}.running;
  asked jsonb;
begin
  for m in select * from json_to_recordset(p_moves) as (epoch bigint, verb text, delay interval, error jsonb, started boolean, gate text) loop
    delete from {schema}.running x where x.epoch = m.epoch and x.worker = p_worker returning * into r;
    continue when not found;
    if m.verb not in ('fail', 'reject', 'bury', 'snooze', 'release', 'stop') then
      raise exception 'verb: % does not settle an attempt', m.verb using errcode = 'MS001', detail = 'verb';
    end if;
    if r.cancel_requested_at is not null and m.verb in ('fail', 'snooze', 'release') then
      m.verb := 'stop';
    end if;
    asked := case when m.verb = 'stop' then {schema}.cancellation(r.id) end;
    m.error := case when m.verb = 'stop' then coalesce(m.error, {schema}.cancelled(asked ->> 'reason')) else m.error end
               || jsonb_build_object('attempt', r.attempt, 'at', {schema}.now());
    if m.verb in ('fail', 'snooze', 'release') then
      insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, attempt, crashes, snoozes, retrying, suspect,
                                    strand, tied, gate, due_then)
      values (r.id, r.org_id, r.task, r.queue, r.priority, {schema}.now() + coalesce(m.delay, '0'),
              case when m.verb = 'fail' then r.attempt else r.attempt - 1 end, r.crashes,
              r.snoozes + (m.verb = 'snooze')::int, m.verb = 'fail', r.suspect, r.strand, r.tied, m.gate,
              case when m.gate is not null then r.due_at end);
    else
      insert into {schema}.finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, error)
      values (r.id, r.org_id, case m.verb when 'reject' then 'failed' when 'bury' then 'dead' else 'cancelled' end,
              r.attempt, r.crashes, r.snoozes, r.worker, r.epoch, r.started_at, {schema}.now(), m.error);
      perform {schema}.release_behind(r.id);
    end if;
    if r.tied then
      perform {schema}.untie(array[r.id]);
    end if;
    if m.verb = 'release' and m.started is false then
      perform {schema}.hand_back(r);  -- the permit of a rate, which it did not use
    end if;
    if m.verb in ('fail', 'reject', 'bury', 'stop') then
      insert into {schema}.attempt (org_id, job_id, epoch, attempt, worker, started_at, ended_at, outcome, error)
      values (r.org_id, r.id, r.epoch, r.attempt, r.worker, r.started_at, {schema}.now(),
              case m.verb when 'fail' then 'retried' when 'reject' then 'failed' when 'bury' then 'dead' else 'cancelled' end,
              m.error);
    end if;
    if m.verb in ('fail', 'reject', 'bury') then
      perform {schema}.record('job.failed', r.id, r.attempt,
                              jsonb_build_object('final', m.verb <> 'fail', 'code', m.error -> 'code'));
    end if;
    -- A job that was claimed and given back before its handler was entered leaves no trace: nothing happened.
    if m.verb = 'snooze' or (m.verb = 'release' and m.started) then
      perform {schema}.record_start(r);
    end if;
    if m.verb in ('fail', 'bury', 'snooze', 'stop') or (m.verb = 'release' and m.started) then
      perform {schema}.record(case m.verb when 'fail' then 'job.retried' when 'bury' then 'job.deadlettered'
                                          when 'snooze' then 'job.deferred' when 'release' then 'job.released'
                                          else 'job.cancelled' end,
                              r.id, r.attempt, coalesce(asked, jsonb_build_object('delay', m.delay)));
    end if;
    epoch := m.epoch;
    verb := m.verb;
    return next;
  end loop;
end $$;

-- Who: each worker, every renewal interval, for all its leases in one statement; synchronous_commit may be off here.
-- Answers the epochs that are still ours and whether their cancellation was asked for.
create function {schema}.renew(p_worker text, p_lease interval, p_epochs bigint[]) returns table (epoch bigint, cancel boolean)
language sql set enable_seqscan = off as $$
  update {schema}.running r set lease_expires_at = {schema}.now() + p_lease
  where r.epoch = any(p_epochs) and r.worker = p_worker
  returning r.epoch, r.cancel_requested_at is not null
$$;

-- Who: each worker, every few seconds. Takes back jobs whose lease expired; needs no back-off, counts the crash, and
-- ends a job that has no attempt left or used up its crash budget, or whose cancellation was asked for.
-- Index: running_lease.
create function {schema}.rescue(p_limit integer, p_crash_budget integer) returns table (
  job_id uuid, worker text, state text, task text, queue text, org_id text, project_id uuid, request_id text,
  correlation_id text, attempt smallint
) language plpgsql set enable_seqscan = off as $$
#variable_conflict use_column
declare
  r {schema}.running;
  max_attempts smallint;
  problem jsonb;
  asked jsonb;
begin
  for r in
    delete from {schema}.running x where x.id in (
      select y.id from {schema}.running y where y.lease_expires_at <= {schema}.now()
      order by y.lease_expires_at limit p_limit for update skip locked)
    returning *
  loop
    select j.max_attempts, j.project_id, j.request_id, j.correlation_id
    into max_attempts, project_id, request_id, correlation_id from {schema}.job j where j.id = r.id;
    problem := jsonb_build_object('code', 'LEASE_EXPIRED', 'class', 'retryable', 'attempt', r.attempt, 'at', {schema}.now(),
      'message', format('Worker %s stopped renewing its lease.', r.worker));
    insert into {schema}.attempt (org_id, job_id, epoch, attempt, worker, started_at, ended_at, outcome, error)
    values (r.org_id, r.id, r.epoch, r.attempt, r.worker, r.started_at, {schema}.now(), 'expired', problem);
    perform {schema}.record('job.lease_expired', r.id, r.attempt, jsonb_build_object('worker', r.worker));
    state := case when r.cancel_requested_at is not null then 'cancelled'
                  when r.attempt >= max_attempts or r.crashes + 1 >= p_crash_budget then 'dead' else 'ready' end;
    if state <> 'ready' then
      asked := case when state = 'cancelled' then {schema}.cancellation(r.id) end;
      insert into {schema}.finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, error)
      values (r.id, r.org_id, state, r.attempt, r.crashes + 1, r.snoozes, r.worker, r.epoch, r.started_at, {schema}.now(),
              problem || case when state = 'cancelled' then {schema}.cancelled(asked ->> 'reason') else '{}' end);
      perform {schema}.release_behind(r.id);
      perform {schema}.record(case state when 'dead' then 'job.deadlettered' else 'job.cancelled' end, r.id, r.attempt, asked);
    else
      insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, attempt, crashes, snoozes, suspect, strand, tied)
      values (r.id, r.org_id, r.task, r.queue, r.priority, {schema}.now(), r.attempt, r.crashes + 1, r.snoozes, r.suspect,
              r.strand, r.tied);
    end if;
    if r.tied then
      perform {schema}.untie(array[r.id]);
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

-- Who: the rescuer, with rescue. Frees jobs that were held behind one that ended while they were being enqueued: that
-- race is left open on purpose, because closing it would let a caller's long transaction block a worker's completions.
create function {schema}.release_held() returns integer language plpgsql set enable_seqscan = off as $$
declare
  n integer;
begin
  update {schema}.waiting w
  set due_at = case when w.gate is null then greatest(w.due_then, {schema}.now()) else w.due_at end, after = null,
      due_then = case when w.gate is not null then w.due_then end
  where w.after is not null
    and not exists (select from {schema}.running r where r.id = w.after)
    and not exists (select from {schema}.waiting x where x.id = w.after);
  get diagnostics n = row_count;
  perform {schema}.tie_up();
  return n;
end $$;

-- Who: a worker that found nothing, to sleep exactly until the next timer. One probe a lane.
create function {schema}.next_due(p_queues text[]) returns interval language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  opens timestamptz;
begin
  if current_setting('mainspring.more', true) = 'on' then  -- a limited claim of this turn was not done
    return interval '0';
  end if;
  if exists (select from {schema}.limit l where l.queue = any(p_queues)) then
    opens := {schema}.next_open(p_queues);
  end if;
  return (select least(min(x.due_at), opens) - {schema}.now()
  from unnest(p_queues) q(name) cross join (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
  cross join lateral (
    select w.due_at from {schema}.waiting w
    where w.queue = q.name and w.priority = p.priority and w.due_at > {schema}.now() and w.due_at < 'infinity'
    order by w.due_at limit 1) x);
end $$;

-- Who: a worker before it sleeps: until then (milliseconds from now) enqueues should send a hint.
-- On a standby promoted before its first restartpoint an unlogged sequence may be void, and setval an error: no row, no hint.
create function {schema}.raise_idle(p_millis integer) returns void language sql as $$
  select setval('{schema}.idle_until',  -- never sooner than said before, unless that was before the clock was set back
                case when last_value between t.until and t.until + 600000 then last_value else t.until end)
  from {schema}.idle_until
  cross join (select (extract(epoch from clock_timestamp()) * 1000)::bigint + p_millis as until) t
$$;
