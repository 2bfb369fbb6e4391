"""`mainspring run-due`: run what is due once, and say what came of it."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Annotated

import msgspec
from cyclopts import Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.spans import TypedSpan
from mainspring.text.span import span


def run_due(
    *,
    limit: int = 10,
    budget: Annotated[TypedSpan, Parameter(show_default=span)] = timedelta(seconds=25),
    concurrency: int = 1,
    queues: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Run what is due once, for machines without a worker.

    Args:
        limit: At most so many jobs.
        budget: Claim nothing more after this long, such as 25s; what runs then may end.
        concurrency: So many jobs of a kind at once.
        queues: The queues to serve, such as q:default,exports; else all that the tasks use.
        connection: The database, and who acts.
    """
    from mainspring.cli.logs import log_to_stderr
    from mainspring.cli.observers import Observers
    from mainspring.worker.run_due import RunDue

    app = connection.running_application()
    dsn = connection.address(app)
    observers = Observers(app, dsn, app.schema)
    names = [name.strip() for name in queues.split(",") if name.strip()] if queues else None
    app.told.become(observers.told)
    about = app.worker_options() | {"observers": observers.all}
    due = RunDue(dsn, app.registry, limit=limit, concurrency=concurrency, queues=names, **about)
    log_to_stderr(json=connection.json)
    summary = asyncio.run(due.once(budget))
    if connection.json:
        return output.as_json(summary)
    ends = msgspec.structs.asdict(summary)
    ran, claimed = ends.pop("processed"), ends.pop("claimed")
    head = f"{ran} of {claimed} claimed job{'s' * (claimed != 1)} ran" if claimed else "no job was claimed"
    left, at = ends.pop("remaining"), output.text(ends.pop("as_of"))
    told = [f"{count} {end}" for end, count in ends.items() if count]
    return output.say(f"{head}{': ' if told else ''}{', '.join(told)}; {left} remain{'s' * (left == 1)} at {at}")
