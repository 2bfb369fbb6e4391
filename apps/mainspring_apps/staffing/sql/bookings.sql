-- Bookings: who changes anything of one holds its row first (STAFF-19.14: booking, shift, dispute, hold).

-- name: lock_booking
select b.*, p.timezone as zone
from staffing.bookings b join staffing.projects p on p.id = b.project_id
where b.id = %(booking_id)s
for update of b

-- name: add_company
insert into staffing.companies (kind, name) values (%(kind)s, %(name)s) returning id

-- name: company
select id, kind from staffing.companies where id = %(company_id)s

-- name: add_user
insert into staffing.users (company_id, role, name, email, phone, timezone, language, quiet_hours_start, quiet_hours_end,
  alert_channels)
values (%(company_id)s, %(role)s, %(name)s, %(email)s, %(phone)s, %(timezone)s, %(language)s, %(quiet_hours_start)s, %(quiet_hours_end)s,
        %(alert_channels)s)
returning id

-- name: add_operator
with ours as (
  insert into staffing.companies (kind, name) values ('Platform', 'Platform')
  on conflict (kind) where kind = 'Platform' do update set name = excluded.name
  returning id
)
insert into staffing.users (company_id, role, name, email, phone, quiet_hours_start, quiet_hours_end)
select id, 'Operator', %(name)s, %(email)s, %(phone)s, %(quiet_hours_start)s, %(quiet_hours_end)s from ours
returning id

-- name: let_in
update staffing.users set principal = %(principal)s where id = %(user_id)s

-- name: user_of_company
select id, company_id, timezone from staffing.users where id = %(user_id)s

-- name: add_project
insert into staffing.projects (company_id, name, timezone) values (%(company_id)s, %(name)s, %(timezone)s) returning id

-- name: add_worker
insert into staffing.workers (company_id, user_id, trade, zip_code)
values (%(company_id)s, %(user_id)s, %(trade)s, %(zip_code)s)
returning id

-- name: put_card
update staffing.companies set stripe_customer_id = %(customer)s, card_on_file = %(payment_method)s
where id = %(company_id)s

-- name: add_policy
insert into staffing.insurance_policies (company_id, policy_type, expiration_date)
values (%(company_id)s, %(policy_type)s, %(expiration_date)s)
returning id

-- name: project
select id, company_id, timezone from staffing.projects where id = %(project_id)s

-- name: lock_worker
-- Who books a worker holds the row until the end: the next one sees what was booked (STAFF-12.03).
select id, company_id from staffing.workers where id = %(worker_id)s for update

-- name: shifts_in_the_way
-- The starts of those for which the worker is booked already.
select wanted.starts from unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[]) as wanted (starts, ends)
where not staffing.free(%(worker_id)s, wanted.starts, wanted.ends)

-- name: add_booking
insert into staffing.bookings (project_id, borrower_company_id, lender_company_id, worker_id, supervisor_id, payment_type,
                               status, start_date, end_date, scheduled_start_time, scheduled_end_time, rate_minor, currency)
values (%(project_id)s, %(borrower_id)s, %(lender_id)s, %(worker_id)s, %(supervisor_id)s, %(payment_type)s,
        %(status)s, %(start_date)s, %(end_date)s, %(start)s, %(end)s, %(rate_minor)s, %(currency)s)
returning id

-- name: add_shifts
-- Planned beforehand, each with its own exact instants (STAFF-3.13).
insert into staffing.time_log (booking_id, worker_id, clock_in_time, scheduled_start_time, scheduled_end_time, planned_minutes)
select %(booking_id)s, %(worker_id)s, s.starts, s.starts, s.ends, s.minutes
from unnest(%(starts)s::timestamptz[], %(ends)s::timestamptz[], %(minutes)s::integer[]) as s (starts, ends, minutes)
order by s.starts
returning scheduled_start_time, id

-- name: complete_booking
-- Once there is nothing left to do; what a hard stop had suspended is over as well.
update staffing.bookings b set status = 'Completed', status_before_suspension = null, cutoff_at = null
where b.id = %(booking_id)s and exists (select from staffing.finished_bookings f where f.id = b.id)

-- name: finished_bookings
-- Every hour, by page; index bookings_ending.
select f.id from staffing.finished_bookings f

-- name: project_zones
-- Where schedules that follow a project's clock fire; index projects_timezone.
select distinct timezone from staffing.projects
