"""`mainspring schedule`: see, create, pause and fire schedules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import App, Parameter

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.cli.spans import TypedSpan
from mainspring.declare.registry import ENGINE_REGISTRY
from mainspring.text.document import read_payload
from mainspring.text.span import ago, span
from mainspring.when.fire import CatchUp, WhileRunning, label
from mainspring.when.occurrences import Gap, Overlap
from mainspring.when.spoken import spoken_rule

if TYPE_CHECKING:
    from mainspring.db.schedules import FanOutProgress, Fire, ScheduleRow, Upcoming

app = App(name="schedule", help="See, create, pause and fire schedules.", help_format="plaintext")

COLUMNS = ("SCHEDULE", "STATUS", "NEXT", "LOCAL", "LAST", "CAME TO", "TASK", "WHEN")
BACKFILLED = ("INSTANT", "LOCAL", "ZONE", "OUTCOME", "JOB")
FIRES = ("INSTANT", "LOCAL", "HOW", "JOB", "STATE", "WHY")


@app.command(name="list")
def list_schedules(
    *,
    org: str | None = None,
    everything: Annotated[bool, Parameter(name="--all", negative="", show_default=False)] = False,
    after: str | None = None,
    limit: int = 100,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show schedules: when each fires next, when it did last, and what became of it.

    Args:
        org: Only those of this organisation.
        everything: Those of the built-in maintenance, too.
        after: Continue after this name, the last one seen.
        limit: At most so many, up to 10000.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        found = client.schedules.list(org=org, after=after, limit=limit)
    found = [row for row in found if everything or org is not None or row.declared_by != ENGINE_REGISTRY]
    if connection.json:
        return output.as_json([_told(row) for row in found])
    return output.table(COLUMNS, map(_row, found), "There are no schedules.")


@app.command
def show(
    name: str, *, fires: int = 10, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Show one schedule: its definition, where it stands, and its last fires.

    Args:
        name: The schedule's name.
        fires: So many of its fires.
        org: The organisation that it belongs to; else `default`.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        row = client.schedules.get(name, org=org)
        done = client.schedules.fires(name, org=org, limit=fires)
    if connection.json:
        return output.as_json({**_told(row), "fires": done})
    following = row.upcoming(1)
    output.fields({
        "name": row.name, "status": row.status, "when": row.words, "task": row.task,
        "payload": msgspec.json.decode(row.job.payload), "queue": row.job.queue, "org": row.org_id,
        "next": following[0].at if following else None,
        "next local": _local(following[0]) if following else None,
        "zones": _zones(row), "catch up": _policy(row), "running": row.running,
        "jitter": timedelta(seconds=row.jitter_s) or None, "fan-out": _progress(row.fan_out),
        "problem": "; ".join(place.problem for place in row.zones if place.problem),
        "declared by": row.declared_by, "paused": row.paused_at, "paused by": row.paused_by, "why": row.pause_reason,
        "created": row.created_at, "changed": row.changed_at,
    }, now=row.now)  # fmt: skip
    print()
    rows = (
        (fire.instant, fire.local, _how(fire), fire.job_id, fire.state or _progress(fire.fan_out), fire.reason)
        for fire in done
    )
    return output.table(FIRES, rows, "It has not fired yet.")


@app.command(name="next")
def upcoming(
    name: str, count: int = 5, *, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Show when a schedule fires next, in UTC and in local time.

    Of a schedule over zones, the instants of all its zones in their order.

        mainspring schedule next weekly-payments 10

    Args:
        name: The schedule's name.
        count: So many instants, up to 1000.
        org: The organisation that it belongs to; else `default`.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        found, now = client.schedules.next(name, count, org=org), client.now()
    if connection.json:
        return output.as_json([{"at": at, "zone": zone, "local": local.isoformat()} for at, zone, local in found])
    rows = ((_instant(one.at), _local(one), one.zone, ago(one.at, now)) for one in found)
    return output.table(("AT", "LOCAL", "ZONE", "FROM NOW"), rows, "It does not fire: see `schedule show`.")


@app.command
def create(
    name: str,
    *,
    task: str,
    cron: str | None = None,
    every: TypedSpan | None = None,
    zone: str = "UTC",
    payload: str = "{}",
    catch_up: CatchUp = "latest",
    within: TypedSpan | None = None,
    most: int | None = None,
    running: WhileRunning = "allow",
    jitter: TypedSpan | None = None,
    gap: Gap = "shift",
    overlap: Overlap = "first",
    queue: str | None = None,
    priority: int | None = None,
    org: str | None = None,
    replace: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reason: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Create a schedule that any worker fires.

    With --app its task and payload are checked at once.

        mainspring schedule create weekly --cron "0 10 * * WED" --task charge
        mainspring schedule create poll --every 15m --task poll_inbox

    Args:
        name: Its name.
        task: The task whose jobs it makes.
        cron: Five fields: minute, hour, day of month, month, day of week.
        every: An interval of at least a second, such as 30s or 15m.
        zone: Whose local time the cron expression means.
        payload: The payload of its jobs, a JSON object.
        catch_up: Which of the instants fire that passed while no worker ran.
        within: Only those that are not later than this, such as 14h.
        most: Of all of them, the last so many.
        running: Whether it fires while the job of its last fire is not finished.
        jitter: Its jobs are due up to this much later, each by its own.
        gap: A local time that clocks jump over fires after the jump, or not at all.
        overlap: A local time that comes twice fires the first time, the last time, or both.
        queue: The queue of its jobs, if not the task's.
        priority: Their priority, from 0 (first) to 3 (last), if not the task's.
        org: The organisation that it belongs to; else `default`.
        replace: Change the schedule of this name, if there is one.
        reason: Why, for the audit trail.
        connection: The database, and who acts.
    """
    application = connection.application()
    raw = msgspec.json.decode(read_payload(payload))
    chosen = application.registry.get(task) if application else task
    given: dict[str, Any] = {"payload": raw, "within": within, "most": most, "jitter": jitter}
    given |= {"queue": queue, "priority": priority, "org": org}
    given = {option: value for option, value in given.items() if value is not None}
    rule = spoken_rule(cron, every, zone=zone, gap=gap, overlap=overlap)
    with connection.client(application) as client:
        answer = client.schedules.create(
            name, rule, chosen, replace=replace, reason=reason, catch_up=catch_up, running=running, **given
        )
    if connection.json:
        return output.as_json({"schedule": name, "answer": answer})
    return output.say(f"{name} is {'as it was' if answer == 'same' else answer}: {rule.describe()}")


@app.command
def run(
    name: str,
    *,
    zone: str | None = None,
    reason: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Fire a schedule once, now, beside its rule; also one that is paused.

    Args:
        name: The schedule's name.
        zone: Only in this zone, of a schedule over zones.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to; else `default`.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        jobs = client.schedules.run(name, zone=zone, reason=reason, org=org)
    if connection.json:
        return output.as_json({"schedule": name, "jobs": jobs})
    return output.say(*(f"{job}  created" for job in jobs) if jobs else [f"{name} fires: workers make its jobs"])


@app.command
def backfill(
    name: str,
    *,
    since: datetime,
    until: datetime | None = None,
    zone: str | None = None,
    limit: int = 100,
    dry_run: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reason: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Fire the instants of a range that have passed and made nothing, each once; also of a schedule that is paused.

        mainspring schedule backfill digest --since 2026-06-01T00:00Z --dry-run
        mainspring schedule backfill digest --since 2026-06-01T00:00Z --reason "it was paused by mistake"

    Args:
        name: The schedule's name.
        since: From this instant on; without an offset it is UTC.
        until: Up to this one; else up to now.
        zone: Only in this zone, of a schedule over zones.
        limit: Refuse more instants than this, up to 1000.
        dry_run: Only show them.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to; else `default`.
        connection: The database, and who acts.
    """
    begin, end = (at and (at if at.tzinfo else at.replace(tzinfo=UTC)) for at in (since, until))
    assert begin is not None
    with connection.client() as client:
        found = client.schedules.backfill(
            name, begin, end, zone=zone, limit=limit, dry_run=dry_run, reason=reason, org=org
        )
    if connection.json:
        return output.as_json(found)
    rows = ((_instant(one.at), label(one.local), one.zone, one.outcome.replace("_", " "), one.job_id) for one in found)
    return output.table(BACKFILLED, rows, "No instant lies there.")


@app.command
def pause(
    name: str, *, reason: str | None = None, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Stop a schedule from firing; jobs that it has made run.

    Args:
        name: The schedule's name.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to; else `default`.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        paused = client.schedules.pause(name, reason=reason, org=org)
    if connection.json:
        return output.as_json({"schedule": name, "paused": True, "changed": paused})
    return output.say(f"{name} {'is paused' if paused else 'was paused already'}")


@app.command
def resume(
    name: str,
    *,
    catch_up: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    reason: str | None = None,
    org: str | None = None,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Let a schedule fire again, from now on.

    Args:
        name: The schedule's name.
        catch_up: Deal also with what fell into the pause, by the schedule's policy.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to; else `default`.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        resumed = client.schedules.resume(name, catch_up=catch_up, reason=reason, org=org)
    if connection.json:
        return output.as_json({"schedule": name, "paused": False, "changed": resumed})
    return output.say(f"{name} {'fires again' if resumed else 'was not paused'}")


@app.command
def delete(
    name: str, *, reason: str | None = None, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Remove a schedule that was created at run time, or that is no longer declared; its fires and jobs stay.

    Args:
        name: The schedule's name.
        reason: Why, for the audit trail.
        org: The organisation that it belongs to; else `default`.
        connection: The database, and who acts.
    """
    with connection.client() as client:
        client.schedules.delete(name, reason=reason, org=org)
    output.as_json({"schedule": name, "deleted": True}) if connection.json else output.say(f"{name} is deleted")


@app.command
def sync(*, reason: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Write the schedules that an application declares to the database, as its workers do when they start.

    What it no longer declares is shown, and fires no more.

        mainspring schedule sync --app shop:app

    Args:
        reason: Why, for the audit trail.
        connection: The application, the database, and who acts.
    """
    application = connection.needed_application()
    with connection.client(application) as client:
        done = client.schedules.sync(application.registry, reason=reason)
    if connection.json:
        return output.as_json(done._asdict())
    words = {"created": "created", "changed": "changed", "undeclared": "no longer declared"}
    said = [f"{name}  {word}" for kind, word in words.items() for name in getattr(done, kind)]
    return output.say(*said, f"{len(done.same)} as they were")


def _told(row: ScheduleRow) -> dict[str, Any]:
    """A schedule for machines: what the database holds, and what follows from it."""
    upcoming = [{"at": at, "zone": zone, "local": local.isoformat()} for at, zone, local in row.upcoming(1)]
    job = msgspec.json.decode(msgspec.json.encode(row.job))
    known = {"job": job, "status": row.status, "words": row.words, "next": upcoming[0] if upcoming else None}
    return {**msgspec.structs.asdict(row), **known}


def _row(row: ScheduleRow) -> tuple[Any, ...]:
    following = row.upcoming(1)
    last = row.last
    status = "problem" if row.status == "active" and any(place.problem for place in row.zones) else row.status
    return (
        row.name, status, _instant(following[0].at) if following else None,
        _local(following[0]) if following and following[0].zone != "UTC" else None,
        _instant(last.instant) if last else None, last and _came_to(row, last), row.task, row.words,
    )  # fmt: skip


def _came_to(row: ScheduleRow, last: Fire) -> str:
    if row.by_entity and row.fan_out is not None and last.how in ("fired", "run_now"):
        return _progress(row.fan_out) or last.how
    return last.state or _how(last)


def _how(fire: Fire) -> str:
    return fire.how.replace("_", " ") + (f" ({fire.instants})" if fire.instants > 1 else "")


def _progress(found: FanOutProgress | None) -> str | None:
    if found is None:
        return None
    refused = f", {found.refused} refused ({found.problem})" if found.refused else ""
    waiting = f" ({found.problem})" if found.problem and not found.refused else ""
    return f"{found.jobs} jobs{refused}{'' if found.finished_at else f', going on{waiting}'}"


def _policy(row: ScheduleRow) -> str:
    most = f", the last {row.most}" if row.most else ""
    return row.catch_up + most + (f", within {span(row.within_s)}" if row.within_s else "")


def _zones(row: ScheduleRow) -> list[str] | str:
    if row.by_zone and not row.zones:
        return "none so far: no worker has asked for them, or they cannot be had, which its log says"
    return [place.zone for place in row.zones if place.zone]


def _instant(at: datetime) -> str:
    return f"{at.astimezone(UTC):%Y-%m-%d %H:%M{':%S' * bool(at.second)}}Z"


def _local(one: Upcoming) -> str:
    return one.local.isoformat(" ", "seconds" if one.local.second else "minutes")
