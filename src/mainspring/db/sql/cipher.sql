-- The keys of organisations, wrapped.

-- name: keys
-- By each process that reads or writes something encrypted, once in half a minute for each organisation.
-- Index: cipher_key_pkey.
select id::text, encode(wrapped, 'base64'), retired_at is null from {schema}.cipher_key
where org_id = %(org)s::text order by created_at, id

-- name: add_key
-- Once in the life of an organisation.
select {schema}.add_key(%(org)s::text, %(id)s::text::uuid, decode(%(wrapped)s::text, 'base64'))

-- name: rotate_key
select {schema}.rotate_key(%(org)s::text, %(id)s::text::uuid, decode(%(wrapped)s::text, 'base64'),
                           %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: erase
select {schema}.erase(%(org)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)
