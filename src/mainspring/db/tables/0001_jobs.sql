-- The tables: a job is written once, its ticket moves waiting → running → finished.
--
-- Measured on 2 cores (docs/adr/0001): moving a narrow row between small tables is half as fast again as updating one
-- in place. So no foreign keys on the tickets (2.8 times slower); each move is one delete-and-insert statement, and
-- every test checks that each job stands in exactly one ticket table.
-- Every table carries org_id, and every unique key but the job id starts with it. 'SYSTEM' is the engine's own.

-- The fencing token is (worker, epoch). The epoch alone is not enough: a crash can issue a sequence value twice.
create sequence {schema}.epoch as bigint;

-- Hints for wake-ups, as milliseconds: some worker is idle until, and the last notification was sent at.
-- Sequences, because they are written in place: no transaction, no dead rows under a held snapshot, no WAL.
create unlogged sequence {schema}.idle_until as bigint minvalue 0 start 0;
create unlogged sequence {schema}.woken_at as bigint minvalue 0 start 0;

-- The whole contract of a job, written once. A trigger refuses updates outside reset and replace.
create table {schema}.job (
  id             uuid primary key,
  org_id         text not null,
  task           text not null,
  queue          text not null,
  priority       smallint not null check (priority between 0 and 3),
  max_attempts   smallint not null check (max_attempts between 1 and 1000),
  cancellable    boolean not null,
  payload        jsonb not null check (jsonb_typeof(payload) = 'object'),
  project_id     uuid,
  actor_type     text not null check (actor_type in ('user', 'system', 'api_key')),
  actor_id       text not null,
  request_id     text not null,
  correlation_id text not null,
  parent_id      uuid,
  traceparent    text,
  key            text,
  strand         text,  -- the jobs that limits by key, and order, hold together: those of one booking, of one account
  created_at     timestamptz not null,
  scheduled_for  timestamptz,
  -- Times that no client can read would make every claim of them fail, with all that is claimed beside them.
  constraint created_at check (created_at > '0001-01-02Z' and created_at < '9999-01-01Z'),
  constraint scheduled_for check (scheduled_for > '0001-01-02Z' and scheduled_for < '9999-01-01Z')
);

-- Scheduled, ready and retrying jobs. A job held behind another of its key has due_at 'infinity' and `after`. One that a
-- limit puts off, or that waits for others, has a `gate`: what opens it ('parents', or the bucket of a limit). One that a
-- breaker or a paused endpoint has stopped is parked there: due_at 'infinity', until somebody lets it go (docs/adr/0033).
create table {schema}.waiting (
  id       uuid primary key,
  org_id   text not null,
  task     text not null,
  queue    text not null,
  priority smallint not null,
  due_at   timestamptz not null,
  attempt  smallint not null default 0,
  crashes  smallint not null default 0,
  snoozes  smallint not null default 0,
  retrying boolean not null default false,
  suspect  boolean not null default false,  -- failed permanently before and was replayed
  after    uuid,                            -- held until this job is finished
  gate     text collate "C",                -- put off or held by this; one kind of gate is one range
  due_then timestamptz,                     -- due_at once it is no longer held
  strand   text,
  linked   boolean not null default false,  -- something waits for how it ends: a batch, other jobs, a place in order
  check ((after is null and gate is null) = (due_then is null)),
  constraint due_at check (due_at > '0001-01-02Z')
) with (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

create index waiting_claim on {schema}.waiting (queue, priority, due_at, id);
create index waiting_rescued on {schema}.waiting (due_at) where crashes > 0;
create index waiting_retrying on {schema}.waiting (queue) where retrying;
create index waiting_held on {schema}.waiting (after) where after is not null;
create index waiting_strand on {schema}.waiting (org_id, strand, (coalesce(due_then, due_at)), id) where strand is not null;
create index waiting_gate on {schema}.waiting (gate, priority, due_then, id) where gate is not null;
create index waiting_parked on {schema}.waiting (queue, due_then) where due_at = 'infinity' and gate <> 'parents';

-- Claimed jobs under a lease.
create table {schema}.running (
  id                  uuid primary key,
  epoch               bigint not null unique,
  worker              text not null,
  org_id              text not null,
  task                text not null,
  queue               text not null,
  priority            smallint not null,
  due_at              timestamptz not null,
  attempt             smallint not null,
  crashes             smallint not null,
  snoozes             smallint not null,
  suspect             boolean not null,
  strand              text,
  linked              boolean not null default false,  -- or it holds a slot of a limit
  started_at          timestamptz not null,
  lease_expires_at    timestamptz not null,
  cancel_requested_at timestamptz
) with (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

create index running_lease on {schema}.running (lease_expires_at);
create index running_cancel on {schema}.running (worker) where cancel_requested_at is not null;

-- Finished jobs. Insert-only; a trigger lets a row go only by replay, reset and prune.
create table {schema}.finished (
  id          uuid primary key,
  org_id      text not null,
  state       text not null check (state in ('succeeded', 'failed', 'dead', 'cancelled')),
  attempt     smallint not null,
  crashes     smallint not null default 0,
  snoozes     smallint not null default 0,
  worker      text,
  epoch       bigint,
  started_at  timestamptz,
  finished_at timestamptz not null,
  error       jsonb,
  result      jsonb
);

create index finished_open on {schema}.finished (state, finished_at) where state <> 'succeeded';
create index finished_age on {schema}.finished using brin (finished_at) with (autosummarize = on);

-- One row per unsuccessful attempt; a successful one is evident from `finished`.
create table {schema}.attempt (
  org_id     text not null,
  job_id     uuid not null,
  epoch      bigint not null,
  attempt    smallint not null,
  worker     text not null,
  started_at timestamptz not null,
  ended_at   timestamptz not null,
  outcome    text not null check (outcome in ('retried', 'failed', 'dead', 'cancelled', 'rescued', 'succeeded')),
  error      jsonb,
  primary key (org_id, job_id, epoch)
);

-- What failed of late, for people who watch. Cheap: only failures are written here.
create index attempt_ended on {schema}.attempt (ended_at);

-- Keys outlive their jobs. Status, expiry and references are written when the job is pruned; until then they are read
-- through the job (view `keys`), so that the hot path pays nothing.
create table {schema}.idempotency (
  org_id        text not null,
  key           text not null,
  fingerprint   bytea not null,
  job_id        uuid not null,
  ttl           interval,
  first_seen_at timestamptz not null,
  last_seen_at  timestamptz not null,
  status        text check (status in ('pending', 'running', 'succeeded', 'failed', 'dead')),
  expires_at    timestamptz,
  result_ref    text,
  error_ref     text,
  primary key (org_id, key)
);

create index idempotency_expiry on {schema}.idempotency (expires_at) where expires_at is not null;

-- Append-only. Events that the tickets already prove (enqueued, started, succeeded) are shown by a view instead; where
-- such a ticket goes without a trace, its event is copied here first. Ids and epochs are of one sequence, so that the
-- starts and the stored events of a job have one order, whatever its clock does. A transaction has its number before it
-- draws an id: the seal rests on that.
create table {schema}.audit (
  org_id         text not null,
  id             bigint not null default case when pg_current_xact_id() is not null then nextval('{schema}.epoch') end,
  at             timestamptz not null,
  event          text not null,
  job_id         uuid,
  task           text,
  attempt        smallint,
  project_id     uuid,
  actor_type     text not null,
  actor_id       text not null,
  request_id     text not null default gen_random_uuid()::text,
  correlation_id text not null default gen_random_uuid()::text,
  subject        text check (length(subject) between 1 and 200),  -- what it is about, such as 'booking 17'
  detail         jsonb not null default '{}',
  epoch          bigint,  -- of the start that was copied here
  primary key (org_id, id),
  -- What no client can read would hide everything that is listed beside it.
  constraint detail check (not jsonb_path_exists(detail, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")'))
);

create index audit_id on {schema}.audit (id);
create index audit_job on {schema}.audit (job_id) where job_id is not null;
create index audit_subject on {schema}.audit (subject, org_id, id) where subject is not null;

-- Lanes. A queue works without a row here; a row pauses it, names its target or lists it. These are the engine's own;
-- those of applications come when their workers start.
create table {schema}.queue (
  org_id       text not null default 'SYSTEM',
  name         text not null,
  paused_at    timestamptz,
  paused_by    text,
  pause_reason text,
  start_target interval,  -- how late a job may start, at the 95th percentile
  app          text,      -- whose code declares it; null: nobody's
  max_depth    integer,   -- best-effort jobs are refused while so many are ready
  primary key (org_id, name)
);

insert into {schema}.queue (name, start_target) values
  ('q:critical', '5 s'), ('q:default', '30 s'), ('q:notifications', '60 s'), ('q:maintenance', '15 min'),
  ('q:deadletter', null);

-- Worker processes and their heartbeat.
create table {schema}.worker (
  org_id      text not null default 'SYSTEM',
  id          text not null,
  host        text not null,
  pid         integer not null,
  version     text not null,
  queues      text[] not null,
  tasks       text[] not null default '{}',
  concurrency integer not null,
  started_at  timestamptz not null,
  seen_at     timestamptz not null,
  running     integer not null default 0,
  stopping    boolean not null default false,
  watched     boolean not null default false,  -- it runs jobs alone, and who started it takes this row away when it dies
  primary key (org_id, id)
) with (fillfactor = 50);

-- A parsed job: the wire format of mainspring.job.NewJob with every default filled in.
create type {schema}.envelope as (
  id uuid, org_id text, task text, queue text, priority smallint, max_attempts smallint, cancellable boolean,
  payload jsonb, project_id uuid, actor_type text, actor_id text, request_id text, correlation_id text, parent_id uuid,
  traceparent text, key text, strand text, created_at timestamptz, scheduled_for timestamptz, due_at timestamptz,
  mode text, ttl interval, reset boolean, unless_live boolean, ord bigint
);

-- Long jobs: what an attempt remembers for the next one, and how far it is.
--
-- Tables of their own, keyed by the job: a job that uses none of this touches none of it. What is kept is `json`, not
-- `jsonb`, so that the next attempt reads the very text that this one wrote: the same numbers, fields in the same order.

-- A part of a job that is done and need not be done again.
create table {schema}.step (
  org_id  text not null,
  job_id  uuid not null,
  name    text not null,
  result  json not null,
  epoch   bigint not null,
  worker  text not null,
  done_at timestamptz not null,
  primary key (org_id, job_id, name)
);

-- Where a job goes on: the last value that an attempt saved.
create table {schema}.checkpoint (
  org_id   text not null,
  job_id   uuid not null,
  value    json not null,
  epoch    bigint not null,
  worker   text not null,
  saved_at timestamptz not null,
  primary key (org_id, job_id)
);

-- How far a job is, for people who watch. Rewritten in place while it runs, hence the room in each page.
create table {schema}.progress (
  org_id      text not null,
  job_id      uuid not null,
  done        double precision not null,
  total       double precision,
  note        text,
  epoch       bigint not null,
  serial      bigint not null,  -- of the report within its attempt: two on their way at once do not change places
  reported_at timestamptz not null,
  primary key (org_id, job_id)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

-- Dead letters: failed and dead jobs that nobody has decided about, and what people decided about the others.
--
-- `finished` stays insert-only and the hot path pays nothing: a decision is a row here, groups and hashes are computed
-- when somebody looks (docs/adr/0013).

-- What was decided about a failed or dead job that was not replayed; none: it is an open dead letter.
create table {schema}.resolution (
  org_id     text not null,
  job_id     uuid not null,
  resolution text not null check (resolution in ('discarded', 'fixed_forward')),
  at         timestamptz not null,
  actor_type text not null,
  actor_id   text not null,
  reason     text not null,
  successor  uuid,  -- the job with the corrected payload
  primary key (org_id, job_id),
  check ((resolution = 'fixed_forward') = (successor is not null))
);

create unique index resolution_successor on {schema}.resolution (org_id, successor) where successor is not null;

-- The seal: a hash chain per organisation over the audit trail, made after the fact so that the hot path pays nothing.
--
-- A row is sealed once every transaction that was under way beside its own has ended (the snapshot's xmin has passed it),
-- so nobody waits and no row is skipped: one that commits late goes into a later seal. A seal names the rows it covers,
-- keeps the digest of each, and hashes both together with the seal before it (docs/adr/0015).

create table {schema}.seal (
  org_id    text not null,
  number    bigint not null check (number >= 1),
  ids       bigint[] not null check (cardinality(ids) >= 1),  -- the rows of `audit` that it covers, in order
  digests   bytea not null,   -- theirs, 32 bytes each, in the same order: they name a row that was changed
  last_id   bigint not null,  -- the highest id that this seal or one before it covers
  floor     bigint not null,  -- every row of the organisation up to this id is sealed, and none can come any more
  tx        xid8 not null,    -- the transaction that made it
  sealed_at timestamptz not null,
  previous  bytea,            -- the hash of the seal before
  hash      bytea not null,
  primary key (org_id, number),
  check (octet_length(digests) = 32 * cardinality(ids)),
  check ((number = 1) = (previous is null))
);

create index seal_last on {schema}.seal (org_id, last_id);

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
