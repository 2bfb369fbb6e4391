-- What is old goes.

-- Who: clean-up, in bounded batches. Removes jobs finished before an instant, except open dead letters: failed and dead
-- jobs that nobody has decided about. Leaves what outlives them: the status of the key, and the events that only their
-- tickets proved. Waits for no key, because whoever holds one may wait for its ticket: such a job goes another time.
create or replace function {schema}.prune(p_states text[], p_before timestamptz, p_limit integer) returns integer
language plpgsql as $$
declare
  gone uuid[];
begin
  if p_states is null or not p_states <@ '{succeeded,failed,dead,cancelled}' then
    perform {schema}.refuse('states', 'are not among cancelled, dead, failed, succeeded');
  elsif p_before is null then
    perform {schema}.refuse('before', 'is missing');
  elsif p_limit is null or p_limit not between 1 and 100000 then
    perform {schema}.refuse('limit', 'is not between 1 and 100000');
  end if;
  perform set_config('mainspring.verb', 'prune', true);
  with old as materialized (
    select y.id from {schema}.finished y
    where y.finished_at < p_before and y.state = any(p_states)
      and (y.state in ('succeeded', 'cancelled')
           or exists (select from {schema}.resolution r where r.org_id = y.org_id and r.job_id = y.id))
      and not exists (  -- whoever waits for it may ask for its result
        select from {schema}.dependency d where d.parent = y.id
          and (exists (select from {schema}.waiting w where w.id = d.child)
               or exists (select from {schema}.running r where r.id = d.child)))
    limit p_limit for update skip locked
  ), named as materialized (
    select i.job_id from old join {schema}.job j on j.id = old.id
    join {schema}.idempotency i on i.org_id = j.org_id and i.key = j.key and i.job_id = j.id
    for update of i skip locked
  ), f as materialized (
    select x.* from {schema}.finished x where x.id in (select old.id from old) and (
      x.id in (select named.job_id from named) or not exists (
        select from {schema}.job j join {schema}.idempotency i on i.org_id = j.org_id and i.key = j.key
        where j.id = x.id and i.job_id = x.id))
  ), keys as (
    update {schema}.idempotency i
    set status = case f.state when 'succeeded' then 'succeeded' when 'dead' then 'dead' else 'failed' end,
        expires_at = f.finished_at + i.ttl,
        result_ref = case when f.state = 'succeeded' then f.id::text end,
        error_ref = case when f.state <> 'succeeded' then f.id::text end
    from f join {schema}.job j on j.id = f.id where i.org_id = j.org_id and i.key = j.key and i.job_id = f.id
  ), trail as (
    insert into {schema}.audit (org_id, at, event, job_id, task, attempt, project_id, actor_type, actor_id, request_id,
                                correlation_id, epoch)
    select j.org_id, e.at, e.event, j.id, j.task, e.attempt, j.project_id, j.actor_type, j.actor_id, j.request_id,
           j.correlation_id, e.epoch
    from f join {schema}.job j on j.id = f.id
    cross join lateral (
      select 'job.enqueued' as event, j.created_at as at, 0::smallint as attempt, null::bigint as epoch
      union all select 'job.started', a.started_at, a.attempt, a.epoch
                from {schema}.attempt a where a.org_id = j.org_id and a.job_id = j.id
      union all select 'job.started', f.started_at, f.attempt, f.epoch where f.state = 'succeeded'
      union all select 'job.succeeded', f.finished_at, f.attempt, null where f.state = 'succeeded') e
    where not (j.org_id = 'SYSTEM' and j.task like 'mainspring.%')  -- a heartbeat a minute is nobody's history
  )
  select array_agg(f.id) into gone from f;
  delete from {schema}.attempt a using {schema}.job j where j.id = any(gone) and a.org_id = j.org_id and a.job_id = j.id;
  perform {schema}.forget(gone);
  perform {schema}.prune_flows(gone, p_before);
  delete from {schema}.resolution r using {schema}.job j where j.id = any(gone) and r.org_id = j.org_id and r.job_id = j.id;
  delete from {schema}.job j where j.id = any(gone);
  delete from {schema}.finished f where f.id = any(gone);  -- last: without its job nobody can put it back to work
  perform set_config('mainspring.verb', '', true);
  return coalesce(cardinality(gone), 0);
end $$;
