-- What clients say about jobs. Each statement is headed by its name; who runs it and how often stands beneath.

-- name: enqueue_many
-- Every enqueue, of one job or a thousand; in the caller's transaction where there is one.
select job_id, answer, state from {schema}.enqueue_many(%(jobs)s::text::json, true)

-- name: enqueue_one
-- A single enqueue without a key, the most frequent of all. The same rows as enqueue_many writes, by plain inserts:
-- measured, half the server's time. The defaults are the client's here.
with written as (
  insert into {schema}.job (id, org_id, task, queue, priority, max_attempts, cancellable, payload, project_id, actor_type,
                            actor_id, request_id, correlation_id, parent_id, traceparent, created_at)
  values (%(id)s::uuid, %(org_id)s, %(task)s, %(queue)s, %(priority)s, %(max_attempts)s, %(cancellable)s,
          %(payload)s::jsonb, %(project_id)s::uuid, %(actor_type)s, %(actor_id)s, %(request_id)s, %(correlation_id)s,
          %(parent_id)s::uuid, %(traceparent)s, {schema}.now())
), ticketed as (
  insert into {schema}.waiting (id, org_id, task, queue, priority, due_at)
  values (%(id)s::uuid, %(org_id)s, %(task)s, %(queue)s, %(priority)s, {schema}.now())
)
select case when (select last_value from {schema}.idle_until) > extract(epoch from clock_timestamp()) * 1000
            then {schema}.wake() end

-- name: wake
-- After the commit of a caller's transaction that enqueued, where a hook lets us act.
select {schema}.wake()

-- name: known_jobs
-- After a connection was lost during an enqueue: which of these ids did commit? Index: job_pkey. The transaction number
-- makes this commit wait for a synchronous standby: then what it saw is there, too.
select id, answer.state from unnest(%(ids)s::text::uuid[]) id cross join lateral {schema}.state_of(id) answer
where pg_current_xact_id() is not null

-- name: get_job
-- A person or a program asks for one job. Index: the primary keys.
select {schema}.readable(j)::text from {schema}.jobs j
where j.id = %(id)s::text::uuid and (%(org)s::text is null or j.org_id = %(org)s::text)

-- name: list_jobs
-- A person looks. By cursor, newest first: ids of version 7 sort by creation. Index: job_pkey, from %(high)s down.
select {schema}.readable(j)::text from {schema}.jobs j
where j.id between %(low)s::text::uuid and %(high)s::text::uuid
  and (%(org)s::text is null or j.org_id = %(org)s::text)
  and (%(state)s::text is null or j.state = %(state)s::text)
  and (%(queue)s::text is null or j.queue = %(queue)s::text)
  and (%(task)s::text is null or j.task = %(task)s::text)
  and (%(before)s::text is null or j.id < %(before)s::text::uuid)
order by j.id desc
limit %(limit)s

-- name: job_by_key
-- Verbs that take a key. Index: idempotency_pkey.
select {schema}.job_of(%(org)s::text, %(key)s::text)

-- name: attempts
-- The history of one job, oldest first. Index: attempt_pkey.
select row_to_json(a)::text from {schema}.attempts a
where a.org_id = %(org)s::text and a.job_id = %(id)s::text::uuid order by a.epoch

-- name: cancel
select {schema}.cancel(%(id)s::text::uuid, %(org)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: reschedule
select {schema}.reschedule(%(id)s::text::uuid, %(org)s::text,
                           coalesce(%(at)s::text::timestamptz, {schema}.now() + %(delay)s::text::interval),
                           %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: prioritize
select {schema}.prioritize(%(id)s::text::uuid, %(org)s::text, %(priority)s, %(actor_type)s::text, %(actor_id)s::text,
                           %(reason)s::text)

-- name: replay
select moved, in_the_way from {schema}.replay(%(id)s::text::uuid, %(org)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: prune
-- Clean-up, in bounded batches.
select {schema}.prune(%(states)s::text::text[], {schema}.now() - %(age)s::text::interval, %(limit)s)

-- name: now
select {schema}.now()
