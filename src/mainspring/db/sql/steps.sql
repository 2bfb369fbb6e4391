-- What an attempt remembers for the next one, and how far it is.

-- name: recall
-- Once an attempt, before its first step; jobs without steps never ask. Index: step_pkey.
select name, result::text from {schema}.step where org_id = %(org)s::text and job_id = %(id)s::text::uuid

-- name: remember
-- After each step. Raises when the lease is lost.
select {schema}.remember(%(worker)s::text, %(epoch)s, %(name)s::text, %(result)s::text::json)

-- name: fence
-- At the end of a transaction in the middle of a job. Raises when the lease is lost. Index: running_epoch_key.
select h.cancel_requested_at is not null from {schema}.held(%(worker)s::text, %(epoch)s) h

-- name: save_checkpoint
-- After each chunk. Raises when the lease is lost.
select {schema}.save_checkpoint(%(worker)s::text, %(epoch)s, %(value)s::text::json)

-- name: last_checkpoint
-- When an attempt asks where to go on. Index: checkpoint_pkey.
select value::text from {schema}.checkpoint where org_id = %(org)s::text and job_id = %(id)s::text::uuid

-- name: saved_checkpoint
-- When the attempt of a chunk has failed: how far is it, and did this attempt get there? Index: checkpoint_pkey.
select value::text, epoch from {schema}.checkpoint where org_id = %(org)s::text and job_id = %(id)s::text::uuid

-- name: report
-- Twice a second, for all jobs of the worker that report; and once more at the end of such a job.
select {schema}.report(%(worker)s::text, %(reports)s::text::json)

-- name: steps
-- A person or a program looks at one job. Index: step_pkey.
select row_to_json(s)::text
from (select name, result, worker, epoch, done_at from {schema}.step
      where org_id = %(org)s::text and job_id = %(id)s::text::uuid) s
order by s.done_at, s.epoch, s.name
