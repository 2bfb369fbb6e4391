-- Shifts: each change of a status is one guarded statement; the booking is locked before (sql/bookings.sql).

-- name: lock_booking_of_shift
-- A shift never changes its booking, so its row need not be held to ask.
select b.*, p.timezone as zone
from staffing.bookings b join staffing.projects p on p.id = b.project_id
where b.id = (select t.booking_id from staffing.time_log t where t.id = %(time_log_id)s)
for update of b

-- name: lock_shift
-- With the dispute that is still about it.
select t.*, (select d.id from staffing.disputes d where d.time_log_id = t.id and d.status in ('Open', 'Legal_Hold')) as dispute_id
from staffing.time_log t where t.id = %(time_log_id)s
for update of t

-- name: shift
select t.*, (select d.id from staffing.disputes d where d.time_log_id = t.id and d.status in ('Open', 'Legal_Hold')) as dispute_id
from staffing.time_log t where t.id = %(time_log_id)s

-- name: open_shifts
-- Those whose end can still change.
select t.*, null::bigint as dispute_id from staffing.time_log t
where t.booking_id = %(booking_id)s and t.status in ('Scheduled', 'Working')
order by t.id
for update of t

-- name: unbegun_shifts
-- Those of a booking that nobody has begun and that money is held for; indexes time_log_booking, escrow_holds_held.
select t.*, null::bigint as dispute_id from staffing.time_log t
where t.booking_id = %(booking_id)s and t.status = 'Scheduled'
  and exists (select from staffing.escrow_holds h where h.time_log_id = t.id and h.status = 'Held')
order by t.id

-- name: no_shows
-- Every hour, by page: what nobody began, long after its end; index time_log_unbegun.
select t.id, t.booking_id from staffing.time_log t
where t.status = 'Scheduled' and t.scheduled_start_time <= %(now)s::timestamptz - %(patience)s::interval
  and coalesce(t.scheduled_end_time, t.scheduled_start_time + t.planned_minutes * interval '1 minute')
      <= %(now)s::timestamptz - %(patience)s::interval

-- name: shifts_ahead
-- What can be called off: neither begun nor over.
select t.id from staffing.time_log t
where t.booking_id = %(booking_id)s and t.status = 'Scheduled'
  and coalesce(t.scheduled_end_time, t.scheduled_start_time + t.planned_minutes * interval '1 minute') > %(now)s
order by t.id
for update

-- name: working_elsewhere
-- What a worker has begun and not ended; index time_log_worker.
select id from staffing.time_log where worker_id = %(worker_id)s and status = 'Working' order by id limit 1

-- name: other_shift_in_the_way
-- Another one of the worker that takes a part of the time that is to be added, as in `staffing.free`; index
-- time_log_worker.
select t.id from staffing.time_log t
where t.worker_id = %(worker_id)s and t.id <> %(time_log_id)s and t.status <> 'Cancelled'
  and t.scheduled_start_time < %(ends)s
  and coalesce(t.scheduled_end_time, t.scheduled_start_time + t.planned_minutes * interval '1 minute') > %(starts)s
limit 1

-- name: clock_in_shift
update staffing.time_log set status = 'Working', clock_in_time = %(at)s
where id = %(time_log_id)s and status = 'Scheduled'

-- name: set_reminders
update staffing.time_log
set reminder_5m_job_id = %(five)s, reminder_30m_job_id = %(thirty)s, reminders_cancelled_at = null
where id = %(time_log_id)s

-- name: unset_reminders
update staffing.time_log set reminders_cancelled_at = %(at)s
where id = %(time_log_id)s and reminder_5m_job_id is not null

-- name: draft_shift
update staffing.time_log set draft_end_time = %(end)s
where id = %(time_log_id)s and status = 'Working'

-- name: clock_out_shift
-- The deadline stands on the row, whatever becomes of its timer (STAFF-9.32). `capped`: the end is the borrower's word.
-- A cut is less than the worker would have by their draft or by the clock; `less`: than was planned.
update staffing.time_log
set status = 'Pending_Verification', clock_out_time = %(at)s, work_end_time = coalesce(%(end)s, least(draft_end_time, %(at)s)),
    auto_approval_time = %(deadline)s, capped_end_time = %(capped)s,
    cut_at = case when %(less)s or %(capped)s::timestamptz < least(draft_end_time, %(at)s) then %(at)s::timestamptz end
where id = %(time_log_id)s and status = 'Working'

-- name: edit_shift
-- `capped`: the end is the borrower's word. A worker who edits it as well has seen what was cut.
update staffing.time_log
set work_end_time = %(end)s, auto_approval_time = %(deadline)s, capped_end_time = coalesce(%(capped)s::timestamptz, capped_end_time),
    cut_at = case when %(capped)s::timestamptz < coalesce(work_end_time, clock_out_time) then %(at)s::timestamptz
                  when %(capped)s::timestamptz is not null then cut_at end,
    edit_extensions = edit_extensions + (auto_approval_time <> %(deadline)s)::int
where id = %(time_log_id)s and status = 'Pending_Verification'

-- name: verify_shift
-- What is paid stands on the row from now on, whatever becomes of the hours.
update staffing.time_log set status = 'Verified', verified_by = %(by)s, paid_minutes = %(paid)s, extra_minutes = %(extra)s
where id = %(time_log_id)s and status = 'Pending_Verification'

-- name: confirm_extra_time
-- Once; a shift whose money a settlement has divided has no minutes of its own.
update staffing.time_log set extra_confirmed_at = %(at)s
where id = %(time_log_id)s and status = 'Verified' and extra_minutes > 0 and extra_confirmed_at is null

-- name: cancel_shifts
update staffing.time_log set status = 'Cancelled', cancelled_at = {schema}.now(), cancel_reason = %(reason)s
where booking_id = %(booking_id)s and id = any(%(ids)s) and status = 'Scheduled'
returning id

-- name: change_booking_end
update staffing.bookings set scheduled_end_time = %(end)s where id = %(booking_id)s

-- name: change_shift_end
update staffing.time_log set scheduled_end_time = %(end)s
where id = %(time_log_id)s and status in ('Scheduled', 'Working')

-- name: shorten_shift
-- What is not charged any more, or goes back; `at`: by whoever owes a penalty for it.
update staffing.time_log set planned_minutes = %(minutes)s, shortened_at = coalesce(%(at)s, shortened_at)
where id = %(time_log_id)s and status = 'Scheduled' and planned_minutes > %(minutes)s

-- name: overdue_approvals
-- Timesheets whose deadline has passed; index time_log_pending.
select id, booking_id, clock_out_time, auto_approval_time from staffing.time_log
where status = 'Pending_Verification' and auto_approval_time <= %(now)s

-- name: holds_of_shift
-- Where the money of a shift is; none: nobody has paid for it. `Taken` is what the provider took of it without us.
-- What was paid for before it was imported, and not by us, has money nowhere (STAFF-20.28).
select case when num_nonnulls(refund_id, chargeback_id) > 0 then 'Taken' else status end
from staffing.escrow_holds where time_log_id = %(time_log_id)s and kind <> 'Penalty'
union
select 'Paid_Outside' from staffing.payment_shifts s join staffing.pending_payments p on p.id = s.payment_id
where s.time_log_id = %(time_log_id)s and p.source = 'imported' and p.received_at is null
