-- Writes over HTTP that brought an Idempotency-Key, and what they were answered: sent again, they are answered the same.
--
-- A row is written in the transaction of what it asks for, so that the effect and its answer are there together or not
-- at all. Keys belong to whoever sent them: `actor_id` is the name of a person or a token.

create table {schema}.request (
  org_id      text not null,
  actor_id    text not null check (length(actor_id) between 1 and 200),  -- a digest of who asks: names may be shared
  key         text not null check (length(key) between 1 and 200),
  fingerprint text not null check (length(fingerprint) between 1 and 64),  -- of all that was asked
  begun_at    timestamptz not null,
  status      smallint check (status between 200 and 299),     -- null: its transaction is under way
  etag        text check (length(etag) <= 100),
  body        text check (octet_length(body) <= 1048576),
  primary key (org_id, actor_id, key)
);

create index request_begun on {schema}.request (begun_at);
