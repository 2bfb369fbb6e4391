-- Batches: jobs that are counted together.

-- What happened to a batch.
create or replace function {schema}.record_batch(
  p_event text, b {schema}.batch, p_actor_type text, p_actor_id text, p_detail jsonb) returns void language sql as $$
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  values (b.org_id, {schema}.now(), p_event, p_actor_type, p_actor_id,
          jsonb_build_object('batch', b.id, 'name', b.name) || p_detail)
$$;

-- The running members of a stopped batch that nobody has asked to stop so far.
create or replace function {schema}.unasked(b {schema}.batch) returns setof uuid language sql stable
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  select r.id from {schema}.member m join {schema}.running r on r.id = m.job_id join {schema}.job j on j.id = r.id
  where m.org_id = b.org_id and m.batch_id = b.id and m.state is null and r.cancel_requested_at is null and j.cancellable
$$;

-- Who: the sweep, and whoever cancels a batch; never the end of a job: two workers that lock the jobs of each other, and
-- have more to end themselves, would wait in a circle. Asks what runs of a stopped batch to stop.
create or replace function {schema}.ask_to_stop(b {schema}.batch) returns void language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  r record;
begin
  for r in
    update {schema}.running x set cancel_requested_at = {schema}.now()
    where x.id in (select y.id from {schema}.running y where y.id = any(array(select {schema}.unasked(b))) for update skip locked)
    returning x.id, x.attempt
  loop
    perform {schema}.record('job.cancel_requested', r.id, r.attempt, jsonb_build_object(
      'by', 'SYSTEM', 'by_type', 'system', 'reason', b.stop_reason));
    perform pg_notify({channel}, '');  -- sent once a transaction
  end loop;
end $$;

-- Cancel what has not started of a stopped batch, a thousand at a time. Waits for nobody: what somebody else has locked,
-- and what runs, is left to the sweep. Answers the jobs that it cancelled.
create or replace function {schema}.stop_members(b {schema}.batch) returns uuid[] language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  locked uuid[];
  dropped uuid[];
begin
  select array_agg(x.id) into locked from (
    select w.id from {schema}.member m join {schema}.waiting w on w.id = m.job_id
    where m.org_id = b.org_id and m.batch_id = b.id and m.state is null and w.after is null
    order by w.id limit 1000 for update of w skip locked) x;
  dropped := {schema}.drop_waiting(locked, b.stop_reason);
  if exists (select from {schema}.unasked(b))
     or exists (select from {schema}.member m join {schema}.waiting w on w.id = m.job_id
                where m.org_id = b.org_id and m.batch_id = b.id and m.state is null) then
    insert into {schema}.leftover (org_id, kind, what) values (b.org_id, 'batch', b.id);
  end if;
  return dropped;
end $$;

-- Who: `propagate`. Of these batches, those without an open member finish, once: their on-finish job is released. One whose
-- policy is to stop is stopped by its first failure. Answers the jobs that were cancelled by that. Index: member_open, from
-- its end, because jobs end in about the order of their ids. Locks: the batches, by id, and waits for none of them.
create or replace function {schema}.look_at_batches(p_batches uuid[]) returns uuid[] language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  locked uuid[];
  b {schema}.batch;
  one record;
  dropped uuid[] := '{}';
begin
  select array_agg(x.id) into locked from (
    select y.id from {schema}.batch y where y.id = any(p_batches) and y.finished_at is null
    order by y.id for update skip locked) x;
  insert into {schema}.leftover (org_id, kind, what)
  select y.org_id, 'batch', y.id from {schema}.batch y
  where y.id = any(array(select unnest(p_batches) except select unnest(locked))) and y.finished_at is null;
  for b in select * from {schema}.batch y where y.id = any(locked) loop
    select m.job_id, m.state into one from {schema}.member m
    where b.on_failure = 'stop' and b.stopped_at is null
      and m.org_id = b.org_id and m.batch_id = b.id and m.state in ('failed', 'dead') limit 1;
    if found then
      update {schema}.batch y
      set stopped_at = {schema}.now(), stop_reason = format('Job %s of its batch is %s.', one.job_id, one.state)
      where y.org_id = b.org_id and y.id = b.id returning * into b;
      perform {schema}.record_batch('batch.stopped', b, 'system', 'SYSTEM', jsonb_build_object('reason', b.stop_reason));
    end if;
    if b.stopped_at is not null then
      dropped := dropped || {schema}.stop_members(b);
    end if;
    continue when b.closed_at is null or (  -- exists() would not keep the order
      select m.job_id from {schema}.member m where m.org_id = b.org_id and m.batch_id = b.id and m.state is null
      order by m.job_id desc limit 1) is not null;
    perform from {schema}.waiting w where w.id = b.on_finish and w.gate = 'parents' for update skip locked;
    if not found and exists (select from {schema}.waiting w where w.id = b.on_finish and w.gate = 'parents') then
      insert into {schema}.leftover (org_id, kind, what) values (b.org_id, 'batch', b.id);
      continue;
    end if;
    update {schema}.batch y set finished_at = {schema}.now() where y.org_id = b.org_id and y.id = b.id;
    perform {schema}.open_gate(array[b.on_finish]);
    perform {schema}.wake();
    perform {schema}.record_batch('batch.finished', b, 'system', 'SYSTEM', (
      select jsonb_build_object('total', count(*), 'succeeded', count(*) filter (where m.state = 'succeeded'),
               'failed', count(*) filter (where m.state = 'failed'), 'dead', count(*) filter (where m.state = 'dead'),
               'cancelled', count(*) filter (where m.state = 'cancelled'), 'on_finish', b.on_finish)
      from {schema}.member m where m.org_id = b.org_id and m.batch_id = b.id));
  end loop;
  return dropped;
end $$;

-- Jobs become members of a batch. p_answers and p_states: what enqueue said of them; the new ones are linked already.
create or replace function {schema}.join_batch(p_org text, p_id uuid, p_ids uuid[], p_answers text[], p_states text[]) returns void
language plpgsql as $$
begin
  if exists (select from {schema}.job j where j.id = any(p_ids) and j.org_id <> p_org) then
    perform {schema}.refuse('org_id', 'is not that of the batch');
  end if;
  perform {schema}.mark_linked(array(select i from unnest(p_ids, p_answers) x(i, a) where a <> 'created'));
  insert into {schema}.member (org_id, batch_id, job_id, state)
  select distinct on (x.id) p_org, p_id, x.id, case when x.answer <> 'created' then
    replace({schema}.end_of(x.id, x.state), 'discarded', 'failed') end
  from unnest(p_ids, p_answers, p_states) x(id, answer, state)
  on conflict do nothing;
end $$;

-- Who: every client that adds jobs to a batch, in the caller's transaction where there is one. p_batch: {id, org_id}, and
-- {name, on_failure, open, on_finish} of a new one. Answers one row a job, in order.
-- While somebody adds, the batch does not finish; workers that find it so do not wait.
create or replace function {schema}.enqueue_batch(p_batch json, p_jobs json, p_checked boolean default false)
returns table (job_id uuid, answer text, state text) language plpgsql as $$
#variable_conflict use_column
declare
  b {schema}.batch;
  org constant text := coalesce(p_batch ->> 'org_id', 'default');
  last record;
  ids uuid[];
  answers text[];
  states text[];
begin
  if p_checked is not true then
    perform {schema}.check_batch(p_batch);
  end if;
  if p_batch ->> 'name' is not null then
    insert into {schema}.batch (org_id, id, name, on_failure, created_at, closed_at)
    values (org, (p_batch ->> 'id')::uuid, p_batch ->> 'name', coalesce(p_batch ->> 'on_failure', 'keep_going'),
            {schema}.now(), case when coalesce((p_batch ->> 'open')::boolean, false) then null else {schema}.now() end)
    on conflict do nothing returning * into b;
    if not found then
      perform {schema}.refuse('batch', 'exists already');
    end if;
  end if;
  if p_batch ->> 'name' is not null and json_typeof(p_batch -> 'on_finish') = 'object' then
    select * into last from {schema}.enqueue_many(json_build_array(p_batch -> 'on_finish'), p_checked);
    if last.answer <> 'created' then
      perform {schema}.refuse('on_finish', 'its key is taken');
    elsif not exists (select from {schema}.job j where j.id = last.job_id and j.org_id = org) then
      perform {schema}.refuse('org_id', 'is not that of the batch');
    end if;
    update {schema}.waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
    where w.id = last.job_id;
    update {schema}.batch x set on_finish = last.job_id where x.org_id = org and x.id = b.id;
  end if;
  select array_agg(e.job_id order by e.n), array_agg(e.answer order by e.n), array_agg(e.state order by e.n)
  into ids, answers, states
  from {schema}.enqueue_many(p_jobs, p_checked, true) with ordinality e(job_id, answer, state, n);
  if b.id is null then  -- after the keys of its jobs, in the order of whoever replays one of them
    select * into b from {schema}.batch x where x.org_id = org and x.id = (p_batch ->> 'id')::uuid for share;
    if not found then
      perform {schema}.refuse('batch', 'does not exist');
    elsif b.finished_at is not null then
      perform {schema}.refuse('batch', 'has finished');
    elsif b.stopped_at is not null then
      perform {schema}.refuse('batch', 'was stopped');
    end if;
  end if;
  perform {schema}.join_batch(org, b.id, ids, answers, states);
  perform {schema}.propagate(null, array[b.id]);  -- it may be empty, or everything in it has ended before
  return query select * from unnest(ids, answers, states);
end $$;

-- A new batch as somebody else than the client wrote it.
create or replace function {schema}.check_batch(p_batch json) returns void language plpgsql stable as $$
begin
  if json_typeof(p_batch) is distinct from 'object' then
    perform {schema}.refuse('batch', 'is not an object');
  elsif coalesce(p_batch ->> 'id', '') !~* '^[0-9a-f]{8}-?([0-9a-f]{4}-?){3}[0-9a-f]{12}$' then
    perform {schema}.refuse('id', 'is not a UUID');
  elsif p_batch ->> 'on_failure' not in ('keep_going', 'stop') then
    perform {schema}.refuse('on_failure', 'is not one of keep_going, stop');
  elsif json_typeof(p_batch -> 'open') not in ('boolean', 'null') then
    perform {schema}.refuse('open', 'is not true or false');
  elsif json_typeof(p_batch -> 'on_finish') not in ('object', 'null') then
    perform {schema}.refuse('on_finish', 'is not a job');
  end if;
  perform {schema}.check_text('name', coalesce(p_batch ->> 'name', '-'), 200);
  perform {schema}.check_text('org_id', coalesce(p_batch ->> 'org_id', 'default'), 200);
end $$;

-- No more will be added: it finishes when every member has ended. False when there is no such batch.
create or replace function {schema}.close_batch(p_id uuid, p_org text) returns boolean language plpgsql as $$
begin
  update {schema}.batch b set closed_at = {schema}.now()
  where b.id = p_id and (p_org is null or b.org_id = p_org) and b.closed_at is null;
  perform {schema}.propagate(null, array[p_id]);
  return exists (select from {schema}.batch b where b.id = p_id and (p_org is null or b.org_id = p_org));
end $$;

-- Cancel what has not started of a batch, and ask what runs to stop. Its on-finish job runs when all have ended. False
-- when there is no such batch, or it has finished.
create or replace function {schema}.cancel_batch(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text) returns boolean
language plpgsql as $$
declare
  b {schema}.batch;
  was text;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  select * into b from {schema}.batch x
  where x.id = p_id and (p_org is null or x.org_id = p_org) and x.finished_at is null for update;
  if not found then
    return false;
  end if;
  was := case when b.stopped_at is not null then 'stopping' when b.closed_at is null then 'open' else 'running' end;
  update {schema}.batch x
  set stopped_at = coalesce(x.stopped_at, {schema}.now()), closed_at = coalesce(x.closed_at, {schema}.now()),
      stop_reason = coalesce(p_reason, x.stop_reason, 'Its batch was cancelled.')
  where x.org_id = b.org_id and x.id = b.id returning * into b;
  perform {schema}.record_batch('batch.cancelled', b, p_actor_type, p_actor_id, jsonb_build_object(
    'reason', p_reason, 'before', jsonb_build_object('state', was), 'after', jsonb_build_object('state', 'stopping')));
  perform {schema}.ask_to_stop(b);
  perform {schema}.propagate(null, array[b.id]);
  return true;
end $$;

-- A batch that has finished, and one of whose members runs again. Its on-finish job waits again; one that has started
-- stays as it is, and another of its key does the work once more.
create or replace function {schema}.reopen_batch(p_org text, p_id uuid) returns void language plpgsql as $$
declare
  b {schema}.batch;
  j {schema}.job;
  was text;
begin
  select * into b from {schema}.batch x where x.org_id = p_org and x.id = p_id for update;
  update {schema}.batch x set finished_at = null, stopped_at = null, stop_reason = null
  where x.org_id = p_org and x.id = p_id and (x.finished_at is not null or x.stopped_at is not null);
  select * into j from {schema}.job x where x.id = b.on_finish;
  if b.finished_at is null or not found then
    return;
  end if;
  update {schema}.waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
  where w.id = j.id and w.attempt = 0;
  if found then
    return;
  end if;
  was := (select s.state from {schema}.state_of(j.id) s);
  b.on_finish := {schema}.uuid7();
  insert into {schema}.job
  select (x).* from (select jsonb_populate_record(j, jsonb_build_object(
    'id', b.on_finish, 'created_at', {schema}.now(), 'scheduled_for', null)) as x) y;
  insert into {schema}.waiting (id, org_id, task, queue, priority, due_at, after, gate, due_then, strand)
  values (b.on_finish, j.org_id, j.task, j.queue, j.priority, 'infinity',
          case when was in ('running', 'ready', 'retrying', 'scheduled') then j.id end, 'parents', {schema}.now(), j.strand);
  select * into j from {schema}.job x where x.id = b.on_finish;
  perform {schema}.take_key(j);
  update {schema}.batch x set on_finish = b.on_finish where x.org_id = p_org and x.id = p_id;
end $$;

-- Who: replay, reset and fix-forward, for a job that is back in its queue: whoever counted its end waits for it again.
create or replace function {schema}.reopen(p_id uuid) returns void language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  b record;
  linked boolean := false;
begin
  -- By id, so that two jobs of the same batches can be reopened at once.
  perform from {schema}.batch x where x.id in (select m.batch_id from {schema}.member m where m.job_id = p_id) order by x.id for update;
  for b in update {schema}.member m set state = null where m.job_id = p_id returning m.org_id, m.batch_id loop
    linked := true;
    perform {schema}.reopen_batch(b.org_id, b.batch_id);
  end loop;
  update {schema}.dependency d set state = null where d.parent = p_id;
  if found then
    linked := true;  -- what would run anyway and has not started waits again
    update {schema}.waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
    from {schema}.dependency d where d.parent = p_id and w.id = d.child and w.attempt = 0 and w.gate is distinct from 'parents';
  end if;
  if linked then
    update {schema}.waiting w set linked = true where w.id = p_id;
  end if;
end $$;

-- Who: fix-forward, and a chunk that is halved: other jobs, written in this transaction, do the work of one from now on,
-- and whoever counted it or waits for it, counts and waits for them.
create or replace function {schema}.take_over(p_id uuid, p_new uuid[]) returns void language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  m {schema}.member;
begin
  for m in delete from {schema}.member x where x.job_id = p_id returning * loop
    insert into {schema}.member (org_id, batch_id, job_id) select m.org_id, m.batch_id, n from unnest(p_new) n;
    insert into {schema}.leftover (org_id, kind, what)  -- stopped meanwhile: they are not to run
    select b.org_id, 'batch', b.id from {schema}.batch b
    where b.org_id = m.org_id and b.id = m.batch_id and b.stopped_at is not null and b.finished_at is null;
  end loop;
  insert into {schema}.dependency (org_id, child, parent, place, anyway)
  select d.org_id, d.child, n, d.place, d.anyway from {schema}.dependency d, unnest(p_new) n where d.parent = p_id;
  delete from {schema}.dependency d where d.parent = p_id;
  insert into {schema}.dependency (org_id, child, parent, place, anyway, state)  -- what it asks of its parents, they may ask
  select d.org_id, n, d.parent, d.place, d.anyway, d.state from {schema}.dependency d, unnest(p_new) n where d.child = p_id;
  update {schema}.batch b set on_finish = p_new[1] where b.on_finish = p_id;
  update {schema}.waiting w set linked = true
  where w.id = any(p_new) and not w.linked and (exists (select from {schema}.member x where x.job_id = w.id)
                                              or exists (select from {schema}.dependency d where d.parent = w.id));
end $$;

-- Who: a worker, at the end of a chunk that failed, in the transaction that completes it: its halves, which are written
-- already, take its place. The trail says why. False when its cancellation was asked for: then nothing is to run any more.
create or replace function {schema}.split(p_worker text, p_epoch bigint, p_ids uuid[], p_detail jsonb) returns boolean language plpgsql as $$
declare
  r constant {schema}.running := {schema}.held(p_worker, p_epoch);
begin
  if r.cancel_requested_at is not null then
    return false;
  end if;
  perform {schema}.take_over(r.id, p_ids);
  perform {schema}.record('job.split', r.id, r.attempt, p_detail || jsonb_build_object('halves', p_ids));
  return true;
end $$;

-- Who: a handler, for follow-ups that are counted with its own job; written in the same transaction.
create or replace function {schema}.add_members(p_id uuid, p_ids uuid[]) returns void language plpgsql as $$
declare
  m {schema}.member;
begin
  for m in select * from {schema}.member x where x.job_id = p_id loop
    perform {schema}.join_batch(m.org_id, m.batch_id, p_ids, array_fill('existing'::text, array[cardinality(p_ids)]), null);
  end loop;
end $$;

-- Replay the failed and dead members of a batch that nobody has decided about. The batch is open again, and its on-finish
-- job runs again when it is done. Answers how many; null when there is no such batch.
create or replace function {schema}.retry_failed(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text) returns integer
language plpgsql as $$
declare
  b {schema}.batch;
  ids uuid[];
  n integer;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));
  select * into b from {schema}.batch x where x.id = p_id and (p_org is null or x.org_id = p_org) for update;
  if not found then
    return null;
  end if;
  select array_agg(m.job_id order by m.job_id) into ids from {schema}.member m
  where m.org_id = b.org_id and m.batch_id = b.id and m.state in ('failed', 'dead')
    and not exists (select from {schema}.resolution r where r.org_id = m.org_id and r.job_id = m.job_id);
  n := {schema}.replay_many(coalesce(ids, '{}'), p_actor_type, p_actor_id, p_reason, b.id, {schema}.now(), null, 0);
  if n > 0 then
    perform {schema}.record_batch('batch.retried', b, p_actor_type, p_actor_id, jsonb_build_object(
      'reason', p_reason, 'jobs', n,
      'before', jsonb_build_object('state', case when b.finished_at is not null then 'finished' when b.stopped_at is not null
                                                 then 'stopping' else 'running' end),
      'after', jsonb_build_object('state', 'running')));
  end if;
  return n;
end $$;
