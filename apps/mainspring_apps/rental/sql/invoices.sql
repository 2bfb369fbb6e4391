-- Documents: reserved, issued, kept.

-- name: reserve_invoice
-- Wins once for a booking: no row where it is reserved already.
insert into rental.invoices (booking_id, external_reference, document_type, vat_bps, net_minor, vat_minor, gross_minor)
values (%(booking_id)s, %(reference)s, %(type)s, %(vat_bps)s, %(net)s, %(vat)s, %(gross)s)
on conflict (booking_id) do nothing

-- name: invoice
select * from rental.invoices where booking_id = %(booking_id)s

-- name: invoice_unknown
update rental.invoices set state = 'unknown' where booking_id = %(booking_id)s and state = 'reserved'

-- name: invoice_issued
update rental.invoices set state = 'issued', provider_id = %(provider_id)s, number = %(number)s, pdf_url = %(pdf_url)s,
  net_minor = %(net)s, vat_minor = %(vat)s, gross_minor = %(gross)s, issued_at = {schema}.now()
where booking_id = %(booking_id)s and state <> 'issued'

-- name: paper
select pdf from rental.papers where provider_id = %(provider_id)s

-- name: keep_paper
insert into rental.papers (provider_id, pdf) values (%(provider_id)s, %(pdf)s) on conflict do nothing
