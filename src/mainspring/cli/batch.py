"""`mainspring batch`: how far batches are, and what is done about them."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import UUID

import msgspec
from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.ids import TypedId, batch_named

if TYPE_CHECKING:
    from mainspring.together.batch import Batch

app = App(name="batch", help="See how far batches are, retry what failed, cancel.", help_format="plaintext")

COLUMNS = ("ID", "NAME", "STATE", "DONE", "TOTAL", "SUCCEEDED", "FAILED", "DEAD", "CANCELLED", "RUNNING", "CREATED")
BATCH_COUNTS = ("total", "succeeded", "failed", "dead", "cancelled", "running", "waiting")
BATCH_LOOK_S = 0.5
BAR_WIDTH = 24  # of the bar


@app.command(name="list")
def list_batches(
    *,
    state: Literal["open", "running", "stopping", "finished"] | None = None,
    limit: int = 20,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show batches, newest first, with their counts.

    Args:
        state: Only those in this state.
        limit: At most so many.
        connection: The database.
    """
    with connection.client() as client:
        found, now = client.batches.list(state=state, limit=limit), client.now()
    if connection.json:
        return output.as_json([_document(batch) for batch in found])
    rows = (
        (b.id, b.name, b.state, f"{b.percent:.0f} %", b.total, b.succeeded, b.failed, b.dead, b.cancelled, b.running,
         b.created_at) for b in found
    )  # fmt: skip
    return output.table(COLUMNS, rows, "There are no such batches.", now=now)


@app.command
def show(
    batch: TypedId,
    *,
    watch: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show one batch: its counts, its policy, and which of its jobs failed.

    They are counted when you look.

        mainspring batch show 0199d2f6-7a5b-7c34-9f3e-0a1b2c3d4e5f --watch

    Args:
        batch: The batch's id, or its first eight digits or more.
        watch: Show a bar until the batch has finished; with --json, a line for each change.
        connection: The database.
    """
    with connection.client() as client:
        found = client.batches.get(batch_named(client, batch))
        if watch:
            found = _watched(client, found, connection.json)
        failed = [] if watch and connection.json else _failed(client, found.id)
        now = client.now()
    if connection.json:
        return None if watch else output.as_json(_document(found) | {"failed_jobs": failed})
    output.fields({**_about(found), "done": f"{found.percent:.1f} %", **_counts(found)}, now=now)
    if failed:
        print()
        rows = ((job["id"], job["state"], f"{job['code']}: {job['message']}") for job in failed)
        output.table(("JOB", "STATE", "ERROR"), rows, "")
    return None


@app.command(name="retry-failed")
def retry_failed(batch: TypedId, *, reason: str, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Replay the jobs of a batch that failed or died, and only those.

    Its on-finish job runs again when they have ended.

    Args:
        batch: The batch's id, or its first eight digits or more.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        found = batch_named(client, batch)
        count = client.batches.retry_failed(found, reason=reason)
    if connection.json:
        return output.as_json({"batch": found, "replayed": count})
    return output.say(f"{count} job{'s' * (count != 1)} of batch {found} replayed")


@app.command
def cancel(batch: TypedId, *, reason: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Cancel what has not started of a batch, and ask what runs to stop.

    Args:
        batch: The batch's id, or its first eight digits or more.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        meant = batch_named(client, batch)
        client.batches.cancel(meant, reason=reason)
        found = client.batches.get(meant)
    if connection.json:
        return output.as_json(_document(found))
    rest = f"; {found.running} still run{'s' * (found.running == 1)}" if found.running else ""
    return output.say(f"batch {meant} is {found.state}: {found.cancelled} cancelled{rest}")


def _watched(client: Any, batch: Batch, as_json: bool) -> Batch:
    """Look until it has finished, and show each change."""
    from rich.live import Live

    console = output.console()
    if as_json or not console.is_terminal:
        last = None
        while True:
            if (counts := _counts(batch)) != last:
                output.as_json(_document(batch), compact=True) if as_json else output.say(bar(batch))
            if batch.state == "finished":
                return batch
            last = counts
            time.sleep(BATCH_LOOK_S)
            batch = client.batches.get(batch.id)
    with Live(bar(batch), console=console, refresh_per_second=4) as live:
        while batch.state != "finished":
            time.sleep(BATCH_LOOK_S)
            batch = client.batches.get(batch.id)
            live.update(bar(batch))
    return batch


def bar(batch: Batch) -> str:
    """How far a batch is, in one line."""
    full = int(BAR_WIDTH * batch.percent / 100)
    said = " · ".join(f"{name} {getattr(batch, name)}" for name in BATCH_COUNTS[1:] if getattr(batch, name))
    return f"{output.line(batch.name)}  {'█' * full}{'░' * (BAR_WIDTH - full)}  {batch.ended} of {batch.total}  {said}"


def _failed(client: Any, batch: UUID) -> list[dict[str, Any]]:
    """The first jobs that nobody has decided about, and why they failed."""
    jobs = [job for state in ("failed", "dead") for job in client.batches.members(batch, state=state, limit=10)]
    found = [(job, job.error or {}) for job in jobs if job.resolution is None]
    return [
        {"id": job.id, "state": job.state, "code": error.get("code"), "message": error.get("message")}
        for job, error in found
    ]


def _about(batch: Batch) -> dict[str, Any]:
    names = ("id", "name", "state", "org_id", "on_failure", "on_finish", "stop_reason", "created_at", "finished_at")
    return {name: getattr(batch, name) for name in names}


def _counts(batch: Batch) -> dict[str, Any]:
    return {name: getattr(batch, name) for name in BATCH_COUNTS}


def _document(batch: Batch) -> dict[str, Any]:
    return {**msgspec.structs.asdict(batch), "percent": round(batch.percent, 2)}
