-- Escrow: every statement moves whole rows, and guards the status from which it does. The booking is locked before.

-- name: escrow_of_booking
select * from staffing.escrow where booking_id = %(booking_id)s

-- name: fund_payment
-- One hold for each shift that the payment pays; a payment is funded once.
insert into staffing.escrow_holds (booking_id, time_log_id, payment_id, kind, amount_minor, currency, created_at)
select p.booking_id, s.time_log_id, p.id, s.kind, s.amount_minor, p.currency, {schema}.now()
from staffing.pending_payments p join staffing.payment_shifts s on s.payment_id = p.id
where p.id = %(payment_id)s and p.received_at is not null
  and not exists (select from staffing.escrow_holds h where h.payment_id = p.id)
order by s.time_log_id, s.kind
returning *

-- name: shift_of_hold
-- The shift whose money it is, with the dispute that is still about it.
select t.status, t.scheduled_start_time, t.shortened_at, t.cancelled_at, t.cancel_reason, b.payment_type,
       (select d.id from staffing.disputes d where d.time_log_id = t.id and d.status in ('Open', 'Legal_Hold')) as dispute_id
from staffing.escrow_holds h
join staffing.time_log t on t.id = h.time_log_id
join staffing.bookings b on b.id = h.booking_id
where h.id = %(hold_id)s

-- name: cause_of_cancellation
-- The dispute or incident by which a shift was cancelled, whether it is over, and how it was divided then; none: nobody
-- disputes about it.
select dispute_id, incident_id, over, lender_minor, borrower_minor from (
  select d.id as dispute_id, null::bigint as incident_id, d.status in ('Settled', 'Resolved') as over, d.timed_out_at as at,
         d.settlement_lender_minor as lender_minor, d.settlement_borrower_minor as borrower_minor
  from staffing.time_log t join staffing.disputes d on d.booking_id = t.booking_id and d.timed_out_at <= t.cancelled_at
  where t.id = %(time_log_id)s and t.cancel_reason = 'Dispute_Timeout'
  union all
  select d.id, null, d.status in ('Settled', 'Resolved'), d.dispute_filed_at, d.settlement_lender_minor,
         d.settlement_borrower_minor
  from staffing.time_log t join staffing.disputes d on d.booking_id = t.booking_id and d.dispute_filed_at <= t.cancelled_at
  where t.id = %(time_log_id)s and t.cancel_reason = 'Dispute_Option_B' and d.dispute_option = 'B'
  union all
  select null, i.id, i.status = 'Closed', i.filed_at, null, null
  from staffing.time_log t join staffing.incident_reports i on i.booking_id = t.booking_id and i.filed_at <= t.cancelled_at
  where t.id = %(time_log_id)s and t.cancel_reason = 'Incident_Option_B' and i.dispute_option = 'B'
) causes
order by at desc
limit 1

-- name: planned_hours
select t.planned_minutes, t.scheduled_start_time, t.scheduled_end_time, b.rate_minor
from staffing.time_log t join staffing.bookings b on b.id = t.booking_id
where t.id = %(time_log_id)s

-- name: worked_shift
select b.id as booking_id, t.paid_minutes, t.settled_minor, b.rate_minor, b.currency
from staffing.time_log t join staffing.bookings b on b.id = t.booking_id
where t.id = %(time_log_id)s

-- name: planned_holds
-- What was paid for a shift as it was planned, and has not gone back; what the lender has counts first, then what an
-- operator divides. Of a penalty that is so much as hours were planned again.
select id, booking_id, time_log_id, payment_id, kind, part, currency, status, dispute_id, set_aside,
       case kind when 'Penalty' then counted_minor else amount_minor end as amount_minor
from staffing.escrow_holds
where time_log_id = %(time_log_id)s
  and (kind = 'Shift' and status in ('Held', 'Released') or kind = 'Penalty' and status = 'Released' and counted_minor > 0)
order by status = 'Held', not set_aside, id
for update

-- name: penalties_of_shift
-- What the lender has for hours that were dropped.
select * from staffing.escrow_holds where time_log_id = %(time_log_id)s and kind = 'Penalty' and status = 'Released'
order by id for update

-- name: count_penalty
update staffing.escrow_holds set counted_minor = %(counted)s
where id = %(hold_id)s and kind = 'Penalty' and status = 'Released'

-- name: plan_again
update staffing.time_log set planned_minutes = %(minutes)s where id = %(time_log_id)s and planned_minutes < %(minutes)s

-- name: held_for_shift
-- What an operator divides is left to the operator.
select * from staffing.escrow_holds where time_log_id = %(time_log_id)s and status = 'Held' and not set_aside
order by id for update

-- name: frozen_for
-- Everything that a dispute, or an incident, has frozen: the disputed shift's money and penalties.
select * from staffing.escrow_holds
where status = 'Frozen' and (dispute_id = %(dispute_id)s or incident_id = %(incident_id)s)
order by id
for update

-- name: freeze_holds
update staffing.escrow_holds set status = 'Frozen', dispute_id = %(dispute_id)s, moved_at = {schema}.now()
where time_log_id = %(time_log_id)s and status = 'Held' and not set_aside
returning *

-- name: release_holds
-- Never what a dispute has frozen or an operator divides, and only for verified work.
update staffing.escrow_holds set status = 'Released', moved_at = {schema}.now()
where time_log_id = %(time_log_id)s and status = 'Held' and not set_aside
  and exists (select from staffing.time_log t where t.id = %(time_log_id)s and t.status = 'Verified')
returning *

-- name: release_frozen
update staffing.escrow_holds set status = 'Released', moved_at = {schema}.now()
where id = %(hold_id)s and status = 'Frozen'
returning id

-- name: refund_holds
update staffing.escrow_holds set status = 'Refunded', set_aside = false, moved_at = {schema}.now()
where id = any(%(ids)s) and status in ('Held', 'Frozen')
returning *

-- name: freeze_penalty
-- All of a hold is owed.
update staffing.escrow_holds
set kind = 'Penalty', status = 'Frozen', dispute_id = %(dispute_id)s, incident_id = %(incident_id)s, moved_at = {schema}.now()
where id = %(hold_id)s and status = 'Held'
returning *

-- name: split_penalty
-- The penalty becomes a frozen row of its own, the hold keeps the rest; together they are what it was.
with rest as (
  update staffing.escrow_holds set amount_minor = amount_minor - %(penalty)s
  where id = %(hold_id)s and status = 'Held' and amount_minor > %(penalty)s
  returning *
)
insert into staffing.escrow_holds (booking_id, time_log_id, payment_id, kind, part, amount_minor, currency, status, dispute_id,
                                   incident_id, created_at, moved_at)
select booking_id, time_log_id, payment_id, 'Penalty', part, %(penalty)s, currency, 'Frozen', %(dispute_id)s,
       %(incident_id)s, {schema}.now(), {schema}.now()
from rest
returning *

-- name: split_hold
-- What goes elsewhere becomes a row of its own, the hold keeps the rest. It may have been split before, and what went then
-- may be a penalty now.
with before as (
  select h.*, (select max(o.part) + 1 from staffing.escrow_holds o
               where o.time_log_id = h.time_log_id and o.payment_id = h.payment_id) as next_part
  from staffing.escrow_holds h where h.id = %(hold_id)s
), kept as (
  update staffing.escrow_holds set amount_minor = %(kept)s
  where id = %(hold_id)s and status in ('Held', 'Frozen', 'Released') and amount_minor > %(kept)s
  returning *
)
insert into staffing.escrow_holds (booking_id, time_log_id, payment_id, kind, part, amount_minor, currency, status, dispute_id,
                                   incident_id, set_aside, created_at, moved_at)
select k.booking_id, k.time_log_id, k.payment_id, k.kind, b.next_part, b.amount_minor - k.amount_minor, k.currency, k.status,
       k.dispute_id, k.incident_id, k.set_aside, {schema}.now(), {schema}.now()
from kept k cross join before b
returning *

-- name: freeze_set_aside
-- What waits for an operator is about to be divided.
update staffing.escrow_holds set status = 'Frozen', set_aside = false, moved_at = {schema}.now()
where booking_id = %(booking_id)s and status = 'Held' and set_aside
returning *

-- name: refund_holds_of_payment
update staffing.escrow_holds set status = 'Refunded', moved_at = {schema}.now()
where payment_id = %(payment_id)s and status = 'Held'

-- name: release_holds_of_payment
update staffing.escrow_holds set status = 'Released', moved_at = {schema}.now()
where payment_id = %(payment_id)s and status = 'Held' and not set_aside
returning *

-- name: transfer_hold
-- After one that was taken back, under a key that names it.
insert into staffing.transfers (escrow_hold_id, amount_minor, currency, idempotency_key, created_at)
select h.id, h.amount_minor, h.currency, 'transfer:' || h.id || coalesce(':after:' || max(t.id), ''), {schema}.now()
from staffing.escrow_holds h left join staffing.transfers t on t.escrow_hold_id = h.id
where h.id = %(hold_id)s and h.status = 'Released'
group by h.id
on conflict do nothing
returning id

-- name: refund_hold
insert into staffing.refunds (escrow_hold_id, amount_minor, currency, idempotency_key, created_at)
select h.id, h.amount_minor, h.currency, 'refund:' || h.id || ':' || lower(h.kind), {schema}.now()
from staffing.escrow_holds h where h.id = %(hold_id)s and h.status = 'Refunded'
on conflict do nothing
returning id

-- name: transfer_payment
-- What of a payment is released and has no transfer of its own, as one transfer; after one that was taken back, under a
-- key that names it.
insert into staffing.transfers (payment_id, amount_minor, currency, idempotency_key, created_at)
select p.id, sum(h.amount_minor), p.currency,
       'transfer:payment:' || p.id || coalesce(
         ':after:' || (select max(t.id) from staffing.transfers t where t.payment_id = p.id), ''), {schema}.now()
from staffing.pending_payments p join staffing.escrow_holds h on h.payment_id = p.id and h.status = 'Released'
where p.id = %(payment_id)s and not exists (select from staffing.transfers t where t.escrow_hold_id = h.id)
group by p.id
on conflict do nothing
returning id

-- name: refund_payment
-- What of a payment we refund and has no refund of its own, as one refund.
insert into staffing.refunds (payment_id, amount_minor, currency, idempotency_key, created_at)
select p.id, sum(h.amount_minor), p.currency, 'refund:payment:' || p.id, {schema}.now()
from staffing.pending_payments p join staffing.escrow_holds h
  on h.payment_id = p.id and h.status = 'Refunded' and h.refund_id is null
where p.id = %(payment_id)s and not exists (select from staffing.refunds r where r.escrow_hold_id = h.id)
group by p.id
on conflict do nothing
returning id
