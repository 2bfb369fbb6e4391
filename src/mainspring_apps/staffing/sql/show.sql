-- What people look at: bookings, and the story of one.

-- name: list_bookings
select b.id, b.status, p.timezone as zone, b.worker_id, b.start_date, b.end_date, b.funded_period_end
from staffing.bookings b join staffing.projects p on p.id = b.project_id
where b.id > %(after)s order by b.id limit %(limit)s

-- name: shown_booking
select b.id, b.status, b.payment_type, p.timezone as zone, p.name as project, b.project_id, b.worker_id, b.supervisor_id,
       b.borrower_company_id, b.lender_company_id, b.start_date, b.end_date, b.funded_period_end, b.rate_minor, b.currency,
       b.cutoff_at
from staffing.bookings b join staffing.projects p on p.id = b.project_id
where b.id = %(booking_id)s

-- name: shown_shifts
select id, status, scheduled_start_time, scheduled_end_time, clock_out_time, auto_approval_time, cancel_reason
from staffing.time_log where booking_id = %(booking_id)s order by scheduled_start_time, id

-- name: what_happened
-- Acts, money and messages in the order of time; index: staffing_audit_booking, staffing_notification_booking.
select at, what, about from (
  select a.at, replace(substr(a.event, length('staffing.') + 1), '_', ' ') as what,
         concat_ws(', ', concat_ws(' ', a.detail ->> 'entity', a.detail ->> 'entity_id'),
           case when a.actor_type = 'system' then 'by SYSTEM' else 'by user ' || a.actor_id end,
           a.detail ->> 'reason') as about, 0 as place, a.id::text as tie
  from {schema}.audit a
  where a.event like 'staffing.%%' and (a.detail ->> 'booking_id')::bigint = %(booking_id)s
  union all
  select p.created_at, 'payment created', concat('payment ', p.id, ': ', p.amount_minor, ' ', p.currency, ', try ', p.try), 1, ''
  from staffing.pending_payments p where p.booking_id = %(booking_id)s
  union all
  select p.settled_at, 'payment ' || lower(p.status), concat_ws(', ', concat('payment ', p.id), p.failure_code), 2, ''
  from staffing.pending_payments p where p.booking_id = %(booking_id)s and p.settled_at is not null
  union all
  select t.settled_at, 'transfer ' || lower(t.status), concat('transfer ', t.id, ': ', t.amount_minor, ' ', t.currency), 3, ''
  from staffing.transfers t
  left join staffing.escrow_holds h on h.id = t.escrow_hold_id left join staffing.pending_payments p on p.id = t.payment_id
  where coalesce(h.booking_id, p.booking_id) = %(booking_id)s and t.settled_at is not null
  union all
  select r.settled_at, 'refund ' || lower(r.status), concat('refund ', r.id, ': ', r.amount_minor, ' ', r.currency), 3, ''
  from staffing.refunds r
  left join staffing.escrow_holds h on h.id = r.escrow_hold_id left join staffing.pending_payments p on p.id = r.payment_id
  where coalesce(h.booking_id, p.booking_id) = %(booking_id)s and r.settled_at is not null
  union all
  select coalesce(n.sent_at, n.created_at), 'message ' || n.template,
         concat(n.channel, ' to user ', n.recipient_id, ': ', n.status), 4, n.id::text
  from {schema}.notification_log n join {schema}.notification m on m.org_id = n.org_id and m.id = n.id
  where m.data ->> 'booking_id' = %(booking_id)s::text
) story
order by at, place, tie
limit %(limit)s

-- name: open_rows
-- What may have timers: shifts that are not over, and disputes that are open.
select 'time_log' as entity, id from staffing.time_log
where booking_id = %(booking_id)s and status in ('Working', 'Pending_Verification')
union all
select 'dispute', id from staffing.disputes where booking_id = %(booking_id)s and status = 'Open' and timed_out_at is null
order by 1, 2

-- name: next_expiry
select i.id, i.company_id, i.expiration_date from staffing.insurance_policies i
join staffing.bookings b on i.company_id in (b.borrower_company_id, b.lender_company_id)
where b.id = %(booking_id)s and i.is_active
order by i.expiration_date, i.id

-- name: zones_of_projects
select timezone from staffing.projects order by id
