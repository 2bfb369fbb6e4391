-- What becomes of the jobs of a worker that is gone.

-- Who: each worker, every few seconds. Takes back jobs whose lease expired; needs no back-off, and counts the crash.
-- `shared`: its worker held others at the time, so nobody knows whose crash it was, and the attempt is given back. A job
-- that crashed twice ran alone: its crash is its own. A job ends that used up its attempts or its crash budget by itself,
-- that must not be tried twice, or whose cancellation was asked for. Before a job is dead of its last crash its worker has
-- p_patience to come back and give it back, unless its death was seen: what looks like a crash may have been an outage.
-- `unseen`: it ran alone in a process whose death is always seen by the one that started it, unless that died as well or
-- lost its network: an accident of the machine, not the job's crash. Both are given back, three budgets of them at most.
-- `ran`: for how many seconds at most, since whoever outlives that the next time was not to blame (worker/suspects.py).
-- Index: running_lease; attempt_ended, for neighbours that were taken back before; the primary keys of worker and attempt.
create or replace function {schema}.rescue(p_limit integer, p_crash_budget integer, p_patience interval default '0') returns table (
  job_id uuid, worker text, state text, task text, queue text, org_id text, project_id uuid, request_id text,
  correlation_id text, attempt smallint, shared boolean, quarantined boolean
) language plpgsql set enable_seqscan = off as $$
#variable_conflict use_column
declare
  taken {schema}.running[];
  crowded text[];
  r {schema}.running;
  max_attempts smallint;
  problem jsonb;
  asked jsonb;
  unseen boolean;
begin
  with t as (
    delete from {schema}.running x where x.id in (
      select y.id from {schema}.running y
      where y.lease_expires_at <= {schema}.now() - case when y.crashes + 1 < p_crash_budget then interval '0' else p_patience end
        and y.lease_expires_at <= {schema}.now()  -- for the index
      order by y.lease_expires_at limit p_limit for update skip locked)
    returning *
  )
  select array_agg(t::{schema}.running order by t.lease_expires_at, t.id) into taken from t;
  if taken is null then
    return;
  end if;
  crowded := array(
    select t.worker from unnest(taken) t
    group by t.worker
    having count(*) > 1 or exists (select from {schema}.running x where x.worker = t.worker)
      or exists (select from {schema}.attempt a
                 where a.ended_at > min(t.started_at) and a.worker = t.worker and a.outcome = 'rescued'));
  foreach r in array taken loop
    select j.max_attempts, j.project_id, j.request_id, j.correlation_id
    into max_attempts, project_id, request_id, correlation_id from {schema}.job j where j.id = r.id;
    unseen := r.crashes + 1 >= p_crash_budget
      and exists (select from {schema}.worker w where w.org_id = 'SYSTEM' and w.id = r.worker and w.watched)
      and (select count(*) from {schema}.attempt a
           where a.org_id = r.org_id and a.job_id = r.id and a.outcome = 'rescued') < 3 * p_crash_budget;
    shared := unseen or (r.crashes < 2 and r.worker = any(crowded));
    state := case when r.cancel_requested_at is not null then 'cancelled'
                  when max_attempts = 1 or (not shared and r.attempt >= max_attempts)
                    or (not unseen and r.crashes + 1 >= p_crash_budget)
                  then 'dead' else 'ready' end;
    problem := jsonb_build_object('code', 'LEASE_EXPIRED', 'class', 'retryable', 'attempt', r.attempt, 'at', {schema}.now(),
      'shared', shared, 'counted', not unseen, 'ran', case when r.lease_expires_at > r.started_at then
        extract(epoch from least(r.lease_expires_at, {schema}.now()) - r.started_at) end, 'message', format('Worker %s stopped renewing its lease%s.', r.worker,
        case when shared and state = 'dead' then
          ' while it ran other jobs as well. This one may be innocent, but its task allows one attempt only' else '' end));
    insert into {schema}.attempt (org_id, job_id, epoch, attempt, worker, started_at, ended_at, outcome, error)
    values (r.org_id, r.id, r.epoch, r.attempt, r.worker, r.started_at, {schema}.now(), 'rescued', problem);
    perform {schema}.record('job.lease_expired', r.id, r.attempt, jsonb_build_object('worker', r.worker, 'shared', shared));
    if state <> 'ready' then
      asked := case when state = 'cancelled' then {schema}.cancellation(r.id) end;
      insert into {schema}.finished (id, org_id, state, attempt, crashes, snoozes, worker, epoch, started_at, finished_at, error)
      values (r.id, r.org_id, state, r.attempt, r.crashes + (not unseen)::int, r.snoozes, r.worker, r.epoch, r.started_at, {schema}.now(),
              problem || case when state = 'cancelled' then {schema}.cancelled(asked ->> 'reason') else '{}' end);
      perform {schema}.release_behind(r.id);
      perform {schema}.record(case state when 'dead' then 'job.deadlettered' else 'job.cancelled' end, r.id, r.attempt, asked);
    else
      insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, attempt, crashes, snoozes, suspect, strand, linked)
      values (r.id, r.org_id, r.task, r.queue, r.priority, {schema}.now(), r.attempt - shared::int, r.crashes + (not unseen)::int, r.snoozes,
              r.suspect, r.strand, r.linked);
    end if;
    if r.linked then
      perform {schema}.release_links(array[r.id]);
    end if;
    job_id := r.id;
    worker := r.worker;
    task := r.task;
    queue := r.queue;
    org_id := r.org_id;
    attempt := r.attempt;
    quarantined := not shared and {schema}.has_killed(r.task, r.worker);
    return next;
  end loop;
end $$;

-- Who: a worker that comes back from an outage, for attempts whose lease it could not renew meanwhile. It lives, so what
-- others took back from it was no crash: the count goes down again, and with it the attempt, unless the job runs again
-- already. What has ended stays as it ended. Once for each attempt: the trail says so.
create or replace function {schema}.take_back_crashes(p_worker text, p_orgs text[], p_jobs uuid[], p_epochs bigint[]) returns integer
language plpgsql set enable_seqscan = off as $$
declare
  a {schema}.attempt;
  n integer := 0;
begin
  for a in
    select x.* from unnest(p_orgs, p_jobs, p_epochs) p(org_id, job_id, epoch)
    join {schema}.attempt x on x.org_id = p.org_id and x.job_id = p.job_id and x.epoch = p.epoch
    where x.worker = p_worker and x.outcome = 'rescued' and not exists (
      select from {schema}.audit t
      where t.job_id = p.job_id and t.event = 'job.crash_taken_back' and (t.detail ->> 'epoch')::bigint = p.epoch)
  loop
    update {schema}.waiting w
    set crashes = greatest(w.crashes - (a.error ->> 'counted')::boolean::int, 0),
        attempt = greatest(w.attempt - (not (a.error ->> 'shared')::boolean)::int, 0)
    where w.id = a.job_id;
    if not found then
      update {schema}.running r set crashes = greatest(r.crashes - (a.error ->> 'counted')::boolean::int, 0)
      where r.id = a.job_id;
    end if;
    perform {schema}.record('job.crash_taken_back', a.job_id, a.attempt,
                            jsonb_build_object('worker', p_worker, 'epoch', a.epoch));
    n := n + 1;
  end loop;
  if n > 0 then
    perform {schema}.has_not_killed(p_worker);
  end if;
  return n;
end $$;
