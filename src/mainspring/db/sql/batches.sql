-- What clients and handlers say about batches and flows.

-- name: enqueue_batch
-- A batch with its jobs, or more jobs for one; in the caller's transaction where there is one.
select job_id, answer, state from {schema}.enqueue_batch(%(batch)s::text::json, %(jobs)s::text::json, true)

-- name: enqueue_flow
select job_id, answer, state from {schema}.enqueue_flow(%(jobs)s::text::json, %(links)s::text::json, true)

-- name: close_batch
select {schema}.close_batch(%(id)s::text::uuid, %(org)s::text)

-- name: batch_exists
-- After a connection was lost during the enqueue of a batch. Index: batch_pkey.
select exists (select from {schema}.batch b where b.org_id = %(org)s::text and b.id = %(id)s::text::uuid)

-- name: get_batch
-- A person, or a program that waits. Index: batch_id, then the batch's part of member_pkey.
select row_to_json(b)::text from {schema}.batches b
where b.id = %(id)s::text::uuid and (%(org)s::text is null or b.org_id = %(org)s::text)

-- name: batch_of_job
-- A handler asks for the batch that its job belongs to, or that it finishes. Index: member_job, batch_on_finish.
select row_to_json(b)::text from {schema}.batches b
where b.org_id = %(org)s::text and b.id = (
  select x.id from (
    select m.batch_id as id from {schema}.member m where m.job_id = %(id)s::text::uuid
    union all select f.id from {schema}.batch f where f.on_finish = %(id)s::text::uuid) x
  order by x.id desc limit 1)

-- name: list_batches
-- A person looks. By cursor, newest first. Index: batch_id.
select row_to_json(b)::text from {schema}.batches b
where b.id between %(low)s::text::uuid and %(high)s::text::uuid
  and (%(org)s::text is null or b.org_id = %(org)s::text)
  and (%(state)s::text is null or b.state = %(state)s::text)
  and (%(before)s::text is null or b.id < %(before)s::text::uuid)
order by b.id desc
limit %(limit)s

-- name: list_members
-- The jobs of a batch that are still there, by cursor, newest first. Index: member_pkey.
select {schema}.readable(j)::text
from {schema}.member m join {schema}.jobs j on j.id = m.job_id
where m.batch_id = %(id)s::text::uuid and m.org_id = %(org)s::text and j.org_id = %(org)s::text
  and (%(state)s::text is null or j.state = %(state)s::text)
  and (%(before)s::text is null or m.job_id < %(before)s::text::uuid)
order by m.job_id desc
limit %(limit)s

-- name: cancel_batch
select {schema}.cancel_batch(%(id)s::text::uuid, %(org)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: retry_failed
select {schema}.retry_failed(%(id)s::text::uuid, %(org)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: add_members
-- A handler adds to the batch of its job, in its own transaction.
select {schema}.add_members(%(id)s::text::uuid, %(ids)s::text::uuid[])

-- name: split
-- The halves of a chunk take its place, in its own transaction.
select {schema}.split(%(worker)s::text, %(epoch)s, %(ids)s::text::uuid[], %(detail)s::text::jsonb)

-- name: parents
-- A handler asks for the jobs that its own has waited for, in the order in which they were named. Index: dependency_pkey.
select {schema}.readable(j)::text
from {schema}.dependency d join {schema}.jobs j on j.id = d.parent
where d.org_id = %(org)s::text and d.child = %(id)s::text::uuid
order by d.place, d.parent

-- name: flow_of_job
-- A person looks at what is linked with a job, near ones first, at most so many: its jobs, and which waits for which. Index:
-- dependency_pkey, dependency_parent.
with recursive linked(id) as (
  select %(id)s::text::uuid
  union
  select x.id from linked n cross join lateral (
    select d.parent as id from {schema}.dependency d where d.org_id = %(org)s::text and d.child = n.id
    union all
    select d.child from {schema}.dependency d where d.org_id = %(org)s::text and d.parent = n.id) x
), near as materialized (select l.id from linked l limit %(limit)s)
select json_build_object(
  'jobs', (
    select coalesce(json_agg(json_build_object('id', n.id, 'task', j.task, 'state', j.state, 'gate', j.gate) order by n.id), '[]')
    from near n left join {schema}.jobs j on j.id = n.id and j.org_id = %(org)s::text),
  'links', (
    select coalesce(json_agg(json_build_object('child', d.child, 'parent', d.parent, 'place', d.place, 'anyway', d.anyway,
                                               'state', d.state, 'met', d.met) order by d.child, d.place, d.parent), '[]')
    from {schema}.dependency d
    where d.org_id = %(org)s::text and d.child in (select n.id from near n) and d.parent in (select n.id from near n)))::text
