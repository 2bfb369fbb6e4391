"""What of a line a database has, and whether this version can work with it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import psycopg

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.schema.line import Line, engine_line
from mainspring.db.schema.verb import Verb
from mainspring.db.wire.sql import render
from mainspring.errors import SchemaChanged, SchemaMissing, SchemaOutdated, SchemaTooNew

CHANGED = "was applied in another form, before it was released: make a new database (for `mainspring up`: remove .data)"

_TABLES = """
select number, name, applied_at, breaking, to_jsonb(m) ->> 'digest' from {schema}.migration m where line = %s
"""
_VERBS = """
select coalesce(max(edition), 0),
       encode(sha256(convert_to(string_agg(key || ' ' || digest, e'\\n' order by (key || ' ' || digest) collate "C"),
                                'UTF8')), 'hex')
from {schema}.verb where line = %s
"""
_EACH = "select key, digest from {schema}.verb where line = %s"


@dataclass(frozen=True, slots=True)
class MigrationStep:
    """One numbered file and whether it is applied.

    `known` is false for one of a newer version, `changed` is true for one that was applied in another form than ours.
    """

    number: int
    name: str
    applied_at: Any
    breaking: bool
    known: bool
    changed: bool


@dataclass(frozen=True, slots=True)
class VerbStatus:
    """The edition of a database and ours, and the verbs that it has in another form or not at all."""

    edition: int  # 0: none
    ours: int
    differ: list[str]


@dataclass(frozen=True, slots=True)
class Status:
    """A line in a database."""

    line: str
    tables: list[MigrationStep]
    verbs: VerbStatus


def status(conn: psycopg.Connection[Any], *, schema: str = DEFAULT_SCHEMA, line: Line | None = None) -> Status:
    """Every numbered file of a line, applied or not, and how its verbs stand."""
    line = line or engine_line()
    known = {m.number: m for m in line.tables}
    applied: dict[int, tuple[Any, ...]] = {}
    if _has(conn, schema, "migration"):
        applied = {row[0]: row for row in conn.execute(render(_TABLES, schema), [line.name]).fetchall()}
    found = []
    for number in sorted(known.keys() | applied.keys()):
        row = applied.get(number)
        if row is None:
            found.append(MigrationStep(number, known[number].name, None, known[number].breaking, True, False))
            continue
        changed = number in known and row[4] != known[number].digest
        found.append(MigrationStep(number, str(row[1]), row[2], bool(row[3]), number in known, changed))
    edition, verbs = differing(conn, schema, line) if _has(conn, schema, "verb") else (0, list(line.verbs))
    differ = [verb.name.removeprefix("{schema}.") for verb in verbs]
    return Status(line.name, found, VerbStatus(edition, line.edition, differ))


def differing(conn: psycopg.Connection[Any], schema: str, line: Line) -> tuple[int, list[Verb]]:
    """The edition of a line in a database, and the verbs that it has in another form or not at all."""
    row = conn.execute(render(_VERBS, schema), [line.name]).fetchone()
    assert row is not None
    edition, digest = row
    if digest == line.digest or not line.verbs:  # as a rule: nobody need look at each
        return edition, []
    stored = dict(conn.execute(render(_EACH, schema), [line.name]).fetchall())
    return edition, [verb for verb in line.verbs if stored.get(verb.key) != verb.digest]


def _has(conn: psycopg.Connection[Any], schema: str, table: str) -> bool:
    return conn.execute("select to_regclass(%s)", [render(f"{{schema}}.{table}", schema)]).fetchone() != (None,)


def check(found: Status) -> None:
    """Refuse to work with a schema that is missing, too old, never released, or broken by a change that we do not know.

    Verbs of a later edition do what ours do: a signature never changes in place.
    """
    if not any(s.applied_at for s in found.tables) and not found.verbs.edition:
        raise SchemaMissing
    for step in found.tables:
        if step.changed:  # `migrate` refuses it too
            raise SchemaChanged(f"migration {step.number} of {found.line} {CHANGED}")
    if any(s.known and s.applied_at is None for s in found.tables):
        raise SchemaOutdated
    if any(not s.known and s.breaking for s in found.tables):
        raise SchemaTooNew
    if found.verbs.differ and found.verbs.edition <= found.verbs.ours:
        raise SchemaOutdated
