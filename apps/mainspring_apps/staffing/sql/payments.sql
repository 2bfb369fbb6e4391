-- Payments: what is due, the row that is committed before the provider is called, and how it ended.

-- name: bookings_to_charge
-- One page of the bookings of a zone; index bookings_project.
select b.id from staffing.bookings b join staffing.projects p on p.id = b.project_id
where p.timezone = %(zone)s and b.payment_type = %(payment_type)s and b.status = %(status)s
  and b.id > coalesce(%(after)s::bigint, 0)
order by b.id
limit %(limit)s

-- name: unfunded_shifts
-- Those that no payment has paid or is paying (STAFF-1.25).
select t.id, t.status, t.scheduled_start_time, t.scheduled_end_time, t.planned_minutes, t.paid_minutes, t.settled_minor
from staffing.time_log t
where t.booking_id = %(booking_id)s and not exists (
  select from staffing.payment_shifts s join staffing.pending_payments p on p.id = s.payment_id
  where s.time_log_id = t.id and s.kind = 'Shift' and p.status in ('Pending', 'Succeeded') and p.given_back_at is null)
order by t.scheduled_start_time, t.id

-- name: unpaid_added_time
-- What verified shifts have on top of their planned minutes, and no payment has paid or is paying: up to a later end that
-- the borrower has set, and beyond the planned end what they have confirmed (STAFF-20.04).
select t.id as time_log_id, a.kind, a.since, a.until, case a.kind when 'Longer' then t.settled_minor end as settled_minor
from staffing.time_log t cross join lateral (values
  ('Longer', t.planned_minutes, t.paid_minutes),
  ('Extra', t.paid_minutes, t.paid_minutes + case when t.extra_confirmed_at is not null then t.extra_minutes end)
) a (kind, since, until)
where t.booking_id = %(booking_id)s and t.status = 'Verified' and a.since < a.until and not exists (
  select from staffing.payment_shifts s join staffing.pending_payments p on p.id = s.payment_id
  where s.time_log_id = t.id and s.kind = a.kind and p.status in ('Pending', 'Succeeded') and p.given_back_at is null)
order by t.scheduled_start_time, t.id, a.since

-- name: taken_shifts
-- Shifts of which the provider took money without us, with what stands for them all the same, and what is being paid; of
-- what a settlement has divided nobody can say what is missing. Index: escrow_holds_booking.
select t.id, t.status, t.scheduled_start_time, t.scheduled_end_time, t.planned_minutes, t.paid_minutes, t.settled_minor,
       coalesce(sum(h.amount_minor) filter (where h.status in ('Held', 'Frozen', 'Released')), 0)::bigint as standing_minor,
       coalesce((select sum(s.amount_minor) from staffing.payment_shifts s
                 join staffing.pending_payments p on p.id = s.payment_id
                 where s.time_log_id = t.id and s.kind = 'Shift' and p.status = 'Pending'), 0)::bigint as coming_minor
from staffing.escrow_holds h join staffing.time_log t on t.id = h.time_log_id
where h.booking_id = %(booking_id)s and h.kind = 'Shift' and not (t.status = 'Verified' and t.paid_minutes is null)
group by t.id
having bool_or(num_nonnulls(h.refund_id, h.chargeback_id) > 0)
order by t.id

-- name: starts_of_shifts
select scheduled_start_time from staffing.time_log where id = any(%(ids)s)

-- name: in_arrears
-- The bookings of a company, or one booking, that may owe for verified work, and that no week is charged of (see
-- rules/charge.py): their planned time, or what was added to it. Indexes: bookings_borrower, time_log_booking, payment_shifts_shift.
select b.id from staffing.bookings b
where (b.id = %(booking_id)s::bigint or b.borrower_company_id = %(company_id)s::bigint)
  and (b.status = any(%(statuses)s) or b.payment_type <> %(weekly)s)
  and exists (
    select from staffing.time_log t cross join lateral (values
      ('Shift', t.paid_minutes is distinct from 0 and t.settled_minor is distinct from 0), ('Longer', t.paid_minutes > t.planned_minutes),
      ('Extra', t.extra_confirmed_at is not null and t.extra_minutes > 0)) a (kind, owed)
    where t.booking_id = b.id and t.status = 'Verified' and a.owed and not exists (
      select from staffing.payment_shifts s join staffing.pending_payments p on p.id = s.payment_id
      where s.time_log_id = t.id and s.kind = a.kind and p.status in ('Pending', 'Succeeded') and p.given_back_at is null))
order by b.id

-- name: correlation_of_job
select correlation_id from {schema}.jobs where id = %(job_id)s

-- name: payer
-- Whose card is charged.
select c.stripe_customer_id as customer, c.card_on_file as card
from staffing.bookings b join staffing.companies c on c.id = b.borrower_company_id where b.id = %(booking_id)s

-- name: payment
select p.* from staffing.pending_payments p where p.id = %(payment_id)s

-- name: payment_of_job
-- What an earlier attempt of the same job has begun; one that was cancelled before it was sent is begun anew.
select p.* from staffing.pending_payments p
where p.job_id = %(job_id)s and p.status <> 'Canceled'
order by p.id desc limit 1

-- name: payment_of_intent
-- The row that an event of the provider is about: by its id, or by our key where our own answer is not committed yet.
select id from staffing.pending_payments where provider_intent_id = %(intent)s or idempotency_key = %(key)s
order by (provider_intent_id = %(intent)s) desc nulls last limit 1

-- name: live_payment
select id from staffing.pending_payments
where booking_id = %(booking_id)s and period_start = %(period_start)s and source not in ('arrears', 'imported')
  and status in ('Pending', 'Succeeded', 'Not_Required')

-- name: tries
-- How often a week was tried: the number of the next try follows.
select coalesce(max(try), 0) from staffing.pending_payments
where booking_id = %(booking_id)s and period_start = %(period_start)s

-- name: last_failure
-- When the last try of a week began that failed.
select created_at from staffing.pending_payments
where booking_id = %(booking_id)s and period_start = %(period_start)s and source <> 'arrears' and status = 'Failed'
order by try desc limit 1

-- name: create_payment
-- The one live charge of a booking and week (STAFF-1.32), with the shifts that it pays: whoever comes second gets no row.
with payment as (
  insert into staffing.pending_payments (booking_id, period_start, period_end, try, amount_minor, currency, status, source,
                                         idempotency_key, customer, payment_method, failure_code, job_id, correlation_id,
                                         created_at, settled_at)
  values (%(booking_id)s, %(period_start)s, %(period_end)s, %(try)s, %(amount)s, %(currency)s, %(status)s, %(source)s,
          %(key)s, %(customer)s, %(payment_method)s, %(failure_code)s, %(job_id)s, %(correlation_id)s, {schema}.now(),
          case when %(status)s::text <> 'Pending' then {schema}.now() end)
  on conflict do nothing
  returning *
), shifts as (
  insert into staffing.payment_shifts (payment_id, time_log_id, kind, amount_minor)
  select p.id, s.time_log_id, s.kind, s.amount_minor
  from payment p cross join unnest(%(shifts)s::bigint[], %(kinds)s::text[], %(amounts)s::bigint[])
    as s (time_log_id, kind, amount_minor)
)
select p.* from payment p

-- name: pause_booking
update staffing.bookings set status = 'Payment_Paused_Dispute' where id = %(booking_id)s and status = 'Active'

-- name: unpause_booking
update staffing.bookings set status = 'Active' where id = %(booking_id)s and status = 'Payment_Paused_Dispute'

-- name: fund_booking
-- Only forward: a week that is paid for stays so.
update staffing.bookings set funded_period_end = greatest(funded_period_end, %(period_end)s)
where id = %(booking_id)s

-- name: confirm_booking
update staffing.bookings set status = 'Active' where id = %(booking_id)s and status = 'Pending_Payment'

-- name: refuse_booking
update staffing.bookings set status = 'Cancelled' where id = %(booking_id)s and status = 'Pending_Payment'

-- name: payment_heard
-- The provider has said something of it: what happens next comes by its webhook. Who was silent for long is back.
update staffing.pending_payments p
set provider_intent_id = coalesce(p.provider_intent_id, %(intent)s),
    provider_charge_id = coalesce(%(charge)s, p.provider_charge_id),
    heard_at = case when p.status = 'Pending' then {schema}.now() else p.heard_at end,
    back_at = case when p.status = 'Pending' and {schema}.now() - coalesce(p.heard_at, p.created_at) > %(silence)s::interval
                   then {schema}.now() else p.back_at end
where p.id = %(payment_id)s

-- name: payment_succeeded
-- Once, from wherever it stood; not beside another payment of the same week, or of the same part of one of its shifts: an
-- older week that failed is charged along with a later one, and is paid for then. What was taken of that is paid again.
update staffing.pending_payments p
set status = 'Succeeded', failure_code = null, settled_at = {schema}.now(), received_at = {schema}.now()
where p.id = %(payment_id)s and p.status in ('Pending', 'Failed') and not exists (
  select from staffing.pending_payments o
  where o.booking_id = p.booking_id and o.period_start = p.period_start and o.id <> p.id
    and not array[o.source, p.source] && '{arrears,imported}' and o.status in ('Pending', 'Succeeded', 'Not_Required'))
  and not exists (
  select from staffing.payment_shifts mine
  cross join lateral (
    select from staffing.payment_shifts theirs join staffing.pending_payments o on o.id = theirs.payment_id
    where theirs.time_log_id = mine.time_log_id and theirs.kind = mine.kind and theirs.payment_id <> mine.payment_id
      and o.status in ('Pending', 'Succeeded') and o.given_back_at is null
      and not exists (
        select from staffing.escrow_holds h
        where h.payment_id = theirs.payment_id and h.time_log_id = theirs.time_log_id and h.kind = theirs.kind
          and num_nonnulls(h.refund_id, h.chargeback_id) > 0)
    offset 0) y  -- a look for each shift: on tables that are not analysed yet the planner would rather read both
  where mine.payment_id = p.id)

-- name: payment_received
-- Money that nobody wants any more has come all the same: it is with us until it is refunded.
update staffing.pending_payments set received_at = {schema}.now()
where id = %(payment_id)s and status in ('Failed', 'Canceled') and received_at is null

-- name: payment_given_back
update staffing.pending_payments set given_back_at = {schema}.now()
where id = %(payment_id)s and given_back_at is null

-- name: payment_failed
update staffing.pending_payments set status = 'Failed', failure_code = %(code)s, settled_at = {schema}.now()
where id = %(payment_id)s and status = 'Pending'

-- name: payment_canceled
update staffing.pending_payments set status = 'Canceled', settled_at = {schema}.now()
where id = %(payment_id)s and status = 'Pending'

-- name: payment_never_sent
-- The provider never heard of it and its job is over: a later one may try again, under another key.
update staffing.pending_payments p set status = 'Canceled', failure_code = 'never_sent', settled_at = {schema}.now()
where p.id = %(payment_id)s and p.status = 'Pending' and p.provider_intent_id is null
  and not exists (select from {schema}.jobs j where j.id = p.job_id
                  and j.state in ('scheduled', 'ready', 'running', 'retrying'))

-- name: stale_payments
-- Whose end nobody told us; index pending_payments_status.
select id from staffing.pending_payments
where status = 'Pending' and created_at <= %(now)s::timestamptz - %(stale)s::interval

-- name: payable_shifts
-- Verified, undisputed, and paid for by this payment. What was verified just now is left to the release that is under way
-- for it: a dispute of that instant comes first (G-36).
select distinct h.time_log_id from staffing.escrow_holds h join staffing.time_log t on t.id = h.time_log_id
where h.payment_id = %(payment_id)s and h.status = 'Held' and not h.set_aside and t.status = 'Verified'
  and not exists (select from {schema}.timer('default', 'release-shift:' || t.id))
order by h.time_log_id

-- name: lender_of_booking
select c.id, c.stripe_account_id as account
from staffing.bookings b join staffing.companies c on c.id = b.lender_company_id where b.id = %(booking_id)s

-- name: connect_account
update staffing.companies set stripe_account_id = %(account)s, account_seen_at = null
where id = %(company_id)s and kind = 'Lender' and stripe_account_id is distinct from %(account)s

-- name: see_account
-- The company whose account the provider tells of, unless it has told something newer before.
update staffing.companies set account_seen_at = %(at)s
where stripe_account_id = %(account)s and (account_seen_at is null or account_seen_at <= %(at)s)
returning id

-- name: companies_of_account
select id from staffing.companies where stripe_account_id = %(account)s order by id

-- name: lock_bookings_of_lender
-- Before its account changes: money that comes meanwhile either sees the account, or is seen by whoever opens it.
select id from staffing.bookings where lender_company_id = %(company_id)s order by id for update

-- name: refused_transfers
-- The dead letters of a lender's transfers that failed; by the open ones, which are few.
select d.id from {schema}.dead_letters d join {schema}.job j on j.id = d.id
join staffing.transfers t on t.id = (j.payload ->> 'transfer_id')::bigint and t.status = 'Failed'
left join staffing.escrow_holds h on h.id = t.escrow_hold_id
join staffing.pending_payments p on p.id = coalesce(t.payment_id, h.payment_id)
join staffing.bookings b on b.id = p.booking_id
where d.task = %(task)s and b.lender_company_id = %(company_id)s
order by t.id

-- name: held_payments_of_lender
-- What waits for an account.
select distinct p.id, p.booking_id
from staffing.escrow_holds h
join staffing.bookings b on b.id = h.booking_id
join staffing.pending_payments p on p.id = h.payment_id
where b.lender_company_id = %(company_id)s and h.status = 'Held' and not h.set_aside and p.status = 'Succeeded'
order by p.booking_id, p.id
