"""`mainspring queue`: see, pause and resume queues."""

from __future__ import annotations

from contextlib import suppress

import msgspec
from cyclopts import App

from mainspring.category import DEAD_LETTER
from mainspring.cli import output
from mainspring.cli.connection import UNSAID, Connection
from mainspring.errors import NotPermitted
from mainspring.span import span
from mainspring.texts import did_you_mean

app = App(name="queue", help="See, pause and resume queues.", help_format="plaintext")

COLUMNS = ("QUEUE", "READY", "OLDEST", "TARGET", "PAUSED", "BY", "REASON")
MOST = 10_000  # jobs are counted up to here


@app.command(name="list")
def list_queues(*, connection: Connection = UNSAID) -> None:
    """Show every queue: how many jobs are ready, how late the oldest is, and who paused it.

    TARGET is how late a job of the queue may start. Dead letters are in no queue of these: see `mainspring dead list`.
    """
    with connection.client() as client:
        found, now = client.queues(), client.now()
    if connection.json:
        return output.as_json([{**msgspec.structs.asdict(queue), "late": queue.late} for queue in found])
    rows = (
        (q.name, q.ready if q.ready < MOST else f"{MOST}+", _span(q.oldest_age_s), _span(q.start_target_s), q.paused_at,
         q.paused_by, q.pause_reason) for q in found if q.name != DEAD_LETTER  # nothing is ever ready there
    )  # fmt: skip
    return output.table(COLUMNS, rows, "There are no queues.", now=now)


@app.command
def pause(queue: str, *, reason: str | None = None, connection: Connection = UNSAID) -> None:
    """Stop claims from a queue; jobs that run finish.

    When it returns, no further claim commits.

        mainspring queue pause q:exports --reason "the printer is away"

    Args:
        queue: The queue's name.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        known: list[str] = []
        with suppress(NotPermitted):  # then pausing says so
            known = [found.name for found in client.queues()]
        client.pause(queue, reason=reason)
    if connection.json:
        return output.as_json({"queue": queue, "paused": True})
    new = "" if queue in known else f"; nobody has used a queue of this name so far{did_you_mean(queue, known)}"
    return output.say(f"{queue} is paused{new}")


@app.command
def resume(queue: str, *, reason: str | None = None, connection: Connection = UNSAID) -> None:
    """Start claims from a queue again.

    Args:
        queue: The queue's name.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        resumed = client.resume(queue, reason=reason)
    if connection.json:
        output.as_json({"queue": queue, "paused": False, "resumed": resumed})
    else:
        output.say(f"{queue} {'runs again' if resumed else 'was not paused'}")


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else span(seconds)
