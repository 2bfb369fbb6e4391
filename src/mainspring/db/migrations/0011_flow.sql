-- Batches and flows: jobs that are counted together, and jobs that wait for others.
--
-- Nothing is summed up (docs/adr/0020): the end of a job is written to rows of its own, in `member` and `dependency`, and
-- whoever writes it then asks by one index probe whether it was the last. Two last ones that end in two transactions
-- cannot see each other; so the question is asked under the lock of the batch, or of the ticket that waits. A worker
-- waits for nobody there: where somebody else has the lock, it leaves a loose end, and the next sweep asks again.

-- Jobs that are counted together. Its on-finish job is written with it and held until every member has ended.
create table {schema}.batch (
  org_id      text not null,
  id          uuid not null,
  name        text not null,
  on_failure  text not null check (on_failure in ('keep_going', 'stop')),
  on_finish   uuid,
  created_at  timestamptz not null,
  closed_at   timestamptz,  -- null: more will be added, so it does not finish
  stopped_at  timestamptz,  -- what has not started is cancelled
  stop_reason text,
  finished_at timestamptz,
  primary key (org_id, id)
);

create index batch_id on {schema}.batch (id);
create index batch_on_finish on {schema}.batch (on_finish) where on_finish is not null;
create index batch_age on {schema}.batch (finished_at) where finished_at is not null;

-- A job of a batch, and how it ended. It outlives the job.
create table {schema}.member (
  org_id   text not null,
  batch_id uuid not null,
  job_id   uuid not null,
  state    text check (state in ('succeeded', 'failed', 'dead', 'cancelled')),
  primary key (org_id, batch_id, job_id)
);

create index member_job on {schema}.member (job_id);
create index member_open on {schema}.member (org_id, batch_id, job_id) where state is null;
create index member_failed on {schema}.member (org_id, batch_id, job_id) where state in ('failed', 'dead');

-- A job waits for another. `met`: this one holds it no longer. A parent that failed or died holds its child until
-- somebody decides: replayed it may still succeed, discarded or cancelled it takes the child with it.
create table {schema}.dependency (
  org_id text not null,
  child  uuid not null,
  parent uuid not null,
  place  integer not null,                -- among the parents
  anyway boolean not null default false,  -- the child runs however this one ends
  state  text check (state in ('succeeded', 'failed', 'dead', 'cancelled', 'discarded')),
  met    boolean not null generated always as (coalesce(state = 'succeeded' or (anyway and state is not null), false)) stored,
  primary key (org_id, child, parent)
);

create index dependency_parent on {schema}.dependency (parent);
create index dependency_open on {schema}.dependency (org_id, child) where not met;

-- What a sweep has to look at: a job that something waits for and that may end unseen, or a ticket or a batch that was
-- locked by somebody else when its last job ended. Nearly always empty.
create table {schema}.loose_end (
  org_id text not null,
  id     bigint not null default nextval('{schema}.epoch'),
  kind   text not null check (kind in ('job', 'child', 'batch')),
  what   uuid not null,
  primary key (org_id, id)
);

create index loose_end_age on {schema}.loose_end (id);

-- What happened to a batch.
create function {schema}.record_batch(
  p_event text, b {schema}.batch, p_actor_type text, p_actor_id text, p_detail jsonb) returns void language sql as $$
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  values (b.org_id, {schema}.now(), p_event, p_actor_type, p_actor_id,
          jsonb_build_object('batch', b.id, 'name', b.name) || p_detail)
$$;

-- A ticket that waits for nothing more than its time, and for the job of its key before it where there is one.
create function {schema}.open_gate(p_ids uuid[]) returns void language sql set enable_seqscan = off as $$
  update {schema}.waiting w
  set gate = null, due_at = case when w.after is null then greatest(w.due_then, {schema}.now()) else w.due_at end,
      due_then = case when w.after is not null then w.due_then end
  where w.id = any(p_ids) and w.gate = 'parents'
$$;

-- Cancel jobs whose tickets the caller has locked, for a reason of their batch or flow. Answers those that it cancelled.
create function {schema}.drop_waiting(p_ids uuid[], p_reason text) returns uuid[] language plpgsql set enable_seqscan = off as $$
declare
  w {schema}.waiting;
  dropped uuid[] := '{}';
begin
  for w in delete from {schema}.waiting x where x.id = any(p_ids) and x.after is null returning * loop
    insert into {schema}.finished (id, org_id, state, attempt, crashes, snoozes, finished_at, error)
    values (w.id, w.org_id, 'cancelled', w.attempt, w.crashes, w.snoozes, {schema}.now(),
            {schema}.cancelled(p_reason) || jsonb_build_object('attempt', w.attempt, 'at', {schema}.now()));
    perform {schema}.release_behind(w.id);
    perform {schema}.record('job.cancelled', w.id, w.attempt, jsonb_build_object(
      'by', 'SYSTEM', 'by_type', 'system', 'reason', p_reason));
    dropped := dropped || w.id;
  end loop;
  perform {schema}.leave(dropped);
  return dropped;
end $$;

-- Who: `ripple`. Of these jobs, those that wait for no parent any more are released, and those that wait for one that is
-- given up are cancelled; answers the latter. Index: waiting_pkey, dependency_open. Locks: their tickets, by id, and waits
-- for none of them.
create function {schema}.look_at_children(p_children uuid[]) returns uuid[] language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  locked uuid[];
  free uuid[];
  lost record;
  dropped uuid[] := '{}';
begin
  select array_agg(x.id) into locked from (
    select w.id from {schema}.waiting w where w.id = any(p_children) and w.gate = 'parents'
    order by w.id for update skip locked) x;
  insert into {schema}.loose_end (org_id, kind, what)
  select w.org_id, 'child', w.id from {schema}.waiting w
  where w.id = any(array(select unnest(p_children) except select unnest(locked))) and w.gate = 'parents';
  if locked is null then
    return dropped;
  end if;
  -- A new statement: it sees what committed before the locks were ours.
  select array_agg(w.id) into free from {schema}.waiting w
  where w.id = any(locked)
    and not exists (select from {schema}.dependency d where d.org_id = w.org_id and d.child = w.id and not d.met);
  if free is not null then
    perform {schema}.open_gate(free);
    perform {schema}.wake();
  end if;
  for lost in
    select min(d.parent::text) as parent, min(d.state) as state, array_agg(distinct d.child) as children
    from {schema}.dependency d
    where d.child = any(locked) and not d.met and not d.anyway and d.state in ('cancelled', 'discarded')
    group by d.parent
  loop
    dropped := dropped || {schema}.drop_waiting(lost.children, format('Job %s, which it waited for, was %s.', lost.parent, lost.state));
  end loop;
  insert into {schema}.loose_end (org_id, kind, what)  -- one behind another of its key goes when that has ended
  select distinct w.org_id, 'child', w.id from {schema}.waiting w join {schema}.dependency d on d.org_id = w.org_id and d.child = w.id
  where w.id = any(locked) and not d.anyway and d.state in ('cancelled', 'discarded');
  return dropped;
end $$;

-- The running members of a stopped batch that nobody has asked to stop so far.
create function {schema}.unasked(b {schema}.batch) returns setof uuid language sql stable
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  select r.id from {schema}.member m join {schema}.running r on r.id = m.job_id join {schema}.job j on j.id = r.id
  where m.org_id = b.org_id and m.batch_id = b.id and m.state is null and r.cancel_requested_at is null and j.cancellable
$$;

-- Who: the sweep, and whoever cancels a batch; never the end of a job: two workers that lock the jobs of each other, and
-- have more to end themselves, would wait in a circle. Asks what runs of a stopped batch to stop.
create function {schema}.ask_to_stop(b {schema}.batch) returns void language plpgsql
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
create function {schema}.stop_members(b {schema}.batch) returns uuid[] language plpgsql
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
    insert into {schema}.loose_end (org_id, kind, what) values (b.org_id, 'batch', b.id);
  end if;
  return dropped;
end $$;

-- Who: `ripple`. Of these batches, those without an open member finish, once: their on-finish job is released. One whose
-- policy is to stop is stopped by its first failure. Answers the jobs that were cancelled by that. Index: member_open, from
-- its end, because jobs end in about the order of their ids. Locks: the batches, by id, and waits for none of them.
create function {schema}.look_at_batches(p_batches uuid[]) returns uuid[] language plpgsql
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
  insert into {schema}.loose_end (org_id, kind, what)
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
      insert into {schema}.loose_end (org_id, kind, what) values (b.org_id, 'batch', b.id);
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

-- Write how jobs ended to whoever waits for them; answers whom. Index: member_job, dependency_parent. Nobody else writes
-- these rows, because a job ends in one transaction.
create function {schema}.note_ends(p_ended uuid[], out children uuid[], out batches uuid[]) language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
begin
  with x as (
    update {schema}.member m set state = f.state from {schema}.finished f
    where m.job_id = any(p_ended) and f.id = m.job_id and m.state is distinct from f.state returning m.batch_id)
  select array_agg(distinct x.batch_id) into batches from x;
  with x as (
    update {schema}.dependency d set state = f.state from {schema}.finished f
    where d.parent = any(p_ended) and f.id = d.parent and coalesce(d.state, '') not in (f.state, 'discarded')
    returning d.child)
  select array_agg(distinct x.child) into children from x;
end $$;

-- Let jobs and batches see what they waited for, and whoever waits for those that are cancelled by it, and so on.
create function {schema}.ripple(p_children uuid[], p_batches uuid[]) returns void language plpgsql as $$
declare
  children uuid[] := p_children;
  batches uuid[] := p_batches;
  dropped uuid[];
begin
  while children is not null or batches is not null loop
    dropped := '{}';
    if children is not null then
      dropped := {schema}.look_at_children(children);
    end if;
    if batches is not null then
      dropped := dropped || {schema}.look_at_batches(batches);
    end if;
    select n.children, n.batches into children, batches from {schema}.note_ends(dropped) n;
  end loop;
end $$;

-- Who: `untie`, for tied jobs that ended or left their worker. Those that have finished are told to their batches and to
-- whoever waits for them; one that goes back to its queue is cancelled there if its batch was stopped meanwhile.
create function {schema}.conclude(p_ids uuid[]) returns void language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  children uuid[];
  batches uuid[];
  stopped uuid[];
begin
  select n.children, n.batches into children, batches from {schema}.note_ends(p_ids) n;
  select array_agg(distinct b.id) into stopped
  from {schema}.member m join {schema}.batch b on b.org_id = m.org_id and b.id = m.batch_id
  where m.job_id = any(p_ids) and m.state is null and b.stopped_at is not null and b.finished_at is null;
  perform {schema}.ripple(children, batches || stopped);
end $$;

-- Something will wait for these jobs, which were there before. One that waits cannot start until this commits; one that
-- failed cannot be replayed until then. Any other may end meanwhile without seeing it: that is for the sweep.
create function {schema}.tie(p_ids uuid[]) returns void language plpgsql set enable_seqscan = off as $$
declare
  sure uuid[];
begin
  with locked as (
    select w.id from {schema}.waiting w where w.id = any(p_ids) order by w.id for update
  ), marked as (
    update {schema}.waiting w set tied = true where w.id in (select id from locked) and not w.tied
  )
  select array_agg(locked.id) into sure from locked;
  select sure || array_agg(x.id) into sure from (
    select f.id from {schema}.finished f where f.id = any(p_ids) order by f.id for share) x;
  insert into {schema}.loose_end (org_id, kind, what)
  select j.org_id, 'job', j.id from {schema}.job j where j.id = any(array(select unnest(p_ids) except select unnest(sure)));
end $$;

-- Who: each poll of a worker that finds something here, and `release_held` every few seconds. Looks at what was left to it,
-- once however often it was; a job that runs, or that somebody replays just now, is looked at again. Waits for nobody.
create function {schema}.tie_up() returns void language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  e record;
  children uuid[];
  batches uuid[];
begin
  for e in
    with gone as (
      delete from {schema}.loose_end x where x.id in (
        select y.id from {schema}.loose_end y order by y.id limit 1000 for update skip locked)
      returning x.kind, x.what)
    select distinct gone.kind, gone.what from gone
  loop
    case e.kind
      when 'child' then
        children := children || e.what;
      when 'batch' then
        batches := batches || e.what;
      else
        perform from {schema}.waiting w where w.id = e.what for update skip locked;
        if found then
          update {schema}.waiting w set tied = true where w.id = e.what;
          continue;
        end if;
        perform from {schema}.finished f where f.id = e.what for share skip locked;
        if found then
          perform {schema}.conclude(array[e.what]);
        else
          insert into {schema}.loose_end (org_id, kind, what)
          select j.org_id, e.kind, j.id from {schema}.job j where j.id = e.what;
        end if;
    end case;
  end loop;
  perform {schema}.ask_to_stop(b) from {schema}.batch b
  where b.id = any(batches) and b.stopped_at is not null and b.finished_at is null;
  perform {schema}.ripple(children, batches);
end $$;

-- How a job that something begins to wait for has ended, if it has; one that was pruned is known by the status of its key.
create function {schema}.end_of(p_id uuid, p_known text) returns text language sql stable
  return (
    select case when r.resolution = 'discarded' then 'discarded' else coalesce(f.state, k.state) end
    from (select p_id as id, case when p_known in ('succeeded', 'failed', 'dead', 'cancelled')
                                   and not exists (select from {schema}.job j where j.id = p_id) then p_known end as state) k
    left join {schema}.finished f on f.id = k.id
    left join {schema}.resolution r on r.org_id = f.org_id and r.job_id = f.id);

-- Jobs become members of a batch. p_answers and p_states: what enqueue said of them; the new ones are tied already.
create function {schema}.join_batch(p_org text, p_id uuid, p_ids uuid[], p_answers text[], p_states text[]) returns void
language plpgsql as $$
begin
  if exists (select from {schema}.job j where j.id = any(p_ids) and j.org_id <> p_org) then
    perform {schema}.refuse('org_id', 'is not that of the batch');
  end if;
  perform {schema}.tie(array(select i from unnest(p_ids, p_answers) x(i, a) where a <> 'created'));
  insert into {schema}.member (org_id, batch_id, job_id, state)
  select distinct on (x.id) p_org, p_id, x.id, case when x.answer <> 'created' then
    replace({schema}.end_of(x.id, x.state), 'discarded', 'failed') end
  from unnest(p_ids, p_answers, p_states) x(id, answer, state)
  on conflict do nothing;
end $$;

-- Who: every client that adds jobs to a batch, in the caller's transaction where there is one. p_batch: {id, org_id}, and
-- {name, on_failure, open, on_finish} of a new one. Answers one row a job, in order.
-- While somebody adds, the batch does not finish; workers that find it so do not wait.
create function {schema}.enqueue_batch(p_batch json, p_jobs json, p_checked boolean default false)
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
  perform {schema}.ripple(null, array[b.id]);  -- it may be empty, or everything in it has ended before
  return query select * from unnest(ids, answers, states);
end $$;

-- A new batch as somebody else than the client wrote it.
create function {schema}.check_batch(p_batch json) returns void language plpgsql stable as $$
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

-- The links of a flow as somebody wrote them, by the places of its jobs.
create function {schema}.check_links(p_links json, p_count integer) returns void language plpgsql stable as $$
declare
  l json;
  i text;
begin
  if json_typeof(p_links) is distinct from 'array' then
    perform {schema}.refuse('links', 'is not an array');
  end if;
  for l in select * from json_array_elements(p_links) loop
    if json_typeof(l -> 'parents') is distinct from 'array' or json_typeof(l -> 'anyway') not in ('boolean', 'null') then
      perform {schema}.refuse('links', 'are not objects with child, parents and anyway');
    end if;
    for i in select l ->> 'child' union all select * from json_array_elements_text(l -> 'parents') loop
      if i is null or i !~ '^[0-9]{1,6}$' or i::integer >= p_count then
        perform {schema}.refuse('links', 'names a place that no job has');
      end if;
    end loop;
  end loop;
end $$;

-- No more will be added: it finishes when every member has ended. False when there is no such batch.
create function {schema}.close_batch(p_id uuid, p_org text) returns boolean language plpgsql as $$
begin
  update {schema}.batch b set closed_at = {schema}.now()
  where b.id = p_id and (p_org is null or b.org_id = p_org) and b.closed_at is null;
  perform {schema}.ripple(null, array[p_id]);
  return exists (select from {schema}.batch b where b.id = p_id and (p_org is null or b.org_id = p_org));
end $$;

-- Cancel what has not started of a batch, and ask what runs to stop. Its on-finish job runs when all have ended. False
-- when there is no such batch, or it has finished.
create function {schema}.cancel_batch(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text) returns boolean
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
  perform {schema}.ripple(null, array[b.id]);
  return true;
end $$;

-- A batch that has finished, and one of whose members runs again. Its on-finish job waits again; one that has started
-- stays as it is, and another of its key does the work once more.
create function {schema}.reopen_batch(p_org text, p_id uuid) returns void language plpgsql as $$
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
create function {schema}.reopen(p_id uuid) returns void language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  b record;
  tied boolean := false;
begin
  -- By id, so that two jobs of the same batches can be reopened at once.
  perform from {schema}.batch x where x.id in (select m.batch_id from {schema}.member m where m.job_id = p_id) order by x.id for update;
  for b in update {schema}.member m set state = null where m.job_id = p_id returning m.org_id, m.batch_id loop
    tied := true;
    perform {schema}.reopen_batch(b.org_id, b.batch_id);
  end loop;
  update {schema}.dependency d set state = null where d.parent = p_id;
  if found then
    tied := true;  -- what would run anyway and has not started waits again
    update {schema}.waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
    from {schema}.dependency d where d.parent = p_id and w.id = d.child and w.attempt = 0 and w.gate is distinct from 'parents';
  end if;
  if tied then
    update {schema}.waiting w set tied = true where w.id = p_id;
  end if;
end $$;

-- Who: fix-forward, and a chunk that is halved: other jobs, written in this transaction, do the work of one from now on,
-- and whoever counted it or waits for it, counts and waits for them.
create function {schema}.take_over(p_id uuid, p_new uuid[]) returns void language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  m {schema}.member;
begin
  for m in delete from {schema}.member x where x.job_id = p_id returning * loop
    insert into {schema}.member (org_id, batch_id, job_id) select m.org_id, m.batch_id, n from unnest(p_new) n;
    insert into {schema}.loose_end (org_id, kind, what)  -- stopped meanwhile: they are not to run
    select b.org_id, 'batch', b.id from {schema}.batch b
    where b.org_id = m.org_id and b.id = m.batch_id and b.stopped_at is not null and b.finished_at is null;
  end loop;
  insert into {schema}.dependency (org_id, child, parent, place, anyway)
  select d.org_id, d.child, n, d.place, d.anyway from {schema}.dependency d, unnest(p_new) n where d.parent = p_id;
  delete from {schema}.dependency d where d.parent = p_id;
  insert into {schema}.dependency (org_id, child, parent, place, anyway, state)  -- what it asks of its parents, they may ask
  select d.org_id, n, d.parent, d.place, d.anyway, d.state from {schema}.dependency d, unnest(p_new) n where d.child = p_id;
  update {schema}.batch b set on_finish = p_new[1] where b.on_finish = p_id;
  update {schema}.waiting w set tied = true
  where w.id = any(p_new) and not w.tied and (exists (select from {schema}.member x where x.job_id = w.id)
                                              or exists (select from {schema}.dependency d where d.parent = w.id));
end $$;

-- Who: a worker, at the end of a chunk that failed, in the transaction that completes it: its halves, which are written
-- already, take its place. The trail says why. False when its cancellation was asked for: then nothing is to run any more.
create function {schema}.split(p_worker text, p_epoch bigint, p_ids uuid[], p_detail jsonb) returns boolean language plpgsql as $$
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
create function {schema}.add_members(p_id uuid, p_ids uuid[]) returns void language plpgsql as $$
declare
  m {schema}.member;
begin
  for m in select * from {schema}.member x where x.job_id = p_id loop
    perform {schema}.join_batch(m.org_id, m.batch_id, p_ids, array_fill('existing'::text, array[cardinality(p_ids)]), null);
  end loop;
end $$;

-- Replay the failed and dead members of a batch that nobody has decided about. The batch is open again, and its on-finish
-- job runs again when it is done. Answers how many; null when there is no such batch.
create function {schema}.retry_failed(p_id uuid, p_org text, p_actor_type text, p_actor_id text, p_reason text) returns integer
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

-- The links of a flow, by the jobs that its places turned out to be; each pair once. Joins by hash: a job may have ten
-- thousand parents.
create function {schema}.links_of(p_links json, p_ids uuid[], p_answers text[], p_states text[])
returns table (child uuid, answer text, parent uuid, parent_state text, place integer, anyway boolean)
language sql stable set enable_nestloop = off set enable_mergejoin = off as $$
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

-- Hold jobs that wait for others. Index: waiting_pkey, dependency_open.
create function {schema}.hold(p_ids uuid[]) returns void language sql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  update {schema}.waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
  where w.id = any(p_ids)
    and exists (select from {schema}.dependency d where d.org_id = w.org_id and d.child = w.id and not d.met)
$$;

-- Who: every client that enqueues a flow, in the caller's transaction where there is one. p_links: [{child, parents,
-- anyway}], by their places in p_jobs, from 0. Answers one row a job, in order. A job that was there before may be waited for;
-- it is not made to wait for what it did not wait for already: so no circle can come about.
create function {schema}.enqueue_flow(p_jobs json, p_links json, p_checked boolean default false)
returns table (job_id uuid, answer text, state text) language plpgsql as $$
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
  perform {schema}.check_links(p_links, json_array_length(p_jobs));
  select array_agg(e.job_id order by e.n), array_agg(e.answer order by e.n), array_agg(e.state order by e.n)
  into ids, answers, states
  from {schema}.enqueue_many(p_jobs, p_checked, true) with ordinality e(job_id, answer, state, n);
  select min(j.org_id) into org from {schema}.job j where j.id = any(ids);
  if exists (select from {schema}.job j where j.id = any(ids) and j.org_id <> org) then
    perform {schema}.refuse('org_id', 'is not the same for all jobs of the flow');
  end if;
  older := array(select i from unnest(ids, answers) x(i, a) where a <> 'created');
  perform {schema}.tie(older);
  select array_agg(l.child), array_agg(l.answer), array_agg(l.parent), array_agg(l.parent_state), array_agg(l.place),
         array_agg(l.anyway)
  into children, waits, parents, ends, places, anyways
  from {schema}.links_of(p_links, ids, answers, states) l;
  select x.child into wrong from unnest(children, waits, parents) x(child, answer, parent)
  where x.child = x.parent or (x.answer <> 'created' and not exists (
    select from {schema}.dependency d where d.org_id = org and d.child = x.child and d.parent = x.parent)) limit 1;
  if found then
    perform {schema}.refuse('key', format('%s is taken by a job that does not wait for these others', (
      select left(j.key, 100) from {schema}.job j where j.id = wrong)));
  end if;
  insert into {schema}.dependency (org_id, child, parent, place, anyway, state)
  select org, x.child, x.parent, x.place, x.anyway, case when x.state is not null then {schema}.end_of(x.parent, x.state) end
  from unnest(children, parents, places, anyways, ends) x(child, parent, place, anyway, state)
  on conflict do nothing;
  perform {schema}.hold(array(select distinct c from unnest(children, waits) x(c, a) where a <> 'existing'));
  if cardinality(older) > 0 then  -- one that it waits for may be given up already
    perform {schema}.ripple(children, null);
  end if;
  return query select x.id, x.answer, coalesce(s.state, x.state) from unnest(ids, answers, states) with ordinality x(id, answer, state, n)
    left join lateral {schema}.state_of(x.id) s on true order by x.n;
end $$;

-- Who: discard. What waits for the job is cancelled.
create function {schema}.give_up(p_id uuid) returns void language plpgsql set enable_seqscan = off as $$
declare
  children uuid[];
begin
  with x as (
    update {schema}.dependency d set state = 'discarded' where d.parent = p_id and not d.met returning d.child)
  select array_agg(distinct x.child) into children from x;
  perform {schema}.ripple(children, null);
end $$;

-- Who: prune, with the jobs that it removes. What they waited for goes with them; a batch goes when its jobs are gone.
create function {schema}.prune_flows(p_gone uuid[], p_before timestamptz) returns void language plpgsql as $$
declare
  b {schema}.batch;
begin
  delete from {schema}.dependency d using {schema}.job j where j.id = any(p_gone) and d.org_id = j.org_id and d.child = j.id;
  for b in
    select * from {schema}.batch x where x.finished_at < p_before and (  -- the last of its jobs goes last
      select j.id from {schema}.member m join {schema}.job j on j.id = m.job_id
      where m.org_id = x.org_id and m.batch_id = x.id and j.id <> all(coalesce(p_gone, '{}'))
      order by m.job_id desc limit 1) is null
    limit 100 for update skip locked
  loop
    delete from {schema}.member m where m.org_id = b.org_id and m.batch_id = b.id;
    delete from {schema}.batch x where x.org_id = b.org_id and x.id = b.id;
  end loop;
end $$;
