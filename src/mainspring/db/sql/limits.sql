-- What people and the code say about limits, and what they see of them.

-- name: list_limits
-- A person looks: few limits, each with what it has counted and what waits because of it, counted up to 10,000.
-- `used` is of the key that has used most; `keys` is how many count: with an organisation, of what is counted for it. Index: slot_pkey, waiting_gate, waiting_claim.
select json_strip_nulls(json_build_object(
  'name', l.name, 'queue', l.queue, 'task', l.task, 'by', l.by, 'rate', l.rate,
  'per', 'PT' || extract(epoch from l.per) || 'S', 'concurrency', l.concurrency, 'in_order', l.in_order,
  'declared', l.declared, 'app', l.app, 'overrides', l.code is not null, 'set_at', l.set_at, 'set_by', l.set_by,
  'used', coalesce(u.used, 0), 'keys', coalesce(u.keys, 0),
  'waiting', case when l.queue is null or l.by <> 'all' then (
      select count(*) from (
        select from {schema}.waiting w where w.gate is not null and starts_with(w.gate, l.name || '/')
          and (%(org)s::text is null or w.org_id = %(org)s::text) limit 10000) w)
    when {schema}.spare(l, l.name || '/', {schema}.now()) <= 0 then (
      select count(*) from (
        select from generate_series(0, 3) p(priority) cross join lateral (
          select from {schema}.waiting w
          where w.queue = l.queue and w.priority = p.priority and w.due_at <= {schema}.now()
            and (%(org)s::text is null or w.org_id = %(org)s::text)
          order by w.due_at limit 10000) w
        limit 10000) w)
    else 0 end))::text
from {schema}.limit l
left join lateral (
  select max(k.n) as used, count(*) as keys from (
    select e.gate, sum(e.n) as n
    from (
      select b.gate, y.at, y.n from {schema}.bucket b, unnest(b.at, b.count) y(at, n)
      where l.rate is not null and b.org_id = 'SYSTEM' and b.name = l.name
      union all
      select s.gate, y.at, y.n from {schema}.share s, unnest(s.at, s.count) y(at, n)
      where l.rate is not null and s.org_id = 'SYSTEM' and s.name = l.name) e
    where e.at > {schema}.now() - l.per
    group by e.gate
    union all
    select s.gate, count(*) from (
      select s.gate from {schema}.slot s
      where l.concurrency is not null and starts_with(s.gate, l.name || '/') limit 10000) s
    group by s.gate) k
  where %(org)s::text is null or l.by = 'all' or starts_with(
    k.gate || '/', {schema}.gate_of(l, %(org)s::text, '') || case l.by when 'org' then '/' else '' end)) u on true
where l.org_id = 'SYSTEM' and (%(name)s::text is null or l.name = %(name)s::text)
order by l.name

-- name: limit_gates
-- A person looks at one limit: what each of its keys uses, the fullest first, and how many wait there, counted up to 10,000.
-- Index: slot_pkey, waiting_gate.
select json_build_object('key', substr(k.gate, length(l.name) + 2), 'used', k.used, 'waiting', (
  select count(*) from (select from {schema}.waiting w where w.gate = k.gate limit 10000) w))::text
from {schema}.limit l
cross join lateral (
  select e.gate, sum(e.n) as used
  from (
    select b.gate, y.at, y.n from {schema}.bucket b, unnest(b.at, b.count) y(at, n)
    where l.rate is not null and b.org_id = 'SYSTEM' and b.name = l.name
    union all
    select s.gate, y.at, y.n from {schema}.share s, unnest(s.at, s.count) y(at, n)
    where l.rate is not null and s.org_id = 'SYSTEM' and s.name = l.name) e
  where e.at > {schema}.now() - l.per
  group by e.gate
  union all
  select s.gate, count(*) from (
    select s.gate from {schema}.slot s
    where l.concurrency is not null and starts_with(s.gate, l.name || '/') limit 10000) s
  group by s.gate) k
where l.org_id = 'SYSTEM' and l.name = %(name)s::text
  and (%(org)s::text is null or l.by = 'all' or starts_with(
    k.gate || '/', {schema}.gate_of(l, %(org)s::text, '') || case l.by when 'org' then '/' else '' end))
order by k.used desc, k.gate limit %(limit)s

-- name: limit_holders
-- A person looks at one limit: the jobs that hold its places, those that have run longest first; one that goes on in order
-- keeps its place between two attempts. Index: slot_pkey.
select json_build_object('job_id', j.id, 'org_id', j.org_id, 'task', j.task, 'queue', coalesce(r.queue, j.queue),
                         'state', (select t.state from {schema}.state_of(j.id) t), 'attempt', r.attempt,
                         'worker', r.worker, 'started_at', r.started_at, 'lease_expires_at', r.lease_expires_at)::text
from (select x.job_id from {schema}.slot x where starts_with(x.gate, %(name)s::text || '/') limit 10000) s
join {schema}.job j on j.id = s.job_id
left join {schema}.running r on r.id = s.job_id
where %(org)s::text is null or j.org_id = %(org)s::text
order by r.started_at, j.id limit %(limit)s

-- name: limit_names
-- For "did you mean".
select name from {schema}.limit where org_id = 'SYSTEM' order by name limit 1000

-- name: set_limit
select {schema}.set_limit(
  %(name)s::text, %(queue)s::text, %(task)s::text, %(by)s::text, %(rate)s::text::integer, %(per)s::text::interval,
  %(concurrency)s::text::integer, %(in_order)s::text::boolean, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: reset_limit
select {schema}.reset_limit(%(name)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: drop_limit
select {schema}.drop_limit(%(name)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: declare_limits
-- A worker, when it starts.
select {schema}.declare_limits(%(app)s::text, %(limits)s::text::jsonb, %(fair)s::text::jsonb)

-- name: list_fair
-- A person looks.
select json_strip_nulls(json_build_object('queue', f.queue, 'weights', {schema}.weights_of(f.queue), 'declared', f.declared,
                                          'app', f.app, 'set_at', f.set_at, 'set_by', f.set_by))::text
from {schema}.fair f where f.org_id = 'SYSTEM' order by f.queue

-- name: set_fair
select {schema}.set_fair(
  %(queue)s::text, %(weights)s::text::jsonb, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: unset_fair
select {schema}.unset_fair(%(queue)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: set_depth
select {schema}.set_depth(
  %(queue)s::text, %(most)s::text::integer, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)
