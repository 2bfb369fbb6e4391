-- What people and applications do to jobs and queues. Each transition is one guarded statement; zero rows means that
-- the job moved meanwhile, and the function looks again.

-- The job under a key, for verbs that take a key.
create or replace function {schema}.job_of(p_org text, p_key text) returns uuid language sql stable
  return (select i.job_id from {schema}.idempotency i where i.org_id = p_org and i.key = p_key);

-- What is under way for a key: the job that waits under it, else the one that runs; no row: nothing. `due_at` is when it
-- may start, `behind` the running job of the key that must end before. In the caller's transaction, where it may decide.
-- Index: idempotency_pkey, then a primary key.
create or replace function {schema}.timer(p_org text, p_key text)
returns table (job_id uuid, task text, state text, due_at timestamptz, behind uuid) language sql stable as $$
  select w.id, w.task,
         case when w.due_at <= {schema}.now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end,
         coalesce(w.due_then, w.due_at), w.after
  from {schema}.idempotency i join {schema}.waiting w on w.id = i.job_id
  where i.org_id = p_org and i.key = p_key
  union all
  select r.id, r.task, 'running', r.due_at, null
  from {schema}.idempotency i join {schema}.running r on r.id = i.job_id
  where i.org_id = p_org and i.key = p_key
$$;

-- Answers cancelled, cancel_requested, already_finished, not_cancellable or not_found. Twice is harmless.
create or replace function {schema}.cancel(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text) returns text
language plpgsql as $$
declare
  j {schema}.job;
  w {schema}.waiting;
  r {schema}.running;
  ended text;
  was text;
  who jsonb := jsonb_build_object('by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason);
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  select * into j from {schema}.job x where x.id = p_id and (p_org is null or x.org_id = p_org);
  if not found then
    return 'not_found';
  end if;
  -- Enqueue locks the key before the ticket; so do we, where we need both.
  perform from {schema}.idempotency i where i.org_id = j.org_id and i.key = j.key
    and exists (select from {schema}.waiting x where x.id = p_id and x.after is not null) for update;
  loop
    delete from {schema}.waiting x where x.id = p_id returning * into w;
    if found then
      insert into {schema}.finished (id, org_id, state, attempt, crashes, snoozes, finished_at, error)
      values (w.id, w.org_id, 'cancelled', w.attempt, w.crashes, w.snoozes, {schema}.now(),
              {schema}.cancelled(p_reason) || jsonb_build_object('attempt', w.attempt, 'at', {schema}.now()));
      perform {schema}.release_behind(p_id);
      if w.linked then
        perform {schema}.release_links(array[p_id]);
      end if;
      if w.after is not null then  -- the key goes back to the job that this one waited for
        update {schema}.idempotency i set job_id = b.id, fingerprint = {schema}.fingerprint(b.task, b.payload)
        from {schema}.job b
        where i.org_id = j.org_id and i.key = j.key and i.job_id = p_id and b.id = w.after;
      end if;
      was := case when w.due_at <= {schema}.now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end;
      who := who || jsonb_build_object('before', jsonb_build_object('state', was),
                                       'after', jsonb_build_object('state', 'cancelled'));
      perform {schema}.record('job.cancel_requested', p_id, w.attempt, who);
      perform {schema}.record('job.cancelled', p_id, w.attempt, who);
      return 'cancelled';
    end if;
    select * into r from {schema}.running x where x.id = p_id for update;
    if found then
      if not j.cancellable then
        return 'not_cancellable';
      end if;
      if r.cancel_requested_at is null then
        update {schema}.running x set cancel_requested_at = {schema}.now() where x.id = p_id;
        who := who || jsonb_build_object('before', jsonb_build_object('state', 'running'),
                                         'after', jsonb_build_object('state', 'cancelled'));
        perform {schema}.record('job.cancel_requested', p_id, r.attempt, who);
        perform pg_notify({channel}, '');  -- rare: workers look for cancelled jobs when woken
      end if;
      return 'cancel_requested';
    end if;
    select f.state into ended from {schema}.finished f where f.id = p_id;
    if found then
      return case when ended = 'cancelled' then 'cancelled' else 'already_finished' end;
    end if;
    if not exists (select from {schema}.job x where x.id = p_id) then
      return 'not_found';
    end if;
  end loop;
end $$;

-- The same for what is under way for many keys of one organisation, in one statement; each key once, and in one order for
-- all, so that no two callers wait for each other. Index: idempotency_pkey.
create or replace function {schema}.cancel_many(p_org text, p_keys text[], p_actor_type text, p_actor_id text, p_reason text)
returns table (key text, answer text) language plpgsql as $$
begin
  for key in select distinct k.key from unnest(p_keys) k (key) order by k.key loop
    answer := {schema}.cancel({schema}.job_of(p_org, key), p_org, p_actor_type, p_actor_id, p_reason);
    return next;
  end loop;
end $$;

-- Move a job that waits to another time. Answers the new state, or null when it does not wait.
create or replace function {schema}.reschedule(p_id uuid, p_org text, p_at timestamptz, p_actor_type text, p_actor_id text,
                                    p_reason text default null) returns text
language plpgsql as $$
declare
  w {schema}.waiting;
  before timestamptz;
  due constant timestamptz := greatest(p_at, {schema}.now());
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  if p_at is null or not isfinite(p_at) or p_at >= '2201-01-01Z' then
    perform {schema}.refuse('at', 'is not a time up to the year 2200');
  end if;
  select coalesce(x.due_then, x.due_at) into before from {schema}.waiting x
  where x.id = p_id and (p_org is null or x.org_id = p_org) for update;
  update {schema}.waiting x
  set due_at = case when {schema}.is_held(x) then x.due_at else due end,
      due_then = case when {schema}.is_held(x) then due end,
      gate = case when {schema}.is_held(x) then x.gate end  -- a limit looks at it again
  where x.id = p_id and (p_org is null or x.org_id = p_org) returning * into w;
  if not found then
    return null;
  end if;
  perform {schema}.record('job.rescheduled', p_id, w.attempt, jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', jsonb_build_object('due_at', before), 'after', jsonb_build_object('due_at', due)));
  perform {schema}.wake();
  return case when w.due_at <= {schema}.now() then 'ready' when w.retrying then 'retrying' else 'scheduled' end;
end $$;

-- Change the priority of one job that waits; audited with the old and the new value. Answers the old one, or null.
create or replace function {schema}.prioritize(p_id uuid, p_org text, p_priority integer, p_actor_type text, p_actor_id text,
                                    p_reason text default null) returns integer
language plpgsql as $$
declare
  before integer;
  attempt smallint;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  if p_priority is null or p_priority not between 0 and 3 then
    perform {schema}.refuse('priority', 'is not 0, 1, 2 or 3');
  end if;
  select w.priority, w.attempt into before, attempt from {schema}.waiting w
  where w.id = p_id and (p_org is null or w.org_id = p_org) for update;
  if not found then
    return null;
  end if;
  update {schema}.waiting w set priority = p_priority where w.id = p_id;
  perform {schema}.record('job.prioritized', p_id, attempt, jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', jsonb_build_object('priority', before), 'after', jsonb_build_object('priority', p_priority)));
  return before;
end $$;

-- Lock the key of a job, and answer the other job that lives under it, if one does: two must never run at once.
create or replace function {schema}.lock_key(j {schema}.job) returns uuid language plpgsql as $$
begin
  if j.key is null then
    return null;
  end if;
  perform from {schema}.idempotency i where i.org_id = j.org_id and i.key = j.key for update;
  return (select i.job_id from {schema}.idempotency i, {schema}.state_of(i.job_id) s
          where i.org_id = j.org_id and i.key = j.key and i.job_id <> j.id
            and s.state in ('scheduled', 'ready', 'retrying', 'running'));
end $$;

-- The key points at this job from now on, as if it had just been enqueued under it.
create or replace function {schema}.take_key(j {schema}.job) returns void language sql as $$
  update {schema}.idempotency i
  set job_id = j.id, fingerprint = {schema}.fingerprint(j.task, j.payload), status = null, expires_at = null,
      result_ref = null, error_ref = null
  where i.org_id = j.org_id and i.key = j.key
$$;

-- Lock a failed or dead job whose work may be done again: answers it, its end and what was decided about it before. Not
-- while another job of its key lives, which is answered, and not for one that was fixed forward: its successor does the
-- work. Replay and fix_forward, once a job. Index: the primary keys.
create or replace function {schema}.lock_ended(p_id uuid, p_org text, out may boolean, out in_the_way uuid,
                                               out j {schema}.job, out f {schema}.finished, out decided text)
language plpgsql as $$
begin
  may := false;
  select * into j from {schema}.job x where x.id = p_id and (p_org is null or x.org_id = p_org);
  if not found then
    return;
  end if;
  in_the_way := {schema}.lock_key(j);
  if in_the_way is not null then
    return;
  end if;
  select * into f from {schema}.finished x where x.id = p_id and x.state in ('failed', 'dead') for update;
  if not found then
    return;
  end if;
  select r.resolution into decided from {schema}.resolution r where r.org_id = j.org_id and r.job_id = p_id;
  may := decided is distinct from 'fixed_forward';
end $$;

-- A failed or dead job back to its queue, attempts 0, same payload and key. Its attempts stay in the history; that it
-- was discarded is forgotten. Refused (answers the job in the way) as lock_ended says. p_due and p_bulk: one of many, see
-- replay_many.
create or replace function {schema}.replay(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text,
                                p_due timestamptz default null, p_bulk uuid default null,
                                out moved boolean, out in_the_way uuid)
language plpgsql as $$
declare
  j {schema}.job;
  f {schema}.finished;
  decided text;
  ended record;
  due constant timestamptz := greatest(p_due, {schema}.now());
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));  -- whoever decides says why
  ended := {schema}.lock_ended(p_id, p_org);
  in_the_way := ended.in_the_way;
  moved := ended.may;
  if not moved then
    return;
  end if;
  j := ended.j;
  f := ended.f;
  decided := ended.decided;
  delete from {schema}.resolution r where r.org_id = j.org_id and r.job_id = p_id;
  perform set_config('mainspring.verb', 'replay', true);
  delete from {schema}.finished x where x.id = p_id;
  perform set_config('mainspring.verb', '', true);
  perform {schema}.take_key(j);
  insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, suspect, strand)
  values (j.id, j.org_id, j.task, j.queue, j.priority, due, f.state = 'failed', j.strand);
  perform {schema}.reopen(p_id);
  perform {schema}.record('job.replayed', p_id, f.attempt, jsonb_strip_nulls(jsonb_build_object(
    'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason, 'bulk', p_bulk,
    'before', jsonb_build_object('state', f.state, 'attempt', f.attempt, 'resolution', decided, 'error', f.error),
    'after', jsonb_build_object('state', case when due > {schema}.now() then 'scheduled' else 'ready' end,
                                'attempt', 0, 'due_at', due))));
  perform {schema}.wake();
end $$;
