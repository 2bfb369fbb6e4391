-- Webhooks that came from providers.

-- name: receive
-- Once an event, and once more each time the provider repeats it. Index: inbound_pkey.
select {schema}.receive(%(org)s::text, %(provider)s::text, %(event)s::text, %(type)s::text, %(body)s::text,
                        %(job)s::text::uuid)

-- name: received
-- The job that acts on an event. Index: inbound_pkey.
select i.type, i.body, i.received_at from {schema}.inbound i
where i.org_id = %(org)s::text and i.provider = %(provider)s::text and i.event_id = %(event)s::text

-- name: prune_inbound
-- Maintenance. An event stays as long as its job, whose replay would read it. Index: inbound_received, job_pkey.
with gone as (
  delete from {schema}.inbound i
  where i.ctid = any(array(
    select x.ctid from {schema}.inbound x
    where x.received_at < {schema}.now() - %(age)s::text::interval
      and not exists (select from {schema}.job j where j.id = x.job_id)
    order by x.received_at limit %(limit)s::bigint))
  returning 1
)
select count(*) from gone
