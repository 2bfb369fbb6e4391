-- What the testing kit says, in test databases only.

-- name: next_instant
-- Where virtual time stops on its way: at the next due time, at the next fire, where the next lease ends, where a closed
-- queue opens, where the pause of a breaker ends at whose gate jobs wait.
select least(
  (select min({schema}.next_call(b)) from {schema}.breaker b
   where {schema}.next_call(b) > {schema}.now() and b.forced is null and exists (
     select from {schema}.waiting w where w.gate = {schema}.breaker_gate(b.org_id, b.name, b.key))),
  (select min(w.due_at) from {schema}.waiting w
   where w.task = any(%s::text[]) and w.due_at > {schema}.now() and w.due_at < 'infinity'),
  (select min(r.lease_expires_at) from {schema}.running r where r.lease_expires_at > {schema}.now()),
  (select min(z.next_at) from {schema}.schedule_zone z where z.next_at > {schema}.now()),
  (select min(o.look_at) from {schema}.fan_out o where o.look_at > {schema}.now() and o.finished_at is null),
  {schema}.next_open(array(select l.queue from {schema}.limit l where l.queue is not null)))

-- name: at_work
-- Before jobs are run in a caller's transaction: a database that a worker serves is not a test's.
select w.id from {schema}.worker w where w.seen_at > {schema}.now() - interval '30 s' and not w.stopping limit 1

-- name: last_lease
select max(lease_expires_at) from {schema}.running

-- name: hold_others
-- So that a claim, which skips what is locked, finds this one job.
select from {schema}.waiting where id <> %s::uuid for update
