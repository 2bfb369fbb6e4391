-- How an attempt ends, and what that lets go on. The head of claim.sql says why the statements have their form.

-- A job of the same key may wait behind one that has ended; others may hold it still. Index: waiting_held.
create or replace function {schema}.release_behind(p_id uuid) returns void language sql as $$
  update {schema}.waiting w
  set due_at = case when w.gate is null then greatest(w.due_then, {schema}.now()) else w.due_at end, after = null,
      due_then = case when w.gate is not null then w.due_then end
  where w.after = p_id and w.after is not null
$$;

-- Who: the exchange, for attempts that succeeded. Answers the epochs that were ours; the others lost their lease.
-- p_results, where given, goes with p_epochs element by element.
create or replace function {schema}.complete(p_worker text, p_epochs bigint[], p_results jsonb[] default null) returns setof bigint
language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
  set plan_cache_mode = force_generic_plan
as $$
declare
  done bigint[];
  linked uuid[];
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
  select array_agg(g.epoch), array_agg(g.id) filter (where g.linked) into done, linked from g;
  if linked is not null then
    perform {schema}.release_links(linked);
  end if;
  return query select unnest(done);
end $$;

-- Who: the end of a handler's own transaction. Raises when the lease is lost, so that its COMMIT can be sent unseen.
-- Simple statements: for one job they cost a third of `complete`.
create or replace function {schema}.complete_one(p_worker text, p_epoch bigint, p_result jsonb) returns void language plpgsql
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
  if r.linked then
    perform {schema}.release_links(array[r.id]);
  end if;
  if r.cancel_requested_at is not null then
    perform {schema}.record('job.cancel_too_late', r.id, r.attempt, null);
  end if;
end $$;

-- Who: a handler that completes its job in a transaction of its own, by its own connection and its own role. (worker, epoch)
-- is what lets it: on a secured schema it reaches jobs of the transaction's organisation only.
create or replace function {schema}.complete_in(p_worker text, p_epoch bigint, p_result jsonb) returns void language plpgsql as $$
begin
  perform {schema}.complete_one(p_worker, p_epoch, p_result);
end $$;

-- Which database this is: of two connections with the same place one may go on where the other began. Null where the server
-- does not tell; that must not spoil a caller's transaction.
create or replace function {schema}.place() returns text language plpgsql as $$
begin
  return concat_ws('/', (select system_identifier from pg_control_system()), left(pg_walfile_name(pg_current_wal_lsn()), 8),
                   (select oid from pg_database where datname = current_database()));
exception when others then
  return null;
end $$;

-- Who: a worker whose handler failed after it had completed its job. The success stands; what was raised is kept with it, on
-- the trail, and in an alert of the task that a person closes. Says whether it was recorded now.
create or replace function {schema}.fail_late(p_id uuid, p_worker text, p_epoch bigint, p_error jsonb) returns boolean language plpgsql as $$
declare
  f {schema}.finished;
  task text;
begin
  perform set_config('mainspring.verb', 'fail_late', true);
  update {schema}.finished x set error = p_error || jsonb_build_object('attempt', x.attempt, 'at', {schema}.now())
  where x.id = p_id and x.worker = p_worker and x.epoch = p_epoch and x.state = 'succeeded' and x.error is null
  returning * into f;
  perform set_config('mainspring.verb', '', true);
  if f.id is null then
    return false;
  end if;
  select j.task into task from {schema}.job j where j.id = p_id;
  perform {schema}.record('job.failed_late', f.id, f.attempt, jsonb_build_object('code', p_error -> 'code'));
  perform {schema}.open_alert(f.org_id, 'failed-late', task,
    format('job %s: %s: %s', f.id, p_error ->> 'code', left(p_error ->> 'message', 500)), 'critical');
  return true;
end $$;

-- Write events of jobs to the audit trail, with the mandatory fields of their envelope.
create or replace function {schema}.record(p_event text, p_job uuid, p_attempt smallint, p_detail jsonb) returns void
language sql as $$
  insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, detail)
  select j.org_id, {schema}.now(), p_event, j.id, j.task, p_attempt, j.project_id, j.actor_type, j.actor_id, j.request_id,
         j.correlation_id, coalesce(p_detail, '{}')
  from {schema}.job j where j.id = p_job
$$;

-- An attempt that leaves no row in `attempt` leaves its start here.
create or replace function {schema}.record_start(r {schema}.running) returns void language sql as $$
  insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, epoch)
  select r.org_id, r.started_at, 'job.started', r.id, r.task, r.attempt, j.project_id, j.actor_type, j.actor_id,
         j.request_id, j.correlation_id, r.epoch
  from {schema}.job j where j.id = r.id
$$;

-- Who asked for the cancellation of a running job, and why, as its request was recorded.
create or replace function {schema}.cancellation(p_job uuid) returns jsonb language sql stable
  return coalesce((select a.detail from {schema}.audit a
                   where a.job_id = p_job and a.event = 'job.cancel_requested' order by a.id desc limit 1), '{}');

-- The error of a cancelled job.
create or replace function {schema}.cancelled(p_reason text) returns jsonb language sql stable
  return jsonb_build_object('code', 'CANCELLED', 'class', 'permanent',
                            'message', coalesce(p_reason, 'The job was cancelled.'));

-- Who: the exchange, for attempts that ended otherwise. p_moves: [{epoch, verb, delay, error, started, gate}], the verbs of
-- mainspring.states; a `defer` names its gate. Fenced like complete; answers the epochs that were ours, each with the verb that
-- was done: an attempt whose cancellation was asked for is not tried again, and what would repeat it becomes `stop`.
create or replace function {schema}.settle(p_worker text, p_moves json) returns table (epoch bigint, verb text) language plpgsql
  set enable_seqscan = off set jit = off set plan_cache_mode = force_generic_plan
as $$
declare
  m record;
  r {schema}.running;
  asked jsonb;
  stop text;  -- what stopped the last that was stopped, and where that one waits: it is locked from then on
  place text;
begin
  for m in select * from json_to_recordset(p_moves) as (epoch bigint, verb text, delay interval, error jsonb, started boolean, gate text) loop
    delete from {schema}.running x where x.epoch = m.epoch and x.worker = p_worker returning * into r;
    continue when not found;
    if m.verb not in ('fail', 'snooze', 'defer', 'release', 'reject', 'bury', 'stop') then
      raise exception 'verb: % does not settle an attempt', m.verb using errcode = 'MS001', detail = 'verb';
    end if;
    if r.cancel_requested_at is not null and m.verb in ('fail', 'snooze', 'defer', 'release') then
      m.verb := 'stop';
    end if;
    asked := case when m.verb = 'stop' then {schema}.cancellation(r.id) end;
    m.error := case when m.verb = 'stop' then coalesce(m.error, {schema}.cancelled(asked ->> 'reason')) else m.error end
               || jsonb_build_object('attempt', r.attempt, 'at', {schema}.now());
    if m.verb in ('fail', 'snooze', 'defer', 'release') then
      if m.gate || ' ' || r.org_id is distinct from stop then
        stop := m.gate || ' ' || r.org_id;
        place := case when m.gate is not null then {schema}.stopped_at(r.org_id, m.gate) end;
      end if;
      insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, attempt, crashes, snoozes, retrying, suspect,
                                    strand, linked, gate, due_then)
      values (r.id, r.org_id, r.task, r.queue, r.priority,
              case when place is not null then 'infinity'  -- whoever opens the gate says when
                   else {schema}.now() + case when m.gate is null then coalesce(m.delay, '0') else least(m.delay, '250 ms') end end,
              case when m.verb = 'fail' then r.attempt else r.attempt - 1 end, r.crashes,
              r.snoozes + (m.verb = 'snooze')::int, m.verb = 'fail', r.suspect, r.strand, r.linked, place,
              case when place is not null then r.due_at end);
    else
      insert into {schema}.finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, error)
      values (r.id, r.org_id, case m.verb when 'reject' then 'failed' when 'bury' then 'dead' else 'cancelled' end,
              r.attempt, r.crashes, r.snoozes, r.worker, r.epoch, r.started_at, {schema}.now(), m.error);
      perform {schema}.release_behind(r.id);
    end if;
    if r.linked then
      perform {schema}.release_links(array[r.id]);
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
    -- A job that was claimed and given back before its handler was entered leaves no trace: nothing happened. One that a
    -- gate stopped inside its handler leaves one line for both its start and its end.
    if m.verb = 'snooze' or (m.verb = 'release' and m.started) then
      perform {schema}.record_start(r);
    end if;
    if m.verb in ('fail', 'bury', 'snooze', 'stop') or (m.verb in ('defer', 'release') and m.started) then
      perform {schema}.record(case m.verb when 'fail' then 'job.retried' when 'bury' then 'job.deadlettered'
                                          when 'snooze' then 'job.deferred' when 'defer' then 'job.deferred'
                                          when 'release' then 'job.released' else 'job.cancelled' end,
                              r.id, r.attempt, coalesce(asked, case when m.verb = 'defer'
                                then jsonb_build_object('gate', m.gate, 'started_at', r.started_at)
                                else jsonb_build_object('delay', m.delay) end));
    end if;
    epoch := m.epoch;
    verb := m.verb;
    return next;
  end loop;
end $$;

-- Who: the rescuer, with rescue. Frees jobs that were held behind one that ended while they were being enqueued: that
-- race is left open on purpose, because closing it would let a caller's long transaction block a worker's completions.
create or replace function {schema}.release_held() returns integer language plpgsql set enable_seqscan = off as $$
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
  perform {schema}.settle_leftovers();
  return n;
end $$;
