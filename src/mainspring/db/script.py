"""The migrations as one SQL script, for databases that only an administrator may change."""

from __future__ import annotations

from mainspring.db.migrate import MIGRATION_TABLE, Line, engine_line
from mainspring.db.schema import DEFAULT_SCHEMA, render

_RECORD = "insert into {schema}.migration (line, number, name, breaking, digest) values"


def script(schema: str = DEFAULT_SCHEMA, line: Line | None = None) -> str:
    """All migrations of a line, and the rows that record them, in one transaction."""
    line = line or engine_line()
    parts = ["begin;", "set local check_function_bodies = off;", render(MIGRATION_TABLE, schema)]
    for migration in line.migrations:
        m, breaking = migration, str(migration.breaking).lower()
        values = f"('{line.name}', {m.number}, '{m.name}', {breaking}, '{m.digest}');"
        parts += [render(migration.text, schema), f"{render(_RECORD, schema)} {values}\n"]
    return "\n".join([*parts, "commit;"])
