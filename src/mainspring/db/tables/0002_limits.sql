-- What keeps jobs from starting: limits, turns between organisations, breakers, quarantine.

-- A rule. By whom it counts: 'all' together, each 'org', or each 'strand' (of an organisation).
create table {schema}.limit (
  org_id      text not null default 'SYSTEM',
  name        text not null,
  queue       text,
  task        text,
  by          text not null default 'all' check (by in ('all', 'org', 'strand')),
  rate        integer check (rate between 1 and 1000000),
  per         interval check (per between interval '100 ms' and interval '1 day'),
  concurrency integer check (concurrency between 1 and 1000000),
  in_order    boolean not null default false,  -- the next of a strand starts when the one before it has finished
  declared    boolean not null default false,  -- by the code; else by somebody at run time, who wins
  app         text,                            -- whose code declares it
  code        jsonb,                           -- what the code says, where somebody has said otherwise
  counted     boolean not null default true,   -- false: what ran when it was set has no slots yet, see count_in
  set_at      timestamptz not null,
  set_by      text not null,
  primary key (org_id, name),
  constraint target check (num_nonnulls(queue, task) = 1),
  constraint rate_per check ((rate is null) = (per is null)),
  constraint what check (num_nonnulls(rate, concurrency) = 1),
  constraint in_order check (not in_order or (by = 'strand' and concurrency = 1))
);

-- What a rule has counted for one key: its gate is `name/`, `name/org` or `name/org/strand`. Locked while a claim asks.
-- The log of a rate, for claims that hold no share: so many were let in at these instants; those less than a hundredth of a
-- window apart stand as one, at the later. `next_at`: when the next job that a rate puts off may expect to start, for each
-- priority; first those that it puts off for the first time, then those that come back too early.
create table {schema}.bucket (
  org_id  text not null default 'SYSTEM',
  gate    text not null,
  name    text not null,  -- of the limit
  at      timestamptz[] not null default '{}',
  count   integer[] not null default '{}',
  next_at timestamptz[] not null default array_fill(timestamptz '-infinity', array[8]),
  used_at timestamptz not null,
  primary key (org_id, gate)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

-- A worker's part of a rate: until then it may enter n handlers in any window, which it counts by its own clock, so that no
-- round trip is lost. What all workers may enter, and what was entered within the last window, is never more than the rate.
-- A share is raised by a claim, under the lock of the gate; it is lowered by its worker only, who says so afterwards.
create table {schema}.share (
  org_id   text not null default 'SYSTEM',
  gate     text not null,
  worker   text not null,
  name     text not null,               -- of the limit
  n        integer not null default 0,
  version  bigint not null default 0,   -- of n, never used twice, also if the row comes again: what was said about an older one does not count
  until    timestamptz not null,
  hold     integer not null default 0,  -- so many jobs that have not been entered the worker wants to have
  let_in   bigint not null default 0,   -- jobs, in all; those of them that it has entered, and given back
  entered  bigint not null default 0,
  returned bigint not null default 0,
  at       timestamptz[] not null default '{}',  -- when it entered those of the last window, as it said
  count    integer[] not null default '{}',
  short_at timestamptz not null default '-infinity',  -- when it last could have used more
  late_at  timestamptz,                 -- since when it gives back what it was let have, and enters nothing
  primary key (org_id, gate, worker)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 100, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

create index share_worker on {schema}.share (worker);

-- A place that a job holds under a limit of concurrency: while it runs, and in order until it has finished. Counted, never
-- summed up: so it cannot leak.
create table {schema}.slot (
  org_id   text not null default 'SYSTEM',
  gate     text not null,
  job_id   uuid not null,
  in_order boolean not null,
  primary key (org_id, gate, job_id)
) with (autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_cost_delay = 0);

create index slot_job on {schema}.slot (job_id);

-- Queues whose organisations take turns, and the weight of those that count for more than 1: {org: weight}.
create table {schema}.fair (
  org_id   text not null default 'SYSTEM',
  queue    text not null,
  weights  jsonb not null default '{}',
  cursor   text not null default '',  -- the organisation where the last claim stopped
  declared boolean not null default false,
  app      text,
  set_at   timestamptz not null,
  set_by   text not null,
  primary key (org_id, queue)
) with (fillfactor = 50);

-- Circuit breakers: whether something outside that jobs need is called at all.
--
-- A dependency has one row, of SYSTEM and with the key '', which says what was declared. A key of it, such as one endpoint
-- of the dependency `webhook`, has a row while it is in trouble, of the organisation whose job named it: nobody opens the
-- breaker of another. Calls that succeed are not written unless a rate is asked for, and then only beside failures: a
-- dependency that works costs nothing.

create table {schema}.breaker (
  org_id        text not null default 'SYSTEM',
  name          text not null,
  key           text not null default '',
  failures      integer check (failures between 1 and 100000),  -- so many open it, or
  rate          real check (rate > 0 and rate <= 1),            -- this part of the calls,
  calls         integer check (calls between 1 and 100000),     -- if there were so many,
  within        interval not null check (within > '0'),         -- in a window of this length
  pause         interval not null check (pause > '0'),          -- how long it stays open, doubled by each probe that fails
  longest       interval not null,                              -- up to this
  probes        smallint not null check (probes between 1 and 1000),
  failing_for   interval check (failing_for > '0'),             -- or so long after the first failure of an unbroken row
  state         text not null default 'closed' check (state in ('closed', 'open')),
  since         timestamptz,                                    -- of the state; null: it never changed
  until         timestamptz,                                    -- while open: before then no call, after it probes
  opened        integer not null default 0,                     -- how often in a row, with no success between
  probing       bigint[] not null default '{}',                 -- epochs of the jobs that were let through
  called        smallint not null default 0,                    -- how many were released to ask for a probe, and have not
  called_at     timestamptz,                                    -- asked since then
  at            timestamptz[] not null default '{}',            -- the window: when, how many failed, how many succeeded
  failed        integer[] not null default '{}',
  succeeded     integer[] not null default '{}',
  failing_since timestamptz,                                    -- the first failure since the last success, while closed
  used_at       timestamptz not null,
  forced        text check (forced in ('open', 'closed')),      -- by a person, whatever the state
  forced_at     timestamptz,
  forced_by     text,
  forced_reason text,
  primary key (org_id, name, key),
  check ((failures is null) = (rate is not null) and (rate is null) = (calls is null)),
  check ((state = 'open') = (until is not null)),
  check ((forced is null) = (forced_at is null)),
  check (longest >= pause)
) with (fillfactor = 50);

-- Jobs that run alone, and tasks that are held back because they kill workers (docs/adr/0032).
--
-- A job that may have crashed two workers runs alone in its process, so that its next crash is its own. A task whose jobs
-- have killed several workers by themselves is in quarantine: its jobs wait, but for one a second at most, which runs
-- alone as a probe. A probe that succeeds lets the task go; so does a person.

-- A row counts the workers that a task has killed of late, and holds the task back once `held_at` is set.
create table {schema}.quarantine (
  org_id   text not null default 'SYSTEM',
  task     text not null,
  workers  text[] not null,
  last_at  timestamptz not null,
  held_at  timestamptz,
  probe_at timestamptz,  -- the next probe, no sooner
  primary key (org_id, task)
);
