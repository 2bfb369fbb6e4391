-- Batches and flows: jobs that are counted together, and jobs that wait for others.
--
-- Nothing is summed up (docs/adr/0020): the end of a job is written to rows of its own, in `member` and `dependency`, and
-- whoever writes it then asks by one index probe whether it was the last. Two last ones that end in two transactions
-- cannot see each other; so the question is asked under the lock of the batch, or of the ticket that waits. A worker
-- waits for nobody there: where somebody else has the lock, it leaves a leftover, and the next sweep asks again.

-- Jobs that are counted together. Its on-finish job is written with it and held until every member has ended.
create table {schema}.batch (
  org_id      text not null,
  id          uuid not null,
  name        text not null,
  on_failure  text not null check (on_failure in ('keep_going', 'stop')),
  on_finish   uuid,
  created_at  timestamptz not null,
  closed_at   timestamptz,  -- null: more will be added, so it does not finish
  stopped_at  timestamptz,  -- what has not started is cancelled
  stop_reason text,
  finished_at timestamptz,
  primary key (org_id, id)
);

create index batch_id on {schema}.batch (id);
create index batch_on_finish on {schema}.batch (on_finish) where on_finish is not null;
create index batch_age on {schema}.batch (finished_at) where finished_at is not null;

-- A job of a batch, and how it ended. It outlives the job.
create table {schema}.member (
  org_id   text not null,
  batch_id uuid not null,
  job_id   uuid not null,
  state    text check (state in ('succeeded', 'failed', 'dead', 'cancelled')),
  primary key (org_id, batch_id, job_id)
);

create index member_job on {schema}.member (job_id);
create index member_open on {schema}.member (org_id, batch_id, job_id) where state is null;
create index member_failed on {schema}.member (org_id, batch_id, job_id) where state in ('failed', 'dead');

-- A job waits for another. `met`: this one holds it no longer. A parent that failed or died holds its child until
-- somebody decides: replayed it may still succeed, discarded or cancelled it takes the child with it.
create table {schema}.dependency (
  org_id text not null,
  child  uuid not null,
  parent uuid not null,
  place  integer not null,                -- among the parents
  anyway boolean not null default false,  -- the child runs however this one ends
  state  text check (state in ('succeeded', 'failed', 'dead', 'cancelled', 'discarded')),
  met    boolean not null generated always as (coalesce(state = 'succeeded' or (anyway and state is not null), false)) stored,
  primary key (org_id, child, parent)
);

create index dependency_parent on {schema}.dependency (parent);
create index dependency_open on {schema}.dependency (org_id, child) where not met;

-- What a sweep has to look at: a job that something waits for and that may end unseen, or a ticket or a batch that was
-- locked by somebody else when its last job ended. Nearly always empty.
create table {schema}.leftover (
  org_id text not null,
  id     bigint not null default nextval('{schema}.epoch'),
  kind   text not null check (kind in ('job', 'child', 'batch')),
  what   uuid not null,
  primary key (org_id, id)
);

create index leftover_age on {schema}.leftover (id);
