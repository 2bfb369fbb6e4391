"""`mainspring audit`: who did what, sealed so that nobody changes it unseen."""

from __future__ import annotations

import sys
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.ids import TypedId, job_named
from mainspring.errors import ValidationError

if TYPE_CHECKING:
    from mainspring.audit import AuditEvent

app = App(name="audit", help="See who did what, and check that nobody changed it.", help_format="plaintext")

COLUMNS = ("AT", "EVENT", "ORG", "BY", "JOB", "TASK", "ATTEMPT", "SUBJECT", "ID", "DETAIL")
_GLANCE = 200  # characters of what an event brings along
EXIT_BROKEN_SEAL = 1  # the exit code when something is not as it was sealed


@app.command(name="list")
def list_events(
    *,
    job: TypedId | None = None,
    event: str | None = None,
    subject: str | None = None,
    org: str | None = None,
    actor: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    limit: int = 50,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show events, newest first; of one job all of them, in order.

    Without --job those that are stored: that a job was enqueued, started or succeeded stands with the job itself.

    Args:
        job: Everything that happened to this job: its id, or its first eight digits or more.
        event: Only events of this name, such as job.replayed.
        subject: Only events about this, such as "booking 17".
        org: Only events of this organisation; SYSTEM is the engine's own.
        actor: Only what this person or program did or asked for.
        since: Only events from this instant on, such as 2030-01-31T08:00:00Z.
        until: Only events before this instant.
        before: Continue after the event with this id, the last one seen.
        limit: At most so many, up to 1000.
        connection: The database, and who acts.
    """
    filters: dict[str, Any] = {"subject": subject, "actor": actor, "since": since, "until": until, "before": before}
    with connection.client() as client:
        if job is None:
            found = client.audit.events(org=org, event=event, limit=limit, **filters)
        elif any(value is not None for value in filters.values()):
            raise ValidationError("job: is given together with a filter for many", field="job")
        else:
            found = client.audit.trail(job_named(client, job, org), event=event, org=org)
    output.as_json(found) if connection.json else output.table(COLUMNS, map(_row, found), "There are no such events.")


@app.command
def seal(*, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Seal now what workers would seal within a minute.

    Args:
        org: Only this organisation.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        rows = client.audit.seal(org=org)
    output.as_json({"sealed": rows}) if connection.json else output.say(f"{rows} event{'s' * (rows != 1)} sealed")


@app.command
def head(*, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show the last seal of each organisation: keep the hashes where the database's owner cannot reach them.

    Args:
        org: Only this organisation.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        heads = client.audit.heads(org=org)
    if connection.json:
        return output.as_json(heads)
    rows = ((h.org_id, h.number, h.sealed_at, h.hash) for h in heads)
    return output.table(("ORG", "SEAL", "SEALED", "HASH"), rows, "Nothing is sealed yet.")


@app.command
def verify(
    *,
    org: str | None = None,
    head: Annotated[str | None, Parameter(show_default=False)] = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> int:
    """Recompute every seal; fails, and names them, if rows were changed, removed or put in.

    Args:
        org: Only this organisation.
        head: A hash that `audit head` once showed: the chain must still hold it.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        found = client.audit.verify(org=org, head=head, progress=_progress)
    findings = [finding for verified in found for finding in verified.findings]
    if connection.json:
        output.as_json({"ok": not findings, "organisations": found})
        return EXIT_BROKEN_SEAL if findings else 0
    rows = ((v.org_id, v.seals, v.rows, v.waiting, v.oldest_waiting, len(v.findings)) for v in found)
    columns = ("ORG", "SEALS", "SEALED EVENTS", "NOT YET SEALED", "SINCE", "WRONG")
    output.table(columns, rows, "There are no events.")
    for finding in findings:
        output.say(str(finding))
    count = len(findings)
    output.say(f"{count} finding{'s' * (count != 1)}" if count else "Nothing was changed, removed or put in.")
    return EXIT_BROKEN_SEAL if findings else 0


def _progress(org: str, seals: int, rows: int) -> None:
    if sys.stderr.isatty():
        print(f"\r{org}: {seals} seals, {rows} events", end="\x1b[K", file=sys.stderr, flush=True)


def _row(event: AuditEvent) -> tuple[Any, ...]:
    job = event.job_id, event.task, event.attempt
    return event.at, event.event, event.org_id, event.by, *job, event.subject, event.id, _detail(event.detail)


def _detail(detail: dict[str, Any]) -> str:
    """Why first, then as much of the rest as can be read at a glance; `--json` has all of it."""
    told = {name: value for name, value in detail.items() if value is not None and name not in ("by", "reason")}
    whole = ". ".join(output.text(part) for part in (detail.get("reason"), told) if part)
    return whole if len(whole) <= _GLANCE else f"{whole[:_GLANCE]}…"
