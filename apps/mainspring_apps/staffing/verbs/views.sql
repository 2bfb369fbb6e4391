-- What people look at: the escrow ledger, who plays which part, and the engine's trail, notifications and webhooks in the source's words.

-- The money of each booking, by currency: charged = held + frozen + released + refunded + charged back, at every
-- instant.
create or replace view staffing.escrow with (security_invoker = true) as
select b.id as booking_id, b.currency,
       coalesce(p.charged, 0)::bigint as charged, coalesce(h.held, 0)::bigint as held,
       coalesce(h.frozen, 0)::bigint as frozen, coalesce(h.released, 0)::bigint as released,
       coalesce(h.refunded, 0)::bigint as refunded, coalesce(h.charged_back, 0)::bigint as charged_back
from staffing.bookings b
left join (
  select booking_id, currency, sum(amount_minor) as charged from staffing.pending_payments
  where received_at is not null group by booking_id, currency
) p on p.booking_id = b.id and p.currency = b.currency
left join (
  select booking_id, currency,
         sum(amount_minor) filter (where status = 'Held') as held,
         sum(amount_minor) filter (where status = 'Frozen') as frozen,
         sum(amount_minor) filter (where status = 'Released') as released,
         sum(amount_minor) filter (where status = 'Refunded') as refunded,
         sum(amount_minor) filter (where status = 'ChargedBack') as charged_back
  from staffing.escrow_holds group by booking_id, currency
) h on h.booking_id = b.id and h.currency = b.currency;

-- Who plays which part in which booking. Whoever supervises for the borrower may stand in for the one who is named.
create or replace view staffing.parts with (security_invoker = true) as
select b.id as booking_id, w.user_id, 'Worker' as part, false as stands_in
from staffing.bookings b join staffing.workers w on w.id = b.worker_id
union all
select b.id, b.supervisor_id, 'Supervisor', false from staffing.bookings b where b.supervisor_id is not null
union all
select b.id, u.id, 'Supervisor', true from staffing.bookings b
join staffing.users u on u.company_id = b.borrower_company_id and u.role = 'Supervisor'
where u.id is distinct from b.supervisor_id
union all
select b.id, u.id, 'Borrowing ' || u.role, false from staffing.bookings b
join staffing.users u on u.company_id = b.borrower_company_id and u.role in ('Admin', 'Manager')
union all
select b.id, u.id, 'Lending ' || u.role, false from staffing.bookings b
join staffing.users u on u.company_id = b.lender_company_id and u.role in ('Admin', 'Manager')
union all
select b.id, u.id, 'Platform Operator', true from staffing.bookings b cross join staffing.users u where u.role = 'Operator';

-- Bookings that are over, with nothing left to do: their last day has ended where the project is, every shift was worked
-- or cancelled, no money waits for anything, and nobody quarrels (STAFF-20.09). Every hour, and for each that it finds.
create or replace view staffing.finished_bookings with (security_invoker = true) as
select b.id from staffing.bookings b join staffing.projects p on p.id = b.project_id
where b.status in ('Active', 'Suspended_Insurance')
  and b.end_date <= ({schema}.now() at time zone 'UTC')::date  -- by the index: the farthest east is 14 hours ahead
  and b.end_date < ({schema}.now() at time zone p.timezone)::date
  and not exists (select from staffing.time_log t where t.booking_id = b.id and t.status not in ('Verified', 'Cancelled'))
  and not exists (select from staffing.escrow_holds h where h.booking_id = b.id and h.status in ('Held', 'Frozen'))
  and not exists (select from staffing.pending_payments y where y.booking_id = b.id and y.status = 'Pending')
  and not exists (select from staffing.disputes d where d.booking_id = b.id and d.status in ('Open', 'Legal_Hold'))
  and not exists (select from staffing.incident_reports i where i.booking_id = b.id and i.status = 'Pending');

-- Every act on a business row, by whom and why; the engine keeps it append-only and sealed (STAFF-19.11).
create or replace view staffing.audit_log with (security_invoker = true) as
select a.id, case when a.actor_type = 'system' then 'SYSTEM' else a.actor_id end as actor,
       substr(a.event, length('staffing.') + 1) as action,
       a.subject, a.detail ->> 'entity' as entity, (a.detail ->> 'entity_id')::bigint as entity_id, a.detail ->> 'reason' as reason,
       (a.detail ->> 'dispute_id')::bigint as dispute_id, a.detail -> 'before' as before, a.detail -> 'after' as after,
       a.correlation_id, a.at as created_at
from {schema}.audit a
where a.event like 'staffing.%';

-- Every message to a person (STAFF-14.02).
create or replace view staffing.notification_log with (security_invoker = true) as
select n.id, n.template as kind, n.recipient_id::bigint as recipient_id, n.channel, n.subject, n.title, n.text as message,
       n.critical,
       case n.status when 'sent' then 'Sent' when 'failed' then 'Failed' when 'skipped' then 'Skipped'
            else case when n.due_at > {schema}.now() and n.attempts = 0 then 'Deferred' else 'Queued' end end as status,
       n.attempts, n.payload_hash as dedupe_key, n.bucket, n.due_at, n.sent_at, n.created_at,
       (select j.correlation_id from {schema}.job j where j.id = n.job_id) as correlation_id
from {schema}.notification_log n;

-- Every event of Stripe that was received, once by its id (STAFF-19.05).
create or replace view staffing.stripe_events with (security_invoker = true) as
select i.event_id, i.type, i.received_at from {schema}.inbound i where i.provider = 'stripe';
