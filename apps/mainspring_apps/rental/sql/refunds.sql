-- Refunds and their credit notes.

-- name: ask_refund
insert into rental.refunds (booking_id, payment_intent, amount_minor, currency, reason)
values (%(booking_id)s, %(payment_intent)s, %(amount_minor)s, %(currency)s, %(reason)s) returning id

-- name: refund
select * from rental.refunds where id = %(refund_id)s

-- name: done_refund
select * from rental.refunds where id = %(refund_id)s and state = 'done'

-- name: refund_of_stripe
-- Ours by its id, or by the key under which we asked for it.
select * from rental.refunds
where stripe_refund_id = %(stripe_refund_id)s or %(key)s = 'rental:refund:' || id for update

-- name: booking_of_payment
-- The booking that a payment confirmed; index bookings_stripe_payment_intent_id_key.
select id from rental.bookings where stripe_payment_intent_id = %(payment_intent)s

-- name: given_back
-- Of a booking, done or under way; what failed was not given back. Index refunds_booking.
select coalesce(sum(amount_minor), 0) from rental.refunds where booking_id = %(booking_id)s and state <> 'failed'

-- name: refund_done
update rental.refunds set state = 'done', stripe_refund_id = %(stripe_refund_id)s, done_at = {schema}.now()
where id = %(refund_id)s and state <> 'done'

-- name: refund_under_way
update rental.refunds set stripe_refund_id = %(stripe_refund_id)s where id = %(refund_id)s and state = 'asked'

-- name: refund_failed
update rental.refunds set state = 'failed', stripe_refund_id = coalesce(%(stripe_refund_id)s, stripe_refund_id)
where id = %(refund_id)s and state <> 'failed'

-- name: refunds_without_credit
-- Done, of a booking whose invoice stands, and without a credit note that is issued.
select r.id from rental.refunds r
where r.booking_id = %(booking_id)s and r.state = 'done'
  and exists (select from rental.invoices i where i.booking_id = r.booking_id and i.state = 'issued')
  and not exists (select from rental.credit_notes c where c.refund_id = r.id and c.state = 'issued')
order by r.id

-- name: lock_invoice
select * from rental.invoices where booking_id = %(booking_id)s for update

-- name: left_of_invoice
-- What is left of an invoice beside the credit notes that are reserved or issued.
select i.net_minor - coalesce(sum(c.net_minor), 0)::bigint as net, i.vat_minor - coalesce(sum(c.vat_minor), 0)::bigint as vat
from rental.invoices i left join rental.credit_notes c on c.booking_id = i.booking_id
where i.booking_id = %(booking_id)s group by i.id

-- name: reserve_credit
-- Wins once for a refund.
insert into rental.credit_notes (refund_id, booking_id, external_reference, net_minor, vat_minor, gross_minor)
values (%(refund_id)s, %(booking_id)s, %(reference)s, %(net)s, %(vat)s, %(gross)s) on conflict (refund_id) do nothing

-- name: credit
select c.*, r.reason from rental.credit_notes c join rental.refunds r on r.id = c.refund_id where c.refund_id = %(refund_id)s

-- name: credit_by_id
select c.*, r.reason from rental.credit_notes c join rental.refunds r on r.id = c.refund_id where c.id = %(credit_id)s

-- name: credit_unknown
update rental.credit_notes set state = 'unknown' where id = %(credit_id)s and state = 'reserved'

-- name: credit_issued
update rental.credit_notes set state = 'issued', provider_id = %(provider_id)s, number = %(number)s, net_minor = %(net)s,
  vat_minor = %(vat)s, gross_minor = %(gross)s, issued_at = {schema}.now()
where id = %(credit_id)s and state <> 'issued'

-- name: waiting_jobs
-- Of a booking, those that have not begun. Index rounds_pkey.
select id from rental.booking_jobs where booking_id = %(booking_id)s and status = 'pending'

-- name: cancel_booking
update rental.bookings set status = 'CANCELLED' where id = %(booking_id)s and status = 'CONFIRMED'

-- name: known_refunds
-- Of these, those that we have, and whose state is as Stripe says.
select stripe_refund_id from rental.refunds where stripe_refund_id = any(%(ids)s) and state = 'done'
