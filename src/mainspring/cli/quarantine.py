"""`mainspring quarantine`: see tasks that are held back because they kill workers, and let them go."""

from __future__ import annotations

from cyclopts import App

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions

app = App(name="quarantine", help="See tasks that kill workers, and let them go.", help_format="plaintext")

COLUMNS = ("TASK", "SINCE", "WORKERS", "NEXT PROBE", "WAITING")


@app.command(name="list")
def list_quarantine(*, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show every task whose jobs have killed several workers.

    Its jobs wait, but for one a second at most, which runs alone as a probe. The
    first that succeeds lets the task go. WAITING counts among the oldest 10,000 jobs.

    Args:
        connection: The database.
    """
    with connection.client() as client:
        found, now = client.quarantine.list(), client.now()
    if connection.json:
        return output.as_json(found)
    rows = ((one.task, one.held_at, len(one.workers), one.next_probe, one.waiting) for one in found)
    return output.table(COLUMNS, rows, "No task is in quarantine.", now=now)


@app.command
def release(task: str, *, reason: str, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Let a task go: its jobs run like others again, and what it killed is forgotten.

        mainspring quarantine release resize --reason "fixed in 4.2"

    Args:
        task: The task's name.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        changed = client.quarantine.release(task, reason=reason)
    if connection.json:
        return output.as_json({"task": task, "released": changed})
    return output.say(f"{task} {'is no longer in quarantine' if changed else 'was not in quarantine'}")
