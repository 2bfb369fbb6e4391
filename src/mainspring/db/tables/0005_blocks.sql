-- The tables of the blocks: webhooks that came, notifications, webhooks that go, alerts.

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

-- Notifications: who gets them, what was asked for, and what became of it.
--
-- A notification is one message on one channel: asked for in the caller's transaction, delivered by a job of its own.
-- Addresses and texts are personal: they stand here, and a job's payload holds a notification's id alone.

create table {schema}.recipient (
  org_id       text not null,
  recipient_id text not null check (length(recipient_id) between 1 and 200),
  email        text check (length(email) between 1 and 320),
  phone        text check (length(phone) between 1 and 50),
  push_token   text check (length(push_token) between 1 and 4096),
  zone         text not null default 'UTC' check (length(zone) between 1 and 200),
  language     text not null default '' check (length(language) <= 50),  -- a tag such as pt-BR; '': the templates' own
  quiet_from   time not null default '22:00',  -- in the recipient's zone; the same as quiet_to: no quiet hours
  quiet_to     time not null default '07:00',
  opt_out      text[] not null default '{}' check (cardinality(opt_out) <= 1000),  -- channel, template or template/channel
  spam_limit   integer check (spam_limit between 1 and 100000),  -- null: the application's
  updated_at   timestamptz not null,
  primary key (org_id, recipient_id)
);

-- `sending` is a reservation whose end nobody has seen yet, and reserved_at since when. That the delivery failed is not
-- written here: the job says it, whatever ended it, and the view `notification_log` shows it.
create table {schema}.notification (
  org_id       text not null,
  id           uuid not null,
  recipient_id text not null check (length(recipient_id) between 1 and 200),
  channel      text not null check (channel in ('email', 'sms', 'push', 'in_app')),
  template     text not null check (length(template) between 1 and 200),
  class        text not null check (class in ('critical', 'time_bound', 'normal')),
  necessary    boolean not null,
  subject      text check (length(subject) between 1 and 200),  -- what it is about, such as 'booking 17'
  data         jsonb not null check (jsonb_typeof(data) = 'object' and octet_length(data::text) <= 262144),
  payload_hash text not null,
  bucket       timestamptz not null,
  due_at       timestamptz not null,
  status       text not null default 'pending' check (status in ('pending', 'sending', 'sent', 'skipped')),
  reason       text,
  title        text,
  text         text,
  html         text,  -- kept while the reservation stands: under one key a provider gets one message, word for word
  attempts     integer not null default 0,
  resends      integer not null default 0,
  reserved_at  timestamptz,
  sent_at      timestamptz,
  provider     text,
  provider_id  text,
  error        text,
  job_id       uuid not null,
  created_at   timestamptz not null,
  primary key (org_id, id),
  constraint notification_once unique (org_id, recipient_id, channel, template, payload_hash, bucket),
  check ((status = 'sent') = (sent_at is not null)),
  check ((status = 'sending') = (reserved_at is not null)),
  check ((status = 'skipped') = (reason is not null))
) with (fillfactor = 70);

create index notification_created on {schema}.notification (created_at);
create index notification_recent on {schema}.notification (org_id, recipient_id, channel, coalesce(sent_at, reserved_at))
  where status in ('sending', 'sent');
create index notification_subject on {schema}.notification (subject, org_id, created_at, id) where subject is not null;

create table {schema}.inbox (
  org_id       text not null,
  id           uuid not null,  -- the notification's
  recipient_id text not null,
  title        text not null,
  text         text not null,
  link         text,
  created_at   timestamptz not null,
  read_at      timestamptz,
  primary key (org_id, id)
);

create index inbox_recipient on {schema}.inbox (org_id, recipient_id, created_at);
create index inbox_created on {schema}.inbox (created_at);

-- Webhooks that we send: endpoints, their secrets, and deliveries.
--
-- An event becomes one delivery for each endpoint that wants it, together with the job that sends it, in the transaction
-- of whoever published it. The body is built once and kept: every attempt sends the same bytes. A delivery has no status of
-- its own: it is delivered, or its job says whether it is still tried (the view `deliveries`), so that a replay, a cancel or
-- a crash-looping job can never leave the two at odds.

create table {schema}.webhook_endpoint (
  org_id      text not null,
  id          uuid not null,
  url         text not null check (length(url) <= 2048),
  events      text[] not null default '{}' check (cardinality(events) <= 100),  -- names and `prefix.*`; none: all
  description text check (length(description) <= 1000),
  prefix      text not null check (length(prefix) between 1 and 50),  -- of our headers, as receivers know them
  headers     text check (octet_length(headers) <= 65536),            -- of its own, as JSON, maybe encrypted; may hold secrets
  state       text not null default 'active' check (state in ('active', 'paused', 'disabled')),
  reason      text check (length(reason) <= 1000),                    -- why it is not active
  changed_at  timestamptz not null,                                   -- of the state
  created_at  timestamptz not null,
  primary key (org_id, id)
);

-- Secrets, plain or encrypted (docs/adr/0025): the current one, and older ones that still sign until they expire.
create table {schema}.webhook_secret (
  org_id     text not null,
  endpoint   uuid not null,
  id         uuid not null,
  secret     text not null check (length(secret) between 1 and 2000),
  created_at timestamptz not null,
  expires_at timestamptz,  -- null: the current one
  primary key (org_id, endpoint, id)
);

create unique index webhook_secret_current on {schema}.webhook_secret (org_id, endpoint) where expires_at is null;
create index webhook_secret_expiry on {schema}.webhook_secret (expires_at) where expires_at is not null;

create table {schema}.webhook_delivery (
  org_id           text not null,
  id               uuid not null,  -- the same on every attempt: receivers deduplicate by it
  endpoint         uuid not null,
  event_id         uuid not null,
  event_type       text not null check (length(event_type) between 1 and 100),
  aggregate_type   text not null check (length(aggregate_type) between 1 and 100),
  aggregate_id     text not null check (length(aggregate_id) between 1 and 200),
  body             text not null check (octet_length(body) <= 1048576),  -- what is sent, or that encrypted
  job_id           uuid not null,
  attempts         integer not null default 0,  -- calls begun
  attempted_at     timestamptz,
  http_status      smallint,                    -- of the last call, where it was answered
  error            text check (length(error) <= 1000),
  response_headers jsonb,
  response_body    bytea check (octet_length(response_body) <= 131072),  -- 64 KiB, encrypted more
  response_cut     boolean not null default false,
  delivered_at     timestamptz,
  created_at       timestamptz not null,
  primary key (org_id, id)
);

create unique index webhook_delivery_event on {schema}.webhook_delivery (org_id, endpoint, event_id);
create index webhook_delivery_open on {schema}.webhook_delivery (org_id, endpoint) where delivered_at is null;
create index webhook_delivery_age on {schema}.webhook_delivery (created_at);

-- Alerts: what somebody should look at, until it is over.
--
-- A thing that is wrong has one open row, by the alert's name and its subject: finding it wrong again only counts. So an
-- alert may be opened by a business act, in its transaction, and by a watch that looks every minute, and nobody is told
-- twice. `told` is what observers have heard: who opens in a transaction of somebody else cannot tell when that commits,
-- so workers tell what is left.

create table {schema}.alert (
  org_id    text not null,
  id        uuid not null,
  name      text not null check (length(name) between 1 and 100),
  subject   text not null default '' check (length(subject) <= 200),
  severity  text not null check (severity in ('critical', 'warning')),
  text      text not null default '' check (octet_length(text) <= 2000),
  detail    jsonb not null default '{}' check (jsonb_typeof(detail) = 'object' and octet_length(detail::text) <= 65536),
  opened_at timestamptz not null,
  last_at   timestamptz not null,
  count     integer not null default 1 check (count > 0),  -- how often it was found wrong
  closed_at timestamptz,
  closed_by text,
  told      text check (told in ('opened', 'closed')),
  primary key (org_id, id),
  check ((closed_at is null) = (closed_by is null)),
  check (told is distinct from 'closed' or closed_at is not null),
  -- What no client can read would hide everything that is listed beside it.
  check (not jsonb_path_exists(detail, 'strict $.**{64} ? (@.type() == "object" || @.type() == "array")'))
) with (fillfactor = 70);  -- a watch counts every minute: there is room for that beside the row, without its indexes

-- At most one is open for a thing, and the open ones of a name are found by it.
create unique index alert_open on {schema}.alert (org_id, name, subject) where closed_at is null;
create index alert_name on {schema}.alert (name) where closed_at is null;
create index alert_untold on {schema}.alert (opened_at)
  where told is distinct from case when closed_at is null then 'opened' else 'closed' end;
create index alert_closed on {schema}.alert (closed_at) where closed_at is not null;
create index alert_opened on {schema}.alert (opened_at);
