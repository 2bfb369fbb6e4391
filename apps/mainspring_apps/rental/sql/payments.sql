-- What Stripe tells, and money that confirms nothing.

-- name: take_event
-- Once for each event: no row where it came before.
insert into rental.stripe_events (event_id, type) values (%(event_id)s, %(type)s) on conflict do nothing

-- name: to_settle
-- Once for each payment.
insert into rental.to_settle (payment_intent, booking_id, reason, amount_minor, currency)
values (%(payment_intent)s, %(booking_id)s, %(reason)s, %(amount_minor)s, %(currency)s) on conflict do nothing
