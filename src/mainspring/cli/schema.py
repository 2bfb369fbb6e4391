"""`mainspring schema`: install and update the database schema."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from cyclopts import App

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions

if TYPE_CHECKING:
    from mainspring.db.schema.status import VerbStatus

#: Who connects as a member of the worker, api and operator role.
MEANT = (
    "workers: jobs of all organisations, and inside a job its own",
    "your application: the organisation that its transaction names, and nothing without one",
    "people on call: likewise; they also replay, discard, fix forward, prioritize and pause",
)

#: So many verbs that differ are named.
_NAMED_AT_MOST = 5

app = App(name="schema", help="Install and update the database schema.", help_format="plaintext")


@app.command
def migrate(*, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Apply the tables that are missing and replace the functions, views and triggers that have changed.

    With --app those of the application too; a second run changes nothing. What is new on a secured schema is secured.
    """
    from mainspring.db.schema.line import ENGINE_LINE
    from mainspring.db.schema.migrate import migrate_all

    app = connection.application()
    with connection.connect(long=True) as (conn, schema):
        done = migrate_all(conn, app.migrations if app else (), schema=schema)
    if connection.json:
        output.as_json({"schema": schema, "lines": done})
        return
    for line, applied in done.items():
        tables = [f"applied tables {', '.join(map(str, applied.tables))}"] if applied.tables else []
        verbs = [f"replaced {_count(applied.verbs)}"] if applied.verbs else []
        newer = [f"its verbs stay, of the later edition {applied.newer}"] if applied.newer else []
        name = f"schema {schema}" if line == ENGINE_LINE else line
        print(f"{name}:", "; ".join(tables + verbs + newer) or "nothing to do")


@app.command
def status(*, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show tables and verbs, and whether the schema is secured; fails if it does not fit this version.

    Verbs are the functions, views and triggers.
    """
    from mainspring.db.schema.line import engine_line
    from mainspring.db.schema.secure import cover
    from mainspring.db.schema.status import check, status

    app = connection.application()
    lines = [engine_line(), *(app.migrations if app else ())]
    with connection.connect() as (conn, schema):
        by_line = {line.name: status(conn, schema=schema, line=line) for line in lines}
        covered = cover(conn, schema=schema)
    if connection.json:
        output.as_json({"lines": by_line, "secured": covered.secured, "gaps": covered.gaps})
    else:
        rows = (
            (line, s.number, s.name, s.applied_at or "not yet", s.breaking, "in another form" if s.changed else s.known)
            for line, found in by_line.items()
            for s in found.tables
        )
        output.table(("LINE", "NUMBER", "TABLES", "APPLIED", "BREAKING", "KNOWN"), rows, "There are no tables.")
        for line, found in by_line.items():
            print(f"{line}: {_verbs(found.verbs)}.")
        print("It is secured." if covered.secured else "It is not secured: every role with access sees everything.")
        for gap in covered.gaps:
            print(f"But {gap}: run `mainspring schema secure`.")
    for found in by_line.values():
        check(found)


@app.command
def secure(*, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Bind everybody to their organisation: roles with least privilege, row-level security on every table.

    Safe when run again; after an upgrade it secures what is new. Needs a role that may create roles, unless they exist.
    """
    from mainspring.db.schema.secure import secure

    with connection.connect(long=True) as (conn, schema):
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
def unsecure(*, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Undo `secure` whole: policies, grants, and the roles that nothing else uses."""
    from mainspring.db.schema.secure import unsecure

    with connection.connect(long=True) as (conn, schema):
        roles = unsecure(conn, schema=schema)
    if connection.json:
        return output.as_json({"schema": schema, "roles": roles})
    print(f"schema {schema} is not secured any more")
    for role, fate in roles.items():
        print(f"role {role} is {fate}")
    return None


@app.command(name="print")
def print_sql(*, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Print the SQL of all tables and verbs, for a database administrator to read or to run; needs no database."""
    from mainspring.db.schema.script import script

    app = connection.application()
    schema = connection.schema_of(app)
    sql = "\n".join([script(schema), *(script(schema, line) for line in (app.migrations if app else ()))])
    output.as_json({"schema": schema, "sql": sql}, secrets=False) if connection.json else print(sql)


def _verbs(verbs: VerbStatus) -> str:
    """How the verbs of a line stand."""
    if verbs.edition > verbs.ours:
        return f"its verbs are of edition {verbs.edition}, later than this version's {verbs.ours}, and serve it too"
    if not verbs.differ:
        return f"its verbs are those of this version, edition {verbs.ours}"
    names = ", ".join(verbs.differ[:_NAMED_AT_MOST]) + (" …" if len(verbs.differ) > _NAMED_AT_MOST else "")
    return f"{_count(verbs.differ)} to replace or to create ({names})"


def _count(verbs: Sequence[str]) -> str:
    return f"{len(verbs)} verb{'s' if len(verbs) != 1 else ''}"
