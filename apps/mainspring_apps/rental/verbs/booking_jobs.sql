-- Who: people and programs that look. The jobs of bookings in the words of the source (RENT-1.04), of each type the
-- latest round. Index: rounds_pkey, job_pkey.
create or replace view rental.booking_jobs with (security_invoker = true) as
select j.id, r.booking_id, r.type,
       case j.state
         when 'running' then 'processing'
         when 'succeeded' then 'completed'
         when 'failed' then 'failed' when 'dead' then 'failed' when 'cancelled' then 'failed'
         else 'pending'
       end as status,
       j.attempt as attempts, j.max_attempts,
       case when j.payload::jsonb ? 'stripe_payment_intent_id'
            then jsonb_build_object('stripePaymentIntentId', j.payload::jsonb -> 'stripe_payment_intent_id')
            else '{}'::jsonb end as payload,
       case
         when j.state = 'succeeded' then j.result::jsonb
         when j.error is null then null
         when j.finished_at is null then jsonb_build_object('error', j.error::jsonb ->> 'message', 'retriedAt', j.updated_at)
         else jsonb_build_object('error', j.error::jsonb ->> 'message', 'failedAt', j.finished_at)
       end as result,
       j.created_at, j.updated_at, j.finished_at as processed_at, r.round
from rental.rounds r
join {schema}.jobs j on j.id = r.job_id
where not exists (select from rental.rounds later
                  where later.booking_id = r.booking_id and later.type = r.type and later.round > r.round);
