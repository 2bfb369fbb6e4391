-- Schedules and their fires.

-- What somebody did to a schedule, with what it was before and is after.
create or replace function {schema}.record_schedule(
  p_event text, p_actor_type text, p_actor_id text, p_reason text, p_org text, p_name text, p_before jsonb, p_after jsonb)
returns void language sql as $$
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  select p_org, {schema}.now(), p_event, p_actor_type, p_actor_id, jsonb_build_object(
    'schedule', p_name, 'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', p_before, 'after', p_after)
$$;

-- A schedule without what moves by itself.
create or replace function {schema}.definition(s {schema}.schedule) returns jsonb language sql immutable
  return to_jsonb(s) - '{org_id,name,zones_at,paused_at,paused_by,pause_reason,created_at,changed_at,undeclared_at}'::text[];

-- No instant up to here may fire: now, or what a schedule of this name has dealt with, should the clock have gone back.
create or replace function {schema}.fires_after(p_org text, p_name text) returns timestamptz language sql stable
  return greatest({schema}.now(),
    (select max(z.after) from {schema}.schedule_zone z where z.org_id = p_org and z.schedule = p_name),
    (select max(f.instant) from {schema}.fire f where f.org_id = p_org and f.schedule = p_name and f.how <> 'run_now'));

-- Who: a worker at its start, `schedule sync`, and clients that create one. Writes a definition that Python has checked,
-- or leaves it as it is; a pause survives. A new rule holds from now on; where the rule stays, what was missed is still
-- caught up. Answers created, changed or same; null: the name is taken and p_replace is false, or code has declared it.
create or replace function {schema}.save_schedule(
  p_org text, p_name text, p_definition jsonb, p_declared_by text, p_replace boolean, p_actor_type text,
  p_actor_id text, p_reason text default null) returns text
language plpgsql as $$
declare
  new {schema}.schedule;
  old {schema}.schedule;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform {schema}.check_text('org', p_org, 200);
  perform {schema}.check_text('name', p_name, 200);
  new := jsonb_populate_record(null::{schema}.schedule, p_definition || jsonb_build_object(
    'org_id', p_org, 'name', p_name, 'declared_by', p_declared_by, 'created_at', {schema}.now(),
    'changed_at', {schema}.now()));
  insert into {schema}.schedule select new.* on conflict do nothing;
  if found then
    insert into {schema}.schedule_zone (org_id, schedule, declared, after, next_at)
    select p_org, p_name, p_declared_by is not null, x.at, x.at from {schema}.fires_after(p_org, p_name) x(at) where not new.by_zone;
    perform {schema}.record_schedule('schedule.created', p_actor_type, p_actor_id, p_reason, p_org, p_name, null,
                                     {schema}.definition(new));
    perform pg_notify({channel}, 'schedule');
    return 'created';
  end if;
  select * into old from {schema}.schedule s where s.org_id = p_org and s.name = p_name for update;
  if old.declared_by is not null and old.undeclared_at is null and p_declared_by is null or not p_replace then
    return null;
  end if;
  if {schema}.definition(old) = {schema}.definition(new) then
    update {schema}.schedule s set undeclared_at = null
    where s.org_id = p_org and s.name = p_name and s.undeclared_at is not null;
    return 'same';
  end if;
  update {schema}.schedule s
  set (rule, description, zone, task, job, fill, catch_up, within, most, running, jitter, by_zone, by_entity, page, spread,
       declared_by, undeclared_at, zones_at, changed_at)
    = (new.rule, new.description, new.zone, new.task, new.job, new.fill, new.catch_up, new.within, new.most, new.running,
       new.jitter, new.by_zone, new.by_entity, new.page, new.spread, new.declared_by, null,
       case when old.by_zone = new.by_zone then old.zones_at end, {schema}.now())
  where s.org_id = p_org and s.name = p_name;
  if old.by_zone <> new.by_zone then
    insert into {schema}.schedule_zone (org_id, schedule, declared, after, next_at)
    select p_org, p_name, p_declared_by is not null, x.at, case when old.paused_at is null then x.at end
    from {schema}.fires_after(p_org, p_name) x(at) where not new.by_zone;
    delete from {schema}.schedule_zone z where z.org_id = p_org and z.schedule = p_name and (z.zone = '') = new.by_zone;
  elsif old.rule <> new.rule then
    update {schema}.schedule_zone z
    set after = greatest(z.after, {schema}.now()), local = null,
        next_at = case when old.paused_at is null then {schema}.now() end
    where z.org_id = p_org and z.schedule = p_name;
  end if;
  update {schema}.schedule_zone z set declared = p_declared_by is not null
  where z.org_id = p_org and z.schedule = p_name and z.declared <> (p_declared_by is not null);
  perform {schema}.record_schedule('schedule.changed', p_actor_type, p_actor_id, p_reason, p_org, p_name,
                                   {schema}.definition(old), {schema}.definition(new));
  perform pg_notify({channel}, 'schedule');
  return 'changed';
end $$;

-- Who: after the saves of a start or a sync. What these registries declared once and no longer do is shown as such; it
-- fires no more, because whoever fires it must declare it. A pause by that name is kept, should it come back.
create or replace function {schema}.undeclare_schedules(p_registries text[], p_orgs text[], p_names text[])
returns table (org_id text, name text) language sql as $$
  update {schema}.schedule s set undeclared_at = {schema}.now()
  where s.declared_by = any(p_registries) and s.undeclared_at is null and not exists (
    select from unnest(p_orgs, p_names) m(org_id, name) where m.org_id = s.org_id and m.name = s.name)
  returning s.org_id, s.name
$$;

-- Stop firing; when the caller's transaction has committed, nothing fires any more, and no page of a fan-out is made.
-- Answers false when it was paused already, null when there is none.
create or replace function {schema}.pause_schedule(p_org text, p_name text, p_actor_type text, p_actor_id text, p_reason text)
returns boolean language plpgsql as $$
declare
  old {schema}.schedule;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  select * into old from {schema}.schedule s where s.org_id = p_org and s.name = p_name for update;
  if not found then
    return null;
  elsif old.paused_at is not null then
    return false;
  end if;
  update {schema}.schedule s set paused_at = {schema}.now(), paused_by = p_actor_id, pause_reason = p_reason
  where s.org_id = p_org and s.name = p_name;
  update {schema}.schedule_zone z set next_at = null where z.org_id = p_org and z.schedule = p_name;
  perform {schema}.record_schedule('schedule.paused', p_actor_type, p_actor_id, p_reason, p_org, p_name,
    jsonb_build_object('paused_at', null),
    jsonb_build_object('paused_at', {schema}.now(), 'paused_by', p_actor_id, 'pause_reason', p_reason));
  return true;
end $$;

-- Fire again, from now on; what fell into the pause is caught up by the schedule's policy only if p_catch_up says so.
-- Answers false when it was not paused, null when there is none.
create or replace function {schema}.resume_schedule(
  p_org text, p_name text, p_catch_up boolean, p_actor_type text, p_actor_id text, p_reason text default null)
returns boolean language plpgsql as $$
declare
  old {schema}.schedule;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  select * into old from {schema}.schedule s where s.org_id = p_org and s.name = p_name for update;
  if not found then
    return null;
  elsif old.paused_at is null then
    return false;
  end if;
  update {schema}.schedule s
  set paused_at = null, paused_by = null, pause_reason = null,
      zones_at = case when p_catch_up then s.zones_at else {schema}.now() end
  where s.org_id = p_org and s.name = p_name;
  update {schema}.schedule_zone z
  set after = case when p_catch_up then z.after else greatest(z.after, {schema}.now()) end, next_at = {schema}.now()
  where z.org_id = p_org and z.schedule = p_name;
  perform {schema}.record_schedule('schedule.resumed', p_actor_type, p_actor_id, p_reason, p_org, p_name,
    jsonb_build_object('paused_at', old.paused_at, 'paused_by', old.paused_by, 'pause_reason', old.pause_reason),
    jsonb_build_object('paused_at', null, 'catch_up', p_catch_up));
  perform pg_notify({channel}, 'schedule');
  return true;
end $$;

-- Remove a schedule; when the caller's transaction has committed, nothing of it fires any more. Its fires stay, and
-- jobs that it has made run. Answers false when there is none; one that code declares is refused: it would come back.
create or replace function {schema}.delete_schedule(p_org text, p_name text, p_actor_type text, p_actor_id text, p_reason text)
returns boolean language plpgsql as $$
declare
  old {schema}.schedule;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  select * into old from {schema}.schedule s where s.org_id = p_org and s.name = p_name for update;
  if not found then
    return false;
  elsif old.declared_by is not null and old.undeclared_at is null then
    perform {schema}.refuse('name', format('is declared by %s: remove it from the code, or pause it', old.declared_by));
  end if;
  delete from {schema}.schedule_zone z where z.org_id = p_org and z.schedule = p_name;
  delete from {schema}.fan_out o where o.org_id = p_org and o.schedule = p_name and o.finished_at is null;
  delete from {schema}.schedule s where s.org_id = p_org and s.name = p_name;
  perform {schema}.record_schedule('schedule.deleted', p_actor_type, p_actor_id, p_reason, p_org, p_name,
                                   {schema}.definition(old), null);
  return true;
end $$;

-- Fire once, now, beside the rule, also while it is paused. The job is the client's, who may have encrypted it; one over
-- entities is made by a scheduler. Answers the job, null for a fan-out, nothing when there is no such schedule.
create or replace function {schema}.run_schedule(
  p_org text, p_name text, p_zone text, p_fire uuid, p_job json, p_local text, p_actor_type text, p_actor_id text,
  p_reason text default null) returns table (job_id uuid)
language plpgsql as $$
#variable_conflict use_column
declare
  s {schema}.schedule;
  made uuid;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  select * into s from {schema}.schedule x where x.org_id = p_org and x.name = p_name for share;
  if not found then
    return;
  end if;
  if s.by_entity then
    insert into {schema}.fan_out (org_id, fire_id, schedule, zone, instant, begun_at, look_at, by_hand)
    values (p_org, p_fire, p_name, p_zone, {schema}.now(), {schema}.now(), {schema}.now(), true);
    perform pg_notify({channel}, 'schedule');
  else
    select e.job_id into made from {schema}.enqueue_many(json_build_array(p_job)) e;
    update {schema}.schedule_zone z set job_id = made where z.org_id = p_org and z.schedule = p_name and z.zone = p_zone;
  end if;
  insert into {schema}.fire (org_id, id, schedule, zone, instant, local, how, reason, job_id, at)
  values (p_org, p_fire, p_name, p_zone, {schema}.now(), p_local, 'run_now', p_reason, made, {schema}.now());
  perform {schema}.record_schedule('schedule.run', p_actor_type, p_actor_id, p_reason, p_org, p_name, null,
    jsonb_build_object('fire', p_fire, 'zone', p_zone, 'job_id', made));
  return query select made;
end $$;

-- Whether an instant has fired, by itself or made up for later: the id of that fire is made of the instant.
create or replace function {schema}.has_fired(p_org text, p_name text, p_id uuid, p_zone text, p_instant timestamptz)
returns boolean language sql stable as $$
  select exists (select from {schema}.fire f where f.org_id = p_org and f.id = p_id)
      or exists (select from {schema}.fire f
                 where f.org_id = p_org and f.schedule = p_name and f.zone = p_zone and f.instant = p_instant
                   and f.how <> 'run_now' and f.how = 'fired')
$$;

-- Make up for instants that have passed and made nothing, beside the rule, also while it is paused: p_fires is
-- [{id, zone, instant, local, job}], the job null for one over entities. Passed by is what has fired, and what the rule
-- has not dealt with yet. Answers the fires that it made. Locks: the schedule, so that nothing fires meanwhile.
create or replace function {schema}.backfill_schedule(
  p_org text, p_name text, p_fires json, p_actor_type text, p_actor_id text, p_reason text)
returns table (fire_id uuid, job_id uuid) language plpgsql as $$
#variable_conflict use_column
declare
  s {schema}.schedule;
  made uuid[];
  new json;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  perform {schema}.check_text('reason', p_reason, 1000);
  if json_typeof(p_fires) is distinct from 'array' or json_array_length(p_fires) not between 1 and 1000 then
    perform {schema}.refuse('fires', 'are not 1 to 1000');
  end if;
  select * into s from {schema}.schedule x where x.org_id = p_org and x.name = p_name for update;
  if not found then
    return;
  end if;
  select json_agg(f order by f.instant, f.zone) into new
  from json_to_recordset(p_fires) as f(id uuid, zone text, instant timestamptz, local text, job json)
  join {schema}.schedule_zone z on z.org_id = p_org and z.schedule = p_name and z.zone = f.zone and z.after >= f.instant
  where f.instant <= {schema}.now() and not {schema}.has_fired(p_org, p_name, f.id, f.zone, f.instant);
  if new is null then
    return;
  elsif s.by_entity then
    insert into {schema}.fan_out (org_id, fire_id, schedule, zone, instant, begun_at, look_at, by_hand)
    select p_org, f.id, p_name, f.zone, f.instant, {schema}.now(), {schema}.now(), true
    from json_to_recordset(new) as f(id uuid, zone text, instant timestamptz);
    perform pg_notify({channel}, 'schedule');
  else
    select array_agg(e.job_id order by e.number) into made
    from {schema}.enqueue_many((select json_agg(f.value -> 'job' order by f.number)
                                from json_array_elements(new) with ordinality f(value, number)))
         with ordinality e(job_id, answer, state, number);
  end if;
  insert into {schema}.fire (org_id, id, schedule, zone, instant, local, how, reason, job_id, at)
  select p_org, (f.value ->> 'id')::uuid, p_name, f.value ->> 'zone', (f.value ->> 'instant')::timestamptz,
         f.value ->> 'local', 'run_now', p_reason, made[f.number], {schema}.now()
  from json_array_elements(new) with ordinality f(value, number);
  perform {schema}.record_schedule('schedule.backfilled', p_actor_type, p_actor_id, p_reason, p_org, p_name, null,
    jsonb_build_object('fires', json_array_length(new), 'since', new -> 0 ->> 'instant', 'until', new -> -1 ->> 'instant',
                       'zones', (select jsonb_agg(distinct f ->> 'zone') from json_array_elements(new) f)));
  return query
  select (f.value ->> 'id')::uuid, made[f.number] from json_array_elements(new) with ordinality f(value, number);
end $$;

-- Who: clean-up, in bounded batches. What fires next depends on no fire.
create or replace function {schema}.prune_fires(p_before timestamptz, p_limit integer) returns integer language plpgsql as $$
declare
  gone integer;
begin
  if p_before is null then
    perform {schema}.refuse('before', 'is missing');
  elsif p_limit is null or p_limit not between 1 and 100000 then
    perform {schema}.refuse('limit', 'is not between 1 and 100000');
  end if;
  perform set_config('mainspring.verb', 'prune', true);
  with old as materialized (
    select f.org_id, f.id from {schema}.fire f
    where f.at < p_before and not exists (
      select from {schema}.fan_out o where o.org_id = f.org_id and o.fire_id = f.id and o.finished_at is null)
    limit p_limit
  ), cursors as (
    delete from {schema}.fan_out o using old where o.org_id = old.org_id and o.fire_id = old.id
  ), fires as (
    delete from {schema}.fire f using old where f.org_id = old.org_id and f.id = old.id returning 1
  )
  select count(*) into gone from fires;
  perform set_config('mainspring.verb', '', true);
  return gone;
end $$;

-- Who: psql, triggers and other languages, in their own transaction; checked as the Python client checks. Either a cron
-- expression in the local time of a zone, or an interval. Any scheduler fires it.
create or replace function {schema}.create_schedule(
  name text, task text, cron text default null, every interval default null, zone text default 'UTC',
  payload jsonb default '{}', org_id text default 'default', queue text default 'q:default', priority integer default 2,
  catch_up text default 'latest', within interval default null, most integer default null, running text default 'allow',
  jitter interval default '0', gap text default 'shift', overlap text default 'first', max_attempts integer default 5,
  actor_type text default 'system', actor_id text default 'SYSTEM', reason text default null
) returns void language plpgsql as $$
#variable_conflict use_variable
declare
  job constant jsonb := jsonb_build_object(
    'task', task, 'payload', payload, 'queue', queue, 'priority', priority, 'max_attempts', max_attempts, 'org_id', org_id,
    'actor_type', 'system', 'actor_id', 'SYSTEM');
  answer text;
begin
  perform {schema}.check_text('name', name, 200);
  perform {schema}.check_job((job || jsonb_build_object('id', {schema}.uuid7()))::json);
  if (cron is null) = (every is null) then
    perform {schema}.refuse('cron', 'or every: give one of them');
  elsif zone is null or zone !~ '^[A-Za-z0-9_+-]{1,30}(/[A-Za-z0-9_+-]{1,30}){0,2}$'
        or not exists (select from pg_catalog.pg_timezone_names z where z.name = zone) then
    perform {schema}.refuse('zone', 'is not a time zone, such as Europe/London');
  elsif catch_up is null or catch_up not in ('skip', 'latest', 'all') then
    perform {schema}.refuse('catch_up', 'is not one of skip, latest, all');
  elsif within is not null and (catch_up = 'skip' or within not between interval '1 minute' and interval '3653 days') then
    perform {schema}.refuse('within', 'is not a time span from 1 minute to 10 years, or belongs to skip');
  elsif most is not null and (catch_up <> 'all' or most not between 1 and 1000) then
    perform {schema}.refuse('most', 'is not a whole number from 1 to 1000, or does not belong to all');
  elsif running is null or running not in ('allow', 'skip') then
    perform {schema}.refuse('running', 'is not one of allow, skip');
  elsif jitter is null or jitter not between interval '0' and interval '1 day' then
    perform {schema}.refuse('jitter', 'is not a time span from 0 to 1 day');
  elsif gap is null or gap not in ('shift', 'skip') then
    perform {schema}.refuse('gap', 'is not one of shift, skip');
  elsif overlap is null or overlap not in ('first', 'last', 'both') then
    perform {schema}.refuse('overlap', 'is not one of first, last, both');
  elsif every is not null and every not between interval '1 s' and interval '3653 days' then
    perform {schema}.refuse('every', 'is not a time span from 1 second to 10 years');
  elsif cron is not null then
    perform {schema}.check_cron(cron);
  end if;
  answer := {schema}.save_schedule(org_id, name, jsonb_build_object(
    'rule', case when cron is null
      then jsonb_build_object('kind', 'every', 'interval', format('PT%sS', extract(epoch from every)), 'zone', zone)
      else jsonb_build_object('kind', 'cron', 'expression', cron, 'zone', zone, 'gap', gap, 'overlap', overlap) end,
    'description', coalesce(cron || format(' (%s)', zone), 'every ' || every), 'zone', zone, 'task', task, 'job', job,
    'fill', '{}'::text[], 'catch_up', catch_up, 'within', within, 'most', most, 'running', running, 'jitter', jitter,
    'by_zone', false, 'by_entity', false, 'page', 100, 'spread', interval '0'),
    null, false, actor_type, actor_id, reason);
  if answer is null then
    perform {schema}.refuse('name', 'is taken by another schedule');
  end if;
end $$;
