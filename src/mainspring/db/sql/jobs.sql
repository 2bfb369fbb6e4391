-- What clients say about jobs. Each statement is headed by its name; who runs it and how often stands beneath.

-- name: enqueue_many
-- Every enqueue, of one job or a thousand; in the caller's transaction where there is one.
select job_id, answer, state from {schema}.enqueue_many(%(jobs)s::json)

-- name: wake
-- After the commit of a caller's transaction that enqueued, where a hook lets us act.
select {schema}.wake()

-- name: known_jobs
-- After a connection was lost during an enqueue: which of these ids did commit? Index: job_pkey.
select id, answer.state from unnest(%(ids)s::uuid[]) id cross join lateral {schema}.state_of(id) answer

-- name: get_job
-- A person or a program asks for one job. Index: the primary keys.
select * from {schema}.jobs where id = %(id)s and (%(org)s::text is null or org_id = %(org)s)

-- name: list_jobs
-- A person looks. By cursor, newest first: ids of version 7 sort by creation.
select * from {schema}.jobs
where (%(org)s::text is null or org_id = %(org)s)
  and (%(state)s::text is null or state = %(state)s)
  and (%(queue)s::text is null or queue = %(queue)s)
  and (%(task)s::text is null or task = %(task)s)
  and (%(before)s::uuid is null or id < %(before)s)
order by id desc
limit %(limit)s

-- name: job_by_key
-- Verbs that take a key. Index: idempotency_pkey.
select {schema}.job_of(%(org)s, %(key)s)

-- name: attempts
-- The history of one job, oldest first. Index: attempt_pkey.
select attempt, epoch, worker, started_at, ended_at, outcome, error
from {schema}.attempts where org_id = %(org)s and job_id = %(id)s order by epoch

-- name: cancel
select {schema}.cancel(%(id)s, %(org)s, %(actor_type)s, %(actor_id)s, %(reason)s)

-- name: reschedule
select {schema}.reschedule(%(id)s, %(org)s, coalesce(%(at)s, {schema}.now() + %(delay)s), %(actor_type)s, %(actor_id)s)

-- name: prioritize
select {schema}.prioritize(%(id)s, %(org)s, %(priority)s, %(actor_type)s, %(actor_id)s)

-- name: replay
select moved, in_the_way from {schema}.replay(%(id)s, %(org)s, %(actor_type)s, %(actor_id)s, %(reason)s)

-- name: prune
-- Clean-up, in bounded batches.
select {schema}.prune(%(states)s, {schema}.now() - %(age)s::interval, %(limit)s)

-- name: now
select {schema}.now()
