-- Webhooks that came from providers.

-- Who: whoever serves the provider's webhooks, in one transaction with the job. Answers whether the event is new; if it is
-- not, the job must not be enqueued.
create or replace function {schema}.receive(p_org text, p_provider text, p_event text, p_type text, p_body text, p_job uuid)
returns boolean language plpgsql as $$
begin
  insert into {schema}.inbound (org_id, provider, event_id, type, body, job_id, received_at)
  values (p_org, p_provider, p_event, p_type, p_body, p_job, {schema}.now())
  on conflict do nothing;
  return found;
end $$;
