-- Machines and bookings. A company with tables of its own has other statements for those of `BookingTable`.

-- name: add_machine
insert into rental.machines (name) values (%(name)s) returning id

-- name: lock_machine
-- Before a booking of it: bookings of one machine are made one after another. By primary key.
select id from rental.machines where id = %(machine_id)s for update

-- name: add_booking
insert into rental.bookings (machine_id, start_date, end_date, customer_name, customer_email, billing_address, tax_number,
  tax_country, locale, total_minor, currency, held_until)
values (%(machine_id)s, %(start_date)s, %(end_date)s, %(customer_name)s, %(customer_email)s, %(billing_address)s,
  %(tax_number)s, %(tax_country)s, %(locale)s, %(total_minor)s, %(currency)s, %(held_until)s) returning id

-- name: booking
-- By primary key.
select b.*, m.name as machine from rental.bookings b join rental.machines m on m.id = b.machine_id
where b.id = %(booking_id)s

-- name: lock_booking
-- The same, held until the transaction ends.
select b.*, m.name as machine from rental.bookings b join rental.machines m on m.id = b.machine_id
where b.id = %(booking_id)s for update of b

-- name: confirm_booking
update rental.bookings set status = 'CONFIRMED', stripe_payment_intent_id = %(intent)s, paid_at = %(paid_at)s
where id = %(booking_id)s and status = 'PENDING'

-- name: invoiced
update rental.bookings set invoice_number = %(number)s, invoice_pdf_url = %(pdf_url)s where id = %(booking_id)s

-- name: stamp_mail
-- The time of a mail, or null so that it can be sent anew.
update rental.bookings set
  confirmation_email_sent_at = case when %(kind)s = 'confirmation' then %(at)s::timestamptz
                                    else confirmation_email_sent_at end,
  internal_email_sent_at = case when %(kind)s = 'internal' then %(at)s::timestamptz else internal_email_sent_at end,
  invoice_email_sent_at = case when %(kind)s = 'invoice' then %(at)s::timestamptz else invoice_email_sent_at end
where id = %(booking_id)s

-- name: expire_booking
update rental.bookings set status = 'EXPIRED' where id = %(booking_id)s and status = 'PENDING'

-- name: count_bookings
select count(*) from rental.bookings

-- name: correct_address
update rental.bookings set customer_email = %(customer_email)s where id = %(booking_id)s

-- name: page_of_booking
update rental.bookings set stripe_session_id = %(session)s where id = %(booking_id)s

-- name: price_booking
update rental.bookings set total_minor = %(total_minor)s where id = %(booking_id)s and status = 'PENDING'

-- name: unexplained
-- Confirmed bookings for which work is neither done, nor under way, nor failed, nor left out by a switch. Once a day;
-- index bookings_status, rounds_pkey.
select b.id, array_agg(w.type order by w.type) as lacking
from rental.bookings b
cross join lateral (values
  ('issue_invoice', b.invoice_number is not null), ('send_customer_confirmation', b.confirmation_email_sent_at is not null),
  ('send_internal_confirmation', b.internal_email_sent_at is not null)) as w (type, done)
left join rental.booking_jobs j on j.booking_id = b.id and j.type = w.type
where b.status = 'CONFIRMED' and not w.done
  and (j.id is null or (j.status = 'completed' and j.result ->> 'skipped' is null))
group by b.id order by b.id

-- name: paid_without_invoice
-- Confirmed bookings that were paid between two instants, and have no invoice. Once a day; index bookings_status.
select id from rental.bookings
where status = 'CONFIRMED' and invoice_number is null and paid_at >= %(since)s and paid_at < %(until)s order by id

-- name: hold_booking
update rental.bookings set held_until = %(until)s where id = %(booking_id)s and status = 'PENDING'
