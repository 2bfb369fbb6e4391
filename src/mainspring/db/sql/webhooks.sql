-- Webhooks that we send.

-- name: publish
-- Once an event. Index: webhook_endpoint_pkey, webhook_delivery_event.
select p.delivery, p.endpoint
from {schema}.publish(%(org)s::text, %(event)s::text::uuid, %(type)s::text, %(aggregate_type)s::text,
                      %(aggregate_id)s::text, %(body)s::text, %(job)s::text::json, %(only)s::text::uuid) p

-- name: begin_delivery
-- Each attempt, before its call: everything that it needs, and it counts if there will be a call. Index:
-- webhook_delivery_pkey, webhook_endpoint_pkey, webhook_secret_pkey. Locks: the delivery's row, for this short transaction.
with begun as (
  update {schema}.webhook_delivery d set attempts = d.attempts + 1, attempted_at = {schema}.now()
  where d.org_id = %(org)s::text and d.id = %(id)s::text::uuid and d.delivered_at is null and exists (
    select from {schema}.webhook_endpoint e where e.org_id = d.org_id and e.id = d.endpoint and e.state = 'active')
)
select json_build_object(
  'id', d.id, 'endpoint', d.endpoint, 'event_id', d.event_id, 'event_type', d.event_type, 'body', d.body,
  'delivered', d.delivered_at is not null, 'now', {schema}.now(), 'url', e.url, 'prefix', e.prefix, 'headers', e.headers,
  'state', e.state, 'secrets', array(
    select s.secret from {schema}.webhook_secret s
    where s.org_id = d.org_id and s.endpoint = d.endpoint and (s.expires_at is null or s.expires_at > {schema}.now())
    order by s.expires_at is null desc, s.created_at desc, s.id desc))::text
from {schema}.webhook_delivery d
left join {schema}.webhook_endpoint e on e.org_id = d.org_id and e.id = d.endpoint
where d.org_id = %(org)s::text and d.id = %(id)s::text::uuid

-- name: record_answer
-- Each attempt, after its call; a delivery in the transaction that completes its job. Index: webhook_delivery_pkey.
update {schema}.webhook_delivery d
set http_status = %(status)s, error = %(error)s::text, response_headers = %(headers)s::text::jsonb,
    response_body = decode(%(body)s::text, 'base64'), response_cut = %(cut)s::text::boolean,
    delivered_at = case when %(delivered)s::text::boolean then {schema}.now() end
where d.org_id = %(org)s::text and d.id = %(id)s::text::uuid and d.delivered_at is null

-- name: add_endpoint
select {schema}.add_endpoint(%(org)s::text, %(id)s::text::uuid, %(url)s::text,
                             array(select json_array_elements_text(%(events)s::text::json)), %(description)s::text,
                             %(prefix)s::text, %(headers)s::text, %(secret)s::text, %(actor_type)s::text, %(actor_id)s::text)

-- name: set_endpoint
select {schema}.set_endpoint(%(org)s::text, %(id)s::text::uuid, %(becomes)s::text, %(actor_type)s::text, %(actor_id)s::text,
                             %(reason)s::text)

-- name: remove_endpoint
select {schema}.remove_endpoint(%(org)s::text, %(id)s::text::uuid, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: rotate_secret
select {schema}.rotate_secret(%(org)s::text, %(id)s::text::uuid, %(secret)s::text, %(overlap)s::text::interval,
                              %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: endpoints
-- A person or a program looks at one, or at some. Headers and secrets are for workers only. Index: webhook_endpoint_pkey.
select json_build_object(
  'org_id', e.org_id, 'id', e.id, 'url', e.url, 'events', e.events, 'description', e.description, 'prefix', e.prefix,
  'state', e.state, 'reason', e.reason, 'changed_at', e.changed_at, 'created_at', e.created_at)::text
from {schema}.webhook_endpoint e
where (%(org)s::text is null or e.org_id = %(org)s::text)
  and (%(id)s::text is null or e.id = %(id)s::text::uuid)
  and (%(after)s::text is null or e.id > %(after)s::text::uuid)
order by e.org_id, e.id limit %(limit)s

-- name: deliveries
-- A person or a program looks at some, newest first. Index: webhook_delivery_pkey, whose ids are in the order of time.
select row_to_json(d)::text from {schema}.deliveries d
where (%(org)s::text is null or d.org_id = %(org)s::text)
  and (%(endpoint)s::text is null or d.endpoint = %(endpoint)s::text::uuid)
  and (%(status)s::text is null or d.status = %(status)s::text)
  and (%(event)s::text is null or d.event_type = %(event)s::text)
  and (%(before)s::text is null or d.id < %(before)s::text::uuid)
order by d.id desc limit %(limit)s

-- name: delivery
-- A person or a program looks at one. Index: webhook_delivery_pkey.
select (row_to_json(v)::jsonb || jsonb_build_object(
  'body', d.body, 'response_headers', d.response_headers,
  'response_body', translate(encode(d.response_body, 'base64'), E'\n', '')))::text
from {schema}.webhook_delivery d join {schema}.deliveries v on v.org_id = d.org_id and v.id = d.id
where d.id = %(id)s::text::uuid and (%(org)s::text is null or d.org_id = %(org)s::text)

-- name: redeliver
select r.answer, r.job
from {schema}.redeliver(%(org)s::text, %(id)s::text::uuid, %(job)s::text::json, %(actor_type)s::text, %(actor_id)s::text,
                        %(reason)s::text) r

-- name: prune_deliveries
-- Clean-up: deliveries that have ended, and secrets that have expired. What failed stays as long as its job, whose replay
-- would send it. Index: webhook_delivery_age, webhook_secret_expiry, and by the job's id.
with gone as (
  delete from {schema}.webhook_delivery d where d.ctid = any(array(
    select x.ctid from {schema}.webhook_delivery x
    where x.created_at < {schema}.now() - %(age)s::text::interval and (x.delivered_at is not null or not (
      exists (select from {schema}.waiting w where w.id = x.job_id)
      or exists (select from {schema}.running r where r.id = x.job_id)
      or exists (select from {schema}.finished f where f.id = x.job_id and f.state in ('failed', 'dead'))))
    order by x.created_at limit %(limit)s for update skip locked))
  returning 1
), expired as (
  delete from {schema}.webhook_secret s where s.expires_at < {schema}.now()
)
select count(*) from gone
