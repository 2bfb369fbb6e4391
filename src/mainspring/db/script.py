"""The migrations as one SQL script, for databases that only an administrator may change."""

from __future__ import annotations

from mainspring.db.migrate import MIGRATION_TABLE, Line, engine_line
from mainspring.db.schema import DEFAULT_SCHEMA, render

_RECORD = "insert into {schema}.migration (line, number, name, breaking) values"


def script(schema: str = DEFAULT_SCHEMA, line: Line | None = None) -> str:
    """All migrations of a line, and the rows that record them, in one transaction."""
    line = line or engine_line()
    parts = ["begin;", "set local check_function_bodies = off;", render(MIGRATION_TABLE, schema)]
    for migration in line.migrations:
        values = f"('{line.name}', {migration.number}, '{migration.name}', {str(migration.breaking).lower()});"
        parts += [render(migration.text, schema), f"{render(_RECORD, schema)} {values}\n"]
    return "\n".join([*parts, "commit;"])
