"""`mainspring job`: enqueue, look at and change jobs."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Annotated, Any
from uuid import UUID

import msgspec
from cyclopts import App, Parameter

from mainspring.checks import did_you_mean, read_payload
from mainspring.cli import output
from mainspring.cli.connection import UNSAID, Connection
from mainspring.dedupe import Mode
from mainspring.errors import JobNotFound, TransitionRefused, ValidationError
from mainspring.job import Job, NewJob
from mainspring.states import State
from mainspring.task import Task

app = App(name="job", help="Enqueue, look at and change jobs.", help_format="plaintext")

COLUMNS = ("ID", "TASK", "STATE", "QUEUE", "ATTEMPT", "CREATED", "DUE", "ERROR")


@app.command
def enqueue(
    task: str,
    payload: str | None = None,
    *,
    field: Annotated[tuple[str, ...], Parameter(name=["--field", "-f"], negative="")] = (),
    queue: str | None = None,
    priority: int | None = None,
    at: datetime | None = None,
    delay: timedelta | None = None,
    key: str | None = None,
    mode: Mode | None = None,
    org: str | None = None,
    actor: str | None = None,
    connection: Connection = UNSAID,
) -> None:
    """Enqueue a job. With --app its payload is checked against the task.

    Args:
        task: The task's name.
        payload: A JSON object.
        field: A field of the payload, name=value, in place of the JSON object; may be repeated.
        queue: The queue, if not the task's.
        priority: From 0 (first) to 3 (last).
        at: Run no sooner than this instant, such as 2030-01-31T08:00:00Z.
        delay: Run no sooner than this long from now, such as 90s or 2h.
        key: An idempotency key.
        mode: What a second enqueue under the key does.
        org: The organisation that the job belongs to.
        actor: Who asked for the job, if not you.
        connection: The database, and who acts.
    """
    app = connection.application()
    raw = read_payload(_payload(payload, field))
    job = _of_task(app.registry.get(task), bytes(raw)) if app else NewJob(task=task, payload=raw)
    given = {"queue": queue, "priority": priority, "key": key, "mode": mode, "org_id": org}
    job = msgspec.structs.replace(job, **{name: value for name, value in given.items() if value is not None})
    job = job.at(at) if at else job
    job = job.after(delay) if delay is not None else job
    job = job.by(actor) if actor else job
    with connection.client(app) as client:
        answer = client.enqueue(job)
    output.as_json(answer) if connection.json else print(f"{answer.id}  {answer.answer}, {answer.state}")


@app.command(name="list")
def list_jobs(
    *,
    state: State | None = None,
    queue: str | None = None,
    task: str | None = None,
    org: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
    connection: Connection = UNSAID,
) -> None:
    """Show jobs, newest first.

    Args:
        state: Only jobs in this state.
        queue: Only jobs of this queue.
        task: Only jobs of this task.
        org: Only jobs of this organisation.
        before: Continue after this job, the last one seen.
        limit: At most so many, up to 1000.
        connection: The database, and who acts.
    """
    filters: dict[str, Any] = {"state": state, "queue": queue, "task": task, "before": before, "limit": limit}
    with connection.client() as client:
        jobs = client.jobs(org=org, **filters)
    output.as_json(jobs) if connection.json else output.table(COLUMNS, map(_row, jobs), "There are no such jobs.")


@app.command
def show(job: UUID, *, org: str | None = None, connection: Connection = UNSAID) -> None:
    """Show one job: its envelope, its state, its attempts and its error.

    Args:
        job: The job's id.
        org: The organisation that the job must belong to.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        found, attempts = client.get(job, org=org), client.attempts(job, org=org)
    if connection.json:
        return output.as_json({**msgspec.structs.asdict(found), "attempts": attempts})
    stack = (found.error or {}).get("stack")
    error = {name: value for name, value in (found.error or {}).items() if name != "stack"}
    output.fields({**msgspec.structs.asdict(found), "error": error})
    print(f"\n{stack.rstrip()}" if stack else "")
    rows = ((a.attempt, a.outcome, a.started_at, a.ended_at, a.worker, _message(a.error)) for a in attempts)
    output.table(("ATTEMPT", "OUTCOME", "STARTED", "ENDED", "WORKER", "ERROR"), rows, "It has not been attempted yet.")
    return None


@app.command
def cancel(
    job: UUID | None = None,
    *,
    key: str | None = None,
    org: str | None = None,
    reason: str | None = None,
    connection: Connection = UNSAID,
) -> None:
    """Stop a job: at once while it waits, by its token while it runs.

    Args:
        job: The job's id.
        key: The job's key, in place of its id.
        org: The organisation that the job belongs to.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        outcome = client.cancel(job, key=key, org=org, reason=reason)
    name = f"job {job}" if job else f"the job under key {key}"
    if outcome == "not_found":
        raise JobNotFound(f"there is no {name.removeprefix('the ')}", job_id=job)
    if outcome in ("already_finished", "not_cancellable"):
        raise TransitionRefused(f"cancel: {name} is {outcome.replace('_', ' ')}", verb="cancel", state=None, job_id=job)
    output.as_json({"outcome": outcome}) if connection.json else print(f"{name}: {outcome.replace('_', ' ')}")


@app.command
def reschedule(
    job: UUID | None = None,
    *,
    at: datetime | None = None,
    delay: timedelta | None = None,
    key: str | None = None,
    org: str | None = None,
    connection: Connection = UNSAID,
) -> None:
    """Move a job that waits to another time.

    Args:
        job: The job's id.
        at: An instant, such as 2030-01-31T08:00:00Z.
        delay: How long from now, such as 90s or 2h; 0s for now.
        key: The job's key, in place of its id.
        org: The organisation that the job belongs to.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        state = client.reschedule(job, key=key, org=org, at=at, delay=delay)
    output.as_json({"state": state}) if connection.json else print(f"{job or key}: {state}")


@app.command
def replay(job: UUID, *, reason: str | None = None, org: str | None = None, connection: Connection = UNSAID) -> None:
    """Make a failed or dead job ready again, with all its attempts.

    Args:
        job: The job's id.
        reason: Why, for the audit trail.
        org: The organisation that the job belongs to.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        client.replay(job, reason=reason, org=org)
    output.as_json({"state": "ready"}) if connection.json else print(f"{job}: ready")


def _of_task(task: Task[Any, Any], raw: bytes) -> NewJob:
    """The job of a known task. A worker forgives fields that it does not know, a person who types is told."""
    for name in json.loads(raw).keys() - task.codec.fields:
        raise ValidationError(f"{name}: is not a field{did_you_mean(name, task.codec.fields)}", field=name)
    return task.job(**task.codec.decode(raw.decode()))


def _payload(text: str | None, pairs: tuple[str, ...]) -> str:
    """The payload as it was typed, or made of fields: their values are JSON where they can be read so, else text."""
    if text is not None and pairs:
        raise ValidationError("payload: give either a JSON object or fields", field="payload")
    values: dict[str, Any] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name or name in values:
            raise ValidationError(f"field: {pair!r} is not of the form name=value, each name once", field="field")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
    return text if text is not None else json.dumps(values)


def _row(job: Job) -> tuple[Any, ...]:
    attempts = f"{job.attempt}/{job.max_attempts}"
    due = job.due_at if job.state in ("scheduled", "retrying") else None
    return job.id, job.task, job.state, job.queue, attempts, job.created_at, due, _message(job.error)


def _message(error: dict[str, Any] | None) -> str:
    return f"{error.get('code')}: {error.get('message')}"[:200] if error else ""
