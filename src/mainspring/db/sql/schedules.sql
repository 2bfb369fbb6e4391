-- What schedulers do with schedules, and what people see of them. `mine`: the schedules that the process declares; one
-- that code has declared is fired only by those whose code does, those created at run time by everybody.

-- name: save_schedules
-- A worker at its start, and `schedule sync`: all that an application declares, in one statement.
select s.name, {schema}.save_schedule(s.org_id, s.name, s.definition, s.declared_by, true, %(actor_type)s::text,
                                      %(actor_id)s::text, %(reason)s::text)
from json_to_recordset(%(schedules)s::text::json) as s(org_id text, name text, definition jsonb, declared_by text)

-- name: undeclare_schedules
-- After the one before: what the same registries declared once, and no longer do.
select org_id, name from {schema}.undeclare_schedules(%(registries)s::text::text[], %(orgs)s::text::text[],
                                                      %(names)s::text::text[])

-- name: save_schedule
select {schema}.save_schedule(%(org)s::text, %(name)s::text, %(definition)s::text::jsonb, null, %(replace)s::int = 1,
                              %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: pause_schedule
select {schema}.pause_schedule(%(org)s::text, %(name)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: resume_schedule
select {schema}.resume_schedule(%(org)s::text, %(name)s::text, %(catch_up)s::int = 1, %(actor_type)s::text,
                                %(actor_id)s::text, %(reason)s::text)

-- name: delete_schedule
select {schema}.delete_schedule(%(org)s::text, %(name)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: run_schedule
select job_id from {schema}.run_schedule(%(org)s::text, %(name)s::text, %(zone)s::text, %(fire)s::text::uuid,
  %(job)s::text::json, %(local)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: list_schedules
-- A person looks. By name, or one; each with where it stands, its last fire and the fan-out under way.
-- Index: schedule_pkey, schedule_zone_pkey, fire_at.
select json_build_object(
  'org_id', s.org_id, 'name', s.name, 'rule', s.rule, 'description', s.description, 'zone', s.zone, 'task', s.task,
  'job', s.job, 'fill', s.fill, 'catch_up', s.catch_up, 'within_s', extract(epoch from s.within)::float8, 'most', s.most,
  'running', s.running, 'jitter_s', extract(epoch from s.jitter)::float8, 'by_zone', s.by_zone, 'by_entity', s.by_entity,
  'page', s.page, 'spread_s', extract(epoch from s.spread)::float8, 'declared_by', s.declared_by,
  'undeclared_at', s.undeclared_at, 'paused_at', s.paused_at, 'paused_by', s.paused_by, 'pause_reason', s.pause_reason,
  'created_at', s.created_at, 'changed_at', s.changed_at, 'now', {schema}.now(),
  'zones', coalesce((
    select json_agg(json_build_object('zone', z.zone, 'after', z.after, 'next_at', z.next_at, 'problem', z.problem)
                    order by z.zone)
    from {schema}.schedule_zone z where z.org_id = s.org_id and z.schedule = s.name), '[]'),
  'last', (
    select json_build_object('org_id', f.org_id, 'schedule', f.schedule, 'id', f.id, 'zone', f.zone, 'instant', f.instant, 'local', f.local, 'how', f.how,
                             'reason', f.reason, 'instants', f.instants, 'job_id', f.job_id, 'at', f.at,
                             'state', (select t.state from {schema}.state_of(f.job_id) t))
    from {schema}.fire f where f.org_id = s.org_id and f.schedule = s.name order by f.at desc, f.instant desc limit 1),
  'fan_out', (
    select json_build_object('fire_id', o.fire_id, 'zone', o.zone, 'instant', o.instant, 'begun_at', o.begun_at,
                             'jobs', o.jobs, 'refused', o.refused, 'problem', o.problem, 'finished_at', o.finished_at)
    from {schema}.fan_out o where o.org_id = s.org_id and o.schedule = s.name
    order by o.finished_at is null desc, o.begun_at desc limit 1))::text
from {schema}.schedule s
where (%(org)s::text is null or s.org_id = %(org)s::text)
  and (%(name)s::text is null or s.name = %(name)s::text)
  and (%(after)s::text is null or s.name > %(after)s::text
       or (s.name = %(after)s::text and s.org_id > %(after_org)s::text))
  and (%(without)s::text is null or s.declared_by is distinct from %(without)s::text)
order by s.name, s.org_id limit %(limit)s

-- name: list_fires
-- A person looks, newest first: at one schedule, also one that is gone, or at all that there are, each from its end.
-- Index: fire_at.
with which as (
  select %(org)s::text as org_id, %(name)s::text as name where %(name)s::text is not null
  union all
  select s.org_id, s.name from {schema}.schedule s
  where %(name)s::text is null and (%(org)s::text is null or s.org_id = %(org)s::text)
)
select json_build_object('org_id', f.org_id, 'schedule', f.schedule, 'id', f.id, 'zone', f.zone, 'instant', f.instant,
                         'local', f.local, 'how', f.how, 'reason', f.reason, 'instants', f.instants, 'job_id', f.job_id,
                         'at', f.at, 'state', (select t.state from {schema}.state_of(f.job_id) t),
                         'fan_out', case when o.fire_id is not null then json_build_object(
                           'fire_id', o.fire_id, 'zone', o.zone, 'instant', o.instant, 'begun_at', o.begun_at,
                           'jobs', o.jobs, 'refused', o.refused, 'problem', o.problem, 'finished_at', o.finished_at)
                         end)::text
from which w cross join lateral (
  select x.* from {schema}.fire x
  where x.org_id = w.org_id and x.schedule = w.name
    and x.at >= coalesce(%(since)s::text::timestamptz, '-infinity') and x.at < coalesce(%(until)s::text::timestamptz, 'infinity')
    and x.at <= coalesce(%(before)s::text::timestamptz, 'infinity')
    and (%(before)s::text is null
         or (x.at, x.instant) < (%(before)s::text::timestamptz, %(before_instant)s::text::timestamptz)
         or ((x.at, x.instant) = (%(before)s::text::timestamptz, %(before_instant)s::text::timestamptz)
             and (x.zone, x.id) > (%(before_zone)s::text, %(before_id)s::text::uuid)))
    and (%(hows)s::text is null or x.how = any(%(hows)s::text::text[]))
    and (%(states)s::text is null
         or (select t.state from {schema}.state_of(x.job_id) t) = any(%(states)s::text::text[]))
  order by x.at desc, x.instant desc, x.zone, x.id limit %(limit)s) f
left join {schema}.fan_out o on o.org_id = f.org_id and o.fire_id = f.id
order by f.at desc, f.instant desc, f.zone, f.id limit %(limit)s

-- name: fired_before
-- Before a backfill: which of these instants have fired, or were made up for. Index: fire_pkey, fire_once.
select c.id from json_to_recordset(%(fires)s::text::json) c(id uuid, zone text, instant timestamptz)
where {schema}.has_fired(%(org)s::text, %(name)s::text, c.id, c.zone, c.instant)

-- name: backfill_schedule
select fire_id, job_id from {schema}.backfill_schedule(%(org)s::text, %(name)s::text, %(fires)s::text::json,
  %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: prune_fires
select {schema}.prune_fires({schema}.now() - %(age)s::text::interval, %(limit)s)

-- name: schedule_names
-- For "did you mean".
select s.name from {schema}.schedule s where s.org_id = %(org)s::text order by s.name limit 10000

-- name: next_fire
-- Every scheduler, once a second or when something is due: how many seconds until then; null: nothing is to come.
-- Index: schedule_zone_next, fan_out_open.
with mine as materialized (
  select m.org_id, m.name from unnest(%(orgs)s::text::text[], %(names)s::text::text[]) m(org_id, name)
)
select extract(epoch from least(
  (select z.next_at from {schema}.schedule_zone z
   where z.next_at is not null and (not z.declared or (z.org_id, z.schedule) in (select m.org_id, m.name from mine m))
   order by z.next_at limit 1),
  (select min(case when s.zones_at > {schema}.now() then {schema}.now() else s.zones_at + interval '1 minute' end)
   from {schema}.schedule s join mine m on m.org_id = s.org_id and m.name = s.name where s.by_zone and s.paused_at is null),
  (select {schema}.now() from {schema}.schedule s join mine m on m.org_id = s.org_id and m.name = s.name
   where s.by_zone and s.paused_at is null and s.zones_at is null limit 1),
  (select min(case when o.look_at > {schema}.now() + interval '10 s' then {schema}.now() else o.look_at end)
   from {schema}.fan_out o join {schema}.schedule s on s.org_id = o.org_id and s.name = o.schedule
   join mine m on m.org_id = s.org_id and m.name = s.name
   where o.finished_at is null and s.by_entity and (s.paused_at is null or o.by_hand))) - {schema}.now())::float8

-- name: take_schedules
-- A scheduler, when something is due. The definition is shared, so that it stays whole until the fire has committed; where
-- somebody changes it just now, or another scheduler holds it, it is passed by. The narrow rows are chosen first: joined
-- before they are, 10,000 that are due together take ten times as long (measured). Index: schedule_zone_next.
with due as materialized (
  select z.* from {schema}.schedule_zone z
  where z.next_at <= {schema}.now()
    and (not z.declared or (z.org_id, z.schedule) in (
      select m.org_id, m.name from unnest(%(orgs)s::text::text[], %(names)s::text::text[]) m(org_id, name)))
    and (%(one)s::text is null or (z.schedule = %(one)s::text and z.org_id = %(org)s::text and z.zone = %(zone)s::text))
  order by z.next_at limit %(limit)s
  for update skip locked
)
select s.org_id, s.name, z.zone, s.rule::text, s.job::text, s.fill, s.catch_up, s.within, s.most, s.running, s.jitter,
       s.by_zone, s.by_entity, z.after, z.local, z.tzdata,
       s.running = 'skip' and (exists (select from {schema}.waiting w where w.id = z.job_id)
                               or exists (select from {schema}.running r where r.id = z.job_id)),
       s.undeclared_at is not null, {schema}.now(), {schema}.speed()
from due z join {schema}.schedule s on s.org_id = z.org_id and s.name = z.schedule and s.paused_at is null
for share of s skip locked

-- name: write_fires
insert into {schema}.fire (org_id, id, schedule, zone, instant, local, how, reason, instants, job_id, at)
select f.org_id, f.id, f.schedule, f.zone, f.instant, f.local, f.how, f.reason, f.instants, f.job_id, {schema}.now()
from json_to_recordset(%(fires)s::text::json) as f(
  org_id text, id uuid, schedule text, zone text, instant timestamptz, local text, how text, reason text, instants integer,
  job_id uuid)

-- name: begin_fan_outs
insert into {schema}.fan_out (org_id, fire_id, schedule, zone, instant, begun_at, look_at)
select f.org_id, f.id, f.schedule, f.zone, f.instant, {schema}.now(), {schema}.now()
from json_to_recordset(%(fires)s::text::json) as f(org_id text, id uuid, schedule text, zone text, instant timestamptz)

-- name: move_schedules
-- With the fires, in their transaction. Index: schedule_zone_pkey.
update {schema}.schedule_zone z
set after = greatest(z.after, m.after), next_at = m.next_at, local = m.local, tzdata = m.tzdata,
    job_id = coalesce(m.job_id, z.job_id), problem = m.problem
from json_to_recordset(%(moves)s::text::json) as m(
  org_id text, schedule text, zone text, after timestamptz, next_at timestamptz, local timestamp, tzdata text, job_id uuid,
  problem text)
where z.org_id = m.org_id and z.schedule = m.schedule and z.zone = m.zone

-- name: put_off_schedule
-- After a look that failed: it is tried again in a minute, and the others go on meanwhile.
update {schema}.schedule_zone z set next_at = {schema}.now() + interval '1 minute', problem = %(problem)s::text
where z.org_id = %(org)s::text and z.schedule = %(name)s::text and z.zone = %(zone)s::text and z.next_at <= {schema}.now()

-- name: look_anew
-- A scheduler at its start: what was computed by another zone database is computed again.
update {schema}.schedule_zone z set next_at = {schema}.now()
where z.next_at > {schema}.now() and z.tzdata is distinct from %(tzdata)s::text

-- name: declared_again
-- After a fire. Whoever fires it declares it: an older process, which started later, said otherwise.
update {schema}.schedule s set undeclared_at = null
where s.undeclared_at is not null
  and (s.org_id, s.name) in (
    select m.org_id, m.name from unnest(%(orgs)s::text::text[], %(names)s::text::text[]) m(org_id, name))

-- name: take_zones
-- A scheduler, once a minute for each schedule over zones.
select s.org_id, s.name, s.zones_at, {schema}.now()
from {schema}.schedule s
where s.by_zone and s.paused_at is null and s.name = %(name)s::text and s.org_id = %(org)s::text
  and (s.zones_at is null or {schema}.now() not between s.zones_at and s.zones_at + %(every)s::text::interval
       or {schema}.now() = s.zones_at + %(every)s::text::interval)
for update skip locked

-- name: save_zones
-- A zone that is new begins where the zones were last asked for: whoever came since has missed nothing. One that was
-- there before does not repeat what it has fired, should the clock have gone back. Index: fire_once.
with gone as (
  delete from {schema}.schedule_zone z
  where z.org_id = %(org)s::text and z.schedule = %(name)s::text and z.zone <> all(%(zones)s::text[])
), come as (
  insert into {schema}.schedule_zone (org_id, schedule, zone, declared, after, next_at)
  select s.org_id, s.name, new.zone, true, greatest(
    coalesce(s.zones_at, {schema}.fires_after(s.org_id, s.name)),
    (select max(f.instant) from {schema}.fire f
     where f.org_id = s.org_id and f.schedule = s.name and f.zone = new.zone and f.how <> 'run_now')), {schema}.now()
  from unnest(%(zones)s::text[]) new(zone), {schema}.schedule s
  where s.org_id = %(org)s::text and s.name = %(name)s::text
  on conflict do nothing
)
update {schema}.schedule s set zones_at = {schema}.now()
where s.org_id = %(org)s::text and s.name = %(name)s::text

-- name: take_fan_out
-- A scheduler, as long as there is one: the next page of one fire; one that was put off further than anybody does is
-- from before the clock went back. Index: fan_out_open.
select o.org_id, o.fire_id, o.schedule, o.zone, o.instant, o.begun_at, o.after::text, o.mark::text, o.jobs
from {schema}.fan_out o join {schema}.schedule s on s.org_id = o.org_id and s.name = o.schedule
where o.finished_at is null and o.look_at not between {schema}.now() + interval '1 us' and {schema}.now() + interval '10 s'
  and s.by_entity and (s.paused_at is null or o.by_hand)
  and (s.org_id, s.name) in (
    select m.org_id, m.name from unnest(%(orgs)s::text::text[], %(names)s::text::text[]) m(org_id, name))
order by o.look_at limit 1
for update of o skip locked for share of s skip locked

-- name: move_fan_out
-- With the jobs of a page, in their transaction. Where their number gets another binary digit, the mark moves.
-- Index: fan_out_pkey.
update {schema}.fan_out o
set after = coalesce(%(after)s::text::jsonb, o.after),
    mark = case when ((o.jobs + o.refused) # (o.jobs + o.refused + %(jobs)s + %(refused)s)) > o.jobs + o.refused
           then %(after)s::text::jsonb else o.mark end,
    jobs = o.jobs + %(jobs)s, refused = o.refused + %(refused)s,
    problem = coalesce(%(problem)s::text, o.problem), look_at = {schema}.now(),
    finished_at = case when %(done)s::int = 1 then {schema}.now() end
where o.org_id = %(org)s::text and o.fire_id = %(fire)s::text::uuid

-- name: put_off_fan_out
update {schema}.fan_out o set look_at = {schema}.now() + interval '10 s', problem = %(problem)s::text
where o.org_id = %(org)s::text and o.fire_id = %(fire)s::text::uuid and o.finished_at is null
