"""`mainspring alert`: what somebody should look at now, and the same as rules for Prometheus."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID, Connection

app = App(name="alert", help="See what somebody should look at.", help_format="plaintext")

COLUMNS = ("ALERT", "SEVERITY", "RUNBOOK", "WHAT")


@app.command(name="list")
def list_alerts(*, connection: Connection = UNSAID) -> None:
    """Show what fires now, by the state of the database; exit code 0 whether or not something does.

    Args:
        connection: The database, and who acts.
    """
    from mainspring.db.gauges import gauges
    from mainspring.db.run import psycopg_door, run
    from mainspring.db.schema import Sql
    from mainspring.observe.alerts import raised, wrong

    with connection.connect() as (conn, schema), conn.transaction():
        found = run(psycopg_door(conn), gauges(Sql(schema)))
    alerts = [raised(name, text, None, queue) for (name, queue), text in wrong(found)]
    if connection.json:
        return output.as_json(alerts)
    rows = ((alert.alert, alert.severity, alert.runbook, alert.text) for alert in alerts)
    return output.table(COLUMNS, rows, "Nothing fires.")


@app.command
def rules(*, runbook: Annotated[str, Parameter(show_default=False)] = "") -> None:
    """Print every alert as a rules file for Prometheus.

    Needs no database. Load it anew with each version of Mainspring.

        mainspring alert rules > /etc/prometheus/mainspring.yml
        mainspring alert rules --runbook https://git.example.com/blob/main

    Args:
        runbook: Where the repository can be read, which links to the runbook then begin with.
    """
    from mainspring.observe.alerts import prometheus_rules

    print(prometheus_rules(runbook), end="")
