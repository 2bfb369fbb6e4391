-- Who comes in over HTTP, and who lets them: tokens, users, sessions, links. Secrets come as their SHA-256, and none goes out.

-- -- Parts ---------------------------------------------------------------------------------------------------------------

-- Whether two digests are one. Both are digested once more with something random, so that how long it takes says nothing
-- of where they differ; without a stored one it takes as long.
create or replace function {schema}.same_digest(p_stored bytea, p_given bytea) returns boolean language plpgsql volatile as $$
declare
  salt constant bytea := uuid_send(gen_random_uuid());
begin
  return coalesce(sha256(salt || coalesce(p_stored, '')) = sha256(salt || p_given), false) and p_stored is not null;
end $$;

-- A time of people, who do not live faster where a clock does (`mainspring up --speed`).
create or replace function {schema}.lived(p_span interval) returns interval language sql stable
  return p_span * {schema}.speed();

-- Whether who is bound to an organisation may be asked after here: a transaction of another one does not know them.
create or replace function {schema}.concerns(p_org text) returns boolean language sql stable
  return coalesce(nullif(nullif(current_setting('mainspring.org', true), ''), 'SYSTEM') = coalesce(p_org, ''), true);

-- Whether they may be changed: by their organisation, by SYSTEM, and on a plain schema by everybody.
create or replace function {schema}.reachable(p_org text) returns boolean language sql stable
  return {schema}.concerns(p_org) and (
    coalesce(current_setting('mainspring.org', true), '') <> ''
    or not (select c.relforcerowsecurity from pg_catalog.pg_class c where c.oid = '{schema}.job'::regclass));

create or replace function {schema}.check_access(p_name text, p_role text, p_org text) returns void language plpgsql immutable as $$
begin
  perform {schema}.check_text('name', p_name, 200);
  if p_name ~ '[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U000e0000-\U000e0fff]' then
    perform {schema}.refuse('name', 'has an invisible character');
  elsif p_name in ('.', '..') or p_name ~ '^\s|\s$' or upper(p_name) = 'SYSTEM' then  -- an address, or the trail, means others
    perform {schema}.refuse('name', 'is not one that can be told from others');
  end if;
  if p_role is null or p_role not in ('member', 'viewer', 'operator', 'admin') then
    perform {schema}.refuse('role', 'is not one of member, viewer, operator, admin');
  end if;
  perform {schema}.check_text('org', coalesce(p_org, '-'), 200);
  if p_org = 'SYSTEM' then
    perform {schema}.refuse('org', 'SYSTEM is no organisation that somebody belongs to');
  elsif not {schema}.reachable(p_org) then
    perform {schema}.refuse('org', 'is not the one of this transaction');
  end if;
end $$;

-- What was done, on the trail of the organisation that it is bound to, or of SYSTEM. On a secured schema a verb binds
-- itself to it for that one row.
create or replace function {schema}.record_access(
  p_event text, p_org text, p_subject text, p_actor_type text, p_actor text, p_reason text, p_detail jsonb) returns void
language plpgsql as $$
declare
  bound constant text := coalesce(current_setting('mainspring.org', true), '');
begin
  perform set_config('mainspring.org', coalesce(p_org, bound), true);
  insert into {schema}.audit (org_id, at, event, actor_type, actor_id, subject, detail)
  values (coalesce(p_org, 'SYSTEM'), {schema}.now(), p_event, p_actor_type, p_actor, left(p_subject, 200),
          jsonb_build_object('by', p_actor, 'by_type', p_actor_type, 'reason', p_reason) || p_detail);
  perform set_config('mainspring.org', bound, true);
end $$;

create or replace function {schema}.way_in(u {schema}.access_user) returns text language sql immutable
  return case when u.source <> 'local' then u.source when u.recipe is null then 'link' else 'password' end;

-- What the trail remembers of a user: never how they are known.
create or replace function {schema}.access_facts(u {schema}.access_user) returns jsonb language sql immutable
  return jsonb_build_object('role', u.role, 'org', u.only_org, 'reveals', u.reveals, 'signs_in_by', {schema}.way_in(u),
                            'disabled', u.disabled_at is not null);

-- Whether a session is good: it ends 30 minutes after it was seen last.
create or replace function {schema}.session_lives(s {schema}.access_session) returns boolean language sql stable
  return s.expires_at > {schema}.now() and s.seen_at > {schema}.now() - {schema}.lived('30 minutes');

-- End what was opened for a user as they were: their sessions, and the links of theirs that nobody has used yet.
create or replace function {schema}.end_openings(p_name text) returns void language sql volatile as $$
  delete from {schema}.access_session x where x.org_id = 'SYSTEM' and x.user_name = p_name;
  delete from {schema}.access_link x where x.org_id = 'SYSTEM' and x.user_name = p_name;
$$;

-- What became of a user. Who moves from one organisation to another has an event on the trail of each, in which the other
-- is not named: what is another's does not exist there.
create or replace function {schema}.record_user(
  p_event text, p_before {schema}.access_user, p_after {schema}.access_user, p_actor_type text, p_actor text, p_reason text)
returns void language plpgsql as $$
declare
  was jsonb := {schema}.access_facts(p_before);
  is_now jsonb := {schema}.access_facts(p_after);
  about constant jsonb := jsonb_build_object('user', p_after.name);
begin
  if p_before.only_org is distinct from p_after.only_org then
    perform {schema}.record_access(p_event, p_before.only_org, 'user ' || p_after.name, p_actor_type, p_actor, p_reason,
                                   about || jsonb_build_object('before', was, 'after', is_now - 'org'));
    was := was - 'org';
  end if;
  perform {schema}.record_access(p_event, p_after.only_org, 'user ' || p_after.name, p_actor_type, p_actor, p_reason,
                                 about || jsonb_build_object('before', was, 'after', is_now));
end $$;

-- -- Tokens --------------------------------------------------------------------------------------------------------------

-- A person makes a token; its secret they alone have seen.
create or replace function {schema}.create_token(
  p_id text, p_digest bytea, p_name text, p_role text, p_org text, p_reveals boolean, p_lifetime interval,
  p_actor_type text, p_actor text, p_reason text) returns void language plpgsql as $$
declare
  t {schema}.access_token;
begin
  perform {schema}.check_actor(p_actor_type, p_actor, p_reason);
  perform {schema}.check_access(p_name, p_role, p_org);
  if p_lifetime <= interval '0' or p_lifetime > interval '3653 days' then
    perform {schema}.refuse('expires', 'is not a time span of more than 0 and at most 10 years');
  end if;
  insert into {schema}.access_token (id, digest, name, role, only_org, reveals, created_at, created_by, expires_at)
  values (p_id, p_digest, p_name, p_role, p_org, p_reveals, {schema}.now(), p_actor, {schema}.now() + p_lifetime)
  returning * into t;
  perform {schema}.record_access('access.token_created', p_org, 'token ' || p_id, p_actor_type, p_actor, p_reason,
    jsonb_build_object('token_id', p_id, 'before', null, 'after', jsonb_build_object(
      'name', p_name, 'role', p_role, 'org', p_org, 'reveals', p_reveals, 'expires_at', t.expires_at)));
end $$;

-- A person ends a token, now. False: it was revoked before; null: there is none.
create or replace function {schema}.revoke_token(p_id text, p_actor_type text, p_actor text, p_reason text) returns boolean
language plpgsql as $$
declare
  t {schema}.access_token;
begin
  perform {schema}.check_actor(p_actor_type, p_actor, p_reason);
  update {schema}.access_token x set revoked_at = {schema}.now(), revoked_by = p_actor
  where x.org_id = 'SYSTEM' and x.id = p_id and x.revoked_at is null and {schema}.reachable(x.only_org) returning * into t;
  if not found then
    return (select false from {schema}.access_token x
            where x.org_id = 'SYSTEM' and x.id = p_id and {schema}.reachable(x.only_org));
  end if;
  perform {schema}.record_access('access.token_revoked', t.only_org, 'token ' || p_id, p_actor_type, p_actor, p_reason,
    jsonb_build_object('token_id', p_id, 'name', t.name, 'before', jsonb_build_object('revoked_at', null),
                       'after', jsonb_build_object('revoked_at', t.revoked_at)));
  return true;
end $$;

-- A person looks: all tokens, or those that are bound to an organisation; the newest first.
create or replace function {schema}.list_tokens(p_org text) returns setof json language sql stable as $$
  select json_build_object(
    'id', t.id, 'name', t.name, 'role', t.role, 'org', t.only_org, 'reveals', t.reveals, 'created_at', t.created_at,
    'created_by', t.created_by, 'expires_at', t.expires_at, 'used_at', t.used_at, 'revoked_at', t.revoked_at,
    'state', case when t.revoked_at is not null then 'revoked' when t.expires_at <= {schema}.now() then 'expired'
             else 'active' end)
  from {schema}.access_token t where t.org_id = 'SYSTEM' and (p_org is null or t.only_org = p_org) and {schema}.reachable(t.only_org)
  order by t.created_at desc, t.id limit 10000
$$;

-- Who: the server, at each request with a token. Who has it, or null. Index: access_token_pkey.
create or replace function {schema}.check_token(p_id text, p_digest bytea) returns json language plpgsql as $$
declare
  t {schema}.access_token;
begin
  select * into t from {schema}.access_token x where x.org_id = 'SYSTEM' and x.id = p_id and {schema}.concerns(x.only_org);
  if not {schema}.same_digest(t.digest, p_digest) or t.revoked_at is not null or t.expires_at <= {schema}.now() then
    return null;
  end if;
  update {schema}.access_token x set used_at = {schema}.now()
  where x.org_id = 'SYSTEM' and x.id = p_id and coalesce(x.used_at <= {schema}.now() - {schema}.lived('1 minute'), true);
  return json_build_object('name', t.name, 'role', t.role, 'org', t.only_org, 'reveals', t.reveals, 'token', t.id);
end $$;

-- -- Users ---------------------------------------------------------------------------------------------------------------

-- A person lets another one in. Without a recipe they have no password, and come by a link. False: the name is taken.
create or replace function {schema}.create_user(
  p_name text, p_role text, p_org text, p_reveals boolean, p_recipe text, p_verifier bytea, p_actor_type text, p_actor text,
  p_reason text) returns boolean language plpgsql as $$
declare
  u {schema}.access_user;
begin
  perform {schema}.check_actor(p_actor_type, p_actor, p_reason);
  perform {schema}.check_access(p_name, p_role, p_org);
  insert into {schema}.access_user (name, role, only_org, reveals, source, recipe, verifier, created_at, created_by)
  values (p_name, p_role, p_org, p_reveals, 'local', p_recipe, p_verifier, {schema}.now(), p_actor)
  on conflict do nothing returning * into u;
  if not found then
    return false;
  end if;
  perform {schema}.record_access('access.user_created', p_org, 'user ' || p_name, p_actor_type, p_actor, p_reason,
    jsonb_build_object('user', p_name, 'before', null, 'after', {schema}.access_facts(u)));
  return true;
end $$;

-- A person changes what another one may, or whether they may come in; what p_change does not name stays. Sessions
-- and links of before end: somebody who may less could have made them, and would have what is given now. False: nothing
-- changed; null: there is no such user.
create or replace function {schema}.change_user(
  p_name text, p_change jsonb, p_actor_type text, p_actor text, p_reason text) returns boolean language plpgsql as $$
declare
  before {schema}.access_user;
  after {schema}.access_user;
begin
  perform {schema}.check_actor(p_actor_type, p_actor, p_reason);
  select * into before from {schema}.access_user x
  where x.org_id = 'SYSTEM' and x.name = p_name and {schema}.reachable(x.only_org) for update;
  if not found then
    return null;
  end if;
  after := before;
  after.role := coalesce(p_change ->> 'role', before.role);
  after.only_org := case when p_change ? 'org' then p_change ->> 'org' else before.only_org end;
  after.reveals := coalesce((p_change ->> 'reveals')::boolean, before.reveals);
  after.disabled_at := case (p_change ->> 'disabled')::boolean when true then coalesce(before.disabled_at, {schema}.now())
                       when false then null else before.disabled_at end;
  if after is not distinct from before then
    return false;
  end if;
  perform {schema}.check_access(after.name, after.role, after.only_org);
  update {schema}.access_user x
  set role = after.role, only_org = after.only_org, reveals = after.reveals, disabled_at = after.disabled_at
  where x.org_id = 'SYSTEM' and x.name = p_name;
  perform {schema}.end_openings(p_name);
  perform {schema}.record_user(
    case when (before.disabled_at is null) = (after.disabled_at is null) then 'access.user_changed'
         when after.disabled_at is not null then 'access.user_disabled' else 'access.user_enabled' end,
    before, after, p_actor_type, p_actor, p_reason);
  return true;
end $$;

-- A person gives a user a password, or takes it away by none. Sessions and links of before end. False: no such user.
create or replace function {schema}.set_password(
  p_name text, p_recipe text, p_verifier bytea, p_actor_type text, p_actor text, p_reason text) returns boolean
language plpgsql as $$
declare
  before {schema}.access_user;
  after {schema}.access_user;
begin
  perform {schema}.check_actor(p_actor_type, p_actor, p_reason);
  select * into before from {schema}.access_user x
  where x.org_id = 'SYSTEM' and x.name = p_name and {schema}.reachable(x.only_org) for update;
  if not found then
    return false;
  elsif before.source <> 'local' then
    perform {schema}.refuse('name', 'signs in elsewhere, and has no password here');
  end if;
  update {schema}.access_user x set recipe = p_recipe, verifier = p_verifier
  where x.org_id = 'SYSTEM' and x.name = p_name returning * into after;
  perform {schema}.end_openings(p_name);
  perform {schema}.record_access('access.password_set', after.only_org, 'user ' || p_name, p_actor_type, p_actor, p_reason,
    jsonb_build_object('user', p_name, 'before', {schema}.access_facts(before), 'after', {schema}.access_facts(after)));
  return true;
end $$;

-- A person looks: all users, or those that are bound to an organisation.
create or replace function {schema}.list_users(p_org text) returns setof json language sql stable as $$
  select json_build_object(
    'name', u.name, 'role', u.role, 'org', u.only_org, 'reveals', u.reveals,
    'signs_in_by', {schema}.way_in(u), 'created_at', u.created_at, 'created_by', u.created_by,
    'disabled_at', u.disabled_at, 'signed_in_at', u.signed_in_at,
    'sessions', (select count(*) from {schema}.access_session s
                 where s.org_id = 'SYSTEM' and s.user_name = u.name and {schema}.session_lives(s)))
  from {schema}.access_user u where u.org_id = 'SYSTEM' and (p_org is null or u.only_org = p_org) and {schema}.reachable(u.only_org)
  order by u.name limit 10000
$$;

-- A person makes a link by which a user signs in, once, within 15 minutes; an older one is void. For whom somebody
-- else vouches there is none: it would let them in past whoever does. False: no such user, or one who may not come in.
create or replace function {schema}.create_link(
  p_name text, p_digest bytea, p_actor_type text, p_actor text, p_reason text) returns boolean language plpgsql as $$
declare
  u {schema}.access_user;
begin
  perform {schema}.check_actor(p_actor_type, p_actor, p_reason);
  select * into u from {schema}.access_user x
  where x.org_id = 'SYSTEM' and x.name = p_name and x.disabled_at is null and {schema}.reachable(x.only_org) for update;
  if not found then
    return false;
  elsif u.source <> 'local' then
    perform {schema}.refuse('name', 'signs in elsewhere, and has no link here');
  end if;
  delete from {schema}.access_link x where x.org_id = 'SYSTEM' and x.user_name = p_name;
  insert into {schema}.access_link (digest, user_name, created_by, expires_at)
  values (p_digest, p_name, p_actor, {schema}.now() + {schema}.lived('15 minutes'));
  perform {schema}.record_access('access.link_created', u.only_org, 'user ' || p_name, p_actor_type, p_actor, p_reason,
                                 jsonb_build_object('user', p_name));
  return true;
end $$;
