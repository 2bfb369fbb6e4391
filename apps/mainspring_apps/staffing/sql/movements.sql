-- Money on its way: what a transfer or a refund needs to be carried out, and how it ended.

-- name: transfer_to_make
-- With the lender's account, or the one that was tried before, and the charge that it is paid from; never before the
-- payment was received (STAFF-1.31).
select t.id, t.status, t.amount_minor, t.currency, t.idempotency_key, t.try, t.provider_id, t.created_at, p.booking_id,
       b.lender_company_id as lender_id, coalesce(t.destination, l.stripe_account_id) as destination,
       p.provider_charge_id as charge
from staffing.transfers t
left join staffing.escrow_holds h on h.id = t.escrow_hold_id
join staffing.pending_payments p on p.id = coalesce(t.payment_id, h.payment_id)
join staffing.bookings b on b.id = p.booking_id
join staffing.companies l on l.id = b.lender_company_id
where t.id = %(transfer_id)s and p.received_at is not null

-- name: aim_transfer
update staffing.transfers set destination = %(destination)s where id = %(id)s and destination is null

-- name: refund_to_make
select r.id, r.status, r.amount_minor, r.currency, r.idempotency_key, r.try, r.provider_id, r.created_at, p.booking_id,
       p.provider_intent_id as intent
from staffing.refunds r
left join staffing.escrow_holds h on h.id = r.escrow_hold_id
join staffing.pending_payments p on p.id = coalesce(r.payment_id, h.payment_id)
where r.id = %(refund_id)s and p.received_at is not null

-- name: settle_transfer
-- How it ended at the provider; a success is final.
update staffing.transfers set status = %(status)s, provider_id = %(provider_id)s, settled_at = {schema}.now()
where id = %(id)s and status in ('Pending', 'Failed')
returning id

-- name: reversal_to_make
select v.id, v.status, v.amount_minor, v.currency, v.idempotency_key, v.try, v.provider_id, v.created_at, p.booking_id,
       t.provider_id as transfer
from staffing.reversals v
join staffing.transfers t on t.id = v.transfer_id
left join staffing.escrow_holds h on h.id = t.escrow_hold_id
join staffing.pending_payments p on p.id = coalesce(t.payment_id, h.payment_id)
where v.id = %(reversal_id)s

-- name: settle_reversal
update staffing.reversals set status = %(status)s, provider_id = %(provider_id)s, settled_at = {schema}.now()
where id = %(id)s and status in ('Pending', 'Failed')
returning id

-- name: fail_reversal
update staffing.reversals set status = 'Failed', settled_at = {schema}.now(), try = try + %(refused)s::int
where id = %(id)s and status in ('Pending', 'Failed') and try = %(try)s
returning id

-- name: settle_refund
update staffing.refunds set status = %(status)s, provider_id = %(provider_id)s,
  settled_at = case when %(status)s <> 'Pending' then {schema}.now() end
where id = %(id)s and status in ('Pending', 'Failed') and try = %(try)s
  and (status, provider_id) is distinct from (%(status)s, %(provider_id)s)
returning id

-- name: fail_transfer
-- `refused`: nothing was moved under this key, and the provider would say so again for a day; the next try has its own,
-- and goes wherever the lender is paid by then.
update staffing.transfers set status = 'Failed', settled_at = {schema}.now(), try = try + %(refused)s::int,
  destination = case when not %(refused)s then destination end
where id = %(id)s and status in ('Pending', 'Failed') and try = %(try)s
returning id

-- name: fail_refund
-- A bank may send back what has arrived.
update staffing.refunds set status = 'Failed', settled_at = {schema}.now(), try = try + %(refused)s::int
where id = %(id)s and try = %(try)s
returning id

-- name: refund_to_repeat
-- What of a payment is still to be refunded in this amount, as it failed or came back.
select r.id from staffing.refunds r left join staffing.escrow_holds h on h.id = r.escrow_hold_id
where coalesce(r.payment_id, h.payment_id) = %(payment_id)s and r.status = 'Failed' and r.amount_minor = %(amount)s
order by r.id limit 1

-- name: stale_movements
-- What is under way for long (STAFF-19.08); a lender without an account is not the provider's matter.
select 'transfers:' || t.id as key, 'transfers' as kind, t.id
from staffing.transfers t
left join staffing.escrow_holds h on h.id = t.escrow_hold_id
join staffing.pending_payments p on p.id = coalesce(t.payment_id, h.payment_id)
join staffing.bookings b on b.id = p.booking_id
join staffing.companies l on l.id = b.lender_company_id and l.stripe_account_id is not null
where t.status = 'Pending' and t.created_at < %(now)s::timestamptz - %(stale)s::interval
union all
select 'refunds:' || r.id, 'refunds', r.id
from staffing.refunds r
where r.status = 'Pending' and r.created_at < %(now)s::timestamptz - %(stale)s::interval
