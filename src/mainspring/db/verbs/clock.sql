-- The one clock. Nothing can move it in production. `mainspring up --speed` and test databases put functions of their own
-- in the place of the first three (mainspring.virtual), and no migration puts these back (mainspring.db.verb).

-- What time it is, for the whole of a statement.
create or replace function {schema}.now() returns timestamptz language sql stable parallel safe
  return statement_timestamp();

-- The same clock, read anew at each call: for limiters, which must not be older than the lock they waited for.
create or replace function {schema}.instant() returns timestamptz language sql volatile
  return clock_timestamp();

-- How many times as fast as real time that clock runs; other than 1 only where `mainspring up --speed` made it so.
create or replace function {schema}.speed() returns float8 language sql immutable parallel safe
  return 1;

-- Whether time is a test's: then the log alone decides, because a worker's own clock says nothing about it.
create or replace function {schema}.is_virtual() returns boolean language sql volatile
  return {schema}.speed() = 1 and {schema}.instant() not between clock_timestamp() - interval '1 s' and clock_timestamp() + interval '1 s';
