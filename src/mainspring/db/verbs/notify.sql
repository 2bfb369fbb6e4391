-- Notifications: asked for, reserved, read.

-- Every notification with what became of it. What is neither sent nor skipped follows its job: `pending` while that waits,
-- `sending` while it runs, else `failed`, because it failed, died, was cancelled or removed.
create or replace view {schema}.notification_log with (security_invoker = true) as
select n.org_id, n.id, n.recipient_id, n.channel, n.template, n.class, n.class = 'critical' as critical, n.necessary,
       n.subject, n.title, n.text,
       case when n.status in ('sent', 'skipped') then n.status
            when w.id is not null then 'pending' when r.id is not null then n.status else 'failed' end as status,
       n.reason,
       case when n.status not in ('sent', 'skipped') then coalesce(f.error ->> 'code', n.error) end as error,
       n.attempts, n.resends, n.bucket, case when w.due_at < 'infinity' then w.due_at else coalesce(w.due_then, n.due_at) end as due_at, n.reserved_at, n.sent_at, n.provider,
       n.provider_id, n.payload_hash, n.job_id, n.created_at
from {schema}.notification n
left join {schema}.waiting w on w.id = n.job_id and n.status in ('pending', 'sending')
left join {schema}.running r on r.id = n.job_id and n.status in ('pending', 'sending')
left join {schema}.finished f on f.id = n.job_id and n.status in ('pending', 'sending');

-- Who: applications. What `p_about` does not name keeps its value, or gets the default. Locks: the row.
create or replace function {schema}.save_recipient(p_org text, p_recipient text, p_about jsonb) returns void language plpgsql as $$
declare
  r {schema}.recipient;
begin
  perform {schema}.check_text('org', p_org, 200), {schema}.check_text('recipient', p_recipient, 200);
  insert into {schema}.recipient (org_id, recipient_id, updated_at) values (p_org, p_recipient, {schema}.now())
  on conflict do nothing;
  select * into r from {schema}.recipient x where x.org_id = p_org and x.recipient_id = p_recipient for update;
  r := jsonb_populate_record(r, p_about - '{org_id,recipient_id,updated_at}'::text[]);
  update {schema}.recipient x
  set email = r.email, phone = r.phone, push_token = r.push_token, zone = r.zone, language = r.language,
      quiet_from = r.quiet_from, quiet_to = r.quiet_to, opt_out = r.opt_out, spam_limit = r.spam_limit, updated_at = {schema}.now()
  where x.org_id = p_org and x.recipient_id = p_recipient;
end $$;

-- Who: applications, when somebody leaves. What is still to be sent to them is skipped. False: there was none.
create or replace function {schema}.forget_recipient(p_org text, p_recipient text) returns boolean language plpgsql as $$
begin
  delete from {schema}.recipient x where x.org_id = p_org and x.recipient_id = p_recipient;
  return found;
end $$;

-- Who: whoever asks, in their own transaction. p_notes: [{org_id, id, recipient_id, fallback, channel, template, class,
-- necessary, subject, data, payload_hash, bucket, at, due_at}], and beside each the job that delivers it; where a fallback is named
-- it receives for somebody unknown. Answers in order: `created`, or `existing` with the one that was asked for before; only
-- new ones get their job. In p_best_effort nothing is written if something is refused, and the caller's transaction goes on:
-- the block is a savepoint. The other's insert is waited for, and each statement here sees what has committed before it.
-- Index: notification_once, recipient_pkey.
create or replace function {schema}.request_notifications(p_notes json, p_jobs json, p_best_effort boolean)
returns table (id uuid, answer text, job_id uuid, state text, recipient_id text) language plpgsql as $$
begin
  if not p_best_effort then
    return query select * from {schema}.write_notifications(p_notes, p_jobs);
    return;
  end if;
  begin
    return query select * from {schema}.write_notifications(p_notes, p_jobs);
  exception when others then
    return query select null::uuid, 'refused', null::uuid, sqlerrm, null;
  end;
end $$;

create or replace function {schema}.write_notifications(p_notes json, p_jobs json)
returns table (id uuid, answer text, job_id uuid, state text, recipient_id text) language plpgsql as $$
#variable_conflict use_column
declare
  m record;
  ids uuid[] := '{}';
  new boolean[] := '{}';
  wanted json;
begin
  for m in
    select x.*, who.id as who, j.value ->> 'id' as job, n.ord
    from json_array_elements(p_notes) with ordinality n(value, ord)
    join json_array_elements(p_jobs) with ordinality j(value, ord) on j.ord = n.ord
    cross join lateral json_to_record(n.value) as x (
      org_id text, id uuid, recipient_id text, fallback text, channel text, template text, class text, necessary boolean,
      subject text, data jsonb, payload_hash text, bucket timestamptz, due_at timestamptz, at timestamptz)
    cross join lateral (select case when x.fallback is null or exists (
      select from {schema}.recipient r where r.org_id = x.org_id and r.recipient_id = x.recipient_id)
      then x.recipient_id else x.fallback end) who (id)
    order by x.org_id, who.id, x.channel, x.template, x.payload_hash, n.ord  -- by everybody in this order
  loop
    insert into {schema}.notification (
      org_id, id, recipient_id, channel, template, class, necessary, subject, data, payload_hash, bucket, due_at, job_id,
      created_at)
    values (
      m.org_id, m.id, m.who, m.channel, m.template, m.class, m.necessary, m.subject, m.data, m.payload_hash,
      date_bin('15 min', coalesce(m.bucket, {schema}.now()), '2000-01-01Z'),
      greatest(m.due_at, {schema}.now()), m.job::uuid, {schema}.now())
    on conflict on constraint notification_once do nothing;
    new[m.ord] := found;
    ids[m.ord] := m.id;
    if not found then
      ids[m.ord] := (  -- it was asked for before
        select n.id from {schema}.notification n
        where n.org_id = m.org_id and n.recipient_id = m.who and n.channel = m.channel
          and n.template = m.template and n.payload_hash = m.payload_hash
          and n.bucket = date_bin('15 min', coalesce(m.bucket, {schema}.now()), '2000-01-01Z'));
    elsif m.at < {schema}.now() - interval '60 s' then
      perform {schema}.refuse('at', 'lies more than 60 s in the past');
    end if;
  end loop;
  select json_agg(j.value order by j.ord) into wanted
  from json_array_elements(p_jobs) with ordinality j(value, ord) where new[j.ord];
  if wanted is not null then
    perform from {schema}.enqueue_many(wanted, true);  -- checked by the client
  end if;
  return query
    select n.id, case when new[o.ord] then 'created' else 'existing' end, n.job_id, coalesce(s.state, 'succeeded'),
           n.recipient_id
    from unnest(ids) with ordinality o(id, ord)
    join json_array_elements(p_notes) with ordinality x(value, ord) on x.ord = o.ord
    join {schema}.notification n on n.org_id = x.value ->> 'org_id' and n.id = o.id
    left join lateral {schema}.state_of(n.job_id) s on true
    order by o.ord;
end $$;

-- Who: the job that delivers, in the middle of its attempt, fenced. Reserves in one go: `reserved`, with since when an
-- earlier reservation stands whose end nobody saw; `wait` and for how many seconds, because the recipient has got p_most
-- within the window; or `sent`, `skipped`, `gone`, and then there is nothing to do. A job that a resend has replaced finds
-- nothing. Two deliveries to one recipient count each other, so they wait for each other here. Index: notification_recent.
create or replace function {schema}.reserve_notification(
  p_org text, p_id uuid, p_job_id uuid, p_title text, p_text text, p_html text, p_most integer, p_window interval,
  out answer text, out since timestamptz, out wait float8) language plpgsql as $$
declare
  n {schema}.notification;
  full_at timestamptz;
begin
  if p_most is not null then
    select * into n from {schema}.notification x where x.org_id = p_org and x.id = p_id;
    perform pg_advisory_xact_lock(hashtextextended('{schema} ' || n.org_id || ' ' || n.recipient_id || ' ' || n.channel, 0));
  end if;
  select * into n from {schema}.notification x where x.org_id = p_org and x.id = p_id and x.job_id = p_job_id for update;
  if not found then
    answer := 'gone';
  elsif n.status in ('sent', 'skipped') then
    answer := n.status;
  else
    if p_most is not null and n.status = 'pending' then
      select coalesce(x.sent_at, x.reserved_at) into full_at from {schema}.notification x
      where x.org_id = n.org_id and x.recipient_id = n.recipient_id and x.channel = n.channel
        and x.status in ('sending', 'sent') and x.class <> 'critical'
        and coalesce(x.sent_at, x.reserved_at) > {schema}.now() - p_window
      order by coalesce(x.sent_at, x.reserved_at) desc offset p_most - 1 limit 1;
    end if;
    if full_at is not null then
      answer := 'wait';
      wait := extract(epoch from full_at + p_window - {schema}.now());
      update {schema}.notification x set due_at = full_at + p_window where x.org_id = p_org and x.id = p_id;
    else
      answer := 'reserved';
      since := n.reserved_at;
      update {schema}.notification x
      set status = 'sending', attempts = x.attempts + 1, reserved_at = coalesce(x.reserved_at, {schema}.now()),
          title = p_title, text = p_text, html = p_html
      where x.org_id = p_org and x.id = p_id;
    end if;
  end if;
end $$;

-- Who: the person whom they are for, by the application. Answers how many were unread. Index: inbox_pkey.
create or replace function {schema}.read_inbox(p_org text, p_recipient text, p_ids uuid[]) returns integer language plpgsql as $$
declare
  count integer;
begin
  update {schema}.inbox x set read_at = {schema}.now()
  where x.org_id = p_org and x.recipient_id = p_recipient and x.id = any(p_ids) and x.read_at is null;
  get diagnostics count = row_count;
  return count;
end $$;

-- Who: an operator: clear the stamp and send again, by a job of its own and under another key for the provider. Null: there
-- is no such notification; false: it is still under way. The former job, if somebody replays it, finds nothing to do.
create or replace function {schema}.resend_notification(
  p_org text, p_id uuid, p_job json, p_actor_type text, p_actor_id text, p_reason text) returns boolean language plpgsql as $$
declare
  n {schema}.notification;
  before text;
begin
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason), {schema}.check_text('reason', p_reason, 1000);
  select * into n from {schema}.notification x where x.org_id = p_org and x.id = p_id for update;
  if not found then
    return null;
  end if;
  before := (select l.status from {schema}.notification_log l where l.org_id = p_org and l.id = p_id);
  if before in ('pending', 'sending') then
    return false;
  end if;
  perform from {schema}.enqueue_many(json_build_array(p_job), true);
  update {schema}.notification x
  set status = 'pending', reason = null, sent_at = null, reserved_at = null, html = null, provider = null, provider_id = null,
      error = null, resends = x.resends + 1, due_at = {schema}.now(), job_id = (p_job ->> 'id')::uuid
  where x.org_id = p_org and x.id = p_id;
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, subject, detail)
  values (n.org_id, {schema}.now(), 'notification.resent', p_actor_type, p_actor_id, n.subject, jsonb_build_object(
    'notification', n.id, 'template', n.template, 'channel', n.channel, 'by', p_actor_id, 'by_type', p_actor_type,
    'reason', p_reason, 'before', jsonb_build_object('status', before, 'sent_at', n.sent_at, 'job_id', n.job_id),
    'after', jsonb_build_object('status', 'pending', 'sent_at', null, 'job_id', p_job ->> 'id')));
  return true;
end $$;
