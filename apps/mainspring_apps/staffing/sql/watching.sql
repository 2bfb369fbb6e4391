-- What is watched, and what is measured: each answers (subject, text) of what is wrong now, or labels and a number.

-- name: failed_payments
-- Wednesday's payments of a week by why they failed; null: they did not. Local Mondays lie within a day of UTC's. Index:
-- pending_payments_status.
select date_trunc('week', p.period_start at time zone 'UTC' + interval '14 hours')::date::text as week,
       case when p.status in ('Failed', 'Canceled') then coalesce(p.failure_code, 'canceled') end as cause, count(*)
from staffing.pending_payments p
where p.source = 'weekly' and p.status in ('Pending', 'Succeeded', 'Failed', 'Canceled')
  and p.created_at > {schema}.now() - %(within)s::interval
group by 1, 2 order by 1

-- name: dead_letter_size
-- Counted by its index, up to 10,000.
select count(*) from (select from {schema}.dead_letters limit 10000) d

-- name: waiting_longest
-- Since when the first due job of each queue waits.
select q.name, {schema}.now() - q.due_since from {schema}.queues q
where q.name = any(%(queues)s) and q.due_since is not null order by q.name

-- name: retried_jobs
-- Of the jobs that made an attempt of late, how many must make another, and how many there are; the engine's own are not
-- asked. Index: attempt_ended, finished_age.
select count(*) filter (where j.retried), count(*)
from (
  select a.id, bool_or(a.retried) as retried
  from (
    select a.job_id as id, a.outcome in ('retried', 'expired') as retried from {schema}.attempt a
    where a.ended_at > {schema}.now() - %(within)s::interval and a.org_id <> 'SYSTEM'
    union all
    select f.id, false from {schema}.finished f
    where f.finished_at > {schema}.now() - %(within)s::interval and f.state <> 'cancelled' and f.org_id <> 'SYSTEM') a
  group by a.id) j

-- name: unfunded_shifts_soon
-- Shifts that begin soon, and that no payment has paid or is paying: of paused bookings, and of those whose charge failed
-- when no cutoff was ahead, or whose money was taken back.
select 'shift ' || t.id, 'booking ' || b.id || case b.status when 'Active' then ' goes on' else ' is paused' end
       || ', and the shift is not paid for'
from staffing.bookings b join staffing.time_log t on t.booking_id = b.id
where b.status in ('Payment_Paused_Dispute', 'Active') and t.status = 'Scheduled'
  and t.scheduled_start_time between {schema}.now() and {schema}.now() + %(notice)s::interval
  and not exists (select from staffing.payment_shifts s join staffing.pending_payments p on p.id = s.payment_id
                  where s.time_log_id = t.id and p.status in ('Pending', 'Succeeded') and p.given_back_at is null
                    and not exists (select from staffing.escrow_holds h
                                    where h.payment_id = p.id and h.time_log_id = t.id
                                      and num_nonnulls(h.refund_id, h.chargeback_id) > 0))
order by t.id

-- name: unanswered_charges
-- Payments of which the provider says nothing for long: one alert for all of them. Index: pending_payments_status.
select 'stripe', count(*) || ' payments wait for an answer of the provider, since ' ||
       to_char(min(p.created_at) at time zone 'UTC', 'YYYY-MM-DD HH24:MI') || 'Z, such as of booking ' || min(p.booking_id)
from staffing.pending_payments p
where p.status = 'Pending' and coalesce(p.heard_at, p.created_at) < {schema}.now() - %(silence)s::interval
having count(*) > 0

-- name: money_standing_still
-- Money that nothing moves by itself: on its way for too long, held for a shift that nobody submitted, or began and was not
-- refunded for it, or for verified work; and work that nobody submitted and nobody has paid for. Indexes: time_log_booking, pending_payments_status, transfers_status, refunds_status, escrow_holds_held.
select 'payment ' || p.id, 'booking ' || p.booking_id || ': the provider has not ended it for too long'
from staffing.pending_payments p
where p.status = 'Pending' and p.created_at < {schema}.now() - %(after)s::interval
union all
select 'transfer ' || t.id, 'it is under way for too long'
from staffing.transfers t
left join staffing.escrow_holds h on h.id = t.escrow_hold_id
join staffing.pending_payments p on p.id = coalesce(t.payment_id, h.payment_id)
join staffing.bookings b on b.id = p.booking_id
join staffing.companies l on l.id = b.lender_company_id and l.stripe_account_id is not null
where t.status = 'Pending' and t.created_at < {schema}.now() - %(after)s::interval
union all
select 'refund ' || r.id, 'it is under way for too long'
from staffing.refunds r
where r.status = 'Pending' and r.created_at < {schema}.now() - %(after)s::interval
union all
select 'shift ' || t.id, 'booking ' || t.booking_id || ': was to end long ago, is paid for, and is still ' || t.status
from staffing.escrow_holds h join staffing.time_log t on t.id = h.time_log_id
where h.status = 'Held' and h.kind = 'Shift' and t.status in ('Scheduled', 'Working')
  and coalesce(t.scheduled_end_time, t.scheduled_start_time + t.planned_minutes * interval '1 min')
      < {schema}.now() - %(after)s::interval - case t.status when 'Scheduled' then %(no_show)s::interval else '0' end
union all
select 'shift ' || t.id, 'booking ' || t.booking_id || ': was to end long ago, nobody has paid for it, and it is still Working'
from staffing.time_log t
where t.status = 'Working'
  and coalesce(t.scheduled_end_time, t.scheduled_start_time + t.planned_minutes * interval '1 min')
      < {schema}.now() - %(after)s::interval
  and not exists (select from staffing.payment_shifts s join staffing.pending_payments p on p.id = s.payment_id
                  where s.time_log_id = t.id and p.status in ('Pending', 'Succeeded') and p.given_back_at is null)
union all
select 'shift ' || t.id, 'booking ' || t.booking_id || ': is verified and paid for, and the lender has nothing'
from staffing.escrow_holds h join staffing.time_log t on t.id = h.time_log_id
join staffing.bookings b on b.id = h.booking_id
join staffing.companies l on l.id = b.lender_company_id and l.stripe_account_id is not null
where h.status = 'Held' and not h.set_aside and h.kind <> 'Penalty' and t.status = 'Verified'
  and greatest(h.created_at, t.auto_approval_time) < {schema}.now() - %(after)s::interval

-- name: conflicts_left_open
-- Disputes and incidents that nobody has ended for long, with the money that they keep, and money that is frozen for none of
-- them. Indexes: escrow_holds_dispute, escrow_holds_incident.
with open as (
  select d.id as dispute_id, null::bigint as incident_id, 'dispute ' || d.id as subject, d.booking_id, d.status,
         d.dispute_filed_at as since
  from staffing.disputes d where d.status in ('Open', 'Legal_Hold')
  union all
  select null, i.id, 'incident ' || i.id, i.booking_id, i.status, i.filed_at
  from staffing.incident_reports i where i.status = 'Pending'
), kept as (
  select o.*, (select coalesce(sum(h.amount_minor), 0) from staffing.escrow_holds h
               where h.status = 'Frozen' and (h.dispute_id = o.dispute_id or h.incident_id = o.incident_id)) as frozen
  from open o where o.since <= {schema}.now() - %(after)s::interval
)
select k.subject, 'booking ' || k.booking_id || ': it is ' || k.status || ' since '
       || to_char(k.since at time zone 'UTC', 'YYYY-MM-DD') || ', and keeps ' || k.frozen || ' minor units frozen'
from kept k
union all
select 'hold ' || h.id, 'booking ' || h.booking_id || ': it is frozen for nothing that is open'
from staffing.escrow_holds h
where h.status = 'Frozen' and h.moved_at <= {schema}.now() - %(after)s::interval
  and not exists (select from open o where h.dispute_id = o.dispute_id or h.incident_id = o.incident_id)

-- name: undelivered
-- Messages of these kinds that nobody got, until somebody has decided on their dead letters.
select 'message ' || n.id, n.template || ' to user ' || n.recipient_id || ' by ' || n.channel
from {schema}.dead_letters d join {schema}.notification n on n.job_id = d.id
where n.template = any(%(kinds)s)
order by n.id

-- name: nobody_reached
-- People whom a message did not reach by any of its channels: of late, or of those who have such an alert. It is
-- over when a later one reaches them, when an address is there that was missing, or when somebody has decided on the dead
-- letter. Index: notification_created, notification_once, alert_open.
with people as (
  select n.org_id, n.recipient_id from {schema}.notification n
  where n.created_at > {schema}.now() - %(within)s::interval and n.template <> all(%(wished)s)
  union
  select a.org_id, substr(a.subject, length('user ') + 1) from {schema}.alert a
  where a.name = 'nobody_reached' and a.closed_at is null
), lost as (
  select l.org_id, l.recipient_id, l.template, max(l.created_at) as asked_at,
         string_agg(l.channel || ': ' || coalesce(l.reason, l.error, l.status), ', ' order by l.channel) as why
  from people p join {schema}.notification_log l on l.org_id = p.org_id and l.recipient_id = p.recipient_id
  left join staffing.users u on u.id = l.recipient_id::bigint
  where l.template <> all(%(wished)s)
  group by l.org_id, l.recipient_id, l.template, l.payload_hash, l.bucket
  having bool_and(case l.status
    when 'failed' then exists (select from {schema}.dead_letters d where d.id = l.job_id)
    when 'skipped' then l.reason in ('no_address', 'unknown_recipient', 'opted_out')
         and (l.reason <> 'no_address' or case l.channel when 'sms' then u.phone else u.email end is null)
    else false end)
)
select distinct on (l.org_id, l.recipient_id)
       'user ' || l.recipient_id, l.template || ' did not reach them by any channel: ' || l.why, l.org_id
from lost l
where not exists (
  select from {schema}.notification n
  where n.org_id = l.org_id and n.recipient_id = l.recipient_id and n.template <> all(%(wished)s)
    and n.status = 'sent' and n.sent_at > l.asked_at)
order by l.org_id, l.recipient_id, l.asked_at desc

-- name: extra_time_unconfirmed
-- Work beyond the plan that nobody has said they pay for, of late; index time_log_extra.
select 'time_log ' || t.id, 'booking ' || t.booking_id || ': ' || t.extra_minutes || ' minutes beyond the plan are not confirmed, and not paid'
from staffing.time_log t
where t.status = 'Verified' and t.extra_minutes > 0 and t.extra_confirmed_at is null
  and t.clock_out_time <= {schema}.now() - %(after)s::interval
  and t.clock_out_time > {schema}.now() - %(after)s::interval - %(within)s::interval

-- name: nobody_to_tell
-- Companies without an admin that have something to be told of, or missed a message, until an admin is there. Indexes:
-- users_company, bookings_borrower, bookings_lender, insurance_policies_company.
select 'company ' || c.id, 'it has no admin who could be told of its bookings and policies'
from staffing.companies c
where c.kind <> 'Platform'
  and not exists (select from staffing.users u where u.company_id = c.id and u.role = 'Admin')
  and (exists (select from staffing.bookings b where (b.borrower_company_id = c.id or b.lender_company_id = c.id)
               and b.status not in ('Cancelled', 'Completed'))
       or exists (select from staffing.insurance_policies p where p.company_id = c.id and p.is_active)
       or exists (select from {schema}.alert a
                  where a.name = 'nobody_to_tell' and a.subject = 'company ' || c.id and a.closed_at is null))
order by c.id

-- name: failed_in_queue
-- Jobs of a queue that must be tried again, or that nobody tries again.
select 'booking ' || (j.payload ->> 'booking_id'), j.task || ' failed'
from {schema}.waiting w join {schema}.job j on j.id = w.id where w.retrying and w.queue = %(queue)s
union all
select 'booking ' || (j.payload ->> 'booking_id'), j.task || ' failed for good'
from {schema}.dead_letters d join {schema}.job j on j.id = d.id where d.queue = %(queue)s

-- name: unsent_insurance
-- Policies that the nightly run has not looked at, and warnings that are not out; an SMS may wait for the day.
select 'policy ' || (j.payload ->> 'policy_id'), 'the nightly run has not looked at it'
from {schema}.jobs j
where j.task = 'look_at_policy' and j.state not in ('succeeded', 'cancelled')
  and j.created_at between {schema}.now() - %(within)s::interval and {schema}.now() - %(after)s::interval
union all
select 'message ' || n.id, n.kind || ' to user ' || n.recipient_id || ' by ' || n.channel || ' is not sent'
from staffing.notification_log n
where n.kind = any(%(kinds)s)
  and (n.status in ('Queued', 'Failed') or n.status = 'Deferred' and n.channel = 'email')
  and n.created_at between {schema}.now() - %(within)s::interval and {schema}.now() - %(after)s::interval

-- name: expired_policies_active
-- Those that the nightly run should have deactivated. Index: insurance_policies_expiring.
select 'policy ' || p.id, 'expired on ' || p.expiration_date || ' and is still active'
from staffing.insurance_policies p
where p.is_active and p.expiration_date < (({schema}.now() - %(after)s::interval) at time zone 'UTC')::date
order by p.id

-- name: skipped_searches
-- Alerts of saved searches that were left out of late. Index: alert_deliveries_at.
select d.kind || ': ' || d.reason, count(*) || ' alerts were left out of late'
from staffing.alert_deliveries d
where d.status = 'Skipped' and d.reason <> 'limit' and d.at > {schema}.now() - %(within)s::interval
group by d.kind, d.reason order by 1

-- name: measure_payments
select p.source, p.status, count(*) from staffing.pending_payments p where p.settled_at is not null group by 1, 2

-- name: measure_payment_failures
select coalesce(p.failure_code, 'canceled') as cause, count(*) from staffing.pending_payments p
where p.status in ('Failed', 'Canceled') group by 1

-- name: measure_failures_told
select n.channel, count(*) from staffing.notification_log n
where n.kind in ('action_required', 'arrears_failed', 'not_confirmed') group by 1

-- name: measure_resolution_to_payment
-- From the last resolution before a payment after it was begun, until its money came.
select extract(epoch from p.received_at - greatest(
  (select max(d.dispute_resolved_at) from staffing.disputes d
   where d.booking_id = p.booking_id and d.dispute_resolved_at <= p.created_at),
  (select max(i.closed_at) from staffing.incident_reports i
   where i.booking_id = p.booking_id and i.closed_at <= p.created_at)))
from staffing.pending_payments p where p.source = 'retry' and p.received_at is not null

-- name: measure_releases
select count(*) from {schema}.audit a where a.event = 'staffing.booking_released'

-- name: measure_delivery_rate
select n.kind, n.channel, avg((n.status = 'Sent')::int) from staffing.notification_log n
where n.status in ('Sent', 'Failed') and n.created_at > {schema}.now() - %(within)s::interval
group by 1, 2

-- name: measure_retry_success_rate
-- Of the jobs that came to an end after more than one attempt. Index: finished_age.
select j.task, avg((f.state = 'succeeded')::int) from {schema}.finished f join {schema}.job j on j.id = f.id
where f.attempt > 1 and f.state <> 'cancelled' and f.org_id <> 'SYSTEM'
  and f.finished_at > {schema}.now() - %(within)s::interval
group by 1

-- name: measure_policies_near_expiry
select due.days::text, count(*)
from (
  select min(threshold) as days
  from staffing.insurance_policies p, unnest(%(thresholds)s::integer[]) as threshold,
       (select ({schema}.now() at time zone 'UTC')::date as today) t
  where p.is_active and p.expiration_date between t.today and t.today + threshold
  group by p.id) due
group by 1

-- name: measure_search_skips
select d.kind, d.reason, count(*) from staffing.alert_deliveries d where d.status = 'Skipped' group by 1, 2

-- name: measure_search_outage
select d.kind, d.reason, sum(extract(epoch from d.at - d.since)) from staffing.alert_deliveries d
where d.status = 'Skipped' and d.since is not null
group by 1, 2

-- name: measure_batch_failure_rate
select r.kind, avg(r.failed::int) from staffing.search_runs r
where not r.retry and r.at > {schema}.now() - %(within)s::interval
group by 1

-- name: measure_batch_retry_success_rate
select r.kind, avg((not r.failed)::int) from staffing.search_runs r
where r.retry and r.at > {schema}.now() - %(within)s::interval
group by 1
