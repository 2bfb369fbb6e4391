-- Who is who in a booking, and where their messages go.

-- name: parts_in_booking
-- The parts of a user in a booking, which is named by itself or by something of it; no row: there is no such thing.
-- Whoever supervises for the borrower may stand in for the one who is named. Before each event; by primary keys.
select array_remove(array[
  case when w.user_id = u.id then 'Worker' end,
  case when b.supervisor_id = u.id or (u.role = 'Supervisor' and u.company_id = b.borrower_company_id) then 'Supervisor' end,
  case when u.company_id = b.borrower_company_id and u.role in ('Admin', 'Manager') then 'Borrowing ' || u.role end,
  case when u.company_id = b.lender_company_id and u.role in ('Admin', 'Manager') then 'Lending ' || u.role end,
  case when u.role = 'Operator' then 'Platform Operator' end], null) as parts
from staffing.bookings b join staffing.workers w on w.id = b.worker_id left join staffing.users u on u.id = %(by)s
where b.id = coalesce(
  %(booking_id)s,
  (select t.booking_id from staffing.time_log t where t.id = %(time_log_id)s),
  (select d.booking_id from staffing.disputes d where d.id = %(dispute_id)s),
  (select i.booking_id from staffing.incident_reports i where i.id = %(incident_id)s))

-- name: parts_in_company
-- The parts of a user in a company, or in that which a policy, a project or a worker belongs to.
select array_remove(array[
  case when u.company_id = c.id and u.role in ('Admin', 'Manager') then
    case c.kind when 'Borrower' then 'Borrowing ' when 'Lender' then 'Lending ' end || u.role end,
  case when u.company_id = c.id and u.role in ('Supervisor', 'Worker') then u.role end,
  case when u.role = 'Operator' then 'Platform Operator' end], null) as parts
from staffing.companies c left join staffing.users u on u.id = %(by)s
where c.id = coalesce(
  %(company_id)s,
  (select i.company_id from staffing.insurance_policies i where i.id = %(policy_id)s),
  (select p.company_id from staffing.projects p where p.id = %(project_id)s),
  (select w.company_id from staffing.workers w where w.id = %(worker_id)s))

-- name: parts_in_account
-- The part of a user in what is their own; nobody has one in what is another's.
select array_remove(array[
  case when u.id = %(by)s then
    case when u.role not in ('Admin', 'Manager') then u.role when c.kind = 'Borrower' then 'Borrowing ' || u.role
    else 'Lending ' || u.role end end], null) as parts
from staffing.users u join staffing.companies c on c.id = u.company_id
where u.id = %(user_id)s

-- name: parts_at_large
select array['Platform Operator'] from staffing.users where id = %(by)s and role = 'Operator'

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
