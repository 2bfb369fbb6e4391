"""Virtual time: a database whose one clock can be moved.

In production `mainspring.now()` is the statement's time and nothing can move it. `install` replaces the function, in a
test or simulation database only, by one that reads a one-row table: every connection, process and SQL function then
sees the same time. Until a test sets it, it follows real time.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import psycopg
from psycopg.rows import tuple_row

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.schema.secure import is_secured
from mainspring.db.wire.sql import render
from mainspring.errors import ConfigurationError
from mainspring.text.span import Span, span_of
from mainspring.virtual.joined import View, join

_INSTALL = """
create table if not exists {schema}.clock (org_id text primary key default 'SYSTEM', at timestamptz);
insert into {schema}.clock values ('SYSTEM', null) on conflict do nothing;
create or replace function {schema}.now() returns timestamptz language sql stable as
  $$ select coalesce((select at from {schema}.clock), statement_timestamp()) $$;
create or replace function {schema}.instant() returns timestamptz language sql volatile as
  $$ select coalesce((select at from {schema}.clock), clock_timestamp()) $$;
"""


#: Signs that a schema works for somebody: jobs, or workers that have come by. A secured one shows nobody its rows.
_IN_USE = "select exists (select from {schema}.job) or exists (select from {schema}.worker)"


def refuse_in_use(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> None:
    """Refuse a schema that is not a test's own: one that is in use, and whose clock is real."""
    known = "select to_regclass(%s) is not null, to_regclass(%s) is not null"
    names = [render("{schema}.clock", schema), render("{schema}.worker", schema)]
    with conn.transaction():
        cursor = psycopg.Cursor(conn, row_factory=tuple_row)
        if cursor.execute(known, names).fetchone() != (False, True):
            return
        used = cursor.execute(render(_IN_USE, schema)).fetchone() == (True,) or is_secured(conn, schema=schema)
    if used:
        raise ConfigurationError(
            f"schema: {schema} of database {conn.info.dbname} is in use: virtual time is for test databases, and "
            "nothing would make its clock real again"
        )


def install(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA) -> None:
    """Make a database's clock movable. Never in production: nothing undoes it, so a schema in use is refused."""
    refuse_in_use(conn, schema=schema)
    conn.execute(render(_INSTALL, schema))


class Clock:
    """The clock of a database prepared by `install`, on a connection of psycopg, SQLAlchemy or Django."""

    def __init__(self, conn: Any, *, schema: str = DEFAULT_SCHEMA) -> None:
        self._conn = conn if isinstance(conn, psycopg.Connection) else View(join(conn))
        self._now = render("select {schema}.now()", schema)
        self._set = render("update {schema}.clock set at = %s", schema)
        self._at: datetime | None = None

    def now(self) -> datetime:
        """What the clock shows."""
        row = psycopg.Cursor(self._conn, row_factory=tuple_row).execute(self._now).fetchone()
        assert row is not None
        now: datetime = row[0]
        return now

    @property
    def at(self) -> datetime:
        """Where it was stopped last by this object: it is not asked, so any thread may look."""
        if self._at is None:
            raise RuntimeError("the clock was not set yet")
        return self._at

    def set(self, at: datetime) -> datetime:
        """Stop the clock at an instant."""
        psycopg.Cursor(self._conn).execute(self._set, [at])
        self._at = at
        return at

    def advance(self, delta: Span | None = None, **units: float) -> datetime:
        """Move the clock, `advance(hours=4)`; it stands still afterwards."""
        return self.set(self.now() + (timedelta(**units) if delta is None else span_of("delta", delta)))
