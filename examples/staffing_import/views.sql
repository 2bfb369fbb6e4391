-- How Acme's tables are read: a view for each noun, with the columns of docs/apps/staffing-import.md.

create schema to_mainspring;

create view to_mainspring.companies as
select firm as external_id, 'Borrower' as kind, title as name, stripe_id as customer, stripe_pm as payment_method,
       null as account
from acme.customers
union all
select 'acme', 'Lender', 'Acme Hands', null, null, 'acct_acme';

create view to_mainspring.users as
select person_no as external_id, firm as company_id,
       case job when 'boss' then 'Admin' when 'foreman' then 'Supervisor' when 'hand' then 'Worker' else job end as role,
       full_name as name, mail as email, null as phone, 'America/New_York' as timezone
from acme.people;

create view to_mainspring.policies as
select firm as external_id, firm as company_id, 'Liability' as policy_type, insured_to as expiration_date from acme.customers;

create view to_mainspring.projects as
select site_no as external_id, firm as company_id, street as name, zone as timezone from acme.sites;

create view to_mainspring.workers as
select person_no as external_id, firm as company_id, person_no as user_id, 'welder' as trade, '10001' as zip_code
from acme.people where job = 'hand';

-- Only what runs, with the hours that most of its turns have.
create view to_mainspring.bookings as
select a.code as external_id, a.site_no as project_id, a.person_no as worker_id, a.foreman as supervisor_id,
       a.first_day as start_date, a.last_day as end_date, t.start_time, t.end_time, a.hourly as rate, 'USD' as currency,
       a.paid_thru + 1 as funded_until
from acme.assignments a
cross join lateral (
  select mode() within group (order by begins::time) as start_time, mode() within group (order by ends::time) as end_time
  from acme.turns where code = a.code
) t
where a.state = 'running';

-- Only what is to come: what was done is paid, and stays with Acme.
create view to_mainspring.shifts as
select t.turn_no as external_id, t.code as booking_id, t.begins::date as day, t.begins::time as start_time,
       t.ends::time as end_time, t.charged_by as payment_intent, t.charge,
       case when t.charged_by is not null
            then round(extract(epoch from t.ends - t.begins) / 3600 * a.hourly, 2) end as paid,
       t.by_invoice as settled
from acme.turns t join acme.assignments a on a.code = t.code
where a.state = 'running' and t.state = 'planned';
