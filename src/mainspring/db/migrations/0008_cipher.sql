-- Payload encryption: one wrapped key per organisation; deleting it makes what it encrypted unreadable.
--
-- The database never sees a key, only what the master key made of it, and never a payload, only an envelope
-- {"$mainspring": {"v", "key", "nonce", "data", …}} (docs/adr/0014). Without encryption this table stays empty.

create table {schema}.cipher_key (
  org_id     text not null,
  id         uuid not null,
  wrapped    bytea not null,
  created_at timestamptz not null,
  retired_at timestamptz,  -- new writes use another one; what it encrypted stays readable
  primary key (org_id, id)
);

create unique index cipher_key_current on {schema}.cipher_key (org_id) where retired_at is null;

-- Who: the first writer of an organisation. Of two at once one wins, and both read its key afterwards.
create function {schema}.add_key(p_org text, p_id uuid, p_wrapped bytea) returns void language sql as $$
  insert into {schema}.cipher_key (org_id, id, wrapped, created_at)
  values (p_org, p_id, p_wrapped, {schema}.now()) on conflict do nothing
$$;

-- A new key for new writes.
create function {schema}.rotate_key(p_org text, p_id uuid, p_wrapped bytea, p_actor_type text, p_actor_id text, p_reason text)
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

-- The end of an organisation's data: what its keys encrypted can be read by nobody any more. Answers how many keys.
create function {schema}.erase(p_org text, p_actor_type text, p_actor_id text, p_reason text) returns integer
language plpgsql as $$
declare
  n integer;
begin
  perform {schema}.check_text('reason', p_reason, 1000);
  perform {schema}.check_actor(p_actor_type, p_actor_id, p_reason);
  delete from {schema}.cipher_key k where k.org_id = p_org;
  get diagnostics n = row_count;
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, detail)
  values (p_org, {schema}.now(), 'cipher.erased', p_actor_type, p_actor_id, jsonb_build_object('reason', p_reason, 'keys', n));
  return n;
end $$;
