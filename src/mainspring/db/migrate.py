"""Forward-only numbered migrations, safe when many start at once.

A *line* is a folder of files such as `0001_tables.sql` under one name; the engine's is `mainspring`, and applications
bring their own through the same runner. Each file is applied once, in its own transaction, under an advisory lock. Its
first lines are comments that give the reason; `-- breaking` there tells running workers of older versions to stop.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from importlib.resources import files
from importlib.resources.abc import Traversable
from typing import Any

import psycopg

from mainspring.db.schema import DEFAULT_SCHEMA, render
from mainspring.errors import DeclarationError, SchemaChanged, SchemaMissing, SchemaOutdated, SchemaTooNew

ENGINE = "mainspring"
CHANGED = "was applied in another form, before it was released: make a new database (for `mainspring up`: remove .data)"

# org_id as in every table: 'SYSTEM' is the engine's own.
MIGRATION_TABLE = """
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
"""


@dataclass(frozen=True, slots=True)
class Migration:
    """One numbered step of a line."""

    number: int
    name: str
    text: str

    @property
    def breaking(self) -> bool:
        """Whether workers of an older version must stop once it is applied."""
        head = re.match(r"(--[^\n]*\n)*", self.text)
        return head is not None and "-- breaking" in head.group()

    @property
    def digest(self) -> str:
        """Tells whether a file changed after it was applied, which only an unreleased one does."""
        return sha256(self.text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class Line:
    """The migrations of the engine or of one application.

    ::

        app = ms.App(None, tasks, migrations=[ms.Line.of("shop", "shop")])  # the files of shop/migrations/*.sql
    """

    name: str
    migrations: tuple[Migration, ...]

    @classmethod
    def read(cls, name: str, folder: Traversable) -> Line:
        """Read a folder of `NNNN_name.sql` files, numbered from 1 without gaps."""
        found = [
            Migration(int(match[1]), match[2], file.read_text())
            for file in sorted(folder.iterdir(), key=lambda f: f.name)
            if (match := re.fullmatch(r"(\d{4})_(\w+)\.sql", file.name))
        ]
        if [m.number for m in found] != list(range(1, len(found) + 1)):
            raise DeclarationError(f"migrations of {name} are not numbered from 0001 on without gaps")
        return cls(name, tuple(found))

    @classmethod
    def of(cls, name: str, package: str) -> Line:
        """The folder `migrations` of a package; its files may say `{schema}` for the engine's."""
        return cls.read(name, files(package) / "migrations")


def migrate_all(
    conn: psycopg.Connection[Any], lines: Sequence[Line] = (), *, schema: str = DEFAULT_SCHEMA
) -> dict[str, list[int]]:
    """Apply what is missing of the engine's line and then of these; what was applied, by the line's name."""
    return {line.name: migrate(conn, schema=schema, line=line) for line in (engine_line(), *lines)}


def engine_line() -> Line:
    """The engine's own migrations."""
    return Line.read(ENGINE, files("mainspring.db") / "migrations")


def migrate(
    conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA, line: Line | None = None, to: int | None = None
) -> list[int]:
    """Apply what is missing of a line and return the numbers applied; a second run changes nothing."""
    line = line or engine_line()
    done: list[int] = []
    for migration in line.migrations[:to]:
        with conn.transaction():
            conn.execute("select pg_advisory_xact_lock(hashtextextended(%s, 0))", [f"mainspring migrate {schema}"])
            conn.execute("set local client_min_messages = warning")  # "already exists, skipping" is no news
            conn.execute(render(MIGRATION_TABLE, schema))
            applied = _applied(conn, schema, line.name).get(migration.number)
            if applied is not None:
                if applied != migration.digest:
                    raise SchemaChanged(f"migration {migration.number} of {line.name} {CHANGED}")
                continue
            conn.execute("set local check_function_bodies = off")  # functions may name what a later file creates
            conn.execute(render(migration.text, schema))
            conn.execute(
                render(
                    "insert into {schema}.migration (line, number, name, breaking, digest) values (%s, %s, %s, %s, %s)",
                    schema,
                ),
                [line.name, migration.number, migration.name, migration.breaking, migration.digest],
            )
        done.append(migration.number)
    return done


def _applied(conn: psycopg.Connection[Any], schema: str, line: str) -> dict[int, str]:
    query = render("select number, to_jsonb(m) ->> 'digest' from {schema}.migration m where line = %s", schema)
    return {number: digest or "" for number, digest in conn.execute(query, [line]).fetchall()}


@dataclass(frozen=True, slots=True)
class Status:
    """One migration and whether it is applied; `known` is false for one of a newer version."""

    number: int
    name: str
    applied_at: Any
    breaking: bool
    known: bool


def status(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA, line: Line | None = None) -> list[Status]:
    """Every migration of a line, applied or not."""
    line = line or engine_line()
    known = {m.number: m for m in line.migrations}
    applied: dict[int, tuple[Any, ...]] = {}
    if conn.execute("select to_regclass(%s)", [f'"{schema}".migration']).fetchone() != (None,):
        query = render("select number, name, applied_at, breaking from {schema}.migration where line = %s", schema)
        rows = conn.execute(query, [line.name]).fetchall()
        applied = {row[0]: row for row in rows}
    found = []
    for number in sorted(known.keys() | applied.keys()):
        row = applied.get(number)
        name = known[number].name if number in known else str(row[1]) if row else ""
        breaking = bool(row[3]) if row else known[number].breaking
        found.append(Status(number, name, row[2] if row else None, breaking, number in known))
    return found


def check(found: Sequence[Status]) -> None:
    """Refuse to work with a schema that is missing, too old, or had a breaking change that we do not know."""
    if not any(s.applied_at for s in found):
        raise SchemaMissing
    if any(s.known and s.applied_at is None for s in found):
        raise SchemaOutdated
    if any(not s.known and s.breaking for s in found):
        raise SchemaTooNew
