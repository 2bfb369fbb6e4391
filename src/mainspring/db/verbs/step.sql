-- Long jobs: what an attempt remembers for the next one, and how far it is.

-- The fence of what a worker writes while its job runs: the running row, held until the transaction ends, so that no
-- rescue gives the job away meanwhile. A key-share lock lets renewals pass. Index: running_epoch_key.
create or replace function {schema}.held(p_worker text, p_epoch bigint) returns {schema}.running language plpgsql
  set enable_seqscan = off
as $$
declare
  r {schema}.running;
begin
  select * into r from {schema}.running x where x.epoch = p_epoch and x.worker = p_worker for key share;
  if not found then
    raise exception 'the lease of epoch % is lost', p_epoch using errcode = 'MS005';
  end if;
  return r;
end $$;

-- Who: a handler, after each step. Answers whether the job's cancellation was asked for, so that the next step does not
-- start. Sent again after a lost connection it changes nothing.
create or replace function {schema}.remember(p_worker text, p_epoch bigint, p_name text, p_result json) returns boolean
language plpgsql as $$
declare
  r constant {schema}.running := {schema}.held(p_worker, p_epoch);
begin
  insert into {schema}.step (org_id, job_id, name, result, epoch, worker, done_at)
  values (r.org_id, r.id, p_name, p_result, r.epoch, r.worker, {schema}.now())
  on conflict do nothing;
  return r.cancel_requested_at is not null;
end $$;

-- Who: a handler, after each chunk of its work. Answers like `remember`.
create or replace function {schema}.save_checkpoint(p_worker text, p_epoch bigint, p_value json) returns boolean language plpgsql as $$
declare
  r constant {schema}.running := {schema}.held(p_worker, p_epoch);
begin
  insert into {schema}.checkpoint (org_id, job_id, value, epoch, worker, saved_at)
  values (r.org_id, r.id, p_value, r.epoch, r.worker, {schema}.now())
  on conflict (org_id, job_id) do update
  set value = excluded.value, epoch = excluded.epoch, worker = excluded.worker, saved_at = excluded.saved_at;
  return r.cancel_requested_at is not null;
end $$;

-- Who: each worker, twice a second while its jobs report, for all of them in one statement; synchronous_commit may be
-- off. p_reports: [{epoch, serial, done, total, note}]. Jobs that are no longer the worker's are left out.
create or replace function {schema}.report(p_worker text, p_reports json) returns void language sql set enable_seqscan = off as $$
  insert into {schema}.progress (org_id, job_id, done, total, note, epoch, serial, reported_at)
  select r.org_id, r.id, x.done, x.total, x.note, r.epoch, x.serial, {schema}.now()
  from json_to_recordset(p_reports)
       as x (epoch bigint, serial bigint, done double precision, total double precision, note text)
  join {schema}.running r on r.epoch = x.epoch and r.worker = p_worker
  on conflict (org_id, job_id) do update
  set done = excluded.done, total = excluded.total, note = excluded.note, epoch = excluded.epoch,
      serial = excluded.serial, reported_at = excluded.reported_at
  where ({schema}.progress.epoch, {schema}.progress.serial) < (excluded.epoch, excluded.serial)
$$;

-- Who: whatever gives a job another payload than the one its steps were done for, and prune.
create or replace function {schema}.forget(p_ids uuid[]) returns void language sql as $$
  delete from {schema}.step s using {schema}.job j where j.id = any(p_ids) and s.org_id = j.org_id and s.job_id = j.id;
  delete from {schema}.checkpoint c using {schema}.job j where j.id = any(p_ids) and c.org_id = j.org_id and c.job_id = j.id;
  delete from {schema}.progress p using {schema}.job j where j.id = any(p_ids) and p.org_id = j.org_id and p.job_id = j.id
$$;
