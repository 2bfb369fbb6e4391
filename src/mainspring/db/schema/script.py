"""A line as one SQL script, for databases that only an administrator may change."""

from __future__ import annotations

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.schema.line import Line, engine_line
from mainspring.db.schema.migrate import MIGRATION_TABLES, RECORD_TABLE, RECORD_VERB
from mainspring.db.wire.sql import render


def script(schema: str = DEFAULT_SCHEMA, line: Line | None = None) -> str:
    """All tables and verbs of a line, and the rows that record them, in one transaction."""
    line = line or engine_line()
    parts = ["begin;", "set local check_function_bodies = off;", render(MIGRATION_TABLES, schema)]
    for m in line.tables:
        parts += [
            render(m.text, schema),
            _filled(RECORD_TABLE, schema, line.name, m.number, m.name, m.breaking, m.digest),
        ]
    for verb in line.verbs:
        parts += [
            render(verb.statement, schema),
            _filled(RECORD_VERB, schema, line.name, verb.key, line.edition, verb.digest),
        ]
    return "\n".join([*parts, "commit;"])


def _filled(text: str, schema: str, *values: str | int | bool) -> str:
    """A statement of ours with its values written out."""
    written = [str(value).lower() if isinstance(value, bool | int) else _quoted(value) for value in values]
    return render(text, schema).replace("%s", "{}").format(*written).strip() + ";\n"


def _quoted(value: str) -> str:
    return "'" + value.replace("'", "''") + "'"
