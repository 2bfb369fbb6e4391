-- What the people of the demo look at before they act.

-- name: demo_shifts_of_day
select t.id, t.booking_id, t.scheduled_start_time, t.scheduled_end_time, t.auto_approval_time, w.user_id as worker,
       b.supervisor_id as supervisor
from staffing.time_log t
join staffing.bookings b on b.id = t.booking_id
join staffing.projects p on p.id = b.project_id
join staffing.workers w on w.id = t.worker_id
where p.timezone = %(zone)s and t.status = 'Scheduled'
  and t.scheduled_start_time >= %(since)s and t.scheduled_start_time < %(until)s
order by t.scheduled_start_time, t.id

-- name: demo_shift
select t.id, t.booking_id, t.scheduled_start_time, t.scheduled_end_time, t.auto_approval_time, w.user_id as worker,
       b.supervisor_id as supervisor
from staffing.time_log t
join staffing.bookings b on b.id = t.booking_id
join staffing.workers w on w.id = t.worker_id
where t.id = %(time_log_id)s

-- name: demo_policies_to_renew
-- Those that end today or have ended: people are late.
select i.id from staffing.insurance_policies i
where i.expiration_date <= ({schema}.now() at time zone 'UTC')::date
  and exists (select from staffing.users u where u.timezone = %(zone)s and u.company_id = i.company_id)
order by i.id

-- name: demo_admin_of_policy
select min(u.id) from staffing.users u join staffing.insurance_policies i on i.company_id = u.company_id
where i.id = %(policy_id)s and u.role = 'Admin'

-- name: demo_manager_of_worker
select min(u.id) from staffing.users u join staffing.workers w on w.company_id = u.company_id
where w.id = %(worker_id)s and u.role = 'Manager'

-- name: demo_operator
select min(id) from staffing.users where role = 'Operator'

-- name: demo_bookings_to_pay
-- Those whose last try failed.
select b.id from staffing.bookings b join staffing.projects p on p.id = b.project_id
where p.timezone = %(zone)s and b.status = 'Active'
  and (select x.status from staffing.pending_payments x where x.booking_id = b.id order by x.id desc limit 1) = 'Failed'
order by b.id

-- name: demo_live_bookings
select b.id from staffing.bookings b join staffing.projects p on p.id = b.project_id
where p.timezone = %(zone)s and b.status in ('Active', 'Payment_Paused_Dispute')
order by b.id

-- name: demo_workers_to_list
select w.id, w.state from staffing.workers w
where not exists (select from staffing.bookings b where b.worker_id = w.id)
  and exists (select from staffing.users u where u.id = w.user_id and u.timezone = %(zone)s)
order by w.id

-- name: demo_workers_to_book
-- Those who have nothing more to do.
select w.id from staffing.workers w join staffing.users u on u.id = w.user_id and u.timezone = %(zone)s
where exists (select from staffing.bookings b where b.worker_id = w.id)
  and not exists (select from staffing.time_log t
                  where t.worker_id = w.id and t.status = 'Scheduled' and t.scheduled_start_time > {schema}.now())
order by w.id

-- name: demo_booking_before
select project_id, worker_id, supervisor_id, scheduled_start_time as start, scheduled_end_time as "end", rate_minor, currency,
       (select min(u.id) from staffing.users u where u.company_id = borrower_company_id and u.role = 'Manager') as by
from staffing.bookings where worker_id = %(worker_id)s order by id desc limit 1

-- name: demo_zone
select timezone from staffing.projects where id = %(project_id)s

-- name: demo_end
select scheduled_end_time from staffing.bookings where id = %(booking_id)s

-- name: demo_card
update staffing.companies c set card_on_file = %(card)s
where c.kind = 'Borrower' and exists (select from staffing.projects p where p.company_id = c.id and p.timezone = %(zone)s)

-- name: demo_good_card
update staffing.companies set card_on_file = %(card)s
where id = (select borrower_company_id from staffing.bookings where id = %(booking_id)s)

-- name: anybody
select exists (select from staffing.companies)

-- name: how_many_users
select count(*)::int + 1 from staffing.users

-- name: demo_user_of_worker
select user_id from staffing.workers where id = %(worker_id)s
