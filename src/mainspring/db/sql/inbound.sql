-- Webhooks that came from providers.

-- name: receive
-- Once an event, and once more each time the provider repeats it. Index: inbound_pkey.
select {schema}.receive(%(org)s::text, %(provider)s::text, %(event)s::text, %(type)s::text, %(body)s::text,
                        %(job)s::text::uuid)

-- name: received
-- The job that acts on an event. Index: inbound_pkey.
select i.type, i.body, i.received_at from {schema}.inbound i
where i.org_id = %(org)s::text and i.provider = %(provider)s::text and i.event_id = %(event)s::text
