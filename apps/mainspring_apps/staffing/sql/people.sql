-- Who is who in a booking, and where their messages go.

-- name: parts_in_booking
-- The parts of a user in a booking, which is named by itself or by something of it; no row: there is no such thing.
-- Before each event; by primary keys.
select coalesce(array_agg(distinct p.part) filter (where p.part is not null), '{}') as parts
from staffing.bookings b left join staffing.parts p on p.booking_id = b.id and p.user_id = %(by)s
where b.id = coalesce(
  %(booking_id)s,
  (select t.booking_id from staffing.time_log t where t.id = %(time_log_id)s),
  (select d.booking_id from staffing.disputes d where d.id = %(dispute_id)s),
  (select i.booking_id from staffing.incident_reports i where i.id = %(incident_id)s))
group by b.id

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
-- The parts of a user in what is their own; in what is another's only operators have one.
select array_remove(array[
  case when u.id = a.id and u.role in ('Admin', 'Manager') then
    case c.kind when 'Borrower' then 'Borrowing ' when 'Lender' then 'Lending ' end || u.role end,
  case when u.id = a.id and u.role in ('Supervisor', 'Worker') then u.role end,
  case when a.role = 'Operator' then 'Platform Operator' end], null) as parts
from staffing.users u join staffing.companies c on c.id = u.company_id left join staffing.users a on a.id = %(by)s
where u.id = %(user_id)s

-- name: parts_at_large
select array['Platform Operator'] from staffing.users where id = %(by)s and role = 'Operator'

-- name: known_as
select id from staffing.users where principal = %(principal)s

-- name: choose_language
update staffing.users set language = %(language)s where id = %(user_id)s

-- name: people_of_booking
-- Everybody who may be told something about a booking, by the part that they play in it.
select part, user_id from staffing.parts where booking_id = %(booking_id)s and not stands_in order by part, user_id

-- name: people_of_company
select id from staffing.users where company_id = %(company_id)s and role = any(%(roles)s) order by id

-- name: worker_name
select u.name from staffing.workers w join staffing.users u on u.id = w.user_id where w.id = %(worker_id)s

-- name: recipients
select id::text as recipient_id, email, phone, timezone as zone, language, quiet_hours_start as quiet_from,
       quiet_hours_end as quiet_to, opted_out
from staffing.users where id = any(%(ids)s::bigint[])

-- name: opt_out
update staffing.users set opted_out = array_append(opted_out, %(kind)s)
where id = %(user_id)s and %(kind)s <> all(opted_out)

-- name: opt_in
update staffing.users set opted_out = array_remove(opted_out, %(kind)s)
where id = %(user_id)s and %(kind)s = any(opted_out)

-- name: companies_without_admin
-- Of those that a booking or a policy is about: nobody there can be told. By primary keys and users_company.
select c.id from staffing.companies c
where c.id in (select b.borrower_company_id from staffing.bookings b where b.id = %(booking_id)s
               union select b.lender_company_id from staffing.bookings b where b.id = %(booking_id)s
               union select p.company_id from staffing.insurance_policies p where p.id = %(policy_id)s)
  and not exists (select from staffing.users u where u.company_id = c.id and u.role = 'Admin')
order by c.id
