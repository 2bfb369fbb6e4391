-- Alerts that last: opening, closing, watching, telling, listing.

-- name: open_alert
-- Whoever finds something wrong, often in the transaction that finds it. Index: alert_open.
select {schema}.open_alert(
  %(org)s::text, %(name)s::text, %(subject)s::text, %(text)s::text, %(severity)s::text, %(detail)s::text::jsonb,
  %(told)s::text::boolean)

-- name: close_alert
-- Whoever sees that it is over. Index: alert_open.
select {schema}.close_alert(
  %(org)s::text, %(name)s::text, %(subject)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text,
  %(told)s::text::boolean)::text

-- name: names_open
-- Which of these have something open: a watch that finds nothing, and has opened nothing, writes nothing. Index: alert_name.
select n.name from json_array_elements_text(%(names)s::text::json) as n (name)
where exists (select from {schema}.alert a where a.name = n.name and a.closed_at is null)

-- name: keep_watch
-- A watch has looked: what is new opens, what still is counts, what is over closes, in all organisations. `among` bounds
-- what it may close to these subjects. Answers what opened and what closed. Rows are locked in the order of their names,
-- so that two who count do not wait for each other. Index: alert_open, alert_name.
with found as (
  select * from json_to_recordset(%(found)s::text::json) as f (
    id uuid, org text, subject text, text text, severity text)
), opened as (
  insert into {schema}.alert as a (org_id, id, name, subject, severity, text, opened_at, last_at, told)
  select f.org, f.id, %(name)s::text, f.subject, f.severity, f.text, {schema}.now(), {schema}.now(), 'opened'
  from found f order by f.org, f.subject
  on conflict (org_id, name, subject) where closed_at is null
  do update set count = a.count + 1, last_at = excluded.last_at
  returning a.*
), closed as (
  update {schema}.alert a set closed_at = {schema}.now(), closed_by = 'SYSTEM', told = 'closed'
  where a.name = %(name)s::text and a.closed_at is null and %(close)s::text::boolean
    and (%(among)s::text is null or a.subject in (select json_array_elements_text(%(among)s::text::json)))
    and not exists (select from found f where f.org = a.org_id and f.subject = a.subject)
  returning a.*
)
select row_to_json(o)::text from opened o where o.count = 1
union all
select row_to_json(c)::text from closed c

-- name: tell_alerts
-- Workers, every minute: what was opened or closed in a transaction whose commit nobody told. Answers whether the opening
-- was told before. Index: alert_untold.
with untold as (
  select a.org_id, a.id, a.told is not null as heard from {schema}.alert a
  where a.told is distinct from case when a.closed_at is null then 'opened' else 'closed' end
  order by a.opened_at limit %(limit)s for update skip locked
)
update {schema}.alert a set told = case when a.closed_at is null then 'opened' else 'closed' end
from untold u where a.org_id = u.org_id and a.id = u.id
returning row_to_json(a)::text, u.heard

-- name: list_open_alerts
-- A person or a page looks at what is open, newest first: few among all that are kept. Index: alert_open, alert_name.
select row_to_json(a)::text from {schema}.alert a
where a.closed_at is null
  and (%(org)s::text is null or a.org_id = %(org)s::text)
  and (%(name)s::text is null or a.name = %(name)s::text)
  and (%(before_at)s::text is null
       or (a.opened_at, a.id) < (%(before_at)s::text::timestamptz, %(before_id)s::text::uuid))
order by a.opened_at desc, a.id desc limit %(limit)s

-- name: get_alert
-- A person looks at one. Index: alert_pkey; without an organisation all of it, which is small.
select row_to_json(a)::text from {schema}.alert a
where a.id = %(id)s::text::uuid and (%(org)s::text is null or a.org_id = %(org)s::text)

-- name: list_alerts
-- The same with those that are over, or of them alone. Index: alert_opened.
select row_to_json(a)::text from {schema}.alert a
where (%(org)s::text is null or a.org_id = %(org)s::text)
  and (%(name)s::text is null or a.name = %(name)s::text)
  and (%(over)s::text::boolean is false or a.closed_at is not null)
  and (%(before_at)s::text is null
       or (a.opened_at, a.id) < (%(before_at)s::text::timestamptz, %(before_id)s::text::uuid))
order by a.opened_at desc, a.id desc limit %(limit)s

-- name: prune_alerts
-- Alerts that are over, and told. Index: alert_closed.
with gone as (
  delete from {schema}.alert a
  where (a.org_id, a.id) in (
    select x.org_id, x.id from {schema}.alert x
    where x.closed_at < {schema}.now() - %(age)s::text::interval
    order by x.closed_at limit %(limit)s for update skip locked)
  returning 1
)
select count(*) from gone
