-- Who is who in a booking, and where their messages go.

-- name: people_of_booking
-- Everybody who may be told something about a booking, by the part that they play in it.
select part, user_id from (
  select 'Worker' as part, w.user_id, b.id from staffing.bookings b join staffing.workers w on w.id = b.worker_id
  union all
  select 'Supervisor', b.supervisor_id, b.id from staffing.bookings b where b.supervisor_id is not null
  union all
  select 'Borrowing ' || u.role, u.id, b.id from staffing.bookings b
  join staffing.users u on u.company_id = b.borrower_company_id and u.role in ('Admin', 'Manager')
  union all
  select 'Lending ' || u.role, u.id, b.id from staffing.bookings b
  join staffing.users u on u.company_id = b.lender_company_id and u.role in ('Admin', 'Manager')
) parts
where id = %(booking_id)s
order by part, user_id

-- name: people_of_company
select id from staffing.users where company_id = %(company_id)s and role = any(%(roles)s) order by id

-- name: worker_name
select u.name from staffing.workers w join staffing.users u on u.id = w.user_id where w.id = %(worker_id)s

-- name: recipients
select id::text as recipient_id, email, phone, timezone as zone, quiet_hours_start as quiet_from, quiet_hours_end as quiet_to
from staffing.users where id = any(%(ids)s::bigint[])
