-- What clients ask about timers: jobs that are addressed by their key.

-- name: get_timer
-- Whoever decides by it whether something is under way. Index: idempotency_pkey.
select t.job_id, t.task, t.state, t.due_at, t.behind from {schema}.timer(%(org)s::text, %(key)s::text) t

-- name: cancel_many
-- Whoever ends what several timers wait for. Index: idempotency_pkey.
select c.key, c.answer
from {schema}.cancel_many(%(org)s::text, array(select json_array_elements_text(%(keys)s::text::json)), %(actor_type)s::text,
                          %(actor_id)s::text, %(reason)s::text) c

-- name: savepoint
-- Before what must not undo the caller's transaction.
savepoint mainspring

-- name: release_savepoint
release savepoint mainspring

-- name: rollback_to_savepoint
rollback to savepoint mainspring
