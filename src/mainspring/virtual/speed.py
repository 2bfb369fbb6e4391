"""Virtual time that runs: a database whose one clock goes on by itself, many times as fast as real time.

For `mainspring up --speed`, in data of its own. Where the clock stood is written down every second, so that time stands
still while nothing runs. The functions hold the numbers themselves, because reading them from a table would cost every
statement; `drive` replaces them.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import psycopg
from psycopg.rows import tuple_row
from psycopg.sql import SQL, Identifier, Literal

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.wire.sql import render
from mainspring.errors import ConfigurationError
from mainspring.virtual.clock import refuse_in_use

#: After a crash: how much later than it was last written down the clock may have been, in real time.
UNWRITTEN_SPAN: Final = timedelta(seconds=3)

_TABLE: Final = """
create table if not exists {schema}.clock (org_id text primary key default 'SYSTEM', at timestamptz);
alter table {schema}.clock add column if not exists speed float8;
insert into {schema}.clock values ('SYSTEM') on conflict do nothing
"""
_STOOD: Final = """
select least({schema}.now(), at + %s::interval * speed), exists (select from {schema}.job)
from {schema}.clock where speed is not null
"""
_WRITE: Final = "update {schema}.clock set at = %s, speed = %s"
_MARK: Final = "update {schema}.clock set at = {schema}.now()"
_STAFFED: Final = "select exists (select from {schema}.worker where started_at >= %s)"
#: By seconds: the days of an interval have 23 or 25 hours where clocks change.
_FUNCTIONS: Final = """
create or replace function {schema}.now() returns timestamptz language sql stable parallel safe
  return {base} + make_interval(secs => extract(epoch from statement_timestamp() - {since})::float8 * {pace});
create or replace function {schema}.instant() returns timestamptz language sql volatile
  return {base} + make_interval(secs => extract(epoch from clock_timestamp() - {since})::float8 * {pace});
"""
_SPEED: Final = """
create or replace function {schema}.speed() returns float8 language sql immutable parallel safe
  return {speed};
"""


@dataclass(frozen=True, slots=True)
class Course:
    """How time goes: at the real instant `since` the clock showed `base`, and it runs `pace` times as fast.

    >>> course = Course(datetime(2026, 3, 2, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC), 600)
    >>> course.at(datetime(2030, 1, 1, 0, 0, 6, tzinfo=UTC)).isoformat()
    '2026-03-02T01:00:00+00:00'
    """

    base: datetime
    since: datetime
    pace: float

    def at(self, real: datetime) -> datetime:
        """What the clock shows at a real instant."""
        return self.base + (real - self.since) * self.pace

    def now(self) -> datetime:
        """What it shows: the same as the database's, on the same machine."""
        return self.at(datetime.now(UTC))


def stood(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> tuple[datetime, bool] | None:
    """Where the clock of a database was left, and whether there are jobs; None: it is no clock that runs fast."""
    cursor = psycopg.Cursor(conn, row_factory=tuple_row)
    known = "select from pg_attribute where attrelid = to_regclass(%s) and attname = 'speed'"
    if cursor.execute(known, [render("{schema}.clock", schema)]).fetchone() is None:
        return None
    return cursor.execute(render(_STOOD, schema), [UNWRITTEN_SPAN]).fetchone()


def begin(
    conn: psycopg.Connection[Any], speed: float, start: datetime | None = None, *, schema: str = DEFAULT_SCHEMA
) -> Course:
    """Make a clock that can run so fast, and let it go as slowly as ours until somebody drives it.

    It goes on from where it stood, else from an instant or from now. Never in production, because nothing makes such a
    clock real again: a schema in use is refused.
    """
    before = stood(conn, schema=schema)
    if before is None:
        refuse_in_use(conn, schema=schema)
    elif start is not None and before[1]:
        stands = f"{before[0].astimezone(UTC):%Y-%m-%d %H:%M}Z"
        raise ConfigurationError(f"from: time has begun before, and stands at {stands}")
    base = start or (before[0] if before else datetime.now(UTC))
    with conn.transaction():
        conn.execute(render(_TABLE, schema))
        conn.execute(render(_WRITE, schema), [base, float(speed)])
        conn.execute(SQL(_SPEED).format(schema=Identifier(schema), speed=Literal(float(speed))))
        return drive(conn, Course(base, datetime.now(UTC), 1), 1, schema=schema)


def drive(conn: psycopg.Connection[Any], course: Course, pace: float, *, schema: str = DEFAULT_SCHEMA) -> Course:
    """Let time run faster or slower from here on."""
    since = datetime.now(UTC)
    numbers = {"base": course.at(since), "since": since, "pace": float(pace)}
    literals = {name: Literal(value) for name, value in numbers.items()}
    conn.execute(SQL(_FUNCTIONS).format(schema=Identifier(schema), **literals))
    return Course(course.at(since), since, pace)


def mark(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> None:
    """Write down where the clock stands: from here it goes on."""
    conn.execute(render(_MARK, schema))


def staffed(conn: psycopg.Connection[Any], since: datetime, *, schema: str = DEFAULT_SCHEMA) -> bool:
    """Whether a worker has come since an instant."""
    return psycopg.Cursor(conn, row_factory=tuple_row).execute(render(_STAFFED, schema), [since]).fetchone() == (True,)
