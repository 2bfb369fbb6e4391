-- Alerts: opened, counted, closed.

-- Who: whoever finds something wrong, often in the transaction that finds it. Answers whether it opened now; while it is
-- open already, it only counts.
create or replace function {schema}.open_alert(
  p_org text, p_name text, p_subject text default '', p_text text default '', p_severity text default 'warning',
  p_detail jsonb default '{}', p_told boolean default false) returns boolean
language plpgsql as $$
declare
  opened boolean;
begin
  perform {schema}.check_text('org', p_org, 200);
  perform {schema}.check_text('name', p_name, 100);
  perform {schema}.check_text('subject', coalesce(nullif(p_subject, ''), '-'), 200);
  if p_severity is null or p_severity not in ('critical', 'warning') then
    perform {schema}.refuse('severity', 'is not critical or warning');
  end if;
  insert into {schema}.alert as a (org_id, id, name, subject, severity, text, detail, opened_at, last_at, told)
  values (p_org, {schema}.uuid7(), p_name, coalesce(p_subject, ''), p_severity, coalesce(p_text, ''),
          coalesce(p_detail, '{}'), {schema}.now(), {schema}.now(), case when p_told then 'opened' end)
  on conflict (org_id, name, subject) where closed_at is null
  do update set count = a.count + 1, last_at = excluded.last_at
  returning a.count = 1 into opened;
  return opened;
end $$;

-- Who: whoever sees that it is over, or a person who has looked. Answers what was closed, or null: nothing was open. The
-- reason of a person goes to the audit trail.
create or replace function {schema}.close_alert(
  p_org text, p_name text, p_subject text default '', p_actor_type text default 'system',
  p_actor_id text default 'SYSTEM', p_reason text default null, p_told boolean default false) returns json
language plpgsql as $$
declare
  a {schema}.alert;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  update {schema}.alert x
  set closed_at = {schema}.now(), closed_by = p_actor_id, told = case when p_told then 'closed' else x.told end
  where x.org_id = p_org and x.name = p_name and x.subject = coalesce(p_subject, '') and x.closed_at is null
  returning x.* into a;
  if not found then
    return null;
  end if;
  if p_reason is not null then
    insert into {schema}.audit (org_id, at, event, actor_type, actor_id, subject, detail)
    values (a.org_id, a.closed_at, 'alert.closed', p_actor_type, p_actor_id, nullif(a.subject, ''), jsonb_build_object(
      'alert', a.name, 'opened_at', a.opened_at, 'by', p_actor_id, 'by_type', p_actor_type,
      'reason', p_reason));
  end if;
  return row_to_json(a);
end $$;
