-- Writes over HTTP: each once, and none over what somebody else has changed.

-- Who: a write with an Idempotency-Key, first in its transaction. No row: the key is new, or a day old, and belongs to this
-- request; whoever brings it meanwhile waits for the end of the transaction. Else what was asked under it, and answered.
create or replace function {schema}.begin_request(p_org text, p_actor text, p_key text, p_asked text)
returns table (fingerprint text, status smallint, etag text, body text) language plpgsql as $$
begin
  delete from {schema}.request r
  where r.org_id = p_org and r.actor_id = p_actor and r.key = p_key and r.begun_at < {schema}.now() - interval '24 hours';
  insert into {schema}.request (org_id, actor_id, key, fingerprint, begun_at)
  values (p_org, p_actor, p_key, p_asked, {schema}.now())
  on conflict do nothing;
  if not found then
    return query select r.fingerprint, r.status, r.etag, r.body from {schema}.request r
    where r.org_id = p_org and r.actor_id = p_actor and r.key = p_key;
  end if;
end $$;

-- Who: the same, last in its transaction.
create or replace function {schema}.end_request(
  p_org text, p_actor text, p_key text, p_status smallint, p_etag text, p_body text) returns void
language sql as $$
  update {schema}.request r set status = p_status, etag = p_etag, body = p_body
  where r.org_id = p_org and r.actor_id = p_actor and r.key = p_key and r.status is null
$$;

-- Who: a write over HTTP that names the version it was decided on, before it compares. Until the end of the transaction
-- what it names stays as it is: no other write of the kind passes, and no worker moves a job. Waits for who has it now.
-- The name of a key of a breaker is `name:key`. Limits and turns have the lock that their verbs take, and in that order.
create or replace function {schema}.lock_for_change(p_kind text, p_org text, p_name text) returns void
language plpgsql as $$
begin
  perform pg_advisory_xact_lock(hashtextextended('{schema} change ' || p_kind || ' ' || p_name, 0));
  if p_kind = 'job' then
    perform from {schema}.waiting x where x.id = p_name::uuid and (p_org is null or x.org_id = p_org) for update;
    perform from {schema}.running x where x.id = p_name::uuid and (p_org is null or x.org_id = p_org) for update;
    perform from {schema}.finished x where x.id = p_name::uuid and (p_org is null or x.org_id = p_org) for update;
  elsif p_kind = 'dead letter' then  -- its key first, like whoever replays it
    perform {schema}.lock_key(x) from {schema}.job x where x.id = p_name::uuid and (p_org is null or x.org_id = p_org);
    perform from {schema}.finished x where x.id = p_name::uuid and (p_org is null or x.org_id = p_org) for update;
  elsif p_kind = 'batch' then
    perform from {schema}.batch x where x.id = p_name::uuid and (p_org is null or x.org_id = p_org) for update;
  elsif p_kind = 'queue' then
    perform from {schema}.queue x where x.org_id = 'SYSTEM' and x.name = p_name for update;
  elsif p_kind in ('limit', 'fair') then
    perform pg_advisory_xact_lock(hashtextextended('{schema} limits', 0));
  elsif p_kind = 'breaker' then
    perform from {schema}.breaker x
    where x.name = split_part(p_name, ':', 1)
      and (x.key = '' and x.org_id = 'SYSTEM' and strpos(p_name, ':') = 0
           or x.key = substr(p_name, strpos(p_name, ':') + 1) and x.org_id = coalesce(p_org, 'default')
              and strpos(p_name, ':') > 0)
    for update;
  elsif p_kind = 'user' then
    perform from {schema}.access_user x
    where x.org_id = 'SYSTEM' and x.name = p_name and {schema}.reachable(x.only_org) for update;
  elsif p_kind = 'schedule' then
    perform from {schema}.schedule x where x.org_id = coalesce(p_org, 'default') and x.name = p_name for update;
  end if;
end $$;
