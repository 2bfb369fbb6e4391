-- The audit trail: reading it, writing to it, sealing it and checking the seals.

-- name: trail_of_job
-- The whole trail of one job, in order. Index: job_pkey, attempt_pkey, audit_job.
select row_to_json(t)::text from {schema}.trail t
where t.job_id = %(job)s::text::uuid and (%(org)s::text is null or t.org_id = %(org)s::text)
  and (%(event)s::text is null or t.event = %(event)s::text)
order by t.place limit %(limit)s

-- name: list_audit
-- A person looks at what is stored, newest first, by cursor; among all, or among the newest so many. Index: audit_job with
-- a job, audit_subject with a subject, else audit_pkey with an organisation, else audit_id.
select row_to_json(t)::text from (
  select x.* from {schema}.trail x
  where x.id is not null
    and (%(org)s::text is null or x.org_id = %(org)s::text)
    and (%(job)s::text is null or x.job_id = %(job)s::text::uuid)
    and (%(subject)s::text is null or x.subject = %(subject)s::text)
    and (%(before)s::bigint is null or x.id < %(before)s::bigint)
  order by x.id desc limit %(newest)s::text::bigint) t
where (%(event)s::text is null or t.event = %(event)s::text)
  and (%(actor)s::text is null or t.by = %(actor)s::text or t.actor_id = %(actor)s::text)
  and (%(correlation)s::text is null or t.correlation_id = %(correlation)s::text)
  and (%(since)s::text is null or t.at >= %(since)s::text::timestamptz)
  and (%(until)s::text is null or t.at < %(until)s::text::timestamptz)
order by t.id desc limit %(limit)s

-- name: audit_looked
-- How far back a look among the newest so many went: the last of them, and its time; no row where all were seen. Index: the
-- same.
select row_to_json(l)::text from (
  select x.id, x.at from {schema}.trail x
  where x.id is not null
    and (%(org)s::text is null or x.org_id = %(org)s::text)
    and (%(job)s::text is null or x.job_id = %(job)s::text::uuid)
    and (%(subject)s::text is null or x.subject = %(subject)s::text)
    and (%(before)s::bigint is null or x.id < %(before)s::bigint)
  order by x.id desc offset %(newest)s::text::bigint - 1 limit 1) l

-- name: record_business
-- A business event, in the caller's transaction or with the end of a job.
select {schema}.record_business(
  %(event)s::text, %(detail)s::text::jsonb, %(org)s::text, %(job)s::text::uuid, %(attempt)s::smallint,
  %(project)s::text::uuid, %(actor_type)s::text, %(actor_id)s::text, %(request_id)s::text, %(correlation_id)s::text,
  %(subject)s::text)

-- name: audit_top
-- Every sealing interval: is there anything new? Index: audit_id.
select coalesce(max(id), 0) from {schema}.audit

-- name: organisations_since
-- The sealer: who has events above an id? Index: audit_id.
select distinct org_id from {schema}.audit where id > %(since)s

-- name: organisations_unsealed
-- The sealer, now and then: who has events in no seal, also old ones that committed late? One probe an organisation.
with recursive org(id) as (
  (select a.org_id from {schema}.audit a order by a.org_id limit 1)
  union all
  select (select a.org_id from {schema}.audit a where a.org_id > org.id order by a.org_id limit 1)
  from org where org.id is not null
)
select org.id
from org
left join lateral (
  select s.floor from {schema}.seal s where s.org_id = org.id order by s.number desc limit 1) last on true
where org.id is not null and exists (
  select from {schema}.audit a where a.org_id = org.id and a.id > coalesce(last.floor, 0) and not exists (
    select from {schema}.seal s
    where s.org_id = org.id and s.last_id > coalesce(last.floor, 0) and a.id = any(s.ids)))

-- name: seal
-- One seal in a transaction of its own.
select {schema}.seal(%(org)s::text, %(limit)s)

-- name: seal_heads
-- The end of each chain. One probe an organisation.
with recursive org(id) as (
  (select s.org_id from {schema}.seal s order by s.org_id limit 1)
  union all
  select (select s.org_id from {schema}.seal s where s.org_id > org.id order by s.org_id limit 1)
  from org where org.id is not null
)
select row_to_json(h)::text
from org cross join lateral (
  select s.org_id, s.number, encode(s.hash, 'hex') as hash, s.sealed_at
  from {schema}.seal s where s.org_id = org.id order by s.number desc limit 1) h
where %(org)s::text is null or h.org_id = %(org)s::text
order by h.org_id

-- name: verify_seals
-- Some seals of a chain, recomputed: each with the rows that are gone and those that are not what they were.
select row_to_json(v)::text
from (
  select s.number, cardinality(s.ids) as rows, encode(s.hash, 'hex') as hash, encode(s.previous, 'hex') as previous,
         s.floor, s.hash = {schema}.seal_hash(s) as intact, coalesce(r.missing, '{}') as missing,
         coalesce(r.changed, '{}') as changed
  from {schema}.seal s cross join lateral (
    select array_agg(u.id order by u.id) filter (where a.id is null) as missing,
           array_agg(u.id order by u.id) filter (
             where a.id is not null and {schema}.digest(a) <> substring(s.digests from 32 * u.n::integer - 31 for 32)) as changed
    from unnest(s.ids) with ordinality u(id, n)
    left join {schema}.audit a on a.org_id = s.org_id and a.id = u.id) r
  where s.org_id = %(org)s::text and s.number > %(after)s
  order by s.number limit %(limit)s) v

-- name: verify_rows
-- The rows of an organisation, above an id, that no seal names: up to the floor they were put in by hand, above it they
-- wait. Index: audit_pkey, seal_last.
select json_build_object(
  'added', coalesce(json_agg(a.id order by a.id) filter (where a.id <= %(floor)s), '[]'),
  'waiting', count(*) filter (where a.id > %(floor)s), 'oldest', min(a.at) filter (where a.id > %(floor)s))::text
from {schema}.audit a
where a.org_id = %(org)s::text and a.id > %(above)s
  and a.id not in (
    select unnest(s.ids) from {schema}.seal s where s.org_id = %(org)s::text and s.last_id > %(above)s)

-- name: audit_organisations
-- Everybody who has events or seals; for who is bound to an organisation that one, as they do not see all of SYSTEM.
with recursive org(id) as (
  (select a.org_id from {schema}.audit a order by a.org_id limit 1)
  union all
  select (select a.org_id from {schema}.audit a where a.org_id > org.id order by a.org_id limit 1)
  from org where org.id is not null
), sealed(id) as (
  (select s.org_id from {schema}.seal s order by s.org_id limit 1)
  union all
  select (select s.org_id from {schema}.seal s where s.org_id > sealed.id order by s.org_id limit 1)
  from sealed where sealed.id is not null
)
select id from (select id from org union select id from sealed) found
where id = coalesce(nullif(current_setting('mainspring.org', true), ''), id) order by 1
