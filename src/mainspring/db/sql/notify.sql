-- Notifications, their recipients, and what is shown to them in the application.

-- name: save_recipient
-- An application, when an address or a wish changes.
select {schema}.save_recipient(%(org)s::text, %(recipient)s::text, %(about)s::text::jsonb)

-- name: forget_recipient
-- An application, when somebody leaves.
select {schema}.forget_recipient(%(org)s::text, %(recipient)s::text)

-- name: recipients
-- Whoever asks for notifications, and each delivery. With the time, by which quiet hours are reckoned. Index: recipient_pkey.
select {schema}.now(), r.recipient_id,
       json_build_object(
         'recipient_id', r.recipient_id, 'email', r.email, 'phone', r.phone, 'push_token', r.push_token, 'zone', r.zone,
         'language', r.language, 'quiet_from', r.quiet_from, 'quiet_to', r.quiet_to, 'opt_out', r.opt_out, 'spam_limit', r.spam_limit)::text
from (select) one left join {schema}.recipient r
  on r.org_id = %(org)s::text and r.recipient_id = any(array(select json_array_elements_text(%(ids)s::text::json)))

-- name: request_notifications
-- Whoever asks, in their own transaction. Index: notification_once.
select * from {schema}.request_notifications(%(notes)s::text::json, %(jobs)s::text::json, %(best_effort)s = 1)

-- name: get_notification
-- Each delivery, before it reserves. Index: notification_pkey.
select json_build_object(
  'org_id', n.org_id, 'id', n.id, 'recipient_id', n.recipient_id, 'channel', n.channel, 'template', n.template,
  'class', n.class, 'necessary', n.necessary, 'data', n.data, 'status', n.status, 'resends', n.resends, 'job_id', n.job_id,
  'due_at', n.due_at, 'reserved_at', n.reserved_at, 'title', n.title, 'text', n.text, 'html', n.html, 'created_at', n.created_at)::text
from {schema}.notification n where n.org_id = %(org)s::text and n.id = %(id)s::text::uuid

-- name: reserve_notification
-- Each delivery, fenced. Locks: the row, and the recipient's other deliveries for as long.
select * from {schema}.reserve_notification(
  %(org)s::text, %(id)s::text::uuid, %(job)s::text::uuid, %(title)s::text, %(text)s::text, %(html)s::text,
  %(most)s::text::integer, %(window)s::text::interval)

-- name: alike_notifications
-- A delivery whose earlier end nobody saw, before it asks the provider: what that knows already as another notification's.
-- Index: notification_recent.
select n.provider_id from {schema}.notification n
where n.org_id = %(org)s::text and n.recipient_id = %(recipient)s::text and n.channel = %(channel)s::text
  and n.status = 'sent' and coalesce(n.sent_at, n.reserved_at) >= %(since)s::text::timestamptz - interval '1 min'
  and n.id <> %(id)s::text::uuid and n.text = %(text)s::text and n.provider_id is not null

-- name: put_off_notification
-- A delivery that waits for the end of quiet hours, so that people see until when.
update {schema}.notification n set due_at = %(until)s::text::timestamptz
where n.org_id = %(org)s::text and n.id = %(id)s::text::uuid and n.job_id = %(job)s::text::uuid

-- name: unsent_notification
-- A delivery whose attempt failed. Where it is certain that nothing was sent the reservation ends; where the provider was
-- not even called, the attempt does not count. Else the next attempt asks the provider.
update {schema}.notification n
set error = coalesce(%(error)s::text, n.error), attempts = n.attempts - %(uncounted)s,
    status = case when %(certain)s = 1 then 'pending' else n.status end,
    reserved_at = case when %(certain)s = 0 then n.reserved_at end, html = case when %(certain)s = 0 then n.html end
where n.org_id = %(org)s::text and n.id = %(id)s::text::uuid and n.job_id = %(job)s::text::uuid and n.status = 'sending'

-- name: stamp_notification
-- A delivery, in the transaction of its success.
update {schema}.notification n
set status = 'sent', sent_at = {schema}.now(), reserved_at = null, html = null, error = null, provider = %(provider)s::text,
    provider_id = %(provider_id)s::text
where n.org_id = %(org)s::text and n.id = %(id)s::text::uuid and n.job_id = %(job)s::text::uuid
  and n.status = 'sending'

-- name: skip_notification
-- A delivery that has no reason any more, in the transaction of its success.
update {schema}.notification n
set status = 'skipped', reason = %(reason)s::text, reserved_at = null, html = null, title = coalesce(%(title)s::text, n.title),
    text = coalesce(%(text)s::text, n.text)
where n.org_id = %(org)s::text and n.id = %(id)s::text::uuid and n.job_id = %(job)s::text::uuid
  and n.status in ('pending', 'sending')

-- name: put_in_inbox
-- A delivery inside the application, in the transaction of its success; one that is sent again is unread again.
insert into {schema}.inbox (org_id, id, recipient_id, title, text, link, created_at)
values (%(org)s::text, %(id)s::text::uuid, %(recipient)s::text, %(title)s::text, %(text)s::text, %(link)s::text,
        {schema}.now())
on conflict (org_id, id) do update set read_at = null, title = excluded.title, text = excluded.text, link = excluded.link

-- name: inbox
-- The person whom they are for, newest first. Index: inbox_recipient.
select json_build_object('id', i.id, 'recipient_id', i.recipient_id, 'title', i.title, 'text', i.text, 'link', i.link,
                         'created_at', i.created_at, 'read_at', i.read_at)::text
from {schema}.inbox i
where i.org_id = %(org)s::text and i.recipient_id = %(recipient)s::text
  and (%(unread)s = 0 or i.read_at is null)
order by i.created_at desc, i.id desc
limit %(limit)s

-- name: read_inbox
select {schema}.read_inbox(%(org)s::text, %(recipient)s::text,
                           array(select json_array_elements_text(%(ids)s::text::json))::uuid[])

-- name: list_notifications
-- A person looks, newest first. Index: notification_subject with a subject, else notification_created.
select row_to_json(l)::text from {schema}.notification_log l
where (%(org)s::text is null or l.org_id = %(org)s::text)
  and (%(id)s::text is null or l.id = %(id)s::text::uuid)
  and (%(status)s::text is null or l.status = %(status)s::text)
  and (%(channel)s::text is null or l.channel = %(channel)s::text)
  and (%(template)s::text is null or l.template = %(template)s::text)
  and (%(recipient)s::text is null or l.recipient_id = %(recipient)s::text)
  and (%(subject)s::text is null or l.subject = %(subject)s::text)
order by l.created_at desc, l.id desc
limit %(limit)s

-- name: notification_rates
-- A person or a dashboard looks. Index: notification_created, where a time is said.
select json_build_object(
  'template', l.template, 'channel', l.channel, 'sent', count(*) filter (where l.status = 'sent'),
  'failed', count(*) filter (where l.status = 'failed'), 'skipped', count(*) filter (where l.status = 'skipped'),
  'open', count(*) filter (where l.status in ('pending', 'sending')))::text
from {schema}.notification_log l
where (%(org)s::text is null or l.org_id = %(org)s::text)
  and (%(since)s::text is null or l.created_at >= %(since)s::text::timestamptz)
group by l.template, l.channel
order by l.template, l.channel

-- name: resend_notification
-- An operator.
select {schema}.resend_notification(%(org)s::text, %(id)s::text::uuid, %(job)s::text::json, %(actor_type)s::text,
                                    %(actor_id)s::text, %(reason)s::text)

-- name: prune_notifications
-- Clean-up, every few hours. What is still under way stays, and what failed as long as its job, whose replay would send it.
-- Index: notification_created, inbox_created, and by the job's id.
with gone as (
  delete from {schema}.notification n where n.ctid = any(array(
    select x.ctid from {schema}.notification x
    where x.created_at < {schema}.now() - %(age)s::text::interval
      and not exists (select from {schema}.waiting w where w.id = x.job_id)
      and not exists (select from {schema}.running r where r.id = x.job_id)
      and not exists (select from {schema}.finished f where f.id = x.job_id and f.state in ('failed', 'dead'))
    order by x.created_at limit %(limit)s for update skip locked))
  returning 1
), read as (
  delete from {schema}.inbox i where i.ctid = any(array(
    select x.ctid from {schema}.inbox x where x.created_at < {schema}.now() - %(age)s::text::interval
    order by x.created_at limit %(limit)s for update skip locked))
  returning 1
)
select (select count(*) from gone) + (select count(*) from read)
