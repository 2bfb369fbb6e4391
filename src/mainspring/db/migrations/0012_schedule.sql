-- Schedules and their fires: jobs that nobody asks for in the moment.
--
-- No leader (docs/adr/0017). Whoever finds a schedule due locks where it stands, writes the fire, its job and the next
-- instant in one transaction, and goes on; the others pass it by. What is due is computed in Python from the row's own
-- `after` and the database's clock, so that any number of schedulers, crashes and clocks give one fire an instant.

-- What fires, and when: the definition. It changes whole, under its row lock, which every fire shares.
create table {schema}.schedule (
  org_id        text not null,
  name          text not null,
  rule          jsonb not null,                    -- as mainspring.rule writes it
  description   text not null,                     -- the rule in words
  zone          text not null,                     -- of the rule
  task          text not null,
  job           jsonb not null,                    -- the envelope of its jobs; key and strand are still templates
  fill          text[] not null default '{}',      -- the payload fields that a fire fills in: zone, instant
  catch_up      text not null default 'latest' check (catch_up in ('skip', 'latest', 'all')),
  within        interval,                          -- an instant that is later than this is missed
  most          integer check (most between 1 and 1000),  -- of those that are caught up
  running       text not null default 'allow' check (running in ('allow', 'skip')),
  jitter        interval not null default '0',
  by_zone       boolean not null default false,    -- fires in each zone that its code names
  by_entity     boolean not null default false,    -- a fire makes a job for each entity that its code names
  page          integer not null default 100 check (page between 1 and 1000),
  spread        interval not null default '0',
  declared_by   text,                              -- the registry whose code says so; null: created at run time
  undeclared_at timestamptz,                       -- since when that code no longer says so
  zones_at      timestamptz,                       -- when its zones were last asked for
  paused_at     timestamptz,
  paused_by     text,
  pause_reason  text,
  created_at    timestamptz not null,
  changed_at    timestamptz not null,
  primary key (org_id, name),
  check (jsonb_typeof(job) = 'object' and jsonb_typeof(job -> 'payload') = 'object'),
  check (fill <@ '{zone,instant}')
);

-- Where a schedule stands: one narrow row that moves, or one a zone. `after` never goes back.
create table {schema}.schedule_zone (
  org_id   text not null,
  schedule text not null,
  zone     text not null default '',  -- '': the rule's own
  declared boolean not null,          -- by code: fired only by processes whose code does
  after    timestamptz not null,      -- every instant up to here is dealt with
  next_at  timestamptz,               -- when to look again; null: paused, or nothing follows
  local    timestamp,                 -- what the zone's clock showed at the last instant
  tzdata   text,                      -- the version of the zone data that said so
  job_id   uuid,                      -- of the last fire
  problem  text,                      -- why the last look failed
  primary key (org_id, schedule, zone)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

create index schedule_zone_next on {schema}.schedule_zone (next_at) where next_at is not null;

-- One row an instant, written once. A row of several missed instants stands at the last of them.
create table {schema}.fire (
  org_id   text not null,
  id       uuid not null,
  schedule text not null,
  zone     text not null,
  instant  timestamptz not null,
  local    text not null,             -- what the zone's clock showed
  how      text not null check (how in ('fired', 'skipped', 'missed', 'run_now')),
  reason   text,
  instants integer not null default 1,
  job_id   uuid,                      -- null: none was made, or one for each entity
  at       timestamptz not null,
  primary key (org_id, id)
);

create unique index fire_once on {schema}.fire (org_id, schedule, zone, instant) where how <> 'run_now';
create index fire_at on {schema}.fire (org_id, schedule, at);

-- How far the jobs of a fire over many entities are made: a cursor that moves with each page, in its transaction.
create table {schema}.fan_out (
  org_id      text not null,
  fire_id     uuid not null,
  schedule    text not null,
  zone        text not null,
  instant     timestamptz not null,
  begun_at    timestamptz not null,
  after       jsonb,                  -- the key of the last entity; null: none yet
  mark        jsonb,                  -- the same when there were half as many: should it come again, they go in circles
  jobs        integer not null default 0,
  refused     integer not null default 0,
  by_hand     boolean not null default false,  -- run now: a pause does not hold it
  problem     text,                   -- the last one
  look_at     timestamptz not null,   -- when to go on: later after a failure
  finished_at timestamptz,
  primary key (org_id, fire_id)
);

create index fan_out_open on {schema}.fan_out (look_at) where finished_at is null;

create function {schema}.guard_fire() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and {schema}.verb() = 'prune' then
    return old;
  end if;
  raise exception 'a fire is written once' using errcode = 'MS004';
end $$;

create trigger fire_guard before update or delete on {schema}.fire
  for each row execute function {schema}.guard_fire();

-- What somebody did to a schedule, with what it was before and is after.
create function {schema}.record_schedule(
  p_event text, p_actor_type text, p_actor_id text, p_reason text, p_org text, p_name text, p_before jsonb, p_after jsonb)
returns void language sql as $$
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  select p_org, {schema}.now(), p_event, p_actor_type, p_actor_id, jsonb_build_object(
    'schedule', p_name, 'by', p_actor_id, 'by_type', p_actor_type, 'reason', p_reason,
    'before', p_before, 'after', p_after)
$$;

-- A schedule without what moves by itself.
create function {schema}.definition(s {schema}.schedule) returns jsonb language sql immutable
  return to_jsonb(s) - '{org_id,name,zones_at,paused_at,paused_by,pause_reason,created_at,changed_at,undeclared_at}'::text[];

-- No instant up to here may fire: now, or what a schedule of this name has dealt with, should the clock have gone back.
create function {schema}.fires_after(p_org text, p_name text) returns timestamptz language sql stable
  return greatest({schema}.now(),
    (select max(z.after) from {schema}.schedule_zone z where z.org_id = p_org and z.schedule = p_name),
    (select max(f.instant) from {schema}.fire f where f.org_id = p_org and f.schedule = p_name and f.how <> 'run_now'));

-- Who: a worker at its start, `schedule sync`, and clients that create one. Writes a definition that Python has checked,
-- or leaves it as it is; a pause survives. A new rule holds from now on; where the rule stays, what was missed is still
-- caught up. Answers created, changed or same; null: the name is taken and p_replace is false, or code has declared it.
create function {schema}.save_schedule(
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
create function {schema}.undeclare_schedules(p_registries text[], p_orgs text[], p_names text[])
returns table (org_id text, name text) language sql as $$
  update {schema}.schedule s set undeclared_at = {schema}.now()
  where s.declared_by = any(p_registries) and s.undeclared_at is null and not exists (
    select from unnest(p_orgs, p_names) m(org_id, name) where m.org_id = s.org_id and m.name = s.name)
  returning s.org_id, s.name
$$;

-- Stop firing; when the caller's transaction has committed, nothing fires any more, and no page of a fan-out is made.
-- Answers false when it was paused already, null when there is none.
create function {schema}.pause_schedule(p_org text, p_name text, p_actor_type text, p_actor_id text, p_reason text)
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
create function {schema}.resume_schedule(
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
create function {schema}.delete_schedule(p_org text, p_name text, p_actor_type text, p_actor_id text, p_reason text)
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
create function {schema}.run_schedule(
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

-- Who: clean-up, in bounded batches. What fires next depends on no fire.
create function {schema}.prune_fires(p_before timestamptz, p_limit integer) returns integer language plpgsql as $$
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

-- The numbers that one field of a cron expression means; null: it is none.
create function {schema}.cron_values(p_field text, p_low integer, p_high integer, p_names text[]) returns integer[]
language plpgsql immutable as $$
declare
  item text;
  part text[];
  first integer;
  last integer;
  found integer[] := '{}';
begin
  foreach item in array string_to_array(p_field, ',') loop
    part := regexp_match(item, '^(?:(\*)|([0-9]{1,2}|[A-Z]{3})(?:-([0-9]{1,2}|[A-Z]{3}))?)(?:/([0-9]{1,4}))?$');
    if part is null or part[4]::integer = 0 then
      return null;
    end if;
    first := case when part[1] is not null then p_low when part[2] ~ '^[0-9]' then part[2]::integer
                  else p_low - 1 + array_position(p_names, part[2]) end;
    last := case when part[1] is not null then p_high when part[3] is null and part[4] is not null then p_high
                 when part[3] is null then first when part[3] ~ '^[0-9]' then part[3]::integer
                 else p_low - 1 + array_position(p_names, part[3]) end;
    if first is null or last is null or first < p_low or last > p_high or first > last then
      return null;
    end if;
    found := found || array(select generate_series(first, last, coalesce(part[4]::integer, 1)));
  end loop;
  return nullif(found, '{}');
end $$;

-- A cron expression of five fields that fires some day, as mainspring.rule takes it: with names, L, 5L and WED#2.
create function {schema}.check_cron(p_text text) returns void language plpgsql immutable as $$
declare
  fields text[];
  days text;
  weekdays text;
  months integer[];
  numbers integer[];
begin
  if p_text is null then
    perform {schema}.refuse('cron', 'is missing');
  elsif length(p_text) > 200 then
    perform {schema}.refuse('cron', 'is longer than 200 characters');
  end if;
  fields := regexp_split_to_array(btrim(upper(p_text), e' \t'), '[ \t]+');
  if cardinality(fields) <> 5 then
    perform {schema}.refuse('cron', 'has not five fields: minute, hour, day of month, month, day of week');
  end if;
  days := array_to_string(array(select x from unnest(string_to_array(fields[3], ',')) x where x <> 'L'), ',');
  weekdays := array_to_string(array(
    select x from unnest(string_to_array(fields[5], ',')) x
    where x !~ '^([0-7]L|([0-7]|SUN|MON|TUE|WED|THU|FRI|SAT)#[1-5])$'), ',');
  if {schema}.cron_values(fields[1], 0, 59, '{}') is null then
    perform {schema}.refuse('cron', 'has a wrong minute');
  elsif {schema}.cron_values(fields[2], 0, 23, '{}') is null then
    perform {schema}.refuse('cron', 'has a wrong hour');
  end if;
  numbers := {schema}.cron_values(days, 1, 31, '{}');
  if numbers is null and (days <> '' or fields[3] ~ ',,|^,|,$') then
    perform {schema}.refuse('cron', 'has a wrong day of month');
  end if;
  months := {schema}.cron_values(fields[4], 1, 12, '{JAN,FEB,MAR,APR,MAY,JUN,JUL,AUG,SEP,OCT,NOV,DEC}');
  if months is null then
    perform {schema}.refuse('cron', 'has a wrong month');
  elsif {schema}.cron_values(weekdays, 0, 7, '{SUN,MON,TUE,WED,THU,FRI,SAT}') is null
        and (weekdays <> '' or fields[5] ~ ',,|^,|,$') then
    perform {schema}.refuse('cron', 'has a wrong day of week');
  end if;
  if days = fields[3] and (fields[3] like '*%' or fields[5] like '*%')
     and (select min(d) from unnest(numbers) d)
       > (select max(case when m = 2 then 29 when m in (4, 6, 9, 11) then 30 else 31 end) from unnest(months) m) then
    perform {schema}.refuse('cron', 'never fires: no such month has such a day');
  end if;
end $$;

-- Who: psql, triggers and other languages, in their own transaction; checked as the Python client checks. Either a cron
-- expression in the local time of a zone, or an interval. Any scheduler fires it.
create function {schema}.create_schedule(
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
