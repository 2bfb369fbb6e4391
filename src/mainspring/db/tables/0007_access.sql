-- Who comes in over HTTP: access tokens, users, their sessions and one-time links, and how often somebody has tried.
--
-- Who asks is not known before their row is found, so all rows are of the organisation SYSTEM; the one that somebody is
-- bound to stands in only_org, and null means all. Secrets are 256 random bits, and a row has their SHA-256 alone. On a
-- secured schema nobody has a right to these tables: the verbs have.

create table {schema}.access_token (
  org_id     text not null default 'SYSTEM',
  id         text not null check (id ~ '^[0-9a-f]{12}$'),  -- shown to everybody: the secret is not
  digest     bytea not null check (octet_length(digest) = 32),
  name       text not null check (length(name) between 1 and 200),
  role       text not null check (role in ('member', 'viewer', 'operator', 'admin')),
  only_org   text check (length(only_org) between 1 and 200),
  reveals    boolean not null,
  created_at timestamptz not null,
  created_by text not null,
  expires_at timestamptz,  -- null: never
  used_at    timestamptz,  -- to the minute
  revoked_at timestamptz,
  revoked_by text,
  primary key (org_id, id),
  check ((revoked_at is null) = (revoked_by is null))
);

-- A password is not here, nor what scrypt makes of it: `recipe` says how it is made, with its salt, and `verifier` is the
-- SHA-256 of what comes out. So a program that checks passwords need not read what would open a session.
create table {schema}.access_user (
  org_id      text not null default 'SYSTEM',
  name        text not null check (length(name) between 1 and 200),
  role        text not null check (role in ('member', 'viewer', 'operator', 'admin')),
  only_org    text check (length(only_org) between 1 and 200),
  reveals     boolean not null,
  source      text not null check (source in ('local', 'proxy', 'oidc')),  -- who vouches for them
  recipe      text check (length(recipe) between 1 and 200),               -- null: no password
  verifier    bytea check (octet_length(verifier) = 32),
  created_at  timestamptz not null,
  created_by  text not null,
  disabled_at timestamptz,
  signed_in_at timestamptz,
  primary key (org_id, name),
  check ((recipe is null) = (verifier is null)),
  check (recipe is null or source = 'local')
);

create table {schema}.access_session (
  org_id     text not null default 'SYSTEM',
  id         uuid not null,  -- by which it is listed and ended
  digest     bytea not null check (octet_length(digest) = 32),
  user_name  text not null,
  how        text not null check (how in ('password', 'link', 'proxy', 'oidc')),
  address    text not null check (length(address) between 1 and 100),
  created_at timestamptz not null,
  seen_at    timestamptz not null,  -- to the minute
  expires_at timestamptz not null,
  primary key (org_id, id)
);

create unique index access_session_digest on {schema}.access_session (org_id, digest);
create index access_session_user on {schema}.access_session (org_id, user_name, created_at);
create index access_session_expiry on {schema}.access_session (expires_at);

create table {schema}.access_link (
  org_id     text not null default 'SYSTEM',
  digest     bytea not null check (octet_length(digest) = 32),
  user_name  text not null,
  created_by text not null,
  expires_at timestamptz not null,
  primary key (org_id, digest)
);

-- Tries to sign in, by what they are counted. Names and addresses share a fixed number of slots, so that nobody can fill
-- this table by making some up. free_at is when the last try is forgotten.
create table {schema}.access_try (
  org_id  text not null default 'SYSTEM',
  slot    text not null check (slot ~ '^(user|address):[0-9]{1,5}$'),
  free_at timestamptz not null,
  primary key (org_id, slot)
);
