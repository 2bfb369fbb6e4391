-- What the database refuses, whoever writes.

-- What is done by a function that may: it says so for its own duration (a function's SET clause would need a superuser).
-- This guards against mistakes, not against somebody who sets the verb.
create or replace function {schema}.verb() returns text language sql stable
  return coalesce(current_setting('mainspring.verb', true), '');

-- Whether somebody other than the owner acts on a table of a secured schema: a worker, by itself and not by a verb. What
-- it says to be doing is not believed.
create or replace function {schema}.is_guest(p_table oid) returns boolean language sql stable
  return row_security_active(p_table)
         and not pg_has_role((select c.relowner from pg_class c where c.oid = p_table), 'usage');

-- A worker that prunes leaves the event that the job alone proved; who removed it to put another in its place, as well.
create or replace function {schema}.guard_job() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' then
    if {schema}.verb() <> 'prune' then
      raise exception 'a job is removed by prune only' using errcode = 'MS004';
    end if;
    if {schema}.is_guest(tg_relid) and not (old.org_id = 'SYSTEM' and old.task like 'mainspring.%')
       and not exists (select from {schema}.audit a where a.job_id = old.id and a.event = 'job.enqueued') then
      raise exception 'a job is removed by prune only, which leaves its events' using errcode = 'MS004';
    end if;
    return old;
  end if;
  if {schema}.verb() not in ('reset', 'replace') then
    raise exception 'a job is written once: only reset and replace may change its payload'
      using errcode = 'MS004';
  end if;
  if (to_jsonb(new) - '{payload,scheduled_for,max_attempts}'::text[])
     is distinct from (to_jsonb(old) - '{payload,scheduled_for,max_attempts}'::text[]) then
    raise exception 'only the payload, due time and attempt limit of a job may change' using errcode = 'MS004';
  end if;
  if exists (select from {schema}.running r where r.id = old.id) then
    raise exception 'job % is running: its payload cannot change', old.id using errcode = 'MS004';
  end if;
  return new;
end $$;

create or replace trigger job_guard before update or delete on {schema}.job
  for each row execute function {schema}.guard_job();

-- On a secured schema a ticket goes by a verb, which leaves an event, or after its job.
create or replace function {schema}.guard_finished() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and {schema}.is_guest(tg_relid) then
    if {schema}.verb() = 'prune' and not exists (select from {schema}.job j where j.id = old.id) then
      return old;
    end if;
    raise exception 'a finished job is replayed by replay and removed by prune only' using errcode = 'MS004';
  end if;
  if tg_op = 'DELETE' and ({schema}.verb() = 'prune'
     or ({schema}.verb() = 'replay' and old.state in ('failed', 'dead'))
     or ({schema}.verb() = 'reset' and old.state in ('failed', 'dead', 'cancelled'))) then
    return old;
  end if;
  if tg_op = 'UPDATE' and {schema}.verb() = 'fail_late' and old.state = 'succeeded' and old.error is null
     and (to_jsonb(new) - 'error') = (to_jsonb(old) - 'error') then
    return new;
  end if;
  raise exception 'a finished job does not change: % of a % job refused', lower(tg_op), old.state using errcode = 'MS004';
end $$;

create or replace trigger finished_guard before update or delete on {schema}.finished
  for each row execute function {schema}.guard_finished();

create or replace function {schema}.guard_append_only() returns trigger language plpgsql as $$
begin
  raise exception '% is append-only', tg_table_name using errcode = 'MS004';
end $$;

create or replace trigger audit_guard before update or delete on {schema}.audit
  for each row execute function {schema}.guard_append_only();

create or replace trigger audit_guard_truncate before truncate on {schema}.audit
  for each statement execute function {schema}.guard_append_only();

create or replace trigger seal_guard before update or delete on {schema}.seal
  for each row execute function {schema}.guard_append_only();

create or replace trigger seal_guard_truncate before truncate on {schema}.seal
  for each statement execute function {schema}.guard_append_only();

create or replace function {schema}.guard_fire() returns trigger language plpgsql as $$
begin
  if tg_op = 'DELETE' and {schema}.verb() = 'prune' then
    return old;
  end if;
  raise exception 'a fire is written once' using errcode = 'MS004';
end $$;

create or replace trigger fire_guard before update or delete on {schema}.fire
  for each row execute function {schema}.guard_fire();
