"""The engine's own tables: who works, what waits, what was left behind."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from mainspring.health.doctor.facts import Engine, Tickets
from mainspring.health.doctor.finding import Finding
from mainspring.text.span import span

DEAD_TUPLES = 50_000
PAUSED_LONG = 3600.0
_RESCUE_LATE_S = 30.0  # a rescue comes every 5 s
DEAD_LONG = 86_400.0
HEARTBEAT_SILENCE_S = 300.0  # a heartbeat comes every minute


def time(e: Engine) -> Iterator[Finding]:
    """A clock that can be moved belongs into tests."""
    if e.movable_clock:
        todo = "never in production: make a new database and migrate it"
        yield Finding("time", "warn", "the engine's clock can be moved: this is a test database", todo)


def security(e: Engine) -> Iterator[Finding]:
    """Who owns the tables, and whether organisations are kept apart."""
    if e.superuser_owns:
        todo = "let a role without superuser own the schema: row-level security does not bind a superuser"
        yield Finding("owner", "warn", "a superuser owns the tables", todo)
    if e.secured:
        yield Finding("secured", "ok", "roles and row-level security by organisation are on")
    else:
        what = "not secured: one role for all, organisations are kept apart by the application"
        yield Finding("secured", "ok", what, "`mainspring schema secure` turns on roles and row-level security")


def workers(e: Engine) -> Iterator[Finding]:
    """Whether somebody works on what is due."""
    what = f"{e.workers} worker{'s' * (e.workers != 1)} alive" + (f", {e.gone} gone without farewell" if e.gone else "")
    if e.workers or not e.lanes:
        yield Finding("workers", "ok", what)
    else:
        yield Finding("workers", "problem", "jobs are due and no worker is alive", "start one: `mainspring worker run`")


def lanes(e: Engine) -> Iterator[Finding]:
    """Whether each queue's jobs start in time."""
    stopped = {queue.name for queue in e.paused}
    late = [lane for lane in e.lanes if lane.name not in stopped]
    said = False
    for lane in late if e.workers else []:
        since = span(lane.oldest_s)
        if not lane.served:
            todo = f"start a worker with --queues {lane.name}"
            yield Finding("queues", "problem", f"{lane.name}: due for {since}, and no living worker serves it", todo)
        elif lane.unknown:
            what = f"{lane.name}: no living worker knows {', '.join(lane.unknown[:5])}"
            yield Finding("queues", "problem", what, "deploy the version that declares it, or cancel these jobs")
        elif lane.target_s is not None and lane.oldest_s > lane.target_s:
            what = f"{lane.name}: the oldest job is late by {since}, the target is {span(lane.target_s)}"
            yield Finding("queues", "warn", what, "start more workers, or see what they do: `mainspring top`")
        else:
            continue
        said = True
    if not said:
        yield Finding("queues", "ok", f"{len(late)} with due jobs, none of them late" if late else "nothing is due")


def pauses(e: Engine) -> Iterator[Finding]:
    """Whether a queue was forgotten."""
    for queue in e.paused:
        by = f" by {queue.by}" if queue.by else ""
        why = f" ({queue.reason})" if queue.reason else ""
        long = queue.seconds > PAUSED_LONG
        todo = f"`mainspring queue resume {queue.name}`, if it was forgotten" if long else ""
        what = f"{queue.name} is paused{by} since {span(queue.seconds)}{why}"
        yield Finding("paused", "warn" if long else "ok", what, todo)
    if not e.paused:
        yield Finding("paused", "ok", "no queue is paused")


def leases(e: Engine) -> Iterator[Finding]:
    """Whether what crashed workers held comes back."""
    seconds = e.expired.seconds or 0
    if e.expired.count and seconds > _RESCUE_LATE_S:
        count = f"{e.expired.count} lease{'s' * (e.expired.count != 1)}"
        what = f"{count} expired up to {span(seconds)} ago, and nobody has taken the jobs back"
        todo = (
            "start a worker: each rescues for all" if not e.workers else "look at the workers' log: their rescuer fails"
        )
        if (held := e.holder) is not None:
            state = f"{held.name or 'no name'}, {held.state or 'active'} for {span(held.seconds)}"
            what += f": session {held.pid} ({state}) holds the first in an open transaction, as ctx.complete_in() does"
            todo = f"commit it, or end the session: select pg_terminate_backend({held.pid})"
        yield Finding("leases", "problem", what, todo)
    else:
        yield Finding("leases", "ok", "no expired lease is left behind")


def heartbeat(e: Engine) -> Iterator[Finding]:
    """Whether the engine does what it is told: a job is fired, claimed, run and completed every minute."""
    if e.heartbeat_s is None:
        if e.secured:
            what = "none is seen: it is SYSTEM's, and this session is another's; or no worker has declared it"
            todo = "run this as the role of a worker, in no organisation, or see the alert heartbeat-silent"
        else:
            what = "none is expected: no worker has declared it, or it is paused"
            todo = "an App includes the built-in maintenance unless it says maintenance=False"
        yield Finding("heartbeat", "ok", what, todo)
    elif e.heartbeat_s > HEARTBEAT_SILENCE_S:
        what = f"no heartbeat for {span(e.heartbeat_s)}: jobs are not fired, or do not succeed"
        todo = "start a worker; if one runs, see `mainspring job list --task mainspring.heartbeat` and its log"
        yield Finding("heartbeat", "problem", what, todo)
    else:
        yield Finding("heartbeat", "ok", f"the last heartbeat was {span(e.heartbeat_s)} ago")


def dead(e: Engine) -> Iterator[Finding]:
    """Whether somebody looks at what failed for good."""
    if not e.dead.count:
        yield Finding("dead", "ok", "there are no dead letters")
        return
    old = (e.dead.seconds or 0) > DEAD_LONG
    count = f"{e.dead.count}{'+' * (e.dead.count >= 1000)} dead letter{'s' * (e.dead.count != 1)}"
    what = f"{count}, the oldest {span(e.dead.seconds or 0)} old"
    todo = "`mainspring dead list --groups` shows them by error" if old else ""
    yield Finding("dead", "warn" if old else "ok", what, todo)


def bloat(e: Engine) -> Iterator[Finding]:
    """Whether dead rows pile up in the hot tables."""
    piled = [t for t in e.tables if t.dead > DEAD_TUPLES and t.dead > 2 * t.live]
    for table in piled:
        when = "never" if table.vacuumed_s is None else f"{span(table.vacuumed_s)} ago"
        what = f"{table.name} has {table.dead:,} dead rows beside {table.live:,} live ones, last vacuumed {when}"
        yield Finding("bloat", "warn", what, "end who holds a snapshot (above), then: vacuum the table")
    if not piled:
        yield Finding("bloat", "ok", "dead rows are cleaned up")


def tickets(t: Tickets) -> list[Finding]:
    """Whether each job stands in exactly one place."""
    if not t.wrong:
        return [Finding("tickets", "ok", f"each of {t.looked:,} jobs looked at stands in exactly one place")]
    todo = "somebody wrote to the tables by hand, or the server lost data: restore them, or ask for help with these ids"
    first = ", ".join(f"{w.id} ({w.tickets} tickets{'' if w.job else ', no job'})" for w in t.wrong[:3])
    more = f" and {len(t.wrong) - 3} more" if len(t.wrong) > 3 else ""
    return [Finding("tickets", "problem", f"jobs that do not stand in exactly one place: {first}{more}", todo)]


ENGINE_CHECKS: Final[tuple[Callable[[Engine], Iterator[Finding]], ...]] = (
    time, security, workers, lanes, pauses, leases, heartbeat, dead, bloat,
)  # fmt: skip
