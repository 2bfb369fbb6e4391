-- The one query for workers: the main search and every alert ask it, so that what is found is found by all (STAFF-7.17).

-- Whether nothing that was booked keeps a worker busy between two instants, as the tables say right now.
create or replace function staffing.free(worker_id bigint, starts timestamptz, ends timestamptz) returns boolean language sql stable as $$
  select not exists (
    select from staffing.time_log t
    where t.worker_id = free.worker_id and t.status <> 'Cancelled' and t.scheduled_start_time < free.ends
      and coalesce(t.scheduled_end_time, t.scheduled_start_time + t.planned_minutes * interval '1 minute') > free.starts)
$$;

-- Listed workers of a trade and a place, listed in a span of time, and free in another; null asks for anything.
create or replace function staffing.search_workers(
  trade text, zip_code text, starts timestamptz, ends timestamptz,
  listed_from timestamptz, listed_until timestamptz, worker_id bigint
) returns setof staffing.workers language sql stable as $$
  select w.* from staffing.workers w
  where w.state = 'Listed'
    and (search_workers.worker_id is null or w.id = search_workers.worker_id)
    and (search_workers.listed_from is null or w.listed_at >= search_workers.listed_from)
    and (search_workers.listed_until is null or w.listed_at < search_workers.listed_until)
    and (search_workers.trade is null or w.trade = search_workers.trade)
    and (search_workers.zip_code is null or w.zip_code = search_workers.zip_code)
    and (search_workers.starts is null or staffing.free(w.id, search_workers.starts, search_workers.ends))
$$;
