-- The audit trail: its seal, and what applications write to it.

-- The canonical form of a row depends on no setting of a session: an instant is its microseconds, JSON is what PostgreSQL
-- makes of it. A column that is added later is not part of this form.
create or replace function {schema}.digest(a {schema}.audit) returns bytea language sql stable parallel safe
  return sha256(convert_to(jsonb_build_array(
    a.org_id, a.id, extract(epoch from a.at)::text, a.event, a.job_id, a.task, a.attempt, a.project_id, a.actor_type,
    a.actor_id, a.request_id, a.correlation_id, a.subject, a.detail, a.epoch)::text, 'utf8'));

create or replace function {schema}.seal_hash(s {schema}.seal) returns bytea language sql stable parallel safe
  return sha256(convert_to(jsonb_build_array(
    s.org_id, s.number, s.ids, s.last_id, s.floor, s.tx::text, extract(epoch from s.sealed_at)::text,
    encode(s.previous, 'hex'))::text, 'utf8') || s.digests);

-- Seal what can be sealed of an organisation, at most so many rows. Who: the sealer of each worker, `mainspring audit
-- seal`; in a transaction of its own. Answers how many rows it sealed; 0 also while another sealer is at it. Two can never
-- fork the chain: its numbers are unique.
-- Why a late row is never missed: ids are drawn in order, by transactions that have their number already. So what is below
-- the last id of a seal was drawn by a transaction that is older than the seal's own; once all of those have ended, and what
-- they left is sealed, that id is the floor, below which nobody needs to look again. A row written after a savepoint bears
-- the savepoint's number, which may be younger: the floor stays below such a row until it is sealed. And a transaction
-- that has its number already seals nothing: younger ones may have drawn ids below those that it sees.
-- On a secured schema it runs as the owner, and binds itself to the organisation that it seals for whoever may call it:
-- so nobody writes a seal by hand.
create or replace function {schema}.seal(p_org text, p_limit integer) returns integer
language plpgsql set enable_seqscan = off set jit = off as $$
declare
  last {schema}.seal;
  new {schema}.seal;
  horizon xid8;
  bound constant text := coalesce(current_setting('mainspring.org', true), '');
begin
  if pg_current_xact_id_if_assigned() is not null or bound not in ('', p_org)
     or not pg_try_advisory_xact_lock(hashtextextended('mainspring seal {schema} ' || p_org, 0)) then
    return 0;
  end if;
  if session_user <> current_user then
    perform set_config('mainspring.org', p_org, true);
  end if;
  select * into last from {schema}.seal s where s.org_id = p_org order by s.number desc limit 1;
  last.floor := coalesce(last.floor, 0);
  horizon := pg_snapshot_xmin(pg_current_snapshot());  -- every older transaction has ended
  select array_agg(x.id order by x.id), string_agg({schema}.digest(x.a), '' order by x.id) into new.ids, new.digests
  from (
    select a.id, a from {schema}.audit a
    where a.org_id = p_org and a.id > last.floor and age(a.xmin) > age(horizon::xid)
      and a.id not in (select unnest(s.ids) from {schema}.seal s where s.org_id = p_org and s.last_id > last.floor)
    order by a.id limit p_limit) x;
  if new.ids is null then
    perform set_config('mainspring.org', bound, true);
    return 0;
  end if;
  new.org_id := p_org;
  new.number := coalesce(last.number, 0) + 1;
  new.last_id := greatest(new.ids[cardinality(new.ids)], last.last_id);
  select coalesce(max(s.last_id), 0) into new.floor from (
    select s.last_id from {schema}.seal s
    where s.org_id = p_org and s.tx < horizon
      and (cardinality(new.ids) < p_limit or s.last_id <= new.ids[cardinality(new.ids)])
    order by s.number desc limit 1) s;
  new.floor := greatest(last.floor, least(new.floor, (
    select min(a.id) - 1 from {schema}.audit a
    where a.org_id = p_org and a.id > last.floor and a.id <= new.floor and age(a.xmin) <= age(horizon::xid))));
  new.tx := pg_current_xact_id();  -- only now: after the rows were read
  new.sealed_at := {schema}.now();
  new.previous := last.hash;
  new.hash := {schema}.seal_hash(new);
  insert into {schema}.seal values (new.*);
  perform set_config('mainspring.org', bound, true);
  return cardinality(new.ids);
end $$;

-- What the domain did, under the domain's own names; in the caller's transaction. Of a job: with the fields of its
-- envelope, by SYSTEM. `p_subject` is what it is about: all events about one thing are found by it.
create or replace function {schema}.record_business(
  p_event text, p_detail jsonb, p_org text, p_job uuid default null, p_attempt smallint default null,
  p_project uuid default null, p_actor_type text default 'system', p_actor_id text default 'SYSTEM',
  p_request_id text default null, p_correlation_id text default null, p_subject text default null
) returns bigint language plpgsql as $$
declare
  j {schema}.job;
  new_id bigint;
begin
  perform {schema}.check_text('event', p_event, 100);
  if p_event !~ '^[a-z][a-z0-9_-]*(\.[a-z][a-z0-9_-]*)+$' then
    perform {schema}.refuse('event', 'is not of the form noun.verb');
  end if;
  if p_event ~ '^(job|batch|queue|limit|breaker|worker|schedule|schema|audit|cipher|dead_letters|notification|webhook|alert|quarantine|access)\.' then
    perform {schema}.refuse('event', 'is a name of the engine');
  end if;
  if p_detail is null or jsonb_typeof(p_detail) <> 'object' then
    perform {schema}.refuse('detail', 'is not a JSON object');
  end if;
  if octet_length(p_detail::text) > 16384 then
    perform {schema}.refuse('detail', 'is larger than 16 KiB');
  end if;
  if jsonb_path_exists(p_detail, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")') then
    perform {schema}.refuse('detail', 'is nested deeper than 64 levels');
  end if;
  perform {schema}.check_text('org', p_org, 200);
  perform {schema}.check_actor(p_actor_type, p_actor_id, null);
  perform {schema}.check_text('request_id', coalesce(p_request_id, '-'), 200);
  perform {schema}.check_text('correlation_id', coalesce(p_correlation_id, '-'), 200);
  perform {schema}.check_text('subject', coalesce(p_subject, '-'), 200);
  if p_job is not null then
    select * into j from {schema}.job x where x.id = p_job and x.org_id = p_org;
    if not found then
      perform {schema}.refuse('job', 'is no job of the organisation');
    end if;
  end if;
  insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                              correlation_id, subject, detail)
  values (p_org, {schema}.now(), p_event, j.id, j.task, coalesce(p_attempt, (select r.attempt from {schema}.running r where r.id = j.id), case when j.id is not null then 0 end),
          coalesce(p_project, j.project_id), p_actor_type, p_actor_id,
          coalesce(p_request_id, j.request_id, gen_random_uuid()::text),
          coalesce(p_correlation_id, j.correlation_id, gen_random_uuid()::text), p_subject, p_detail)
  returning id into new_id;
  return new_id;
end $$;
