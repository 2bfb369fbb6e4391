-- Who comes in over HTTP: tokens, users, sessions and links. Digests are hexadecimal.

-- name: create_token
select {schema}.create_token(
  %(id)s::text, decode(%(digest)s::text, 'hex'), %(name)s::text, %(role)s::text, %(only_org)s::text,
  %(reveals)s::text::boolean, %(lifetime)s::text::interval, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: revoke_token
select {schema}.revoke_token(%(id)s::text, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: list_tokens
select t::text from {schema}.list_tokens(%(only_org)s::text) t

-- name: check_token
select {schema}.check_token(%(id)s::text, decode(%(digest)s::text, 'hex'))::text

-- name: create_user
select {schema}.create_user(
  %(name)s::text, %(role)s::text, %(only_org)s::text, %(reveals)s::text::boolean, %(recipe)s::text,
  decode(%(verifier)s::text, 'hex'), %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: change_user
select {schema}.change_user(
  %(name)s::text, %(change)s::text::jsonb, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: set_password
select {schema}.set_password(
  %(name)s::text, %(recipe)s::text, decode(%(verifier)s::text, 'hex'), %(actor_type)s::text, %(actor_id)s::text,
  %(reason)s::text)

-- name: list_users
select u::text from {schema}.list_users(%(only_org)s::text) u

-- name: create_link
select {schema}.create_link(
  %(name)s::text, decode(%(digest)s::text, 'hex'), %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: try_sign_in
select {schema}.try_sign_in(%(name)s::text, %(address)s::text)::text

-- name: sign_in
select {schema}.sign_in(
  %(name)s::text, decode(%(verifier)s::text, 'hex'), decode(%(digest)s::text, 'hex'), %(address)s::text,
  decode(%(before)s::text, 'hex'))::text

-- name: sign_in_by_link
select {schema}.sign_in_by_link(
  decode(%(link)s::text, 'hex'), decode(%(digest)s::text, 'hex'), %(address)s::text, decode(%(before)s::text, 'hex'))::text

-- name: sign_in_vouched
select {schema}.sign_in_vouched(
  %(name)s::text, %(source)s::text, %(role)s::text, %(only_org)s::text, %(reveals)s::text::boolean,
  decode(%(digest)s::text, 'hex'), %(address)s::text, decode(%(before)s::text, 'hex'))::text

-- name: check_session
select {schema}.check_session(decode(%(digest)s::text, 'hex'))::text

-- name: list_sessions
select s::text from {schema}.list_sessions(decode(%(digest)s::text, 'hex')) s

-- name: end_sessions
select {schema}.end_sessions(decode(%(digest)s::text, 'hex'), %(id)s::text::uuid)

-- name: list_user_sessions
select s::text from {schema}.list_user_sessions(%(name)s::text) s

-- name: end_user_sessions
select {schema}.end_user_sessions(
  %(name)s::text, %(id)s::text::uuid, %(actor_type)s::text, %(actor_id)s::text, %(reason)s::text)

-- name: prune_access
select {schema}.prune_access(%(limit)s)
