-- What the tables refuse, whoever writes.

-- A status follows another only as `transitions` says.
create or replace function rental.check_transition() returns trigger language plpgsql as $$
begin
  if not exists (select from rental.transitions t
                 where t.entity = tg_table_name and t.before = old.status and t.after = new.status) then
    raise exception 'status: % % cannot go from % to %', tg_table_name, old.id, old.status, new.status
      using errcode = 'check_violation';
  end if;
  return new;
end $$;

create or replace trigger transition before update of status on rental.bookings
  for each row when (old.status <> new.status) execute function rental.check_transition();

-- A booking with a job that has not ended is not deleted (RENT-1.07); its audit is never deleted.
create or replace function rental.check_delete() returns trigger language plpgsql as $$
begin
  if exists (select from rental.booking_jobs j where j.booking_id = old.id and j.status in ('pending', 'processing')) then
    raise exception 'booking %: has jobs that have not ended', old.id using errcode = 'restrict_violation';
  end if;
  return old;
end $$;

create or replace trigger kept before delete on rental.bookings
  for each row execute function rental.check_delete();

-- An issued document never changes.
create or replace function rental.check_issued() returns trigger language plpgsql as $$
begin
  raise exception 'invoice %: is issued, and never changes', old.number using errcode = 'restrict_violation';
end $$;

create or replace trigger issued before update or delete on rental.invoices
  for each row when (old.state = 'issued') execute function rental.check_issued();
