-- A Monday at Acme, 2026-06-01: what runs, what is over, and what is paid for ahead.

insert into acme.customers values
  ('hudson', 'Hudson Builders', 'cus_hudson', 'pm_card_visa', '2027-05-31'),
  ('bronx', 'Bronx Works', 'cus_bronx', 'pm_card_visa', '2027-05-31');

insert into acme.people values
  (1, 'hudson', 'boss', 'Hanna Hudson', 'hanna@hudson.example'), (2, 'hudson', 'foreman', 'Fred Hudson', null),
  (3, 'bronx', 'boss', 'Bea Bronx', 'bea@bronx.example'),
  (10, 'acme', 'boss', 'Ada Acme', 'ada@acme.example'), (11, 'acme', 'hand', 'Walt', 'walt@acme.example'),
  (12, 'acme', 'hand', 'Wilma', 'wilma@acme.example'), (13, 'acme', 'hand', 'Will', 'will@acme.example');

insert into acme.sites values
  (100, 'hudson', '1 River Road', 'America/New_York'), (200, 'bronx', '2 Zoo Lane', 'America/New_York');

-- A-1 is charged until Sunday 7 June through Stripe, A-2 by invoice; A-0 is over.
insert into acme.assignments values
  ('A-0', 100, 11, 2, 'over', '2026-05-04', '2026-05-29', 28.00, '2026-05-31'),
  ('A-1', 100, 11, 2, 'running', '2026-05-25', '2026-06-26', 30.00, '2026-06-07'),
  ('A-2', 200, 12, null, 'running', '2026-05-25', '2026-06-26', 27.50, '2026-06-07');

insert into acme.turns values
  (1, 'A-0', '2026-05-29 08:00', '2026-05-29 16:00', 'done', 'pi_old', 'ch_old'),
  (2, 'A-1', '2026-05-29 08:00', '2026-05-29 16:00', 'done', 'pi_past', 'ch_past'),
  (3, 'A-1', '2026-06-02 08:00', '2026-06-02 16:00', 'planned', 'pi_june', 'ch_june'),
  (4, 'A-1', '2026-06-03 08:00', '2026-06-03 16:30', 'planned', 'pi_june', 'ch_june'),
  (5, 'A-1', '2026-06-08 08:00', '2026-06-08 16:00', 'planned', null, null),
  (6, 'A-1', '2026-06-09 22:00', '2026-06-10 06:00', 'planned', null, null);
insert into acme.turns values
  (7, 'A-2', '2026-06-04 09:00', '2026-06-04 17:00', 'planned', null, null, true),
  (8, 'A-2', '2026-06-11 09:00', '2026-06-11 17:00', 'planned', null, null, false);
