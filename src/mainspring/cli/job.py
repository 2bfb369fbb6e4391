"""`mainspring job`: enqueue, look at and change jobs."""

from __future__ import annotations

import json
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

import mainspring.contrib  # noqa: F401 (what the error codes of blocks mean)
from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.ids import TypedId, job_named
from mainspring.cli.spans import TypedSpan
from mainspring.codes import explained
from mainspring.dedupe import Mode
from mainspring.errors import JobNotFound, TransitionRefused, ValidationError
from mainspring.job import Job, NewJob, Progress
from mainspring.states import State
from mainspring.text.document import read_payload
from mainspring.text.texts import shown

if TYPE_CHECKING:
    from uuid import UUID

    from mainspring.client import Client

app = App(name="job", help="Enqueue, look at and change jobs.", help_format="plaintext")

COLUMNS = ("ID", "TASK", "STATE", "QUEUE", "ATTEMPT", "CREATED", "DUE", "ERROR")


@app.command
def enqueue(
    task: str,
    payload: str | None = None,
    *,
    field: Annotated[tuple[str, ...], Parameter(name=["--field", "-f"], negative="", show_default=False)] = (),
    queue: str | None = None,
    priority: int | None = None,
    at: datetime | None = None,
    delay: TypedSpan | None = None,
    key: str | None = None,
    mode: Mode | None = None,
    org: str | None = None,
    actor: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Enqueue a job. With --app its payload is checked against the task.

    A field's value is read as JSON where it can be, else as text.

        mainspring job enqueue send_welcome -f user_id=7 --delay 2h
        mainspring job enqueue send_welcome '{"user_id": 7}' --key welcome:7

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
        org: The organisation that the job belongs to; else `default`.
        actor: Who asked for the job, if not you.
        connection: The database, and who acts.
    """
    if at is not None and at.tzinfo is None:
        raise ValidationError("at: has no time zone, such as the Z of 2030-01-31T08:00:00Z", field="at")
    app = connection.application()
    text = _payload(payload, field)
    job = app.registry.get(task).typed(text) if app else NewJob(task=task, payload=read_payload(text))
    given = {"queue": queue, "priority": priority, "key": key, "mode": mode, "org_id": org}
    job = msgspec.structs.replace(job, **{name: value for name, value in given.items() if value is not None})
    job = job.at(at) if at else job
    job = job.after(delay) if delay is not None else job
    job = job.by(actor) if actor else job
    with connection.client(app) as client:
        answer = client.enqueue(job)
    output.as_json(answer) if connection.json else output.say(f"{answer.id}  {answer.answer}, {answer.state}")


@app.command(name="list")
def list_jobs(
    *,
    state: State | None = None,
    queue: str | None = None,
    task: str | None = None,
    org: str | None = None,
    before: TypedId | None = None,
    limit: int = 50,
    connection: ConnectionOptions = UNSAID_CONNECTION,
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
    filters: dict[str, Any] = {"state": state, "queue": queue, "task": task, "limit": limit}
    with connection.client() as client:
        last = None if before is None else job_named(client, before, org)
        jobs, now = client.jobs(org=org, before=last, **filters), client.now()
    if connection.json:
        output.as_json(jobs)
    else:
        output.table(COLUMNS, map(_row, jobs), "There are no such jobs.", now=now)


@app.command
def show(
    job: TypedId | None = None,
    *,
    key: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show one job: its envelope, its state, its attempts and its error.

    By its id, or by the key under which it was enqueued.

        mainspring job show --key auto-approve:9

    Args:
        job: The job's id, or its first eight digits or more.
        key: The job's key, in place of its id: the last job that was enqueued under it.
        org: The organisation that the job must belong to.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        found, now = client.get(_id(client, job, org), key=key, org=org), client.now()
        attempts, steps = client.attempts(found.id, org=org), client.steps(found.id, org=org)
    plan = _plan(found)
    if connection.json:
        about = {"attempts": attempts, "steps": steps, "plan": plan or None}
        return output.as_json({**msgspec.structs.asdict(found), **about})
    stack = (found.error or {}).get("stack")
    error = {name: value for name, value in (found.error or {}).items() if name != "stack"}
    about = {"error": error, **plan, "progress": _progress(found.progress)}
    output.fields({**msgspec.structs.asdict(found), **about}, now=now)
    print()
    if stack:
        output.block(stack)
    rows = ((a.attempt, a.outcome, a.started_at, a.ended_at, a.worker, _message(a.error)) for a in attempts)
    output.table(("ATTEMPT", "OUTCOME", "STARTED", "ENDED", "WORKER", "ERROR"), rows, "It has not been attempted yet.")
    if steps:
        output.table(("STEP", "DONE", "WORKER"), ((s.name, s.done_at, s.worker) for s in steps), "")
    return None


@app.command
def explain(
    job: TypedId | None = None,
    *,
    key: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Say why a job is not running (yet): the claim's own conditions, one by one.

    A tick holds, a cross does not, a dot does not decide.

        mainspring job explain 0199aa10-51f4

    Args:
        job: The job's id, or its first eight digits or more.
        key: The job's key, in place of its id: the last job that was enqueued under it.
        org: The organisation that the job must belong to.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        given = _id(client, job, org)
        if given is None or key is not None:
            given = client.get(given, key=key, org=org).id
        found = client.explain(given, org=org)
    if connection.json:
        return output.as_json(found)
    output.say(found.verdict, *([found.advice] if found.advice else []), "")
    levels = {True: "ok", False: "problem", None: "note"}
    return output.marked((levels[check.holds], check.name, check.detail, "") for check in found.checks)


@app.command
def cancel(
    job: TypedId | None = None,
    *,
    key: str | None = None,
    org: str | None = None,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Stop a job: at once while it waits, by its token while it runs.

    One that runs stops where its handler looks at the token: at `ctx.check()`, or between two steps.

        mainspring job cancel JOB --reason "the customer left"

    Args:
        job: The job's id, or its first eight digits or more.
        key: The job's key, in place of its id.
        org: The organisation that the job belongs to.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        given = _id(client, job, org)
        outcome = client.cancel(given, key=key, org=org, reason=reason)
    name = f"job {given}" if given else f"the job under key {key}"
    if outcome == "not_found":
        raise JobNotFound(f"there is no {name.removeprefix('the ')}", job_id=given)
    if outcome in ("already_finished", "not_cancellable"):
        text = f"cancel: {name} is {outcome.replace('_', ' ')}"
        raise TransitionRefused(text, verb="cancel", state=None, job_id=given)
    output.as_json({"outcome": outcome}) if connection.json else output.say(f"{name}: {outcome.replace('_', ' ')}")


@app.command
def reschedule(
    job: TypedId | None = None,
    *,
    at: datetime | None = None,
    delay: TypedSpan | None = None,
    key: str | None = None,
    org: str | None = None,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Move a job that waits to another time.

    By its id or its key, to an instant or by a delay from now.

        mainspring job reschedule --key remind:7 --delay 2h

    Args:
        job: The job's id, or its first eight digits or more.
        at: An instant, such as 2030-01-31T08:00:00Z.
        delay: How long from now, such as 90s or 2h; 0s for now.
        key: The job's key, in place of its id.
        org: The organisation that the job belongs to.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        given = _id(client, job, org)
        state = client.reschedule(given, key=key, org=org, at=at, delay=delay, reason=reason)
    output.as_json({"state": state}) if connection.json else output.say(f"{given or key}: {state}")


@app.command(name=("retry", "replay"))
def retry(
    job: TypedId, *, reason: str, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Make a failed or dead job ready again, with all its attempts; for many see `mainspring dead replay`.

    Args:
        job: The job's id, or its first eight digits or more.
        reason: Why, for the audit trail.
        org: The organisation that the job belongs to.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        given = job_named(client, job, org)
        client.replay(given, reason=reason, org=org)
    output.as_json({"state": "ready"}) if connection.json else output.say(f"{given}: ready")


def _id(client: Client, job: TypedId | None, org: str | None) -> UUID | None:
    return None if job is None else job_named(client, job, org)


def _payload(text: str | None, fields: tuple[str, ...]) -> str:
    """The payload as it was typed, or made of fields."""
    if text is not None and fields:
        raise ValidationError("payload: give either a JSON object or fields", field="payload")
    if text is not None and "=" in text and not text.lstrip().startswith("{"):
        raise ValidationError("payload: is not a JSON object; a field is given as -f name=value", field="payload")
    return text if text is not None else json.dumps(pairs(fields))


def pairs(texts: tuple[str, ...]) -> dict[str, Any]:
    """Fields typed as name=value: their values are JSON where they can be read so, else text."""
    values: dict[str, Any] = {}
    for pair in texts:
        name, equals, value = pair.partition("=")
        if not equals or not name or name in values:
            text = f"field: {shown(pair)!r} is not of the form name=value, each name once"
            raise ValidationError(text, field="field")
        try:
            values[name] = json.loads(value)
        except ValueError:
            values[name] = value
        except RecursionError:
            raise ValidationError(f"payload.{shown(name)}: is nested too deep", field="payload") from None
    return values


def _row(job: Job) -> tuple[Any, ...]:
    attempts = f"{job.attempt}/{job.max_attempts}"
    due: Any = job.due_at if job.state in ("scheduled", "retrying") else None
    if due and job.gate and job.gate.startswith(("breaker:", "endpoint:")):  # no instant, but what it waits for
        due = job.gate
    return job.id, job.task, job.state, job.queue, attempts, job.created_at, due, _message(job.error)


def _plan(job: Job) -> dict[str, str]:
    """What the error of a job that ended by it means, and what to do."""
    if job.state not in (State.FAILED, State.DEAD):
        return {}
    code = explained(job.error or {})
    return {"meaning": code.text, "check_first": code.plan.check, "advised": code.plan.advised}


def _progress(progress: Progress | None) -> str:
    """Such as `3 of 10, reading page 3`."""
    if progress is None:
        return ""
    of = f" of {progress.total:g}" if progress.total is not None else ""
    return f"{progress.done:g}{of}" + (f", {progress.note}" if progress.note else "")


def _message(error: dict[str, Any] | None) -> str:
    return f"{error.get('code')}: {error.get('message')}"[:200] if error else ""
