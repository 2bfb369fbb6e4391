-- Alerts: what somebody should look at, until it is over.
--
-- A thing that is wrong has one open row, by the alert's name and its subject: finding it wrong again only counts. So an
-- alert may be opened by a business act, in its transaction, and by a watch that looks every minute, and nobody is told
-- twice. `told` is what observers have heard: who opens in a transaction of somebody else cannot tell when that commits,
-- so workers tell what is left.

create table {schema}.alert (
  org_id    text not null,
  id        uuid not null,
  name      text not null check (length(name) between 1 and 100),
  subject   text not null default '' check (length(subject) <= 200),
  severity  text not null check (severity in ('critical', 'warning')),
  text      text not null default '' check (octet_length(text) <= 2000),
  detail    jsonb not null default '{}' check (jsonb_typeof(detail) = 'object' and octet_length(detail::text) <= 65536),
  opened_at timestamptz not null,
  last_at   timestamptz not null,
  count     integer not null default 1 check (count > 0),  -- how often it was found wrong
  closed_at timestamptz,
  closed_by text,
  told      text check (told in ('opened', 'closed')),
  primary key (org_id, id),
  check ((closed_at is null) = (closed_by is null)),
  check (told is distinct from 'closed' or closed_at is not null),
  -- What no client can read would hide everything that is listed beside it.
  check (not jsonb_path_exists(detail, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")'))
) with (fillfactor = 70);  -- a watch counts every minute: there is room for that beside the row, without its indexes

-- At most one is open for a thing, and the open ones of a name are found by it.
create unique index alert_open on {schema}.alert (org_id, name, subject) where closed_at is null;
create index alert_name on {schema}.alert (name) where closed_at is null;
create index alert_untold on {schema}.alert (opened_at)
  where told is distinct from case when closed_at is null then 'opened' else 'closed' end;
create index alert_closed on {schema}.alert (closed_at) where closed_at is not null;
create index alert_opened on {schema}.alert (opened_at);

-- Who: whoever finds something wrong, often in the transaction that finds it. Answers whether it opened now; while it is
-- open already, it only counts.
create function {schema}.open_alert(
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
create function {schema}.close_alert(
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
    insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
    values (a.org_id, a.closed_at, 'alert.closed', p_actor_type, p_actor_id, jsonb_build_object(
      'alert', a.name, 'subject', a.subject, 'opened_at', a.opened_at, 'by', p_actor_id, 'by_type', p_actor_type,
      'reason', p_reason));
  end if;
  return row_to_json(a);
end $$;
