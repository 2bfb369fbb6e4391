-- Policies, and the bookings that depend on them. Policies are locked before bookings.

-- name: ending_policies
-- Every midnight, by page: what may be warned of or has expired. Index: insurance_policies_expiring.
select p.id
from staffing.insurance_policies p
where p.is_active and p.expiration_date <= %(until)s
  and (%(after)s::bigint is null or p.id > %(after)s)
order by p.id limit %(limit)s

-- name: lock_policy
select * from staffing.insurance_policies where id = %(policy_id)s for update

-- name: lock_policies_beside
-- All of its company's, in one order: two renewals wait for each other, and for no third.
select p.id from staffing.insurance_policies p
where p.company_id = (select o.company_id from staffing.insurance_policies o where o.id = %(policy_id)s)
order by p.id for update of p

-- name: lock_policies_of_company
select id from staffing.insurance_policies where company_id = %(company_id)s order by id for update

-- name: policies_of_booking
select p.* from staffing.bookings b
join staffing.insurance_policies p on p.company_id in (b.borrower_company_id, b.lender_company_id)
where b.id = %(booking_id)s

-- name: lock_policies_of_booking
-- A stop: nobody renews or withdraws one of them before it has ended.
select p.* from staffing.bookings b
join staffing.insurance_policies p on p.company_id in (b.borrower_company_id, b.lender_company_id)
where b.id = %(booking_id)s
order by p.id
for share of p

-- name: lock_insured_booking
-- Whether shifts are still to be worked: one that runs, or that is planned and not over.
select b.status, b.status_before_suspension, b.payment_type, exists (
         select from staffing.time_log t
         where t.booking_id = b.id and (
           t.status = 'Working' or t.status = 'Scheduled' and t.scheduled_start_time + t.planned_minutes * interval '1 min' > {schema}.now())
       ) as to_be_worked
from staffing.bookings b where b.id = %(booking_id)s
for update of b

-- name: record_warning
insert into staffing.insurance_warnings (policy_id, expiration_date, threshold, sent_at)
values (%(policy_id)s, %(expiration_date)s, %(threshold)s, {schema}.now())
on conflict do nothing

-- name: deactivate_policy
update staffing.insurance_policies set is_active = false where id = %(policy_id)s and is_active

-- name: renew_policy
update staffing.insurance_policies set is_active = true, expiration_date = %(expiration_date)s where id = %(policy_id)s

-- name: other_valid_policy
-- Index: insurance_policies_company.
select id from staffing.insurance_policies
where company_id = %(company_id)s and is_active and expiration_date >= %(today)s
  and policy_type = %(policy_type)s and id <> %(policy_id)s
limit 1

-- name: stoppable_bookings
-- The live bookings of a company, on either side, by page. Indexes: bookings_borrower, bookings_lender.
select b.id from staffing.bookings b
where (b.borrower_company_id = %(company_id)s or b.lender_company_id = %(company_id)s) and b.id > %(after)s
  and (b.status = any(%(statuses)s) or b.status = 'Completed' and exists (
         select from staffing.time_log t
         where t.booking_id = b.id and (
           t.status = 'Working' or t.status = 'Scheduled' and t.scheduled_start_time + t.planned_minutes * interval '1 min' > {schema}.now())))
order by b.id limit %(limit)s

-- name: suspended_bookings
select b.id from staffing.bookings b
where (b.borrower_company_id = %(company_id)s or b.lender_company_id = %(company_id)s) and b.id > %(after)s
  and b.status = 'Suspended_Insurance'
order by b.id limit %(limit)s

-- name: companies_of_bookings
select distinct unnest(array[b.borrower_company_id, b.lender_company_id]) from staffing.bookings b where b.id = any(%(ids)s)

-- name: company_name
select name from staffing.companies where id = %(company_id)s

-- name: suspend_booking
update staffing.bookings set status = 'Suspended_Insurance', status_before_suspension = status
where id = %(booking_id)s and status = %(status)s

-- name: lift_suspension
update staffing.bookings set status = %(status)s, status_before_suspension = null, renewed_in_dispute = %(in_dispute)s
where id = %(booking_id)s and status = 'Suspended_Insurance'
