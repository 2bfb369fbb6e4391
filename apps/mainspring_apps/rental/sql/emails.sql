-- Mails: reserved, then sent, skipped or failed.

-- name: reserve_mail
-- Wins for one job of a kind and round, however often that is tried; no row: another has it, or it has been sent.
insert into rental.emails as e (booking_id, kind, round, job_id, provider_key)
values (%(booking_id)s, %(kind)s, %(round)s, %(job_id)s, %(key)s)
on conflict (booking_id, kind, round) do update set state = 'reserved', job_id = excluded.job_id
  where e.state in ('skipped', 'failed') or (e.state = 'reserved' and e.job_id = excluded.job_id)
returning provider_key

-- name: skip_mail
insert into rental.emails as e (booking_id, kind, round, state, job_id, provider_key)
values (%(booking_id)s, %(kind)s, %(round)s, 'skipped', %(job_id)s, %(key)s)
on conflict (booking_id, kind, round) do update set state = 'skipped' where e.state <> 'sent'

-- name: end_mail
update rental.emails set state = %(state)s, provider_id = %(provider_id)s
where booking_id = %(booking_id)s and kind = %(kind)s and round = %(round)s and state = 'reserved'

-- name: skipped_mails
-- Of each booking and kind the latest round, where it was left out in a dry run.
select e.booking_id, e.kind from rental.emails e
where e.state = 'skipped' and e.kind in ('confirmation', 'internal', 'invoice') and not exists (select from rental.emails later
  where later.booking_id = e.booking_id and later.kind = e.kind and later.round > e.round)
order by e.reserved_at, e.booking_id, e.kind limit %(limit)s
