-- What a worker says.

-- name: claim
-- The exchange, every few milliseconds while there is work.
select * from {schema}.claim(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)

-- name: complete
-- The exchange, in the same transaction as the next claim.
select {schema}.complete(%s, %s)

-- name: complete_with
-- The same, for attempts that returned a result.
select {schema}.complete(%s, %s, %s::jsonb[])

-- name: complete_one
-- The end of a handler's own transaction: without the lease nothing commits.
select {schema}.complete_one(%s, %s, %s::jsonb)

-- name: complete_and_commit
-- The same as one message, completion and commit in one round trip; a worker's id holds nothing that needs quoting.
select {schema}.complete_one('{worker}', {epoch}, null); commit

-- name: settle
select {schema}.settle(%s, %s::json)

-- name: renew
-- Every renewal interval, all leases of the worker at once.
select epoch, cancel from {schema}.renew(%s, %s, %s)

-- name: orphans
-- After a lost connection: claims of this worker that it does not know, because their answer was lost.
select epoch from {schema}.running where worker = %s and epoch <> all(%s)

-- name: cancelled
-- Every second while jobs run, and on every wake-up. Index: running_cancel.
select epoch from {schema}.running where worker = %s and cancel_requested_at is not null

-- name: rescue
-- Every few seconds.
select job_id, worker, state from {schema}.rescue(%s, %s)

-- name: release_held
select {schema}.release_held()

-- name: next_due
-- With each poll: how long until the next timer, and the database's time.
select {schema}.next_due(%s), {schema}.now()

-- name: raise_idle
select {schema}.raise_idle(%s)

-- name: lower_idle
-- A worker that met a flood: hints are not needed. Who sleeps all the same raises it again with its next poll.
select setval('{schema}.idle_until', 0)

-- name: beat
-- Every heartbeat.
insert into {schema}.worker (id, host, pid, version, queues, concurrency, started_at, seen_at, running, stopping)
values (%(id)s, %(host)s, %(pid)s, %(version)s, %(queues)s, %(concurrency)s, {schema}.now(), {schema}.now(), %(running)s, %(stopping)s)
on conflict (org_id, id) do update
set seen_at = excluded.seen_at, running = excluded.running, stopping = excluded.stopping

-- name: farewell
delete from {schema}.worker where id = %(id)s

-- name: forget_workers
-- With rescue: heartbeats that stopped long ago.
delete from {schema}.worker where seen_at < {schema}.now() - interval '1 day'

-- name: list_workers
select row_to_json(x)::text
from (select w.*, w.seen_at < {schema}.now() - %(gone_after)s::text::interval as gone from {schema}.worker w) x
order by x.started_at
