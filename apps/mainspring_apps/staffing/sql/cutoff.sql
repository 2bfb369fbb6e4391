-- The final warning and the hard cutoff: who may be unpaid, what was tried, and the release itself.

-- name: unpaid_bookings
-- Each fire in a zone, by page: whoever may be unpaid for the next week, in the source's words; the job decides by the
-- local week. Index: bookings_project.
select b.id, jsonb_build_object('booking_id', b.id)
from staffing.bookings b join staffing.projects p on p.id = b.project_id
where b.payment_type = 'Weekly_Progress' and b.status = 'Active' and p.timezone = %(zone)s
  and (b.funded_period_end is null or b.funded_period_end < %(instant)s::timestamptz + interval '7 days')
  and (%(after)s::bigint is null or b.id > %(after)s)
order by b.id limit %(limit)s

-- name: last_attempt
-- The last try to pay for a week that ends then, among those that began before an instant, if one is said. What was
-- given up before the provider ever heard of it was no try: it is our own fault. `back_at` is of all of them.
select id, status, heard_at is not null as heard, max(back_at) over () as back_at from staffing.pending_payments
where booking_id = %(booking_id)s and period_end = %(period_end)s and source not in ('arrears', 'imported')
  and not (status = 'Canceled' and provider_intent_id is null)
  and (%(before)s::timestamptz is null or created_at < %(before)s)
order by id desc limit 1

-- name: still_due
-- Whether a payment that failed can be made good by another until an instant: nobody has done so, and the booking goes on.
select {schema}.now() < %(until)s::timestamptz and b.status not in ('Cancelled', 'Completed')
       and (b.funded_period_end is null or b.funded_period_end < p.period_end)
from staffing.pending_payments p join staffing.bookings b on b.id = p.booking_id
where p.id = %(payment_id)s

-- name: move_cutoff
update staffing.bookings set cutoff_at = %(at)s where id = %(booking_id)s and status = 'Active'

-- name: release_booking
-- A booking ends on the last Sunday that is paid for, or before it where it did; one that has not begun ends on its
-- first day.
update staffing.bookings
set status = 'Completed', end_date = greatest(%(sunday)s::date, start_date), cutoff_at = null
where id = %(booking_id)s and status = 'Active' and payment_type = 'Weekly_Progress'
  and (funded_period_end is null or funded_period_end < %(due_end)s)

-- name: planned_shifts
select id, scheduled_start_time from staffing.time_log
where booking_id = %(booking_id)s and status = 'Scheduled'
order by id
