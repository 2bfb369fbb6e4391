-- What clients ask about timers: jobs that are addressed by their key.

-- name: get_timer
-- Whoever decides by it whether something is under way. Index: idempotency_pkey.
select t.job_id, t.task, t.state, t.due_at, t.behind from {schema}.timer(%(org)s::text, %(key)s::text) t
