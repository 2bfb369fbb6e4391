"""`mainspring queue`: see, pause and resume queues."""

from __future__ import annotations

import msgspec
from cyclopts import App

from mainspring.cli import output
from mainspring.cli.connection import UNSAID, Connection

app = App(name="queue", help="See, pause and resume queues.", help_format="plaintext")

COLUMNS = ("QUEUE", "READY", "OLDEST, S", "TARGET, S", "PAUSED", "BY", "REASON")
MOST = 10_000  # jobs are counted up to here


@app.command(name="list")
def list_queues(*, connection: Connection = UNSAID) -> None:
    """Show every queue: how many jobs are ready, how late the oldest is, and who paused it."""
    with connection.client() as client:
        found = [(queue, client.depth(queue.name, limit=MOST)) for queue in client.queues()]
    if connection.json:
        return output.as_json([{**msgspec.structs.asdict(q), "ready": depth, "late": q.late} for q, depth in found])
    rows = (
        (q.name, depth if depth < MOST else f"{MOST}+", q.oldest_age_s, q.start_target_s, q.paused_at, q.paused_by,
         q.pause_reason) for q, depth in found
    )  # fmt: skip
    return output.table(COLUMNS, rows, "There are no queues.")


@app.command
def pause(queue: str, *, reason: str | None = None, connection: Connection = UNSAID) -> None:
    """Stop claims from a queue; jobs that run finish.

    Args:
        queue: The queue's name.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        client.pause(queue, reason=reason)
    output.as_json({"queue": queue, "paused": True}) if connection.json else print(f"{queue} is paused")


@app.command
def resume(queue: str, *, connection: Connection = UNSAID) -> None:
    """Start claims from a queue again.

    Args:
        queue: The queue's name.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        resumed = client.resume(queue)
    if connection.json:
        output.as_json({"queue": queue, "paused": False, "resumed": resumed})
    else:
        print(f"{queue} {'runs again' if resumed else 'was not paused'}")
