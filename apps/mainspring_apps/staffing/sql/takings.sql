-- What the provider took of a payment without us, and what of it came back (STAFF-20.25, 20.26).

-- name: payment_at_provider
-- The payment that an event of the provider is about.
select p.id, p.booking_id, p.received_at, p.provider_intent_id, p.created_at, p.amount_minor, p.currency
from staffing.pending_payments p where p.provider_intent_id = %(intent)s

-- name: takings
-- What was taken of a payment, as far as no hold has followed it yet; the oldest first.
select x.kind, x.id, x.amount_minor - coalesce(sum(h.amount_minor), 0)::bigint as missing
from (
  select 'refund' as kind, r.id, r.amount_minor, r.created_at from staffing.refunds r
  where r.payment_id = %(payment_id)s and r.elsewhere and r.status <> 'Failed'
  union all
  select 'chargeback', c.id, c.amount_minor, c.created_at from staffing.chargebacks c
  where c.payment_id = %(payment_id)s and c.status in ('Open', 'Lost')
) x
left join staffing.escrow_holds h
  on h.payment_id = %(payment_id)s and (h.refund_id = x.id and x.kind = 'refund' or h.chargeback_id = x.id and x.kind = 'chargeback')
group by x.kind, x.id, x.amount_minor, x.created_at
having x.amount_minor > coalesce(sum(h.amount_minor), 0)
order by x.created_at, x.kind, x.id

-- name: takeable_holds
-- What of a payment is still with us: the latest shift gives first, and what is frozen last.
select h.* from staffing.escrow_holds h join staffing.time_log t on t.id = h.time_log_id
where h.payment_id = %(payment_id)s and h.status in ('Held', 'Frozen')
order by h.status = 'Frozen', t.scheduled_start_time desc, h.id desc
for update of h

-- name: take_hold
update staffing.escrow_holds
set status = %(status)s, refund_id = %(refund_id)s, chargeback_id = %(chargeback_id)s, set_aside = false, moved_at = {schema}.now()
where id = %(hold_id)s and status in ('Held', 'Frozen')

-- name: transfers_of_payment
-- What of a payment has gone to the lender.
select t.id from staffing.transfers t left join staffing.escrow_holds h on h.id = t.escrow_hold_id
where coalesce(t.payment_id, h.payment_id) = %(payment_id)s and t.status = 'Succeeded' order by t.id

-- name: write_refund_elsewhere
-- Once by the provider's id, however often it is told.
insert into staffing.refunds (payment_id, elsewhere, amount_minor, currency, status, provider_id, idempotency_key, created_at,
                              settled_at)
values (%(payment_id)s, true, %(amount)s, %(currency)s, %(status)s, %(provider_id)s, 'refund:' || %(provider_id)s,
        {schema}.now(), case when %(status)s <> 'Pending' then {schema}.now() end)
on conflict do nothing
returning id

-- name: refund_of_provider
select id from staffing.refunds where provider_id = %(provider_id)s

-- name: refunds_known
-- How much of a payment is refunded by what the provider has told us.
select coalesce(sum(r.amount_minor), 0)::bigint
from staffing.refunds r left join staffing.escrow_holds h on h.id = r.escrow_hold_id
where coalesce(r.payment_id, h.payment_id) = %(payment_id)s and r.provider_id is not null and r.status <> 'Failed'

-- name: write_chargeback
insert into staffing.chargebacks (payment_id, provider_id, amount_minor, currency, reason, status, created_at)
values (%(payment_id)s, %(provider_id)s, %(amount)s, %(currency)s, %(reason)s, %(status)s, {schema}.now())
on conflict do nothing
returning *

-- name: move_chargeback
-- Only forward, in whatever order the provider tells.
update staffing.chargebacks c
set status = %(status)s, settled_at = case when %(status)s in ('Won', 'Lost') then {schema}.now() end
where c.provider_id = %(provider_id)s and exists (
  select from staffing.transitions t where t.entity = 'chargebacks' and t.before = c.status and t.after = %(status)s)
returning *

-- name: return_charged_back
-- The money of a chargeback that was won is with us again. Where a dispute or an incident had frozen it and is over by now,
-- it is nobody's by rule.
update staffing.escrow_holds h
set status = 'Held', chargeback_id = null, moved_at = {schema}.now(), set_aside = exists (
      select from staffing.disputes d where d.id = h.dispute_id and d.status in ('Settled', 'Resolved')
      union all
      select from staffing.incident_reports i where i.id = h.incident_id and i.status = 'Closed')
where h.chargeback_id = %(chargeback_id)s
returning *

-- name: freeze_again
-- What a dispute or an incident that is still open had frozen.
update staffing.escrow_holds set status = 'Frozen', moved_at = {schema}.now()
where payment_id = %(payment_id)s and status = 'Held' and not set_aside and num_nonnulls(dispute_id, incident_id) > 0

-- name: holds_left
-- Which of these are with us, free of any cause.
select * from staffing.escrow_holds where id = any(%(ids)s) and status = 'Held' order by id

-- name: transfer_to_reverse
select t.id, t.status, p.booking_id, p.id as payment_id, t.amount_minor, t.taken_minor, t.currency, b.lender_company_id
from staffing.transfers t left join staffing.escrow_holds h on h.id = t.escrow_hold_id
join staffing.pending_payments p on p.id = coalesce(t.payment_id, h.payment_id)
join staffing.bookings b on b.id = p.booking_id
where t.id = %(transfer_id)s

-- name: transfer_of_provider
select id from staffing.transfers where provider_id = %(provider_id)s

-- name: reversal_of_transfer
select status from staffing.reversals where transfer_id = %(transfer_id)s

-- name: write_reversal_elsewhere
-- Once for each transfer, as ours; one that the provider refused us was made by hand then.
insert into staffing.reversals as v (transfer_id, destination, reason, amount_minor, currency, status, idempotency_key,
                                     created_at, settled_at)
select t.id, 'held', %(reason)s, t.amount_minor, t.currency, 'Succeeded', 'reversal:' || %(event_id)s, {schema}.now(),
       {schema}.now()
from staffing.transfers t where t.id = %(transfer_id)s
on conflict (transfer_id) do update set status = 'Succeeded', settled_at = {schema}.now() where v.status = 'Failed'
returning id, transfer_id, destination, reason, created_at

-- name: take_part
-- The lender has less of a transfer, and there is less of it to take back; one that the provider refused can be asked again.
with left_over as (
  update staffing.transfers set amount_minor = amount_minor - %(part)s, taken_minor = taken_minor + %(part)s
  where id = %(transfer_id)s and status = 'Succeeded' and amount_minor > %(part)s
  returning id, amount_minor
)
update staffing.reversals v set amount_minor = l.amount_minor, try = v.try + 1
from left_over l where v.transfer_id = l.id and v.status = 'Failed'

-- name: released_holds
-- What a transfer has released, as `take_holds_back` finds it.
select h.* from staffing.escrow_holds h join staffing.transfers t on t.id = %(transfer_id)s
where h.status = 'Released' and (h.id = t.escrow_hold_id or h.payment_id = t.payment_id and not exists (
  select from staffing.transfers o where o.escrow_hold_id = h.id and o.status <> 'Reversed'))
order by h.id desc
for update of h

-- name: set_hold_aside
update staffing.escrow_holds set status = 'Held', set_aside = true, moved_at = {schema}.now()
where id = %(hold_id)s and status = 'Released'

-- name: transfers_taken
-- Those of a booking that somebody has reversed at the provider, whole or in part.
select t.id from staffing.transfers t left join staffing.escrow_holds h on h.id = t.escrow_hold_id
join staffing.pending_payments p on p.id = coalesce(t.payment_id, h.payment_id)
where p.booking_id = %(booking_id)s and (t.taken_minor > 0 or t.status = 'Reversed')
order by t.id

-- name: create_reversal
-- Once for each transfer, of what the lender has of it; who comes second gets no row, unless the provider has refused it.
insert into staffing.reversals as v (transfer_id, destination, reason, amount_minor, currency, idempotency_key, created_at)
select t.id, %(destination)s, %(reason)s, t.amount_minor, t.currency, 'reversal:' || t.id, {schema}.now()
from staffing.transfers t where t.id = %(transfer_id)s
on conflict (transfer_id) do update set status = 'Pending', destination = excluded.destination, reason = excluded.reason,
  amount_minor = excluded.amount_minor, try = v.try + (v.amount_minor <> excluded.amount_minor)::int, settled_at = null
where v.status = 'Failed'
returning id

-- name: refused_reversals
-- The dead letter of a reversal that failed; by the open ones, which are few.
select d.id from {schema}.dead_letters d join {schema}.job j on j.id = d.id
where d.task = %(task)s and (j.payload ->> 'reversal_id')::bigint = %(reversal_id)s

-- name: reversal
select id, transfer_id, destination, reason, status, settled_at, created_at from staffing.reversals where id = %(reversal_id)s

-- name: stale_reversals
select id from staffing.reversals
where status = 'Pending' and created_at <= %(now)s::timestamptz - %(stale)s::interval

-- name: reverse_transfer
update staffing.transfers set status = 'Reversed' where id = %(transfer_id)s and status = 'Succeeded'

-- name: take_holds_back
-- What a transfer had released: one hold, or those of a payment that have no transfer of their own.
update staffing.escrow_holds h set status = 'Held', set_aside = %(set_aside)s, moved_at = {schema}.now()
from staffing.transfers t
where t.id = %(transfer_id)s and h.status = 'Released' and (h.id = t.escrow_hold_id or h.payment_id = t.payment_id and not exists (
  select from staffing.transfers o where o.escrow_hold_id = h.id and o.status <> 'Reversed'))
returning h.*
