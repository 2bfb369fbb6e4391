-- Which status may follow which, for everybody who writes: anything else raises, whoever asks (STAFF-19.10).

create table staffing.transitions (
  entity text not null,
  before text not null,
  after  text not null,
  primary key (entity, before, after)
);
insert into staffing.transitions values
  ('bookings', 'Active', 'Payment_Paused_Dispute'),
  ('bookings', 'Payment_Paused_Dispute', 'Active'),
  ('bookings', 'Active', 'Suspended_Insurance'),
  ('bookings', 'Payment_Paused_Dispute', 'Suspended_Insurance'),
  ('bookings', 'Disputed', 'Suspended_Insurance'),
  ('bookings', 'Completed', 'Suspended_Insurance'),
  ('bookings', 'Suspended_Insurance', 'Active'),
  ('bookings', 'Suspended_Insurance', 'Payment_Paused_Dispute'),
  ('bookings', 'Suspended_Insurance', 'Completed'),
  ('bookings', 'Active', 'Completed'),
  ('bookings', 'Active', 'Cancelled'),
  ('bookings', 'Payment_Paused_Dispute', 'Cancelled'),
  ('bookings', 'Suspended_Insurance', 'Cancelled'),
  ('bookings', 'Disputed', 'Cancelled'),
  ('time_log', 'Scheduled', 'Working'),
  ('time_log', 'Scheduled', 'Cancelled'),
  ('time_log', 'Working', 'Pending_Verification'),
  ('time_log', 'Pending_Verification', 'Verified'),
  ('time_log', 'Pending_Verification', 'Disputed'),
  ('time_log', 'Verified', 'Disputed'),  -- by SYSTEM, at the same instant only (G-36): its statement says so
  ('time_log', 'Disputed', 'Verified'),
  ('disputes', 'Open', 'Settled'),
  ('disputes', 'Open', 'Resolved'),
  ('disputes', 'Open', 'Legal_Hold'),
  ('disputes', 'Legal_Hold', 'Settled'),
  ('disputes', 'Legal_Hold', 'Resolved'),
  ('incident_reports', 'Pending', 'Closed'),
  ('pending_payments', 'Pending', 'Succeeded'),
  ('pending_payments', 'Pending', 'Failed'),
  ('pending_payments', 'Pending', 'Canceled'),
  ('pending_payments', 'Failed', 'Succeeded'),  -- the same intent, a late success
  ('escrow_holds', 'Held', 'Released'),
  ('escrow_holds', 'Held', 'Refunded'),
  ('escrow_holds', 'Held', 'Frozen'),
  ('escrow_holds', 'Frozen', 'Released'),
  ('escrow_holds', 'Frozen', 'Refunded'),
  ('transfers', 'Pending', 'Succeeded'),
  ('transfers', 'Pending', 'Failed'),
  ('transfers', 'Failed', 'Succeeded'),
  ('refunds', 'Pending', 'Succeeded'),
  ('refunds', 'Pending', 'Failed'),
  ('refunds', 'Failed', 'Succeeded');

create function staffing.check_transition() returns trigger language plpgsql as $$
begin
  if not exists (select from staffing.transitions t
                 where t.entity = tg_table_name and t.before = old.status and t.after = new.status) then
    raise exception 'status: % % cannot go from % to %', tg_table_name, old.id, old.status, new.status
      using errcode = 'check_violation';
  end if;
  return new;
end $$;

create trigger transition before update of status on staffing.bookings
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create trigger transition before update of status on staffing.time_log
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create trigger transition before update of status on staffing.disputes
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create trigger transition before update of status on staffing.incident_reports
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create trigger transition before update of status on staffing.pending_payments
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create trigger transition before update of status on staffing.escrow_holds
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create trigger transition before update of status on staffing.transfers
  for each row when (old.status <> new.status) execute function staffing.check_transition();
create trigger transition before update of status on staffing.refunds
  for each row when (old.status <> new.status) execute function staffing.check_transition();

-- No transaction commits in which the money of a booking does not add up: charged = held + frozen + released + refunded.
create function staffing.check_even() returns trigger language plpgsql as $$
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
