"""`mainspring schema`: install and update the database schema."""

from __future__ import annotations

from cyclopts import App

from mainspring.cli import output
from mainspring.cli.connection import UNSAID, Connection

app = App(name="schema", help="Install and update the database schema.", help_format="plaintext")


@app.command
def migrate(*, connection: Connection = UNSAID) -> None:
    """Apply the migrations that are missing; a second run changes nothing."""
    from mainspring.db.migrate import migrate

    with connection.connect() as (conn, schema):
        done = migrate(conn, schema=schema)
    if connection.json:
        output.as_json({"schema": schema, "applied": done})
    else:
        print(f"schema {schema}:", f"applied {', '.join(map(str, done))}" if done else "nothing to do")


@app.command
def status(*, connection: Connection = UNSAID) -> None:
    """Show every migration and when it was applied; fails if the schema does not fit this version."""
    from mainspring.db.migrate import check, status

    with connection.connect() as (conn, schema):
        found = status(conn, schema=schema)
    if connection.json:
        output.as_json(found)
    else:
        rows = ((s.number, s.name, s.applied_at or "not yet", s.breaking, s.known) for s in found)
        output.table(("NUMBER", "NAME", "APPLIED", "BREAKING", "KNOWN"), rows, "There are no migrations.")
    check(found)


@app.command(name="print")
def print_sql(*, connection: Connection = UNSAID) -> None:
    """Print the SQL of all migrations, for a database administrator to read or to run; needs no database."""
    from mainspring.db.script import script

    schema = connection.schema_of(connection.application())
    sql = script(schema)
    output.as_json({"schema": schema, "sql": sql}) if connection.json else print(sql)
