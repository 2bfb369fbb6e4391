"""`mainspring schema`: install and update the database schema."""

from __future__ import annotations

from cyclopts import App

from mainspring.cli import output
from mainspring.cli.connection import UNSAID, Connection

#: Who connects as a member of the worker, api and operator role.
MEANT = (
    "workers: jobs of all organisations, and inside a job its own",
    "your application: the organisation that its transaction names, and nothing without one",
    "people on call: likewise; they also replay, discard, fix forward, prioritize and pause",
)

app = App(name="schema", help="Install and update the database schema.", help_format="plaintext")


@app.command
def migrate(*, connection: Connection = UNSAID) -> None:
    """Apply the migrations that are missing, with --app those of the application too; a second run changes nothing."""
    from mainspring.db.migrate import ENGINE, migrate_all
    from mainspring.db.secure import is_secured, secure

    app = connection.application()
    with connection.connect() as (conn, schema):
        done = migrate_all(conn, app.migrations if app else (), schema=schema)
        if done[ENGINE] and is_secured(conn, schema=schema):  # what is new is to be secured as well
            secure(conn, schema=schema)
    if connection.json:
        output.as_json({"schema": schema, "applied": done[ENGINE], "lines": done})
        return
    for line, numbers in done.items():
        name = f"schema {schema}" if line == ENGINE else line
        print(f"{name}:", f"applied {', '.join(map(str, numbers))}" if numbers else "nothing to do")


@app.command
def status(*, connection: Connection = UNSAID) -> None:
    """Show every migration, and whether the schema is secured; fails if it does not fit this version."""
    from mainspring.db.migrate import check, engine_line, status
    from mainspring.db.secure import cover

    app = connection.application()
    lines = [engine_line(), *(app.migrations if app else ())]
    with connection.connect() as (conn, schema):
        by_line = {line.name: status(conn, schema=schema, line=line) for line in lines}
        covered = cover(conn, schema=schema)
    found = [one for statuses in by_line.values() for one in statuses]
    if connection.json:
        output.as_json({"migrations": found, "lines": by_line, "secured": covered.secured, "gaps": covered.gaps})
    else:
        rows = (
            (line, s.number, s.name, s.applied_at or "not yet", s.breaking, s.known)
            for line, statuses in by_line.items()
            for s in statuses
        )
        output.table(("LINE", "NUMBER", "NAME", "APPLIED", "BREAKING", "KNOWN"), rows, "There are no migrations.")
        print("It is secured." if covered.secured else "It is not secured: every role with access sees everything.")
        for gap in covered.gaps:
            print(f"But {gap}: run `mainspring schema secure`.")
    for statuses in by_line.values():
        check(statuses)


@app.command
def secure(*, connection: Connection = UNSAID) -> None:
    """Bind everybody to their organisation: roles with least privilege, row-level security on every table.

    Safe when run again; after an upgrade it secures what is new. Needs a role that may create roles, unless they exist.
    """
    from mainspring.db.secure import secure

    with connection.connect() as (conn, schema):
        done = secure(conn, schema=schema)
    if connection.json:
        return output.as_json(done)
    print(f"schema {schema}: {len(done.tables)} tables and {len(done.functions)} functions are secured")
    print(f"roles: created {', '.join(done.created)}" if done.created else "roles: there already")
    print("\nGive each login one of them:\n")
    for role, what in zip(done.roles, MEANT, strict=True):
        name = role if role.isidentifier() and role.islower() else f'"{role}"'
        print(f"  -- {what}\n  grant {name} to your_login;")
    return None


@app.command
def unsecure(*, connection: Connection = UNSAID) -> None:
    """Undo `secure` whole: policies, grants, and the roles that nothing else uses."""
    from mainspring.db.secure import unsecure

    with connection.connect() as (conn, schema):
        roles = unsecure(conn, schema=schema)
    if connection.json:
        return output.as_json({"schema": schema, "roles": roles})
    print(f"schema {schema} is not secured any more")
    for role, fate in roles.items():
        print(f"role {role} is {fate}")
    return None


@app.command(name="print")
def print_sql(*, connection: Connection = UNSAID) -> None:
    """Print the SQL of all migrations, for a database administrator to read or to run; needs no database."""
    from mainspring.db.script import script

    app = connection.application()
    schema = connection.schema_of(app)
    sql = "\n".join([script(schema), *(script(schema, line) for line in (app.migrations if app else ()))])
    output.as_json({"schema": schema, "sql": sql}, secrets=False) if connection.json else print(sql)
