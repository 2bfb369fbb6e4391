-- Webhooks that we send.

-- One row a delivery, and where it stands: `pending` while its job waits or runs, `failed` when the job ended otherwise
-- than by delivering. The error is that of the last call, or the job's where there was none.
create or replace view {schema}.deliveries with (security_invoker = true) as
select d.org_id, d.id, d.endpoint, d.event_id, d.event_type, d.aggregate_type, d.aggregate_id,
       case when d.delivered_at is not null then 'delivered'
            when exists (select from {schema}.waiting w where w.id = d.job_id)
              or exists (select from {schema}.running r where r.id = d.job_id) then 'pending'
            else 'failed' end as status,
       d.attempts, d.attempted_at, d.http_status,
       case when d.delivered_at is null then coalesce(d.error, f.error ->> 'code') end as error,
       d.response_cut, d.delivered_at, d.job_id, d.created_at
from {schema}.webhook_delivery d left join {schema}.finished f on f.id = d.job_id and d.delivered_at is null;

-- What is done to an endpoint is on the trail.
create or replace function {schema}.record_endpoint(
  p_event text, p_org text, p_id uuid, p_actor_type text, p_actor_id text, p_detail jsonb
) returns void language sql as $$
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  values (p_org, {schema}.now(), p_event, p_actor_type, p_actor_id,
          jsonb_build_object('endpoint', p_id, 'by', p_actor_id, 'by_type', p_actor_type) || jsonb_strip_nulls(p_detail))
$$;

-- Who: whoever registers an endpoint, after its URL was checked. At most 1,000 an organisation.
create or replace function {schema}.add_endpoint(
  p_org text, p_id uuid, p_url text, p_events text[], p_description text, p_prefix text, p_headers text, p_secret text,
  p_actor_type text, p_actor_id text
) returns void language plpgsql as $$
begin
  perform {schema}.check_text('org', p_org, 200);
  perform {schema}.check_text('url', p_url, 2048);
  perform {schema}.check_actor(p_actor_type, p_actor_id, null);
  if (select count(*) from (select from {schema}.webhook_endpoint e where e.org_id = p_org limit 1000) x) = 1000 then
    perform {schema}.refuse('org', 'has 1000 endpoints already');
  end if;
  insert into {schema}.webhook_endpoint (org_id, id, url, events, description, prefix, headers, changed_at, created_at)
  values (p_org, p_id, p_url, coalesce(p_events, '{}'), p_description, p_prefix, p_headers, {schema}.now(), {schema}.now());
  insert into {schema}.webhook_secret (org_id, endpoint, id, secret, created_at)
  values (p_org, p_id, {schema}.uuid7(), p_secret, {schema}.now());
  perform {schema}.record_endpoint('webhook.endpoint_added', p_org, p_id, p_actor_type, p_actor_id,
                                   -- a query may hold a secret
                                   jsonb_build_object('url', split_part(p_url, '?', 1), 'events', p_events));
end $$;

-- The endpoint at whose gate deliveries wait while it is paused.
create or replace function {schema}.endpoint_at(p_gate text) returns uuid language sql immutable
  return case when starts_with(p_gate, 'endpoint:') then substr(p_gate, 10)::uuid end;

create or replace function {schema}.is_paused(p_org text, p_gate text) returns boolean language sql stable
  return exists (select from {schema}.webhook_endpoint e
                 where e.org_id = p_org and e.id = {schema}.endpoint_at(p_gate) and e.state = 'paused');

-- Who: a person, or a delivery whose receiver said that it is gone. Answers the state before, or null without the endpoint.
-- What waited while it was paused goes on at once. An endpoint that is active again has all its deliveries tried at once,
-- but for those that its breaker holds. The row is locked before, so a delivery that has read `paused` either waits at the
-- gate already, or finds another state when it gets there (`stopped_at`).
create or replace function {schema}.set_endpoint(
  p_org text, p_id uuid, p_becomes text, p_actor_type text, p_actor_id text, p_reason text
) returns text language plpgsql set enable_seqscan = off as $$
declare
  before text;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  if p_becomes is null or p_becomes not in ('active', 'paused', 'disabled') then
    perform {schema}.refuse('state', 'is not one of active, paused, disabled');
  end if;
  select e.state into before from {schema}.webhook_endpoint e where e.org_id = p_org and e.id = p_id for update;
  if not found or before = p_becomes then
    return before;
  end if;
  update {schema}.webhook_endpoint e
  set state = p_becomes, reason = case when p_becomes <> 'active' then p_reason end, changed_at = {schema}.now()
  where e.org_id = p_org and e.id = p_id;
  update {schema}.waiting w set due_at = {schema}.now(), gate = null, due_then = null
  where w.gate = 'endpoint:' || p_id and w.org_id = p_org and before = 'paused';
  if p_becomes = 'active' then
    update {schema}.waiting w set due_at = least(w.due_at, {schema}.now())
    where w.gate is null and w.after is null and w.id = any(array(
      select d.job_id from {schema}.webhook_delivery d
      where d.org_id = p_org and d.endpoint = p_id and d.delivered_at is null));
  end if;
  perform {schema}.wake();
  perform {schema}.record_endpoint(
    case p_becomes when 'active' then 'webhook.endpoint_resumed' else 'webhook.endpoint_' || p_becomes end, p_org, p_id,
    p_actor_type, p_actor_id, jsonb_build_object('reason', p_reason, 'before', before, 'after', p_becomes));
  return before;
end $$;

-- The end of an endpoint and its secrets: what waits for it is cancelled, its deliveries stay for as long as they are kept.
create or replace function {schema}.remove_endpoint(p_org text, p_id uuid, p_actor_type text, p_actor_id text, p_reason text)
returns boolean language plpgsql set enable_seqscan = off as $$
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  delete from {schema}.webhook_endpoint e where e.org_id = p_org and e.id = p_id;
  if not found then
    return false;
  end if;
  delete from {schema}.webhook_secret s where s.org_id = p_org and s.endpoint = p_id;
  perform {schema}.cancel(d.job_id, p_org, p_actor_type, p_actor_id, coalesce(p_reason, 'its endpoint was removed'))
  from {schema}.webhook_delivery d
  where d.org_id = p_org and d.endpoint = p_id and d.delivered_at is null
    and exists (select from {schema}.job j where j.id = d.job_id and not exists (
      select from {schema}.finished f where f.id = j.id));
  perform {schema}.record_endpoint('webhook.endpoint_removed', p_org, p_id, p_actor_type, p_actor_id,
                                   jsonb_build_object('reason', p_reason));
  return true;
end $$;

-- A new secret: attempts from now on are signed by it, and by the older ones until p_overlap is over. Without an overlap the
-- older ones are gone at once. The endpoint's row is locked, so that two rotations come one after the other. False: there
-- is no such endpoint.
create or replace function {schema}.rotate_secret(
  p_org text, p_id uuid, p_secret text, p_overlap interval, p_actor_type text, p_actor_id text, p_reason text
) returns boolean language plpgsql as $$
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  if p_overlap is null or p_overlap < '0' or p_overlap > '30 days' then
    perform {schema}.refuse('overlap', 'is not a time span from 0 to 30 days');
  end if;
  perform from {schema}.webhook_endpoint e where e.org_id = p_org and e.id = p_id for update;
  if not found then
    return false;
  end if;
  delete from {schema}.webhook_secret s
  where s.org_id = p_org and s.endpoint = p_id and (p_overlap = '0' or s.expires_at <= {schema}.now());
  if (select count(*) from {schema}.webhook_secret s where s.org_id = p_org and s.endpoint = p_id) >= 5 then
    perform {schema}.refuse('overlap', 'five secrets are valid already: wait until one expires, or say 0');
  end if;
  update {schema}.webhook_secret s set expires_at = least(s.expires_at, {schema}.now() + p_overlap)
  where s.org_id = p_org and s.endpoint = p_id;
  insert into {schema}.webhook_secret (org_id, endpoint, id, secret, created_at)
  values (p_org, p_id, {schema}.uuid7(), p_secret, {schema}.now());
  perform {schema}.record_endpoint('webhook.secret_rotated', p_org, p_id, p_actor_type, p_actor_id,
                                   jsonb_build_object('reason', p_reason, 'overlap', p_overlap));
  return true;
end $$;

-- Who: whoever publishes an event, in their own transaction. A delivery and its job for each endpoint that is not disabled
-- and wants the event; p_only: for this one, whatever it wants. The same event again: nothing for who has it already. p_job
-- is a job without id, payload and strand (mainspring.job.NewJob), checked by the client. Answers what was made; the first
-- job of a delivery has its id. Index: webhook_endpoint_pkey by organisation, webhook_delivery_event.
create or replace function {schema}.publish(
  p_org text, p_event_id uuid, p_type text, p_aggregate_type text, p_aggregate_id text, p_body text, p_job json,
  p_only uuid default null
) returns table (delivery uuid, endpoint uuid) language plpgsql as $$
#variable_conflict use_column
declare
  jobs json;
begin
  with wanted as materialized (
    select e.id as endpoint, {schema}.uuid7() as id from {schema}.webhook_endpoint e
    where e.org_id = p_org and e.state <> 'disabled' and case
      when p_only is not null then e.id = p_only
      else cardinality(e.events) = 0 or p_type = any(e.events) or exists (
        select from unnest(e.events) f where right(f, 2) = '.*' and starts_with(p_type, left(f, -1))) end
  ), made as (
    insert into {schema}.webhook_delivery (org_id, id, endpoint, event_id, event_type, aggregate_type, aggregate_id, body,
                                           job_id, created_at)
    select p_org, w.id, w.endpoint, p_event_id, p_type, p_aggregate_type, p_aggregate_id, p_body, w.id, {schema}.now()
    from wanted w order by w.endpoint  -- in one order by everybody
    on conflict (org_id, endpoint, event_id) do nothing
    returning id, endpoint
  )
  select json_agg({schema}.delivery_job(p_job, p_org, m.id, m.id, m.endpoint)) into jobs from made m;
  if jobs is null then
    return;
  end if;
  perform from {schema}.enqueue_many(jobs, true);
  return query select (j ->> 'id')::uuid, (j ->> 'strand')::uuid from json_array_elements(jobs) j;
end $$;

-- The job of a delivery: ids only, and the endpoint as its strand, so that limits hold the deliveries of one together.
create or replace function {schema}.delivery_job(p_job json, p_org text, p_id uuid, p_delivery uuid, p_endpoint uuid) returns jsonb
language sql immutable
  return p_job::jsonb || jsonb_build_object('id', p_id, 'org_id', p_org, 'strand', p_endpoint, 'payload',
                                            jsonb_build_object('delivery_id', p_delivery, 'endpoint_id', p_endpoint));

-- A person has a delivery sent again, under its own id. Its failed job is replayed; where that succeeded or is gone, a new
-- one is made. Answers `replayed`, `enqueued`, or `pending` while it is tried anyway, and the job; nothing without it.
create or replace function {schema}.redeliver(
  p_org text, p_id uuid, p_job json, p_actor_type text, p_actor_id text, p_reason text
) returns table (answer text, job uuid) language plpgsql as $$
#variable_conflict use_column
declare
  d {schema}.webhook_delivery;
  standing text;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, coalesce(p_reason, ''));
  select * into d from {schema}.webhook_delivery x where x.id = p_id and (p_org is null or x.org_id = p_org) for update;
  if not found then
    return;
  end if;
  job := d.job_id;
  if exists (select from {schema}.waiting w where w.id = job) or exists (select from {schema}.running r where r.id = job) then
    answer := 'pending';
    return next;
    return;
  end if;
  select e.state into standing from {schema}.webhook_endpoint e where e.org_id = d.org_id and e.id = d.endpoint;
  if standing is null or standing = 'disabled' then
    perform {schema}.refuse('endpoint', case when standing is null then 'was removed' else 'is disabled: resume it first' end);
  end if;
  answer := 'replayed';
  if not (select r.moved from {schema}.replay(job, d.org_id, p_actor_type, p_actor_id, p_reason) r) then
    answer := 'enqueued';
    job := {schema}.uuid7();
    perform from {schema}.enqueue_many(
      json_build_array({schema}.delivery_job(p_job, d.org_id, job, d.id, d.endpoint)), true);
  end if;
  update {schema}.webhook_delivery x set job_id = job, delivered_at = null where x.org_id = d.org_id and x.id = p_id;
  perform {schema}.record_endpoint('webhook.redelivered', d.org_id, d.endpoint, p_actor_type, p_actor_id, jsonb_build_object(
    'delivery', p_id, 'job', job, 'reason', p_reason,
    'before', case when d.delivered_at is null then 'failed' else 'delivered' end));
  return next;
end $$;
