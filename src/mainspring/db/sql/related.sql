-- What a job has to do with others.

-- name: related_jobs
-- A person looks at one job. Index: job_pkey, dependency_pkey, dependency_parent, member_job, batch_on_finish, the primary
-- keys of tickets; at most fifty jobs each way, and members are not counted. Of another organisation's parent, the id only.
select json_build_object(
  'parent', case when j.parent_id is not null then (
    select json_build_object('id', j.parent_id, 'task', p.task, 'state', s.state)
    from (select 1) one left join {schema}.job p on p.id = j.parent_id and p.org_id = j.org_id
    left join lateral {schema}.state_of(p.id) s on true) end,
  'behind', (
    select json_build_object('id', w.after, 'task', p.task, 'state', s.state)
    from {schema}.waiting w left join {schema}.job p on p.id = w.after left join lateral {schema}.state_of(p.id) s on true
    where w.id = j.id and w.after is not null),
  'waits_for', (
    select coalesce(json_agg(x), '[]') from (
      select d.parent as id, p.task, s.state, d.met
      from {schema}.dependency d left join {schema}.job p on p.id = d.parent
      left join lateral {schema}.state_of(d.parent) s on true
      where d.org_id = j.org_id and d.child = j.id
      order by d.place, d.parent limit 50) x),
  'awaited_by', (
    select coalesce(json_agg(x), '[]') from (
      select d.child as id, p.task, s.state, d.met
      from {schema}.dependency d left join {schema}.job p on p.id = d.child
      left join lateral {schema}.state_of(d.child) s on true
      where d.org_id = j.org_id and d.parent = j.id
      order by d.child limit 50) x),
  'batch', (
    select json_build_object('id', b.id, 'name', b.name, 'finishes', coalesce(b.on_finish = j.id, false))
    from {schema}.batch b
    where b.org_id = j.org_id and b.id = (
      select y.id from (
        select m.batch_id as id from {schema}.member m where m.job_id = j.id
        union all select f.id from {schema}.batch f where f.on_finish = j.id) y
      order by y.id desc limit 1))
)::text
from {schema}.job j
where j.id = %(id)s::text::uuid and (%(org)s::text is null or j.org_id = %(org)s::text)
