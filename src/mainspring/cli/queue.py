"""`mainspring queue`: see, pause and resume queues."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Annotated

import msgspec
from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.errors import NotPermitted, ValidationError
from mainspring.queue import DEAD_LETTER
from mainspring.text.span import span
from mainspring.text.texts import did_you_mean

app = App(name="queue", help="See, pause and resume queues.", help_format="plaintext")

COLUMNS = ("QUEUE", "READY", "OLDEST", "TARGET", "PAUSED", "BY", "REASON")
MOST_READY = 10_000  # jobs are counted up to here


@app.command(name="list")
def list_queues(*, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show every queue: how many jobs are ready, how late the oldest is, and who paused it.

    TARGET is how late a job of the queue may start. Dead letters are in no queue of these: see `mainspring dead list`.
    """
    with connection.client() as client:
        found, now = client.queues(), client.now()
    if connection.json:
        return output.as_json([{**msgspec.structs.asdict(queue), "late": queue.late} for queue in found])
    rows = (
        (q.name, q.ready if q.ready < MOST_READY else f"{MOST_READY}+", _span(q.oldest_age_s), _span(q.start_target_s),
         q.paused_at, q.paused_by, q.pause_reason) for q in found if q.name != DEAD_LETTER  # none is ready there
    )  # fmt: skip
    return output.table(COLUMNS, rows, "There are no queues.", now=now)


@app.command
def pause(queue: str, *, reason: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Stop claims from a queue; jobs that run finish.

    When it returns, no further claim commits.

        mainspring queue pause exports --reason "the printer is away"

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
def resume(queue: str, *, reason: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
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


@app.command
def fair(
    queue: str | None = None,
    *,
    weight: Annotated[list[str] | None, Parameter(negative="")] = None,
    off: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Let the organisations of a queue take turns; without a queue, show where they do.

    An organisation with many jobs then does not keep the others waiting. Jobs of
    different organisations no longer start strictly by their due time.

        mainspring queue fair q:default --weight acme=3
        mainspring queue fair q:default --off

    Args:
        queue: The queue's name.
        weight: An organisation that has a larger share than others, as name=number.
        off: By due time again.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    weights = _read_weights(weight or [])
    if off and weights:
        raise ValidationError("off: give either --weight or --off", field="off")
    with connection.client() as client:
        if queue is None:
            found, now = client.limits.turns(), client.now()
            if connection.json:
                return output.as_json(found)
            rows = ((row.queue, _weights(row.weights), row.set_at, row.app or row.set_by) for row in found)
            return output.table(("QUEUE", "WEIGHTS", "SINCE", "SAID BY"), rows, "No queue is fair.", now=now)
        if off:
            done = client.limits.unfair(queue, reason=reason)
            text = f"{queue} {'goes' if done else 'went already'} by due time"
        else:
            client.limits.fair(queue, weights=weights, reason=reason)
            text = f"the organisations of {queue} take turns{f': {_weights(weights)}' if weights else ''}"
    if connection.json:
        return output.as_json({"queue": queue, "fair": not off, "weights": {} if off else weights})
    return output.say(text)


@app.command
def depth(
    queue: str,
    *,
    most: int | None = None,
    off: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show how many jobs of a queue are ready, or refuse best-effort jobs while so many are.

    Only tasks that say best_effort=True are refused; all others are always taken.

        mainspring queue depth q:notifications
        mainspring queue depth q:notifications --most 50000 --reason "it is away"

    Args:
        queue: The queue's name.
        most: Refuse best-effort jobs while so many are ready.
        off: Refuse nothing.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    if off and most is not None:
        raise ValidationError("off: give either --most or --off", field="off")
    with connection.client() as client:
        if most is not None or off:
            client.limits.depth(queue, None if off else most, reason=reason)
        ready = client.depth(queue, limit=MOST_READY)
        bound = next((found.max_depth for found in client.queues() if found.name == queue), None)
    if connection.json:
        return output.as_json({"queue": queue, "ready": ready, "max_depth": bound})
    rule = "refuses nothing" if bound is None else f"refuses best-effort jobs from {bound} on"
    return output.say(f"{queue} has {ready}{'+' * (ready >= MOST_READY)} ready jobs, and {rule}")


def _read_weights(pairs: list[str]) -> dict[str, int]:
    weights: dict[str, int] = {}
    for org, _, number in (pair.rpartition("=") for pair in pairs):
        if not org or not number.isdecimal():
            raise ValidationError("weight: is not of the form organisation=number", field="weight")
        weights[org] = int(number)
    return weights


def _weights(weights: Mapping[str, int]) -> str:
    return ", ".join(f"{org} {number}" for org, number in sorted(weights.items()))


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else span(seconds)
