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
-- p_rescued admits so many suspects, jobs that may have crashed a worker once (index waiting_rescued): few at first, more as
-- they end well. p_alone asks for one job that must run alone, and for nothing else (quarantine.sql, docs/adr/0032).
-- p_told: what the worker says about its shares of rates (share.sql), null where it keeps none.
create or replace function {schema}.claim(
  p_worker text, p_lease interval, p_total integer, p_queues text[], p_limits integer[], p_low0 timestamptz[],
  p_low1 timestamptz[], p_low2 timestamptz[], p_low3 timestamptz[], p_tasks text[], p_oldest boolean, p_rescued integer,
  p_alone boolean default false, p_told json default null
) returns table (
  id uuid, task text, payload text, org_id text, project_id uuid, actor_type text, actor_id text, request_id text,
  correlation_id text, traceparent text, key text, created_at timestamptz, scheduled_for timestamptz,
  max_attempts smallint, epoch bigint, attempt smallint, crashes smallint, snoozes smallint, suspect boolean,
  queue text, priority smallint, due_at timestamptz, claimed_at timestamptz, strand text, gates text
) language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off set jit = off
  set plan_cache_mode = force_generic_plan
as $$
#variable_conflict use_column
begin
  perform pg_advisory_xact_lock_shared({claim_lock});
  if not p_alone and exists (select from {schema}.quarantine k where k.held_at is not null) then
    p_tasks := {schema}.not_quarantined(p_tasks);
  end if;
  if p_alone or exists (select from {schema}.limit l where l.queue = any(p_queues) or l.task = any(p_tasks))
     or exists (select from {schema}.fair f where f.queue = any(p_queues)) then
    return query select * from {schema}.claim_limited(
      p_worker, p_lease, p_total, p_queues, p_limits, p_tasks, p_oldest, p_rescued, p_alone, p_told);
    return;
  end if;
  return query
  with rescued as materialized (
    select w.ctid as tid from {schema}.waiting w
    -- `|| ''` keeps the planner from waiting_claim: without statistics it read all that is due there, 5 ms for 20,000 jobs.
    where p_rescued > 0 and w.crashes = 1 and w.due_at <= {schema}.now() and w.queue || '' = any(p_queues) and w.task = any(p_tasks)
      and not exists (
        select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = w.queue and mq.paused_at is not null)
    order by w.due_at, w.id limit least(p_total, p_rescued) for update of w skip locked
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
              w.snoozes, w.suspect, w.strand, w.linked, nextval('{schema}.epoch') as epoch
  ), r as (
    insert into {schema}.running (id, epoch, worker, org_id, task, queue, priority, due_at, attempt, crashes, snoozes,
                                  suspect, strand, linked, started_at, lease_expires_at)
    select d.id, d.epoch, p_worker, d.org_id, d.task, d.queue, d.priority, d.due_at, d.attempt, d.crashes, d.snoozes,
           d.suspect, d.strand, d.linked, {schema}.now(), {schema}.now() + p_lease
    from d
  )
  select d.id, d.task, j.payload::text, d.org_id, j.project_id, j.actor_type, j.actor_id, j.request_id, j.correlation_id,
         j.traceparent, j.key, j.created_at, j.scheduled_for, j.max_attempts, d.epoch, d.attempt, d.crashes, d.snoozes,
         d.suspect, d.queue, d.priority, d.due_at, {schema}.now(), d.strand, null::text
  from d cross join lateral (select * from {schema}.job j where j.id = d.id limit 1) j
  order by d.priority, d.due_at, d.id;  -- the order of row addresses is not the order of due times
end $$;

-- Who: each worker, every renewal interval, for all its leases in one statement; synchronous_commit may be off here.
-- Answers the epochs that are still ours, whether their cancellation was asked for, and whether they were renewed: a row that
-- somebody holds, a handler's own open transaction or a caller's cancellation, must not cost the other jobs their leases.
create or replace function {schema}.renew(p_worker text, p_lease interval, p_epochs bigint[])
returns table (epoch bigint, cancel boolean, renewed boolean) language sql set enable_seqscan = off as $$
  with free as materialized (
    select r.id from {schema}.running r where r.epoch = any(p_epochs) and r.worker = p_worker for update skip locked
  ), kept as (
    update {schema}.running r set lease_expires_at = {schema}.now() + p_lease
    where r.id = any(array(select free.id from free)) returning r.epoch
  )
  select r.epoch, r.cancel_requested_at is not null, r.epoch = any(array(select kept.epoch from kept))
  from {schema}.running r where r.epoch = any(p_epochs) and r.worker = p_worker
$$;

-- Who: a worker that found nothing, to sleep exactly until the next timer. One probe a lane.
create or replace function {schema}.next_due(p_queues text[]) returns interval language plpgsql
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
create or replace function {schema}.raise_idle(p_millis integer) returns void language sql as $$
  select setval('{schema}.idle_until',  -- never sooner than said before, unless that was before the clock was set back
                case when last_value between t.until and t.until + 600000 then last_value else t.until end)
  from {schema}.idle_until
  cross join (select (extract(epoch from clock_timestamp()) * 1000)::bigint + p_millis as until) t
$$;
