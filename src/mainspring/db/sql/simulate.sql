-- What a simulation asks, in its scratch database only.

-- name: next_simulated
-- Where virtual time goes next: to a job, to the end of a lease, to a schedule or a page of its entities, to the end of the
-- pause of a breaker at which jobs wait. Every schedule here is of this process. Index: running_lease, schedule_zone_next, fan_out_open.
select w.queues, w.ready,
  least(w.due_at, case when exists (select from {schema}.limit) then
    {schema}.next_open(array(select l.queue from {schema}.limit l where l.queue is not null)) end),
  (select r.lease_expires_at from {schema}.running r order by r.lease_expires_at limit 1),
  least((select z.next_at from {schema}.schedule_zone z where z.next_at is not null order by z.next_at limit 1),
        (select o.look_at from {schema}.fan_out o where o.finished_at is null order by o.look_at limit 1)),
  (select min({schema}.next_call(b)) from {schema}.breaker b where b.forced is null and exists (
     select from {schema}.waiting w where w.gate = {schema}.breaker_gate(b.org_id, b.name, b.key)))
from (
  select coalesce(array_agg(distinct w.queue), '{}') as queues, coalesce(bool_or(w.due_at <= n.at), false) as ready,
         min(w.due_at) filter (where w.due_at > n.at and w.due_at < 'infinity') as due_at
  from (select {schema}.now() as at) n left join {schema}.waiting w on w.task = any(%(tasks)s::text[])
) w

-- name: message_of
-- What a time line says of a message. Index: the primary key.
select n.template, n.channel, n.recipient_id from {schema}.notification n
where n.org_id = %s and n.id = (
  select x.id::uuid from (select %s::text as id) x where x.id ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$')

-- name: left_waiting
select count(*) from {schema}.waiting
