-- What stands around a request of the HTTP API.

-- name: bind_request
-- Each request, first in its transaction. Who may not write cannot, whatever is called; nobody waits long for a lock.
select set_config('mainspring.org', coalesce(%(org)s::text, ''), true),
       set_config('transaction_read_only', %(read_only)s::text, true), set_config('lock_timeout', '5s', true)

-- name: begin_request
-- Writes with an Idempotency-Key. Index: request_pkey.
select fingerprint, status, etag, body
from {schema}.begin_request(%(org)s::text, %(actor)s::text, %(key)s::text, %(fingerprint)s::text)

-- name: end_request
select {schema}.end_request(%(org)s::text, %(actor)s::text, %(key)s::text, %(status)s::smallint, %(etag)s::text,
                            %(body)s::text)

-- name: lock_for_change
-- Writes with If-Match.
select {schema}.lock_for_change(%(kind)s::text, %(org)s::text, %(name)s::text)

-- name: prune_requests
-- Keys whose day is over. Index: request_begun.
with gone as (
  delete from {schema}.request r
  where r.ctid = any(array(
    select x.ctid from {schema}.request x where x.begun_at < {schema}.now() - interval '24 hours'
    order by x.begun_at limit %(limit)s::text::bigint))
  returning 1
)
select count(*) from gone
