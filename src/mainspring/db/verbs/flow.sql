-- Flows: jobs that wait for others.

-- A ticket that waits for nothing more than its time, and for the job of its key before it where there is one.
create or replace function {schema}.open_gate(p_ids uuid[]) returns void language sql set enable_seqscan = off as $$
  update {schema}.waiting w
  set gate = null, due_at = case when w.after is null then greatest(w.due_then, {schema}.now()) else w.due_at end,
      due_then = case when w.after is not null then w.due_then end
  where w.id = any(p_ids) and w.gate = 'parents'
$$;

-- Cancel jobs whose tickets the caller has locked, for a reason of their batch or flow. Answers those that it cancelled.
create or replace function {schema}.drop_waiting(p_ids uuid[], p_reason text) returns uuid[] language plpgsql set enable_seqscan = off as $$
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

-- Who: `propagate`. Of these jobs, those that wait for no parent any more are released, and those that wait for one that is
-- given up are cancelled; answers the latter. Index: waiting_pkey, dependency_open. Locks: their tickets, by id, and waits
-- for none of them.
create or replace function {schema}.look_at_children(p_children uuid[]) returns uuid[] language plpgsql
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
  insert into {schema}.leftover (org_id, kind, what)
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
  insert into {schema}.leftover (org_id, kind, what)  -- one behind another of its key goes when that has ended
  select distinct w.org_id, 'child', w.id from {schema}.waiting w join {schema}.dependency d on d.org_id = w.org_id and d.child = w.id
  where w.id = any(locked) and not d.anyway and d.state in ('cancelled', 'discarded');
  return dropped;
end $$;

-- Write how jobs ended to whoever waits for them; answers whom. Index: member_job, dependency_parent. Nobody else writes
-- these rows, because a job ends in one transaction.
create or replace function {schema}.note_ends(p_ended uuid[], out children uuid[], out batches uuid[]) language plpgsql
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
create or replace function {schema}.propagate(p_children uuid[], p_batches uuid[]) returns void language plpgsql as $$
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

-- Who: `release_links`, for linked jobs that ended or left their worker. Those that have finished are told to their batches
-- and to whoever waits for them; one that goes back to its queue is cancelled there if its batch was stopped meanwhile.
create or replace function {schema}.report_finished(p_ids uuid[]) returns void language plpgsql
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
  perform {schema}.propagate(children, batches || stopped);
end $$;

-- Something will wait for these jobs, which were there before. One that waits cannot start until this commits; one that
-- failed cannot be replayed until then. Any other may end meanwhile without seeing it: that is for the sweep.
create or replace function {schema}.mark_linked(p_ids uuid[]) returns void language plpgsql set enable_seqscan = off as $$
declare
  sure uuid[];
begin
  with locked as (
    select w.id from {schema}.waiting w where w.id = any(p_ids) order by w.id for update
  ), marked as (
    update {schema}.waiting w set linked = true where w.id in (select id from locked) and not w.linked
  )
  select array_agg(locked.id) into sure from locked;
  select sure || array_agg(x.id) into sure from (
    select f.id from {schema}.finished f where f.id = any(p_ids) order by f.id for share) x;
  insert into {schema}.leftover (org_id, kind, what)
  select j.org_id, 'job', j.id from {schema}.job j where j.id = any(array(select unnest(p_ids) except select unnest(sure)));
end $$;

-- Who: each poll of a worker that finds something here, and `release_held` every few seconds. Looks at what was left to it,
-- once however often it was; a job that runs, or that somebody replays just now, is looked at again. Waits for nobody.
create or replace function {schema}.settle_leftovers() returns void language plpgsql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
declare
  e record;
  children uuid[];
  batches uuid[];
begin
  for e in
    with gone as (
      delete from {schema}.leftover x where x.id in (
        select y.id from {schema}.leftover y order by y.id limit 1000 for update skip locked)
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
          update {schema}.waiting w set linked = true where w.id = e.what;
          continue;
        end if;
        perform from {schema}.finished f where f.id = e.what for share skip locked;
        if found then
          perform {schema}.report_finished(array[e.what]);
        else
          insert into {schema}.leftover (org_id, kind, what)
          select j.org_id, e.kind, j.id from {schema}.job j where j.id = e.what;
        end if;
    end case;
  end loop;
  perform {schema}.ask_to_stop(b) from {schema}.batch b
  where b.id = any(batches) and b.stopped_at is not null and b.finished_at is null;
  perform {schema}.propagate(children, batches);
end $$;

-- How a job that something begins to wait for has ended, if it has; one that was pruned is known by the status of its key.
create or replace function {schema}.end_of(p_id uuid, p_known text) returns text language sql stable
  return (
    select case when r.resolution = 'discarded' then 'discarded' else coalesce(f.state, k.state) end
    from (select p_id as id, case when p_known in ('succeeded', 'failed', 'dead', 'cancelled')
                                   and not exists (select from {schema}.job j where j.id = p_id) then p_known end as state) k
    left join {schema}.finished f on f.id = k.id
    left join {schema}.resolution r on r.org_id = f.org_id and r.job_id = f.id);

-- The links of a flow as somebody wrote them, by the places of its jobs.
create or replace function {schema}.check_links(p_links json, p_count integer) returns void language plpgsql stable as $$
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

-- The links of a flow, by the jobs that its places turned out to be; each pair once. Joins by hash: a job may have ten
-- thousand parents.
create or replace function {schema}.links_of(p_links json, p_ids uuid[], p_answers text[], p_states text[])
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
create or replace function {schema}.hold(p_ids uuid[]) returns void language sql
  set enable_seqscan = off set enable_hashjoin = off set enable_mergejoin = off
as $$
  update {schema}.waiting w set gate = 'parents', due_then = coalesce(w.due_then, w.due_at), due_at = 'infinity'
  where w.id = any(p_ids)
    and exists (select from {schema}.dependency d where d.org_id = w.org_id and d.child = w.id and not d.met)
$$;

-- Who: every client that enqueues a flow, in the caller's transaction where there is one. p_links: [{child, parents,
-- anyway}], by their places in p_jobs, from 0. Answers one row a job, in order. A job that was there before may be waited for;
-- it is not made to wait for what it did not wait for already: so no circle can come about.
create or replace function {schema}.enqueue_flow(p_jobs json, p_links json, p_checked boolean default false)
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
  perform {schema}.mark_linked(older);
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
    perform {schema}.propagate(children, null);
  end if;
  return query select x.id, x.answer, coalesce(s.state, x.state) from unnest(ids, answers, states) with ordinality x(id, answer, state, n)
    left join lateral {schema}.state_of(x.id) s on true order by x.n;
end $$;

-- Who: discard. What waits for the job is cancelled.
create or replace function {schema}.give_up(p_id uuid) returns void language plpgsql set enable_seqscan = off as $$
declare
  children uuid[];
begin
  with x as (
    update {schema}.dependency d set state = 'discarded' where d.parent = p_id and not d.met returning d.child)
  select array_agg(distinct x.child) into children from x;
  perform {schema}.propagate(children, null);
end $$;

-- Who: prune, with the jobs that it removes. What they waited for goes with them; a batch goes when its jobs are gone.
create or replace function {schema}.prune_flows(p_gone uuid[], p_before timestamptz) returns void language plpgsql as $$
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
