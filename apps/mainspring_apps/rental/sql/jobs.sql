-- The jobs of bookings.

-- name: note_round
-- The same job may be asked for again: it is of one round, and what failed may be another row then.
insert into rental.rounds (booking_id, type, round, job_id) values (%(booking_id)s, %(type)s, %(round)s, %(job_id)s)
on conflict (booking_id, type, round) do update set job_id = excluded.job_id

-- name: latest_round
-- By primary key.
select coalesce(max(round), 0) from rental.rounds where booking_id = %(booking_id)s and type = %(type)s

-- name: round_state
-- Where the job of the latest round stands.
select j.state from rental.rounds r join {schema}.jobs j on j.id = r.job_id
where r.booking_id = %(booking_id)s and r.type = %(type)s order by r.round desc limit 1

-- name: pending_jobs
select * from rental.booking_jobs where status = 'pending' order by created_at, id limit %(limit)s

-- name: failed_jobs
select * from rental.booking_jobs where status = 'failed' order by created_at desc, id limit %(limit)s

-- name: jobs_of_booking
-- By the primary key of rounds.
select * from rental.booking_jobs where booking_id = %(booking_id)s order by created_at, id

-- name: failed_job
-- The latest round of one type, if it failed. By the primary key of rounds.
select j.id from rental.booking_jobs j
where j.booking_id = %(booking_id)s and j.type = %(type)s and j.status = 'failed'

-- name: not_invoiced
-- Bookings whose last look at invoicing found it off; index rounds_pkey.
select j.booking_id from rental.booking_jobs j
where j.type = 'issue_invoice' and j.status = 'completed' and j.result ->> 'skipped' = 'INVOICING_DISABLED'
order by j.created_at, j.booking_id limit %(limit)s

-- name: latest_mail_job
-- When the mail with the invoice was asked for last.
select j.created_at from rental.booking_jobs j where j.booking_id = %(booking_id)s and j.type = 'send_invoice_ready'

-- name: passing_failures
-- Of each type the latest round, where it failed for one of these reasons; the oldest first. Every minute; walks the
-- open dead letters of bookings.
select j.booking_id, j.type, j.round, j.id, r.healed, j.processed_at
from {schema}.dead_letters d
join rental.rounds r on r.job_id = d.id
join rental.booking_jobs j on j.id = d.id
where d.code = any(%(codes)s) and j.status = 'failed'
order by j.created_at, j.booking_id, j.type

-- name: note_healing
update rental.rounds set healed = healed + 1
where booking_id = %(booking_id)s and type = %(type)s and round = %(round)s
