"""Migrates a line: what is missing of its tables, then its verbs, in one transaction.

Many may start at once, and workers may go on meanwhile: an advisory lock lets one through at a time, and what needs the
lock of a table waits for it half a second, then lets everybody pass and begins again. A schema that was secured is
secured when the transaction commits.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import psycopg
from psycopg.errors import DeadlockDetected, LockNotAvailable

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.schema.line import Line, Migration, engine_line
from mainspring.db.schema.secure import is_secured, secure_new
from mainspring.db.schema.status import CHANGED, differing
from mainspring.db.schema.verb import Verb
from mainspring.db.wire.sql import render
from mainspring.errors import SchemaBusy, SchemaChanged

#: So long a statement waits for a table: everybody who comes after it waits as long. Then a pause, and all again.
LOCK_TIMEOUT: Final = "500 ms"
MIGRATE_PAUSE_S: Final = 0.25
MIGRATE_TRIES: Final = 60

# org_id as in every table: 'SYSTEM' is the engine's own.
MIGRATION_TABLES: Final = """
create schema if not exists {schema};
create table if not exists {schema}.migration (
  org_id     text not null default 'SYSTEM',
  line       text not null,
  number     integer not null,
  name       text not null,
  breaking   boolean not null,
  digest     text not null default '',
  applied_at timestamptz not null default statement_timestamp(),
  primary key (org_id, line, number)
);
create table if not exists {schema}.verb (
  org_id     text not null default 'SYSTEM',
  line       text not null,
  key        text not null,
  edition    integer not null,
  digest     text not null,
  applied_at timestamptz not null default statement_timestamp(),
  primary key (org_id, line, key)
);
"""
RECORD_TABLE: Final = (
    "insert into {schema}.migration (line, number, name, breaking, digest) values (%s, %s, %s, %s, %s)"
)
RECORD_VERB: Final = """
insert into {schema}.verb (line, key, edition, digest) values (%s, %s, %s, %s)
on conflict (org_id, line, key) do update set digest = excluded.digest, applied_at = excluded.applied_at
"""
_APPLIED = "select number, to_jsonb(m) ->> 'digest' from {schema}.migration m where line = %s"
_FORGET = "delete from {schema}.verb where line = %s and key <> all(%s)"
_EDITION = "update {schema}.verb set edition = %s where line = %s and edition <> %s"

#: The clock's functions as we have ever shipped them. `mainspring up --speed` and test databases have others
#: (mainspring.virtual), which stay.
CLOCK: Final = {
    "function {schema}.now()": {"RETURN statement_timestamp()"},
    "function {schema}.instant()": {"RETURN clock_timestamp()"},
    "function {schema}.speed()": {"RETURN 1"},
}
_BODY = "select coalesce(pg_get_function_sqlbody(oid), prosrc) from pg_proc where oid = to_regprocedure(%s)"


@dataclass(frozen=True, slots=True)
class Applied:
    """What a migration did: the numbers of the tables, the names of the verbs; and a later edition that it met."""

    tables: list[int]
    verbs: list[str]
    newer: int | None = None

    def __bool__(self) -> bool:
        return bool(self.tables or self.verbs)


def migrate_all(
    conn: psycopg.Connection[Any], lines: Sequence[Line] = (), *, schema: str = DEFAULT_SCHEMA
) -> dict[str, Applied]:
    """Migrate the engine's line and then these; what was done, by the line's name."""
    return {line.name: migrate(conn, schema=schema, line=line) for line in (engine_line(), *lines)}


def migrate(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA, line: Line | None = None) -> Applied:
    """Apply what is missing of a line and replace what has changed; a second run changes nothing."""
    line = line or engine_line()
    for tried in range(1, MIGRATE_TRIES + 1):
        try:
            with conn.transaction():
                return _migrate(conn, schema, line)
        except (LockNotAvailable, DeadlockDetected) as error:
            if tried == MIGRATE_TRIES:
                raise SchemaBusy(f"{line.name} was not migrated, and nothing has changed: {_first(error)}") from error
            time.sleep(MIGRATE_PAUSE_S)
    raise AssertionError


def _migrate(conn: psycopg.Connection[Any], schema: str, line: Line) -> Applied:
    conn.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"mainspring migrate {schema}"])
    conn.execute(f"set local lock_timeout = '{LOCK_TIMEOUT}'")
    conn.execute("set local client_min_messages = warning")  # "already exists, skipping" is no news
    conn.execute("set local check_function_bodies = off")  # functions may name what comes later
    secured = is_secured(conn, schema=schema)
    conn.execute(render(MIGRATION_TABLES, schema))
    tables = [migration.number for migration in _missing(conn, schema, line) if _apply(conn, schema, line, migration)]
    edition, verbs = differing(conn, schema, line)
    newer = edition if edition > line.edition else None
    if newer:
        verbs = []
    elif verbs or edition < line.edition:
        _replace(conn, schema, line, verbs)
    if secured and (tables or verbs):
        secure_new(conn, schema=schema)
    return Applied(tables, [verb.name.removeprefix("{schema}.") for verb in verbs], newer)


def _missing(conn: psycopg.Connection[Any], schema: str, line: Line) -> list[Migration]:
    applied = dict(conn.execute(render(_APPLIED, schema), [line.name]).fetchall())
    for migration in line.tables:
        if applied.get(migration.number, migration.digest) != migration.digest:
            raise SchemaChanged(f"migration {migration.number} of {line.name} {CHANGED}")
    return [migration for migration in line.tables if migration.number not in applied]


def _apply(conn: psycopg.Connection[Any], schema: str, line: Line, migration: Migration) -> bool:
    conn.execute(render(migration.text, schema))
    m = migration
    conn.execute(render(RECORD_TABLE, schema), [line.name, m.number, m.name, m.breaking, m.digest])
    return True


def _replace(conn: psycopg.Connection[Any], schema: str, line: Line, verbs: Sequence[Verb]) -> None:
    ours = [verb for verb in verbs if _is_ours(conn, schema, verb)]
    if ours:
        conn.execute(render("\n".join(verb.statement for verb in ours), schema))
    with conn.cursor() as cursor:
        rows = [[line.name, verb.key, line.edition, verb.digest] for verb in verbs]
        cursor.executemany(render(RECORD_VERB, schema), rows)
    conn.execute(render(_FORGET, schema), [line.name, [verb.key for verb in line.verbs]])
    conn.execute(render(_EDITION, schema), [line.edition, line.name, line.edition])


def _is_ours(conn: psycopg.Connection[Any], schema: str, verb: Verb) -> bool:
    """Whether what stands in its place may go: a clock of somebody else stays."""
    shipped = CLOCK.get(verb.key)
    if shipped is None:
        return True
    row = conn.execute(_BODY, [render(verb.key.removeprefix("function "), schema)]).fetchone()
    return row is None or row[0] in shipped


def _first(error: psycopg.Error) -> str:
    return str(error).partition("\n")[0]
