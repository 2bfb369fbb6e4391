-- Circuit breakers.

-- name: declare_breakers
-- Each worker when it starts.
select {schema}.declare_breakers(%(rules)s::text::json)

-- name: look_at_breakers
-- Each worker whose application has breakers, four times a second. The table is small: dependencies, and keys in trouble.
select b.org_id, b.name, b.key, {schema}.breaker_state(b), {schema}.breaker_wait(b),
       b.failing_since is not null or coalesce(b.at[cardinality(b.at)] > {schema}.now() - b.within, false), {schema}.now(),
       coalesce(b.forced = 'closed', false)
from {schema}.breaker b
where b.name = any(array(select json_array_elements_text(%(names)s::text::json)))
  and (b.key = '' or b.state <> 'closed' or b.forced is not null or b.failing_since is not null
       or b.at[cardinality(b.at)] > {schema}.now() - b.within)

-- name: report_calls
-- A worker whose calls failed, at once; and how probes ended.
select * from {schema}.report_calls(%(calls)s::text::json)

-- name: ask_probe
-- A worker whose job needs a breaker that is half open.
select * from {schema}.ask_probe(%(org)s::text, %(name)s::text, %(key)s::text, %(epoch)s)

-- name: park_due
-- Workers that see jobs stopped by a breaker that is open.
select {schema}.park_due(%(name)s::text, %(queues)s::text[], %(tasks)s::text[], %(limit)s)

-- name: release_gates
-- Workers that see a breaker close or its pause end; for all gates when they start, and every few seconds.
select {schema}.release_gates(%(gates)s::text[], %(queues)s::text[], %(tasks)s::text[], %(limit)s)

-- name: forget_breakers
-- Workers, every minute.
select {schema}.forget_breakers(%(limit)s)

-- name: breaker_names
-- A person named one.
select b.name from {schema}.breaker b where b.org_id = 'SYSTEM' and b.key = '' order by 1

-- name: list_breakers
-- A person looks. What waits is counted up to 10,000 by index waiting_gate.
select json_build_object(
  'name', b.name, 'key', nullif(b.key, ''), 'org_id', b.org_id, 'state', {schema}.breaker_state(b),
  'since', case when b.forced is null then b.since else b.forced_at end,
  'next_probe', case when b.forced is null then b.until end,
  'probing', (select count(*) from {schema}.running r
              where r.epoch = any(b.probing) and r.lease_expires_at > {schema}.now()),
  'failed', (select coalesce(sum(x.failed), 0) from unnest(b.at, b.failed) x(at, failed)
             where x.at > {schema}.now() - b.within),
  'succeeded', (select coalesce(sum(x.succeeded), 0) from unnest(b.at, b.succeeded) x(at, succeeded)
                where x.at > {schema}.now() - b.within),
  'opened', b.opened,
  'waiting', (select count(*) from (
                select from {schema}.waiting w
                where w.gate = {schema}.breaker_gate(b.org_id, b.name, b.key)
                  and (%(of)s::text is null or w.org_id = %(of)s::text) limit 10000) x),
  'forced', b.forced, 'forced_at', b.forced_at, 'forced_by', b.forced_by, 'forced_reason', b.forced_reason,
  'failures', b.failures, 'rate', b.rate, 'calls', b.calls, 'within_s', extract(epoch from b.within),
  'pause_s', extract(epoch from b.pause), 'longest_s', extract(epoch from b.longest), 'probes', b.probes,
  'failing_for_s', extract(epoch from b.failing_for))::text
from {schema}.breaker b
where (%(name)s::text is null or b.name = %(name)s::text) and (%(key)s::text is null or b.key = %(key)s::text)
  and (%(of)s::text is null or b.org_id in ('SYSTEM', %(of)s::text))
  and (b.key = '' or %(name)s::text is not null or b.forced is not null or b.state <> 'closed')
order by b.name, b.key, b.org_id
limit %(limit)s

-- name: open_breaker
select {schema}.open_breaker(%(name)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text, %(key)s::text, %(org)s::text)

-- name: close_breaker
select {schema}.close_breaker(%(name)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text, %(key)s::text, %(org)s::text)

-- name: auto_breaker
select {schema}.auto_breaker(%(name)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text, %(key)s::text, %(org)s::text)
