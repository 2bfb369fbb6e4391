-- What the tables refuse, whoever writes.

-- A status follows another only as `transitions` says (STAFF-19.10).
create or replace function staffing.check_transition() returns trigger language plpgsql as $$
begin
  if not exists (select from staffing.transitions t
                 where t.entity = tg_table_name and t.before = old.status and t.after = new.status) then
    raise exception 'status: % % cannot go from % to %', tg_table_name, old.id, old.status, new.status
      using errcode = 'check_violation';
  end if;
  return new;
end $$;

create or replace trigger transition before update of status on staffing.bookings
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create or replace trigger transition before update of status on staffing.time_log
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create or replace trigger transition before update of status on staffing.disputes
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create or replace trigger transition before update of status on staffing.incident_reports
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create or replace trigger transition before update of status on staffing.pending_payments
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create or replace trigger transition before update of status on staffing.escrow_holds
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create or replace trigger transition before update of status on staffing.transfers
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create or replace trigger transition before update of status on staffing.refunds
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create or replace trigger transition before update of status on staffing.reversals
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create or replace trigger transition before update of status on staffing.chargebacks
  for each row when (old.status <> new.status) execute function staffing.check_transition();

-- No transaction commits in which the money of a booking does not add up: charged = held + frozen + released + refunded
-- + charged back.
create or replace function staffing.check_even() returns trigger language plpgsql as $$
declare
  charged bigint;
  standing bigint;
begin
  select coalesce(sum(p.amount_minor), 0) into charged from staffing.pending_payments p
  where p.booking_id = new.booking_id and p.received_at is not null;
  select coalesce(sum(h.amount_minor), 0) into standing from staffing.escrow_holds h where h.booking_id = new.booking_id;
  if charged <> standing then
    raise exception 'money: booking % was charged %, and % stands in escrow', new.booking_id, charged, standing
      using errcode = 'check_violation';
  end if;
  return null;
end $$;

create constraint trigger even after insert or update of received_at, amount_minor on staffing.pending_payments
  deferrable initially deferred for each row execute function staffing.check_even();
create constraint trigger even after insert or update of amount_minor on staffing.escrow_holds
  deferrable initially deferred for each row execute function staffing.check_even();
