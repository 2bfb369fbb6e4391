"""`mainspring alert`: what somebody should look at now, and the same as rules for Prometheus."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.errors import UnknownName, ValidationError

if TYPE_CHECKING:
    from mainspring.events import Alert
    from mainspring.health.alert import AlertRow

app = App(name="alert", help="See what somebody should look at.", help_format="plaintext")

COLUMNS = ("ALERT", "SUBJECT", "SEVERITY", "OPENED", "COUNT", "RUNBOOK", "WHAT")
OVER = ("CLOSED", "CLOSED BY")  # shown beside those by --all
MOST_ALERTS = 10_000


@app.command(name="list")
def list_alerts(
    *,
    everything: Annotated[bool, Parameter(name="--all", negative="")] = False,
    name: str | None = None,
    org: str | None = None,
    limit: int = 100,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show what fires now: alerts that are open, and what the state of the database says.

    Its exit code is 0 whether or not something fires.

        mainspring alert list
        mainspring alert list --all --name payment-needs-a-person

    Args:
        everything: Also alerts that are closed.
        name: Only alerts of this name.
        org: Only alerts of this organisation.
        limit: At most so many alerts.
        connection: The database.
    """
    with connection.client() as client:
        rows = client.alerts.list(open=None if everything else True, name=name, org=org, limit=limit)
        now = client.now()
    engine = [] if org is not None else [one for one in _engine(connection) if name in (None, one.alert)]
    if connection.json:
        return output.as_json([*map(_document, rows), *map(msgspec.to_builtins, engine)])
    cells = [_row(row) for row in rows]
    cells += [(one.alert, one.queue, one.severity, None, None, one.runbook, one.text, None, None) for one in engine]
    if not everything:
        return output.table(COLUMNS, (row[:-2] for row in cells), "Nothing fires.", now=now)
    columns = (*COLUMNS[:-1], *OVER, COLUMNS[-1])
    return output.table(columns, ((*row[:-3], *row[-2:], row[-3]) for row in cells), "Nothing has fired.", now=now)


@app.command
def close(
    name: str,
    subject: str = "",
    *,
    reason: str,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Close an alert that somebody has looked at.

    A watch opens it again if it still finds it wrong.

        mainspring alert close payment-needs-a-person "booking 17" --reason "the customer has a new card"

    Args:
        name: The alert's name.
        subject: What it is about, if it is about something.
        reason: Why, for the audit trail.
        org: The organisation, where the same is open in several.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        found = [one for one in client.alerts.list(name=name, org=org, limit=MOST_ALERTS) if one.subject == subject]
        if len(found) > 1:
            orgs = ", ".join(sorted(one.org_id for one in found))
            raise ValidationError(f"org: it is open in {orgs}: say which by --org", field="org")
        if not found or not client.alerts.close(name, subject, reason=reason, org=found[0].org_id):
            raise UnknownName(f"name: no alert {name!r}{f' of {subject!r}' * bool(subject)} is open", field="name")
    if connection.json:
        return output.as_json({"alert": name, "subject": subject, "org_id": found[0].org_id, "closed": True})
    return output.say(f"{' '.join(filter(None, (name, subject)))}: closed.")


@app.command
def rules(*, runbook: Annotated[str, Parameter(show_default=False)] = "") -> None:
    """Print every alert of the engine as a rules file for Prometheus.

    Needs no database. Load it anew with each version of Mainspring.

        mainspring alert rules > /etc/prometheus/mainspring.yml
        mainspring alert rules --runbook https://git.example.com/blob/main

    Args:
        runbook: Where the repository can be read, which links to the runbook then begin with.
    """
    from mainspring.observe.alerts import prometheus_rules

    print(prometheus_rules(runbook), end="")


def _engine(connection: ConnectionOptions) -> list[Alert]:
    """What fires by the state of the database, which no row says."""
    from mainspring.db.gauges import gauges
    from mainspring.db.wire.run import psycopg_door, run
    from mainspring.db.wire.sql import Sql
    from mainspring.observe.alerts import raised, wrong

    with connection.connect() as (conn, schema), conn.transaction():
        found = run(psycopg_door(conn), gauges(Sql(schema)))
    return [raised(name, text, None, queue) for (name, queue), text in wrong(found)]


def _document(row: AlertRow) -> dict[str, Any]:
    fields = msgspec.to_builtins(row)
    return {"alert": fields.pop("name"), "firing": row.is_open, **fields}


def _row(row: AlertRow) -> tuple[Any, ...]:
    from mainspring.db.alerts import runbook

    shown = (row.name, row.subject, row.severity, row.opened_at, row.count, runbook(row.name), row.text)
    return (*shown, row.closed_at, row.closed_by)
