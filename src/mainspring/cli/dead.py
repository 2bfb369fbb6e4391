"""`mainspring dead`: find dead letters, see why they died, and decide about them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from cyclopts import App, Parameter

import mainspring.contrib  # noqa: F401 (what the error codes of blocks mean)
from mainspring.cli import output
from mainspring.cli.case import line, tell, tell_fix
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.editor import edited
from mainspring.cli.exits import complain, exit_code
from mainspring.cli.ids import TypedId, job_named
from mainspring.cli.job import pairs
from mainspring.cli.spans import TypedSpan
from mainspring.errors import JobError, ValidationError

app = App(name="dead", help="Find dead letters, see why they died, and decide about them.", help_format="plaintext")

COLUMNS = ("ID", "TASK", "STATE", "QUEUE", "ATTEMPT", "FINISHED", "FINGERPRINT", "ERROR")
GROUPS = ("FINGERPRINT", "COUNT", "TASK", "OLDEST", "NEWEST", "EXAMPLE", "ERROR")
NO_DEAD_LETTERS = "There are no such dead letters."
DONE = {"replay": "replayed", "discard": "discarded"}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class Filter:
    """Which dead letters are meant."""

    task: str | None = None
    """Only those of this task."""

    queue: str | None = None
    """Only those that came from this queue."""

    code: str | None = None
    """Only those with this error code."""

    fingerprint: str | None = None
    """Only those whose errors look alike, as `dead list --groups` shows them."""

    state: Literal["failed", "dead"] | None = None
    """Only those in this state."""

    older_than: TypedSpan | None = None
    """Only those that died longer ago, such as 2h."""

    newer_than: TypedSpan | None = None
    """Only those that died since, such as 2h."""

    @property
    def only(self) -> dict[str, Any]:
        """What was said."""
        said = {field.name: getattr(self, field.name) for field in fields(Filter)}
        return {name: value for name, value in said.items() if value is not None}


@Parameter(name="*")
@dataclass(frozen=True, kw_only=True)
class ManyMeant(Filter):
    """Which dead letters are meant, and how many of them."""

    everything: Annotated[bool, Parameter(name="--all", negative="", show_default=False)] = False
    """All of them, in place of a filter."""

    limit: int | None = None
    """At most so many, the oldest first."""

    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Only say how many are meant."""

    yes: Annotated[bool, Parameter(negative="", show_default=False)] = False
    """Do not ask."""

    org: str | None = None
    """Only those of this organisation."""


ANY, NO_FILTER = Filter(), ManyMeant()
JobIds = Annotated[TypedId, Parameter(help="Ids of jobs, or their first digits, in place of a filter.")]


@app.command(name="list")
def list_dead(
    *,
    groups: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    limit: int = 50,
    before: TypedId | None = None,
    org: str | None = None,
    only: Filter = ANY,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show failed and dead jobs that nobody has decided about, newest first.

    After an outage start with the groups: errors that look alike are decided about together.

        mainspring dead list --groups
        mainspring dead list --task send_receipt --newer-than 2h

    Args:
        groups: Show errors that look alike together, the most frequent first.
        limit: At most so many, up to 1000.
        before: Continue after this job, the last one seen.
        org: Only those of this organisation.
        only: Which dead letters are meant.
        connection: The database, and who acts.
    """
    if groups and before:
        raise ValidationError("before: goes with a list, not with groups", field="before")
    with connection.client() as client:
        if groups:
            found = client.dead.groups(limit=limit, org=org, **only.only)
            rows = (
                (g.fingerprint, g.count, g.task, g.oldest, g.newest, g.example, line(g.code, g.message)) for g in found
            )
            return (
                output.as_json(found)
                if connection.json
                else output.table(GROUPS, rows, NO_DEAD_LETTERS, now=client.now())
            )
        last = None if before is None else job_named(client, before, org)
        letters, now = client.dead.list(limit=limit, before=last, org=org, **only.only), client.now()
    if connection.json:
        return output.as_json(letters)
    lines = (
        (
            d.id,
            d.task,
            d.state,
            d.queue,
            f"{d.attempt}/{d.max_attempts}",
            d.finished_at,
            d.fingerprint,
            line(d.code, d.message),
        )
        for d in letters
    )
    return output.table(COLUMNS, lines, NO_DEAD_LETTERS, now=now)


@app.command
def show(job: TypedId, *, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show one dead letter: every attempt with its error, what the error means, and what to do.

    With --app it also knows the error codes of the application.

    Args:
        job: The job's id, or its first eight digits or more.
        org: The organisation that the job must belong to.
        connection: The database, and who acts.
    """
    with connection.client() as client:  # with --app: it brings the plans of its own error codes
        case, now = client.dead.show(job_named(client, job, org), org=org), client.now()
    output.as_json(case) if connection.json else tell(case, now)


@app.command
def replay(
    *jobs: JobIds,
    reason: str | None = None,
    rate: float | None = None,
    meant: ManyMeant = NO_FILTER,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> int:
    """Make dead letters ready again, with all their attempts: by id, or many by filter.

    Many are counted first, and you are asked.

        mainspring dead replay --code RATE_LIMITED --rate 10 --reason "it is back"

    Args:
        *jobs: Ids, or their first eight digits or more, in place of a filter.
        reason: Why, for the audit trail.
        rate: So many a second become due, so that what was down is not flooded.
        meant: Which dead letters are meant.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        ids = [job_named(client, job, meant.org) for job in jobs]
        return _decide("replay", client.dead.replay, client.dead.replay_many, ids, meant, connection, reason, rate=rate)


@app.command
def discard(
    *jobs: JobIds,
    reason: str | None = None,
    meant: ManyMeant = NO_FILTER,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> int:
    """Take dead letters off the list, and leave the jobs as they are: by id, or many by filter.

    Many are counted first, and you are asked.

        mainspring dead discard --task greet --older-than 30d --reason "too late"

    Args:
        *jobs: Ids, or their first eight digits or more, in place of a filter.
        reason: Why, for the audit trail.
        meant: Which dead letters are meant.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        ids = [job_named(client, job, meant.org) for job in jobs]
        return _decide("discard", client.dead.discard, client.dead.discard_many, ids, meant, connection, reason)


@app.command
def fix(
    job: TypedId,
    *,
    reason: str,
    assign: Annotated[tuple[str, ...], Parameter(name="--set", negative="", show_default=False)] = (),
    unset: Annotated[tuple[str, ...], Parameter(negative="", show_default=False)] = (),
    payload: str | None = None,
    edit: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Enqueue a new job with a corrected payload in place of a dead one. With --app it is checked against the task.

    A value is read as JSON where it can be, else as text. Try with --dry-run first.

        mainspring dead fix JOB --set cents=1250 --reason "the till sent euros"

    Args:
        job: The job's id, or its first eight digits or more.
        reason: Why, for the audit trail.
        assign: A field of the payload, name=value; may be repeated.
        unset: A field of the payload to leave out; may be repeated.
        payload: The whole payload, a JSON object.
        edit: Change the payload in your editor.
        dry_run: Show the difference, and write nothing.
        org: The organisation that the job must belong to.
        connection: The database, and who acts.
    """
    if sum((bool(assign or unset), payload is not None, edit)) != 1:
        raise ValidationError("payload: give either --set and --unset, or --payload, or --edit", field="payload")
    app = connection.application()
    with connection.client(app) as client:
        found = client.get(job_named(client, job, org), org=org)
        given = edited(found.payload) if edit else payload
        made = client.dead.fix(
            found.id,
            reason=reason,
            set=pairs(assign),
            unset=unset,
            payload=None if given is None else _object(given),
            task=app.registry.get(found.task) if app else None,
            dry_run=dry_run,
            org=org,
        )
    output.as_json(made) if connection.json else tell_fix(made, found.task)


def _decide(
    verb: str,
    one: Callable[..., None],
    many: Callable[..., Any],
    jobs: Sequence[UUID],
    meant: ManyMeant,
    connection: ConnectionOptions,
    reason: str | None,
    **how: Any,
) -> int:
    """Decide about those that are meant, which must be said, and in one way."""
    if sum((bool(jobs), bool(meant.only), meant.everything)) != 1:
        raise ValidationError("job: give either ids, or a filter, or --all", field="job")
    if jobs:
        return _each(verb, lambda job: one(job, reason=reason or "", org=meant.org), jobs, connection)
    how |= {"reason": reason, "limit": meant.limit, "org": meant.org, **meant.only}
    return _many(verb, many, how, meant, connection)


def _each(verb: str, act: Callable[[UUID], None], jobs: Sequence[UUID], connection: ConnectionOptions) -> int:
    """Decide about some by id; what is refused is said, and the others go on."""
    code, answers = 0, []
    for job in jobs:
        try:
            act(job)
            answers.append({"job": job, "done": DONE[verb]})
        except JobError as error:
            code = code or exit_code(error)
            answers.append({"job": job, "error": str(error)})
    if connection.json:
        output.as_json(answers)
    for answer in answers:
        if "error" in answer:
            complain(str(answer["error"]))
        elif not connection.json:
            output.say(f"{answer['job']}: {answer['done']}")
    return code


def _many(
    verb: str, act: Callable[..., Any], how: dict[str, Any], meant: ManyMeant, connection: ConnectionOptions
) -> int:
    """Decide about many: count them first, and ask."""
    count = act(**how, dry_run=True)
    size = min(count.matched, meant.limit or count.matched)
    spread = f", over {size / how['rate']:g} s" if how.get("rate") else ""
    if meant.dry_run or not size:
        said = f"{size} would be {DONE[verb]}{spread}." if size else NO_DEAD_LETTERS
        output.as_json(count) if connection.json else output.say(said)
        return 0
    if not (how["reason"] or "").strip():  # before anybody is asked
        raise ValidationError("reason: is missing", field="reason")
    if not meant.yes:
        question = f"{verb}: {size} dead letter{'s are' if size != 1 else ' is'} meant{spread}"
        if connection.json or not sys.stdin.isatty():
            raise ValidationError(f"{question}; give --yes to {verb} them, or --dry-run", field="yes")
        if input(f"{question}. Go on? [y/N] ").strip().lower() not in ("y", "yes"):
            output.say("Nothing was done.")
            return 1
    done = act(**how)
    skipped = f"; {done.skipped} left alone, because they or their keys are in use" if done.skipped else ""
    output.as_json(done) if connection.json else output.say(f"{done.moved} {DONE[verb]}{spread}{skipped}.")
    return 0


def _object(text: str) -> dict[str, Any]:
    from mainspring.text.document import read_payload

    found: dict[str, Any] = msgspec.json.decode(read_payload(text))
    return found
