-- The keys of organisations: made, rotated, erased.

-- Who: the first writer of an organisation. Of two at once one wins, and both read its key afterwards.
create or replace function {schema}.add_key(p_org text, p_id uuid, p_wrapped bytea) returns void language sql as $$
  insert into {schema}.cipher_key (org_id, id, wrapped, created_at)
  values (p_org, p_id, p_wrapped, {schema}.now()) on conflict do nothing
$$;

-- A new key for new writes.
create or replace function {schema}.rotate_key(p_org text, p_id uuid, p_wrapped bytea, p_actor_type text, p_actor_id text, p_reason text)
returns void language plpgsql as $$
begin
  perform {schema}.check_text('reason', p_reason, 1000);
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  loop  -- somebody else may make one meanwhile: then theirs is retired as well
    update {schema}.cipher_key k set retired_at = {schema}.now() where k.org_id = p_org and k.retired_at is null;
    insert into {schema}.cipher_key (org_id, id, wrapped, created_at) values (p_org, p_id, p_wrapped, {schema}.now())
    on conflict (org_id) where retired_at is null do nothing;
    exit when found;
  end loop;
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  values (p_org, {schema}.now(), 'cipher.rotated', p_actor_type, p_actor_id,
          jsonb_build_object('reason', p_reason, 'key', p_id));
end $$;

-- The end of an organisation's data: what its keys encrypted can be read by nobody any more. What stands in the clear
-- beside it goes as well: addresses, messages and what providers sent; the rows stay where something counts on them, empty.
-- Answers how many keys.
create or replace function {schema}.erase(p_org text, p_actor_type text, p_actor_id text, p_reason text) returns integer
language plpgsql as $$
declare
  n integer;
  recipients integer;
  messages integer;
  events integer;
begin
  perform {schema}.check_text('reason', p_reason, 1000);
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  delete from {schema}.cipher_key k where k.org_id = p_org;
  get diagnostics n = row_count;
  delete from {schema}.recipient r where r.org_id = p_org;
  get diagnostics recipients = row_count;
  delete from {schema}.inbox i where i.org_id = p_org;
  update {schema}.notification x
  set data = '{}', title = null, text = null, html = null, error = null,
      payload_hash = x.id::text  -- a hash of the data could be guessed from
  where x.org_id = p_org;
  get diagnostics messages = row_count;
  update {schema}.inbound i set body = '{}' where i.org_id = p_org;
  get diagnostics events = row_count;
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  values (p_org, {schema}.now(), 'cipher.erased', p_actor_type, p_actor_id,
          jsonb_strip_nulls(jsonb_build_object('reason', p_reason, 'keys', n, 'recipients', nullif(recipients, 0),
                                               'messages', nullif(messages, 0), 'inbound', nullif(events, 0))));
  return n;
end $$;
