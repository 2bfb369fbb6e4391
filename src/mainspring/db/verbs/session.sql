-- Sessions of users: how they begin, who has one, and how they end. Secrets come as their SHA-256, and none goes out.

-- Who asks, as the server knows them.
create or replace function {schema}.principal_of(u {schema}.access_user, s {schema}.access_session) returns json
language sql immutable
  return json_build_object('name', u.name, 'role', u.role, 'org', u.only_org, 'reveals', u.reveals, 'session', s.id,
                           'how', s.how);

-- A session as it is listed, and whether it is the one that asks.
create or replace function {schema}.session_row(s {schema}.access_session, p_digest bytea) returns json language sql immutable
  return json_build_object(
    'id', s.id, 'how', s.how, 'address', s.address, 'created_at', s.created_at, 'seen_at', s.seen_at,
    'expires_at', s.expires_at, 'current', coalesce(s.digest = p_digest, false));

-- End a session of a user, or without an id all of them. Answers how many.
create or replace function {schema}.end_sessions_of(
  u {schema}.access_user, p_id uuid, p_actor_type text, p_actor text, p_reason text) returns integer language plpgsql as $$
declare
  ended uuid[];
begin
  with gone as (
    delete from {schema}.access_session s
    where s.org_id = 'SYSTEM' and s.user_name = u.name and (p_id is null or s.id = p_id) returning s.id
  )
  select array_agg(g.id) into ended from gone g;
  if ended is not null then
    perform {schema}.record_access('access.signed_out', u.only_org, 'user ' || u.name, p_actor_type, p_actor, p_reason,
                                   jsonb_build_object('user', u.name, 'sessions', ended));
  end if;
  return coalesce(cardinality(ended), 0);
end $$;

-- Open a session for somebody who has shown who they are. The one that their browser had before ends, so that whoever put
-- it there has nothing of it; and of one user's sessions twenty are kept.
create or replace function {schema}.open_session(
  u {schema}.access_user, p_how text, p_digest bytea, p_address text, p_before bytea) returns json language plpgsql as $$
declare
  s {schema}.access_session;
begin
  delete from {schema}.access_session x where x.org_id = 'SYSTEM' and x.digest = p_before;
  delete from {schema}.access_session x where x.org_id = 'SYSTEM' and x.id in (
    select o.id from {schema}.access_session o where o.org_id = 'SYSTEM' and o.user_name = u.name
    order by o.created_at desc offset 19);
  insert into {schema}.access_session (id, digest, user_name, how, address, created_at, seen_at, expires_at)
  values ({schema}.uuid7(), p_digest, u.name, p_how, left(coalesce(nullif(p_address, ''), 'unknown'), 100), {schema}.now(),
          {schema}.now(), {schema}.now() + {schema}.lived('12 hours')) returning * into s;
  update {schema}.access_user x set signed_in_at = {schema}.now() where x.org_id = 'SYSTEM' and x.name = u.name;
  perform {schema}.record_access('access.signed_in', u.only_org, 'user ' || u.name, 'user', u.name, null, jsonb_build_object(
    'user', u.name, 'role', u.role, 'how', p_how, 'address', s.address, 'session', s.id));
  return {schema}.principal_of(u, s);
end $$;

-- Take one of ten tries, which come back one every six seconds. Answers for how many seconds to wait; 0: it was taken.
create or replace function {schema}.take_try(p_slot text) returns integer language plpgsql as $$
declare
  free timestamptz;
begin
  insert into {schema}.access_try as t (slot, free_at) values (p_slot, {schema}.now() + {schema}.lived('6 s'))
  on conflict (org_id, slot) do update set free_at = greatest(t.free_at, {schema}.now()) + {schema}.lived('6 s')
  where t.free_at <= {schema}.now() + {schema}.lived('54 s');
  if found then
    return 0;
  end if;
  select t.free_at into free from {schema}.access_try t where t.org_id = 'SYSTEM' and t.slot = p_slot;
  return greatest(1, ceil(extract(epoch from free - {schema}.lived('54 s') - {schema}.now()) / {schema}.speed()))::integer;
end $$;

-- Where the tries of a name or an address are counted, of so many slots. Who shares one with whom depends on something that
-- nobody outside knows: nobody finds the address by which they could keep another one from signing in.
create or replace function {schema}.try_slot(p_of text, p_slots integer) returns bigint language sql stable
  return hashtextextended(p_of, (select c.system_identifier from pg_catalog.pg_control_system() c)) & (p_slots - 1);

-- Who: the server, before it looks at what somebody shows. Takes a try of the address, and of the user where one is named.
-- Answers for how long to wait, and how the password that they have is made; without a password, nothing of it.
create or replace function {schema}.try_sign_in(p_name text, p_address text) returns json language plpgsql as $$
declare
  wait integer := {schema}.take_try('address:' || {schema}.try_slot(p_address, 65536));
begin
  if wait = 0 and p_name is not null then
    wait := {schema}.take_try('user:' || {schema}.try_slot(p_name, 16384));
  end if;
  return json_build_object('wait', wait, 'recipe', (
    select u.recipe from {schema}.access_user u where wait = 0 and u.org_id = 'SYSTEM' and u.name = p_name and {schema}.concerns(u.only_org)));
end $$;

-- Who: the server, with the digest of what scrypt made of a password. Who has signed in, or null.
create or replace function {schema}.sign_in(
  p_name text, p_verifier bytea, p_digest bytea, p_address text, p_before bytea) returns json language plpgsql as $$
declare
  u {schema}.access_user;
begin
  select * into u from {schema}.access_user x
  where x.org_id = 'SYSTEM' and x.name = p_name and {schema}.concerns(x.only_org) for update;
  if not {schema}.same_digest(u.verifier, p_verifier) or u.disabled_at is not null then
    return null;
  end if;
  return {schema}.open_session(u, 'password', p_digest, p_address, p_before);
end $$;

-- Who: the server, with the digest of a one-time code, which is gone with it. Who has signed in, or null. The user's row
-- is locked before the link goes, as whoever changes them does: what they may changes before it or after it, not meanwhile.
create or replace function {schema}.sign_in_by_link(p_link bytea, p_digest bytea, p_address text, p_before bytea) returns json
language plpgsql as $$
declare
  u {schema}.access_user;
begin
  select x.* into u from {schema}.access_link l join {schema}.access_user x on x.org_id = 'SYSTEM' and x.name = l.user_name
  where l.org_id = 'SYSTEM' and l.digest = p_link and x.disabled_at is null and {schema}.concerns(x.only_org)
  for update of x;
  delete from {schema}.access_link x
  where x.org_id = 'SYSTEM' and x.digest = p_link and x.user_name = u.name and x.expires_at > {schema}.now();
  return case when found then {schema}.open_session(u, 'link', p_digest, p_address, p_before) end;
end $$;

-- Who: the server, for a user whom somebody else vouches for, a proxy or a provider of identities. They are written down
-- when they come first, and may what they may elsewhere; where that is something else than before, their other sessions end.
-- Whoever was disabled here stays out, and a name that somebody else vouches for is nobody's to take. Null: they may not
-- come in.
create or replace function {schema}.sign_in_vouched(
  p_name text, p_source text, p_role text, p_org text, p_reveals boolean, p_digest bytea, p_address text, p_before bytea)
returns json language plpgsql as $$
declare
  u {schema}.access_user;
  before {schema}.access_user;
begin
  perform {schema}.check_access(p_name, p_role, p_org);
  select * into before from {schema}.access_user x where x.org_id = 'SYSTEM' and x.name = p_name
  for update;
  insert into {schema}.access_user as x (name, role, only_org, reveals, source, created_at, created_by)
  values (p_name, p_role, p_org, p_reveals, p_source, {schema}.now(), p_source)
  on conflict (org_id, name) do update
  set role = excluded.role, only_org = excluded.only_org, reveals = excluded.reveals
  where x.source = excluded.source and x.disabled_at is null and {schema}.reachable(x.only_org)
  returning x.* into u;
  if not found then
    return null;
  elsif before.name is null then
    perform {schema}.record_access('access.user_created', u.only_org, 'user ' || p_name, 'system', p_source, null,
      jsonb_build_object('user', p_name, 'before', null, 'after', {schema}.access_facts(u)));
  elsif {schema}.access_facts(before) <> {schema}.access_facts(u) then
    perform {schema}.end_openings(p_name);
    perform {schema}.record_user('access.user_changed', before, u, 'system', p_source, null);
  end if;
  return {schema}.open_session(u, p_source, p_digest, p_address, p_before);
end $$;

-- Who: the server, at each request with a session. Who has it, or null: what they may is read anew each time.
-- Index: access_session_digest.
create or replace function {schema}.check_session(p_digest bytea) returns json language plpgsql as $$
declare
  s {schema}.access_session;
  u {schema}.access_user;
begin
  select * into s from {schema}.access_session x
  where x.org_id = 'SYSTEM' and x.digest = p_digest and {schema}.session_lives(x);
  select * into u from {schema}.access_user x
  where x.org_id = 'SYSTEM' and x.name = s.user_name and x.disabled_at is null and {schema}.concerns(x.only_org);
  if not found then
    return null;
  end if;
  update {schema}.access_session x set seen_at = {schema}.now()
  where x.org_id = 'SYSTEM' and x.id = s.id and x.seen_at <= {schema}.now() - {schema}.lived('1 minute');
  return {schema}.principal_of(u, s);
end $$;

-- The sessions of whoever has this one.
create or replace function {schema}.list_sessions(p_digest bytea) returns setof json language sql stable as $$
  select {schema}.session_row(s, p_digest)
  from {schema}.access_session mine join {schema}.access_session s on s.org_id = 'SYSTEM' and s.user_name = mine.user_name
  where mine.org_id = 'SYSTEM' and mine.digest = p_digest and {schema}.session_lives(s)
  order by s.created_at desc, s.id
$$;

-- End sessions of whoever has this one: that one, or without an id all of them. Answers how many.
create or replace function {schema}.end_sessions(p_digest bytea, p_id uuid) returns integer language plpgsql as $$
declare
  u {schema}.access_user;
begin
  select x.* into u from {schema}.access_session s join {schema}.access_user x on x.org_id = 'SYSTEM' and x.name = s.user_name
  where s.org_id = 'SYSTEM' and s.digest = p_digest and {schema}.concerns(x.only_org);
  return {schema}.end_sessions_of(u, p_id, 'user', u.name, null);
end $$;

-- A person looks: where a user is signed in.
create or replace function {schema}.list_user_sessions(p_name text) returns setof json language sql stable as $$
  select {schema}.session_row(s, null)
  from {schema}.access_user u join {schema}.access_session s on s.org_id = 'SYSTEM' and s.user_name = u.name
  where u.org_id = 'SYSTEM' and u.name = p_name and {schema}.reachable(u.only_org) and {schema}.session_lives(s)
  order by s.created_at desc, s.id
$$;

-- A person signs another one out: of that session, or without an id of all. Answers how many; null: no such user.
create or replace function {schema}.end_user_sessions(
  p_name text, p_id uuid, p_actor_type text, p_actor text, p_reason text) returns integer language plpgsql as $$
declare
  u {schema}.access_user;
begin
  perform {schema}.check_actor(p_actor_type, p_actor, p_reason);
  select * into u from {schema}.access_user x
  where x.org_id = 'SYSTEM' and x.name = p_name and {schema}.reachable(x.only_org) for update;
  return case when found then {schema}.end_sessions_of(u, p_id, p_actor_type, p_actor, p_reason) end;
end $$;

-- Who: maintenance. Remove what is over: sessions and links at once, tries when they are forgotten, tokens that nobody can
-- use any more after 90 days. At most so many of each; answers how many went.
create or replace function {schema}.prune_access(p_limit integer) returns integer language sql volatile as $$
  with sessions as (
    delete from {schema}.access_session s where s.org_id = 'SYSTEM' and s.id in (
      select x.id from {schema}.access_session x where x.org_id = 'SYSTEM' and not {schema}.session_lives(x)
      limit p_limit for update skip locked) returning 1
  ), links as (
    delete from {schema}.access_link l where l.org_id = 'SYSTEM' and l.expires_at <= {schema}.now() returning 1
  ), tries as (
    delete from {schema}.access_try t where t.org_id = 'SYSTEM' and t.slot in (
      select x.slot from {schema}.access_try x where x.org_id = 'SYSTEM' and x.free_at <= {schema}.now()
      limit p_limit for update skip locked) returning 1
  ), tokens as (
    delete from {schema}.access_token t where t.org_id = 'SYSTEM' and t.id in (
      select x.id from {schema}.access_token x where x.org_id = 'SYSTEM'
        and least(x.revoked_at, x.expires_at) <= {schema}.now() - interval '90 days'
      limit p_limit for update skip locked) returning 1
  )
  select count(*)::integer from (
    select from sessions union all select from links union all select from tries union all select from tokens) gone
$$;
