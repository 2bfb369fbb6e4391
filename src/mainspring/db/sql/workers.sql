-- What a worker says.

-- name: claim
-- The exchange, every few milliseconds while there is work.
select * from {schema}.claim(%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s::json)

-- name: shares
-- The exchange, after the claims of a turn, once a job was let in by a rate.
select * from {schema}.shares(%s)

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

-- name: fail_late
-- Once for a handler that failed after it had completed its job.
select {schema}.fail_late(%(id)s::text::uuid, %(worker)s::text, %(epoch)s::bigint, %(error)s::text::jsonb)

-- name: settle
select epoch, verb from {schema}.settle(%s, %s::json)

-- name: recorded
-- After outcomes were refused: what is written of these attempts, if only an answer was lost? Index: the primary keys.
select a.epoch, coalesce(
  (select t.outcome from {schema}.attempt t
   where t.org_id = a.org_id and t.job_id = a.id and t.epoch = a.epoch and t.worker = w.id),
  (select f.state from {schema}.finished f where f.id = a.id and f.epoch = a.epoch and f.worker = w.id))
from unnest(%s::uuid[], %s::text[], %s::bigint[]) a(id, org_id, epoch) cross join (select %s::text as id) w

-- name: renew
-- Every renewal interval, all leases of the worker at once.
select epoch, cancel, renewed from {schema}.renew(%s, %s, %s)

-- name: orphans
-- After a lost connection: claims of this worker that it does not know, because their answer was lost.
select epoch from {schema}.running where worker = %s and epoch <> all(%s)

-- name: cancelled
-- Every second while jobs run, and on every wake-up. Index: running_cancel.
select epoch from {schema}.running where worker = %s and cancel_requested_at is not null

-- name: rescue
-- Every few seconds.
select * from {schema}.rescue(%s, %s, %s)

-- name: take_back_crashes
-- A worker that comes back from an outage, for the leases that it lost by it. Index: the primary key, audit_job.
select {schema}.take_back_crashes(%s, %s, %s, %s)

-- name: ran_before
-- A worker that has taken suspects: for how many seconds each had run at most when its worker died. Index: the primary key.
select s.epoch, (select max((a.error ->> 'ran')::float8) from {schema}.attempt a
                 where a.org_id = s.org_id and a.job_id = s.id and a.outcome = 'rescued')
from unnest(%s::bigint[], %s::text[], %s::uuid[]) s(epoch, org_id, id)

-- name: bury
-- A worker whose predecessor died so many seconds ago, as their supervisor saw: nobody need wait for its leases. But for
-- CPU-bound jobs, whose processes may outlive it.
update {schema}.running set lease_expires_at = {schema}.now() - make_interval(secs => %s) where worker = %s and task <> all(%s)

-- name: end_leases
-- A worker whose process for jobs that run alone has died: nobody need wait for the lease, nor for it to come back.
update {schema}.running set lease_expires_at = {schema}.now() - interval '1 day' where worker = %s

-- name: end_quarantine
-- A worker whose probe succeeded.
select {schema}.end_quarantine(%s, 'system', %s, 'a probe succeeded')

-- name: alone_due
-- With each poll: whether a job waits that must run alone. Index: waiting_rescued, nearly always empty.
select {schema}.next_alone(%s, array_fill(1, array[cardinality(%s::text[])]), %s) is not null

-- name: slot_wanted
-- A worker all of whose slots of a kind are held by handlers that have outlived their time limit, every second: is a job
-- due that could have one? Index: waiting_claim.
select exists (
  select from unnest(%s::text[]) q(name) cross join generate_series(0, 3) p(priority)
  cross join lateral (
    select from {schema}.waiting w
    where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now() and w.task = any(%s::text[]) limit 1) due
  where not exists (
    select from {schema}.queue k where k.org_id = 'SYSTEM' and k.name = q.name and k.paused_at is not null))

-- name: release_held
select {schema}.release_held()

-- name: settle_leftovers
-- With each poll: what the ends of batches and flows left open. Nearly always there is nothing, and nothing is called.
select {schema}.settle_leftovers() where exists (select from {schema}.leftover)

-- name: next_due
-- With each poll: how long until the next timer, and the database's time.
select {schema}.next_due(%s), {schema}.now()

-- name: raise_idle
select {schema}.raise_idle(%s)

-- name: lower_idle
-- A worker that met a flood: hints are not needed. Who sleeps all the same raises it again with its next poll.
select setval('{schema}.idle_until', 0) from {schema}.idle_until

-- name: speed
-- A worker at its start: how fast the engine's clock runs.
select {schema}.speed()

-- name: beat
-- Every heartbeat.
insert into {schema}.worker (id, host, pid, version, queues, tasks, concurrency, started_at, seen_at, running, stopping, watched)
values (%(id)s, %(host)s, %(pid)s, %(version)s, %(queues)s, %(tasks)s, %(concurrency)s, {schema}.now(), {schema}.now(), %(running)s, %(stopping)s,
        %(watched)s)
on conflict (org_id, id) do update
set seen_at = excluded.seen_at, running = excluded.running, stopping = excluded.stopping

-- name: farewell
delete from {schema}.worker where id = %(id)s

-- name: worker_jobs
-- A person looks: what a worker holds. `running` is as small as what all workers run at once.
select json_build_object('job_id', r.id, 'org_id', r.org_id, 'task', r.task, 'queue', r.queue, 'state', 'running',
                         'attempt', r.attempt, 'worker', r.worker, 'started_at', r.started_at,
                         'lease_expires_at', r.lease_expires_at)::text
from {schema}.running r
where r.worker = %(worker)s::text and (%(org)s::text is null or r.org_id = %(org)s::text)
  and (%(after)s::text is null or (r.started_at, r.id) > (%(after)s::text::timestamptz, %(after_id)s::text::uuid))
order by r.started_at, r.id limit %(limit)s

-- name: list_workers
-- A person looks. `leases` is what the database says it holds, `running` what it said itself: with an organisation both are
-- what it holds of that one's.
with held as materialized (
  select r.worker, count(*) as leases
  from (select x.worker from {schema}.running x where (%(org)s::text is null or x.org_id = %(org)s::text) limit 100000) r
  group by 1
)
select (to_jsonb(w) || jsonb_build_object(
  'leases', coalesce(h.leases, 0), 'running', case when %(org)s::text is null then w.running else coalesce(h.leases, 0) end,
  'gone', w.seen_at < {schema}.now() - %(gone_after)s::text::interval * {schema}.speed()))::text
from {schema}.worker w left join held h on h.worker = w.id
order by w.started_at, w.id
