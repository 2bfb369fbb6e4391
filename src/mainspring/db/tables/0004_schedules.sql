-- Schedules and their fires: jobs that nobody asks for in the moment.
--
-- No leader (docs/adr/0017). Whoever finds a schedule due locks where it stands, writes the fire, its job and the next
-- instant in one transaction, and goes on; the others pass it by. What is due is computed in Python from the row's own
-- `after` and the database's clock, so that any number of schedulers, crashes and clocks give one fire an instant.

-- What fires, and when: the definition. It changes whole, under its row lock, which every fire shares.
create table {schema}.schedule (
  org_id        text not null,
  name          text not null,
  rule          jsonb not null,                    -- as mainspring.when.rule writes it
  description   text not null,                     -- the rule in words
  zone          text not null,                     -- of the rule
  task          text not null,
  job           jsonb not null,                    -- the envelope of its jobs; key and strand are still templates
  fill          text[] not null default '{}',      -- the payload fields that a fire fills in: zone, instant
  catch_up      text not null default 'latest' check (catch_up in ('skip', 'latest', 'all')),
  within        interval,                          -- an instant that is later than this is missed
  most          integer check (most between 1 and 1000),  -- of those that are caught up
  running       text not null default 'allow' check (running in ('allow', 'skip')),
  jitter        interval not null default '0',
  by_zone       boolean not null default false,    -- fires in each zone that its code names
  by_entity     boolean not null default false,    -- a fire makes a job for each entity that its code names
  page          integer not null default 100 check (page between 1 and 1000),
  spread        interval not null default '0',
  declared_by   text,                              -- the registry whose code says so; null: created at run time
  undeclared_at timestamptz,                       -- since when that code no longer says so
  zones_at      timestamptz,                       -- when its zones were last asked for
  paused_at     timestamptz,
  paused_by     text,
  pause_reason  text,
  created_at    timestamptz not null,
  changed_at    timestamptz not null,
  primary key (org_id, name),
  check (jsonb_typeof(job) = 'object' and jsonb_typeof(job -> 'payload') = 'object'),
  check (fill <@ '{zone,instant}')
);

-- Where a schedule stands: one narrow row that moves, or one a zone. `after` never goes back.
create table {schema}.schedule_zone (
  org_id   text not null,
  schedule text not null,
  zone     text not null default '',  -- '': the rule's own
  declared boolean not null,          -- by code: fired only by processes whose code does
  after    timestamptz not null,      -- every instant up to here is dealt with
  next_at  timestamptz,               -- when to look again; null: paused, or nothing follows
  local    timestamp,                 -- what the zone's clock showed at the last instant
  tzdata   text,                      -- the version of the zone data that said so
  job_id   uuid,                      -- of the last fire
  problem  text,                      -- why the last look failed
  primary key (org_id, schedule, zone)
) with (fillfactor = 50, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_scale_factor = 0);

create index schedule_zone_next on {schema}.schedule_zone (next_at) where next_at is not null;

-- One row an instant, written once. A row of several missed instants stands at the last of them.
create table {schema}.fire (
  org_id   text not null,
  id       uuid not null,
  schedule text not null,
  zone     text not null,
  instant  timestamptz not null,
  local    text not null,             -- what the zone's clock showed
  how      text not null check (how in ('fired', 'skipped', 'missed', 'run_now')),
  reason   text,
  instants integer not null default 1,
  job_id   uuid,                      -- null: none was made, or one for each entity
  at       timestamptz not null,
  primary key (org_id, id)
);

create unique index fire_once on {schema}.fire (org_id, schedule, zone, instant) where how <> 'run_now';
create index fire_at on {schema}.fire (org_id, schedule, at);

-- How far the jobs of a fire over many entities are made: a cursor that moves with each page, in its transaction.
create table {schema}.fan_out (
  org_id      text not null,
  fire_id     uuid not null,
  schedule    text not null,
  zone        text not null,
  instant     timestamptz not null,
  begun_at    timestamptz not null,
  after       jsonb,                  -- the key of the last entity; null: none yet
  mark        jsonb,                  -- the same when there were half as many: should it come again, they go in circles
  jobs        integer not null default 0,
  refused     integer not null default 0,
  by_hand     boolean not null default false,  -- run now: a pause does not hold it
  problem     text,                   -- the last one
  look_at     timestamptz not null,   -- when to go on: later after a failure
  finished_at timestamptz,
  primary key (org_id, fire_id)
);

create index fan_out_open on {schema}.fan_out (look_at) where finished_at is null;
