-- Completing a job in a transaction that is its handler's own.

-- name: completion_place
-- Once for such a job, on the handler's connection and on one of the worker's: where it leads, and which transaction this is.
-- On a secured schema the transaction is the job's organisation's, unless it is bound to one already.
select {schema}.place(), current_setting('transaction_isolation'), extract(epoch from transaction_timestamp())::text,
       pg_backend_pid(), set_config('mainspring.org', coalesce(nullif(current_setting('mainspring.org', true), ''), %(org)s::text), true)

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

-- name: completion_session
-- Once for a transaction that its handler left open: whose is it?
select a.application_name, a.state, extract(epoch from clock_timestamp() - a.xact_start)::float8
from pg_stat_activity a where a.pid = %(pid)s::int

-- name: end_completion_session
-- Only if it could not be rolled back where it was begun. Takes the same role, or pg_signal_backend.
select pg_terminate_backend(a.pid, 2000) from pg_stat_activity a
where a.pid = %(pid)s::int and a.backend_xid is not null
  and exists (select from {schema}.running r where r.epoch = %(epoch)s::bigint and r.worker = %(worker)s::text)
