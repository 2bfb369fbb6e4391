-- What people look at: bookings, and the story of one.

-- name: list_bookings
-- Of a user those in which they play a part, by the indexes of the parts; without one all.
select b.id, b.status, p.timezone as zone, b.worker_id, b.start_date, b.end_date, b.funded_period_end
from staffing.bookings b join staffing.projects p on p.id = b.project_id
where b.id > %(after)s
  and (%(by)s::bigint is null or b.id in (select booking_id from staffing.parts where user_id = %(by)s))
order by b.id limit %(limit)s

-- name: shown_booking
select b.id, b.status, b.payment_type, p.timezone as zone, p.name as project, b.project_id, b.worker_id, b.supervisor_id,
       b.borrower_company_id, b.lender_company_id, b.start_date, b.end_date, b.funded_period_end, b.rate_minor, b.currency,
       b.cutoff_at
from staffing.bookings b join staffing.projects p on p.id = b.project_id
where b.id = %(booking_id)s

-- name: shown_shifts
-- With the money of each, by where it is; index: escrow_holds_booking.
select t.id, t.status, t.scheduled_start_time, t.scheduled_end_time, t.clock_out_time, t.work_end_time, t.paid_minutes,
       t.extra_minutes, t.extra_confirmed_at, t.auto_approval_time, t.cancel_reason, coalesce(m.money, '[]') as money
from staffing.time_log t
left join lateral (
  select jsonb_agg(jsonb_build_object('status', x.status, 'amount_minor', x.amount) order by x.status) as money
  from (select h.status, sum(h.amount_minor)::bigint as amount from staffing.escrow_holds h
        where h.booking_id = t.booking_id and h.time_log_id = t.id group by h.status) x) m on true
where t.booking_id = %(booking_id)s order by t.scheduled_start_time, t.id

-- name: submitted_shifts
select t.*, null::bigint as dispute_id from staffing.time_log t
where t.booking_id = %(booking_id)s and t.status in ('Pending_Verification', 'Disputed')
order by t.id

-- name: what_happened
-- Acts, with the amounts of the money that they are about, and messages, in the order of time. Index:
-- audit_subject, notification_subject.
select s.at, s.what, s.entity, s.entity_id, coalesce(p.amount_minor, t.amount_minor, r.amount_minor, c.amount_minor, v.amount_minor) as amount_minor,
       coalesce(p.currency, t.currency, r.currency, c.currency, v.currency) as currency, s.channel, s.person, u.role,
       coalesce(s.note, case when s.what = 'payment_created' then concat(p.source, ', try ', p.try) end,
                'shift ' || h.time_log_id) as note
from (
  select a.at, substr(a.event, length('staffing.') + 1) as what, a.detail ->> 'entity' as entity,
         (a.detail ->> 'entity_id')::bigint as entity_id, null as channel, a.detail ->> 'reason' as note,
         case when a.actor_type = 'system' then 'SYSTEM' else a.actor_id end as person, 0 as place, a.id::text as tie
  from {schema}.audit a
  where a.event like 'staffing.%%' and a.subject = %(subject)s
  union all
  select coalesce(n.sent_at, n.created_at), n.template, 'message', null, n.channel, n.status, n.recipient_id, 1, n.id::text
  from {schema}.notification_log n where n.subject = %(subject)s
) s
left join staffing.users u on u.id::text = s.person
left join staffing.pending_payments p on s.entity = 'payment' and p.id = s.entity_id
left join staffing.transfers t on s.entity = 'transfer' and t.id = s.entity_id
left join staffing.refunds r on s.entity = 'refund' and r.id = s.entity_id
left join staffing.chargebacks c on s.entity = 'chargeback' and c.id = s.entity_id
left join staffing.reversals v on s.entity = 'reversal' and v.id = s.entity_id
left join staffing.escrow_holds h on h.id = coalesce(t.escrow_hold_id, r.escrow_hold_id)
order by s.at, s.place, s.tie
limit %(limit)s

-- name: open_rows
-- What may have timers: shifts that are not over, those that nobody began in time, disputes that are open, and a booking
-- that is not confirmed yet.
select 'time_log' as entity, id from staffing.time_log
where booking_id = %(booking_id)s and (status in ('Working', 'Pending_Verification')
  or status = 'Scheduled' and coalesce(scheduled_end_time, scheduled_start_time) < {schema}.now())
union all
select 'dispute', id from staffing.disputes where booking_id = %(booking_id)s and status = 'Open' and timed_out_at is null
union all
select 'booking', id from staffing.bookings where id = %(booking_id)s and status = 'Pending_Payment'
order by 1, 2

-- name: next_expiry
select i.id, i.company_id, i.expiration_date from staffing.insurance_policies i
join staffing.bookings b on i.company_id in (b.borrower_company_id, b.lender_company_id)
where b.id = %(booking_id)s and i.is_active and i.expiration_date < b.end_date
order by i.expiration_date, i.id

-- name: zones_of_projects
select timezone from staffing.projects order by id
