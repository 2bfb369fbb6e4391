-- What Stripe tells, and money that confirms nothing.

-- name: take_event
-- Once for each event: no row where it came before.
insert into rental.stripe_events (event_id, type) values (%(event_id)s, %(type)s) on conflict do nothing

-- name: to_settle
-- Once for each payment.
insert into rental.to_settle (payment_intent, booking_id, reason, amount_minor, currency)
values (%(payment_intent)s, %(booking_id)s, %(reason)s, %(amount_minor)s, %(currency)s) on conflict do nothing

-- name: last_event
-- When Stripe's webhook was last heard of. Index: stripe_events_received.
select max(received_at) from rental.stripe_events

-- name: open_mismatch
-- Whether another amount was paid for a booking, and nobody has said yet what becomes of it. Index: to_settle_open.
select exists (select from rental.to_settle
               where settled_at is null and booking_id = %(booking_id)s and reason = 'PAYMENT_MISMATCH')

-- name: lock_to_settle
-- By primary key.
select * from rental.to_settle where id = %(to_settle_id)s for update

-- name: settled
update rental.to_settle set settled_at = {schema}.now() where id = %(to_settle_id)s and settled_at is null

-- name: list_to_settle
-- The oldest first. Index: to_settle_open.
select * from rental.to_settle where settled_at is null order by created_at, id limit %(limit)s

-- name: settled_by_refund
-- Money that confirmed nothing and has gone back in full; answers its row, once.
update rental.to_settle set settled_at = {schema}.now()
where payment_intent = %(payment_intent)s and amount_minor <= %(amount_minor)s and settled_at is null
returning reason
