-- Webhooks that came from providers: each event once, together with the job that acts on it.
--
-- A provider sends an event until it is answered, and sometimes afterwards: the primary key makes the second one harmless.
-- The job's payload names the event; what it says, which may be personal, stands here alone.

create table {schema}.inbound (
  org_id      text not null,
  provider    text not null check (length(provider) between 1 and 100),
  event_id    text not null check (length(event_id) between 1 and 255),
  type        text not null check (length(type) between 1 and 255),
  body        text not null check (octet_length(body) <= 1048576),
  job_id      uuid,  -- null: nobody wanted events of this type
  received_at timestamptz not null,
  primary key (org_id, provider, event_id)
);
create index inbound_received on {schema}.inbound (received_at);

-- Who: whoever serves the provider's webhooks, in one transaction with the job. Answers whether the event is new; if it is
-- not, the job must not be enqueued.
create function {schema}.receive(p_org text, p_provider text, p_event text, p_type text, p_body text, p_job uuid)
returns boolean language plpgsql as $$
begin
  insert into {schema}.inbound (org_id, provider, event_id, type, body, job_id, received_at)
  values (p_org, p_provider, p_event, p_type, p_body, p_job, {schema}.now())
  on conflict do nothing;
  return found;
end $$;
