-- Disputes and incidents. Who changes one has locked its booking, so a plain read holds until the commit.

-- name: unresolved
-- Disputed shifts whose dispute is open (STAFF-1.17), and pending incidents (STAFF-1.18), by option.
select count(*) filter (where what = 'dispute' and option = 'A') as disputes_a,
       count(*) filter (where what = 'dispute' and option = 'B') as disputes_b,
       count(*) filter (where what = 'incident' and option = 'A') as incidents_a,
       count(*) filter (where what = 'incident' and option = 'B') as incidents_b
from (
  select 'dispute' as what, d.dispute_option as option
  from staffing.disputes d join staffing.time_log t on t.id = d.time_log_id
  where d.booking_id = %(booking_id)s and t.status = 'Disputed' and not d.status = any(%(closed)s)
  union all
  select 'incident', i.dispute_option from staffing.incident_reports i
  where i.booking_id = %(booking_id)s and i.status = 'Pending'
) open

-- name: disputable
-- What decides whether a shift can be disputed: who verified it, whether it was paid for that, earlier disputes.
select t.verified_by,
       exists (select from staffing.escrow_holds h join staffing.transfers p on p.escrow_hold_id = h.id
               where h.time_log_id = t.id) as paid,
       exists (select from staffing.disputes d where d.time_log_id = t.id) as disputed
from staffing.time_log t where t.id = %(time_log_id)s

-- name: file_dispute
insert into staffing.disputes (booking_id, time_log_id, dispute_option, dispute_filed_at, filed_by)
values (%(booking_id)s, %(time_log_id)s, %(option)s, %(at)s, %(by)s)
returning id

-- name: dispute_shift
-- What SYSTEM has verified only up to its deadline, that instant included (G-36); its minutes are open again.
update staffing.time_log
set status = 'Disputed', verified_by = null, paid_minutes = null, extra_minutes = null, extra_confirmed_at = null
where id = %(time_log_id)s
  and (status = 'Pending_Verification' or status = 'Verified' and verified_by = 'SYSTEM' and auto_approval_time >= %(at)s)

-- name: settle_shift
-- Without minutes where the settlement has divided the money; with what is owed for them where it was not there yet.
update staffing.time_log set status = 'Verified', verified_by = %(by)s, paid_minutes = %(paid)s, extra_minutes = %(extra)s,
  settled_minor = %(settled)s
where id = %(time_log_id)s and status = 'Disputed'

-- name: dispute
select d.* from staffing.disputes d where d.id = %(dispute_id)s

-- name: end_dispute
update staffing.disputes
set status = %(status)s, dispute_resolved_at = %(at)s, settlement_lender_minor = %(lender)s,
    settlement_borrower_minor = %(borrower)s
where id = %(dispute_id)s and (status = 'Open' or status = 'Legal_Hold' and %(status)s <> 'Legal_Hold')

-- name: propose_settlement
-- Whether the other side has said the same, besides; the booking is locked, so neither takes it back meanwhile.
with mine as (
  insert into staffing.settlement_proposals (dispute_id, side, lender_minor, borrower_minor, proposed_by, proposed_at)
  values (%(dispute_id)s, %(side)s, %(lender)s, %(borrower)s, %(by)s, %(at)s)
  on conflict (dispute_id, side) do update set
    lender_minor = excluded.lender_minor, borrower_minor = excluded.borrower_minor,
    proposed_by = excluded.proposed_by, proposed_at = excluded.proposed_at
  returning dispute_id, side, lender_minor, borrower_minor
)
select exists (
  select from staffing.settlement_proposals theirs
  where theirs.dispute_id = mine.dispute_id and theirs.side <> mine.side
    and theirs.lender_minor = mine.lender_minor and theirs.borrower_minor = mine.borrower_minor)
from mine

-- name: time_out_dispute
update staffing.disputes set timed_out_at = %(at)s
where id = %(dispute_id)s and status = 'Open' and timed_out_at is null

-- name: overdue_disputes
-- Whose timer is missing (STAFF-10.30); index disputes_waiting.
select d.id, d.booking_id, d.dispute_filed_at
from staffing.disputes d join staffing.bookings b on b.id = d.booking_id and b.status <> 'Cancelled'
where d.status = 'Open' and d.timed_out_at is null and d.dispute_option = 'A'
  and d.dispute_filed_at <= %(now)s::timestamptz - %(timeout)s::interval

-- name: future_shifts
-- Compared as instants: the same as by local date and time (G-42).
select id from staffing.time_log
where booking_id = %(booking_id)s and status = 'Scheduled' and scheduled_start_time > %(now)s
order by id
for update

-- name: end_booking
update staffing.bookings set status = 'Cancelled', status_before_suspension = null, cutoff_at = null
where id = %(booking_id)s
  and status in ('Pending_Payment', 'Active', 'Payment_Paused_Dispute', 'Suspended_Insurance', 'Disputed')

-- name: resolved_since_renewal
update staffing.bookings set renewed_in_dispute = false where id = %(booking_id)s and renewed_in_dispute

-- name: file_incident
insert into staffing.incident_reports (booking_id, dispute_option, filed_at)
values (%(booking_id)s, %(option)s, %(at)s)
returning id

-- name: incident
select i.* from staffing.incident_reports i where i.id = %(incident_id)s

-- name: close_incident
update staffing.incident_reports set status = 'Closed', closed_at = %(at)s
where id = %(incident_id)s and status = 'Pending'
