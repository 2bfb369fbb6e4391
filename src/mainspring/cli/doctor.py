"""`mainspring doctor`: is the database fit for work, and what to do if not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions

if TYPE_CHECKING:
    from mainspring.health.doctor import Finding

_PROBLEM_EXIT = 1  # exit code


def doctor(
    *,
    deep: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> int:
    """Look at the database, its settings and the engine's tables; each finding says what to do.

    Args:
        deep: Look at every job, not only at the newest thousand.
        connection: The database, and who acts.
    """
    found = _findings(connection, deep)
    bad = sum(finding.level == "problem" for finding in found)
    if connection.json:
        output.as_json({"healthy": not bad, "findings": found})
    else:
        output.marked((f.level, f.name, f.what, f.todo) for f in found)
        warned = sum(finding.level == "warn" for finding in found)
        counts = {"finding": len(found), "problem": bad, "warning": warned}
        told = [f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items()]
        print(f"\n{told[0]}: {told[1]}, {told[2]}.")
    return _PROBLEM_EXIT if bad else 0


def _findings(connection: ConnectionOptions, deep: bool) -> list[Finding]:
    import psycopg

    from mainspring.config import answered_within, worker_config
    from mainspring.db.doctor import examine
    from mainspring.db.queues import GONE_AFTER
    from mainspring.errors import ConfigurationError
    from mainspring.health.doctor import Finding, findings

    app = connection.application()
    dsn, listen = connection.address(app), (app.worker_settings() if app else worker_config()).listen_dsn
    limit = app.patience() if app else answered_within()
    about: dict[str, Any] = {"deep": deep, "listen_dsn": listen or None, "answered_within": limit}
    try:
        return findings(examine(dsn, connection.schema_of(app), GONE_AFTER, **about))
    except psycopg.ProgrammingError as error:
        if error.sqlstate is not None:  # the server said it, of a statement
            raise
        raise ConfigurationError(f"dsn: {error}") from None
    except psycopg.OperationalError as error:
        todo = "is the server up, is its address right, does it admit this role?"
        return [Finding("connection", "problem", " ".join(str(error).split()), todo)]
