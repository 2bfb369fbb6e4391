-- Completing a job in a transaction that is its handler's own.

-- name: completion_place
-- Once for such a job, on the handler's connection and on one of the worker's: where it leads, and which transaction this is.
-- On a secured schema the transaction is the job's organisation's, unless it is bound to one already.
select {schema}.place(), current_setting('transaction_isolation'), extract(epoch from transaction_timestamp())::text,
       set_config('mainspring.org', coalesce(nullif(current_setting('mainspring.org', true), ''), %(org)s::text), true)

-- name: completion_began
-- The same instant as before, unless each statement is a transaction of its own.
select extract(epoch from transaction_timestamp())::text

-- name: complete_in
select {schema}.complete_in(%(worker)s::text, %(epoch)s::bigint, %(result)s::text::jsonb)

-- name: completion_end
-- On a connection of the worker's, when the handler has ended: what became of it? Index: the primary keys, running_epoch_key.
with free as (
  select r.id from {schema}.running r where r.epoch = %(epoch)s::bigint and r.worker = %(worker)s::text for update skip locked
)
select case
  when exists (select from {schema}.finished f
               where f.id = %(id)s::text::uuid and f.epoch = %(epoch)s::bigint and f.worker = %(worker)s::text) then 'committed'
  when exists (select from free) then 'undone'
  when exists (select from {schema}.running r where r.epoch = %(epoch)s::bigint and r.worker = %(worker)s::text) then 'open'
  else 'lost' end
