-- Jobs that run alone, and tasks that are held back.

create or replace function {schema}.is_quarantined(p_task text) returns boolean language sql stable
  return exists (
    select from {schema}.quarantine k where k.org_id = 'SYSTEM' and k.task = p_task and k.held_at is not null);

create or replace function {schema}.not_quarantined(p_tasks text[]) returns text[] language sql stable
  return array(select t from unnest(p_tasks) t where not {schema}.is_quarantined(t));

-- Who: `claim_limited`, for one job that runs alone; and each poll of a worker, to learn whether there is one. First jobs
-- with two crashes (index waiting_rescued), then the oldest of a task in quarantine whose next probe is due.
create or replace function {schema}.next_alone(p_queues text[], p_free integer[], p_tasks text[]) returns uuid language plpgsql
  set enable_seqscan = off
as $$
declare
  found_id uuid;
begin
  select w.id into found_id from {schema}.waiting w
  where w.crashes > 1 and w.due_at <= {schema}.now() and w.queue || '' = any(p_queues) and w.task = any(p_tasks)
    and p_free[array_position(p_queues, w.queue)] > 0
    and not exists (
      select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = w.queue and mq.paused_at is not null)
  order by w.due_at, w.id limit 1 for update of w skip locked;
  if found_id is null and exists (select from {schema}.quarantine k where k.held_at is not null) then
    select w.id into found_id
    from unnest(p_queues, p_free) q(name, n)
    cross join (values (0::smallint), (1::smallint), (2::smallint), (3::smallint)) p(priority)
    cross join lateral (
      select w.id, w.due_at from {schema}.waiting w
      where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now()
        and w.task in (select k.task from {schema}.quarantine k
                       where k.held_at is not null and k.probe_at <= {schema}.now() and k.task = any(p_tasks))
      order by w.due_at, w.id limit 1 for update of w skip locked) w
    where q.n > 0 and not exists (
      select from {schema}.queue mq where mq.org_id = 'SYSTEM' and mq.name = q.name and mq.paused_at is not null)
    order by w.due_at, w.id limit 1;
  end if;
  return found_id;
end $$;

-- Who: `claim_limited`, for the job that it takes alone: the next probe of its task comes a second later.
create or replace function {schema}.note_probe(p_tasks text[]) returns void language sql as $$
  update {schema}.quarantine k set probe_at = {schema}.now() + interval '1 s'
  where k.org_id = 'SYSTEM' and k.task = any(p_tasks) and k.held_at is not null
$$;

create or replace function {schema}.record_quarantine(p_event text, p_task text, p_actor_type text, p_actor text, p_detail jsonb)
returns void language sql as $$
  insert into {schema}.audit (org_id, at, event, task, actor_type, actor_id, detail)
  values ('SYSTEM', {schema}.now(), p_event, p_task, p_actor_type, p_actor, p_detail)
$$;

-- Who: `rescue`, for a crash that was a job's own. True: with it the task is in quarantine, since three workers within an
-- hour are no accident.
create or replace function {schema}.has_killed(p_task text, p_worker text) returns boolean language plpgsql as $$
declare
  k {schema}.quarantine;
begin
  insert into {schema}.quarantine as x (task, workers, last_at) values (p_task, array[p_worker], {schema}.now())
  on conflict (org_id, task) do update
  set workers = case when x.held_at is null and x.last_at < {schema}.now() - interval '1 h' then excluded.workers
                     else (array_remove(x.workers, p_worker) || p_worker)[greatest(1, cardinality(x.workers) - 98):] end,
      last_at = excluded.last_at
  returning * into k;
  if k.held_at is not null or cardinality(k.workers) < 3 then
    return false;
  end if;
  update {schema}.quarantine x set held_at = {schema}.now(), probe_at = {schema}.now()
  where x.org_id = k.org_id and x.task = p_task;
  perform {schema}.record_quarantine('quarantine.began', p_task, 'system', 'mainspring',
                                     jsonb_build_object('workers', k.workers));
  return true;
end $$;

-- Who: `take_back_crashes`. The worker lives.
create or replace function {schema}.has_not_killed(p_worker text) returns void language plpgsql as $$
declare
  k {schema}.quarantine;
begin
  for k in
    update {schema}.quarantine x set workers = array_remove(x.workers, p_worker)
    where p_worker = any(x.workers) returning *
  loop
    if cardinality(k.workers) < 3 and k.held_at is not null then
      perform {schema}.end_quarantine(k.task, 'system', 'mainspring', 'a worker that seemed dead came back');
    end if;
  end loop;
end $$;

-- Who: a worker whose probe succeeded, and `release_quarantine`. False: it was not held back. What it has killed is forgotten.
create or replace function {schema}.end_quarantine(p_task text, p_actor_type text, p_actor text, p_reason text) returns boolean
language plpgsql as $$
declare
  k {schema}.quarantine;
begin
  delete from {schema}.quarantine x where x.org_id = 'SYSTEM' and x.task = p_task returning * into k;
  if k.held_at is null then
    return false;
  end if;
  perform {schema}.record_quarantine('quarantine.ended', p_task, p_actor_type, p_actor,
                                     jsonb_build_object('reason', p_reason, 'since', k.held_at));
  return true;
end $$;

-- A person lets a task go. False: it was not held back.
create or replace function {schema}.release_quarantine(p_task text, p_actor_type text, p_actor text, p_reason text) returns boolean
language plpgsql as $$
begin
  perform {schema}.check_actor(p_actor_type, p_actor, p_reason);
  perform {schema}.check_text('task', p_task, 200);
  perform {schema}.check_text('reason', p_reason, 1000);
  return {schema}.end_quarantine(p_task, p_actor_type, p_actor, p_reason);
end $$;
