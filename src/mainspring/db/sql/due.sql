-- What `run_due` asks besides what every worker says.

-- name: virtual_clock
-- When a caller brings a time: the engine's own, and whether this is a test database, whose clock can be moved.
select {schema}.now(), to_regclass('{schema}.clock') is not null and {schema}.speed() = 1

-- name: move_clock
-- In test databases only; the others have no such table.
update {schema}.clock set at = %s

-- name: remaining
-- Once at the end: what else is ready, or to be tried again, of these queues and tasks; counted up to a cap.
-- Index: waiting_claim for what is due, waiting_retrying for the rest.
select {schema}.now(), count(*)
from (
  (select from unnest(%(queues)s::text[]) q(name) cross join generate_series(0, 3) p(priority)
   cross join lateral (
     select from {schema}.waiting w
     where w.queue = q.name and w.priority = p.priority and w.due_at <= {schema}.now() and w.task = any(%(tasks)s)
     limit %(cap)s) ready)
  union all
  (select from {schema}.waiting w
   where w.retrying and w.due_at > {schema}.now() and w.queue = any(%(queues)s) and w.task = any(%(tasks)s))
  limit %(cap)s) x
