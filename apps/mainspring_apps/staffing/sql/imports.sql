-- Imports: what was read from a company's own tables, and as which row it is known here.

-- name: plain_dates
select set_config('DateStyle', 'ISO, YMD', true)

-- name: columns_of
select a.attname from pg_catalog.pg_attribute a
join pg_catalog.pg_class c on c.oid = a.attrelid join pg_catalog.pg_namespace n on n.oid = c.relnamespace
where n.nspname = %(schema)s and c.relname = %(view)s and a.attnum > 0 and not a.attisdropped

-- name: lock_imported
-- Two imports take turns, row by row: whoever is second finds what the first has brought in.
select pg_advisory_xact_lock('staffing.imported'::regclass::oid::bigint)

-- name: imported
select id, source from staffing.imported where kind = %(kind)s and external_id = %(external_id)s

-- name: remember_imported
insert into staffing.imported (kind, external_id, id, source, imported_at)
values (%(kind)s, %(external_id)s, %(id)s, %(source)s, {schema}.now())

-- name: payers_card
-- Of the borrower to whom a project belongs.
select c.stripe_customer_id as customer, c.card_on_file as card
from staffing.projects p join staffing.companies c on c.id = p.company_id where p.id = %(project_id)s
