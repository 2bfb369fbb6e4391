-- Tasks that are held back because their jobs kill workers.

-- name: list_quarantine
-- A person looks. What waits is counted up to 10,000 among the oldest of each lane.
select json_build_object(
  'task', k.task, 'held_at', k.held_at, 'workers', k.workers, 'next_probe', k.probe_at,
  'waiting', (select count(*) from (
                select w.task from {schema}.waiting w where w.due_at <= {schema}.now()
                order by w.queue, w.priority, w.due_at limit 10000) x where x.task = k.task))::text
from {schema}.quarantine k where k.org_id = 'SYSTEM' and k.held_at is not null
order by k.held_at, k.task

-- name: release_quarantine
select {schema}.release_quarantine(%(task)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)
