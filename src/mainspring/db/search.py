"""Search for jobs: in the order of an index, looking at a bounded number, and saying how far it has looked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from mainspring.checks import LOWEST_PRIORITY
from mainspring.db.jobs import Who, check_limit, check_texts, find, id_range, to_uuid, utc
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Row, Statement, ask
from mainspring.errors import ValidationError
from mainspring.states import FINISHED, WAITING, State
from mainspring.text.texts import MAX_KEY, MAX_NAME, MAX_QUEUE

#: So many candidates are looked at by one statement, and by one search at most.
JOBS_A_LOOK: Final = 500
MOST_LOOKED: Final = 5_000
#: With a text every candidate is read: fewer.
MOST_READ: Final = 1_000
#: The clocks of those who enqueue are off by less: ids begin with their time, `created_at` is the database's.
CLOCKS_APART: Final = timedelta(hours=1)
_ENDED_BADLY: Final = FINISHED - {State.SUCCEEDED}


class Sought(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Which jobs are meant; what is left out means any. Times are from an instant on, and up to before one."""

    state: tuple[State, ...] = ()
    queue: str | None = None
    task: str | None = None
    project: UUID | None = None
    correlation: str | None = None
    request: str | None = None
    parent: UUID | None = None
    key: str | None = None  # the last job that was enqueued under it
    prefix: str | None = None  # the first digits of ids
    created_from: datetime | None = None
    created_to: datetime | None = None
    due_from: datetime | None = None
    due_to: datetime | None = None
    finished_from: datetime | None = None
    finished_to: datetime | None = None


class JobRow(msgspec.Struct, frozen=True, kw_only=True):
    """A job as a list shows it: where it stands, and `code` and `message` of its error."""

    id: UUID
    task: str
    state: str
    org_id: str
    project_id: UUID | None
    correlation_id: str
    request_id: str
    idempotency_key: str
    queue: str
    priority: int
    attempt: int
    max_attempts: int
    cancellable: bool
    created_at: datetime
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    worker: str | None
    cancel_requested_at: datetime | None
    gate: str | None
    code: str | None
    message: str | None
    resolution: str | None


class JobLine(JobRow, frozen=True, kw_only=True):
    """The same, and what it carries; a large payload is left out."""

    payload: str | None  # JSON


class JobPlace(NamedTuple):
    """Where a job stands in the order of its list: by priority, instant (None: held, without one) and id."""

    priority: int
    at: datetime | None
    id: UUID


class JobsFound(NamedTuple):
    """Some jobs, and where the search goes on; None: there are no more."""

    jobs: list[JobLine]
    place: JobPlace | None


_decode_line = msgspec.json.Decoder(JobLine).decode


def search(
    sql: Sql,
    who: Who,
    sought: Sought,
    *,
    after: JobPlace | None = None,
    limit: int = 50,
    fits: Callable[[JobLine], bool] | None = None,
) -> Dialogue[JobsFound]:
    """Jobs that are meant, and that fit: those that wait in the order in which they are claimed, others newest first.

    It stops after some thousand candidates, however few it has found: `place` is where the next search begins.
    """
    check_limit(limit, 1000)
    if sought.key is not None:
        named = yield from find(sql, who, None, sought.key)
        found = [] if named is None else (yield from sift(sql, who, sought, [named], 1))
        return JobsFound([job for job in found if fits is None or fits(job)], None)
    name, about = _walk(sought)
    meant: list[JobLine] = []
    places: dict[UUID, JobPlace] = {}
    for _ in range((MOST_LOOKED if fits is None else MOST_READ) // JOBS_A_LOOK):
        looked: list[JobPlace] = yield from ask(Statement(sql[name], about | _from(after), _places, org=who.org_id))
        places |= {place.id: place for place in looked}
        wanted = limit + 1 - len(meant) if fits is None else JOBS_A_LOOK
        found = yield from sift(sql, who, sought, [place.id for place in looked], wanted)
        meant += [job for job in found if fits is None or fits(job)]
        if len(meant) > limit:
            return JobsFound(meant[:limit], places[meant[limit - 1].id])
        if len(looked) < JOBS_A_LOOK:
            return JobsFound(meant, None)
        after = looked[-1]
    return JobsFound(meant, after)


def sift(sql: Sql, who: Who, sought: Sought, ids: Sequence[UUID], limit: int) -> Dialogue[list[JobLine]]:
    """Those of some jobs that are meant, in the order given."""
    check_texts(MAX_NAME, task=sought.task, correlation=sought.correlation, request=sought.request)
    check_texts(MAX_KEY, key=sought.key)
    check_texts(MAX_QUEUE, queue=sought.queue)
    given = msgspec.structs.asdict(sought)
    params: Params = {name: given[name] for name in ("queue", "task", "correlation", "request")}
    params |= {name: None if given[name] is None else str(given[name]) for name in ("project", "parent")}
    params |= {f"{what}_{end}": _utc(f"{what}_{end}", given) for what in _TIMES for end in ("from", "to")}
    params |= {"org": who.org_id, "states": _array(sought.state) if sought.state else None, "limit": limit}
    params["ids"] = _array(str(one) for one in ids)
    return (yield from ask(Statement(sql["sift_jobs"], params, lambda rows: [_decode_line(row[0]) for row in rows])))


_TIMES: Final = ("created", "due", "finished")


def _walk(sought: Sought) -> tuple[str, Params]:
    """The walk whose order fits what is meant, and its bounds."""
    states, given = frozenset(sought.state), msgspec.structs.asdict(sought)
    by_ticket: Params = {"queue": sought.queue, "look": JOBS_A_LOOK}
    if sought.prefix is None and states == {State.RUNNING}:
        return "walk_running", by_ticket
    if sought.prefix is None and states and states <= _ENDED_BADLY:
        return "walk_ended", _between("finished", given) | {"states": _array(sought.state), "look": JOBS_A_LOOK}
    if sought.prefix is None and states <= WAITING and (states or sought.due_from or sought.due_to):
        due = "now" if states == {State.READY} else "any" if State.READY in states or not states else "later"
        name = "walk_retrying" if states == {State.RETRYING} else "walk_waiting"
        return name, _between("due", given) | by_ticket | {"due": due}
    ends = [at for at in (sought.created_to, sought.finished_to) if at is not None]
    bounds: Params = {**id_range(sought.prefix), "look": JOBS_A_LOOK}
    bounds["oldest"] = str(_id_at(sought.created_from, -CLOCKS_APART)) if sought.created_from else bounds["low"]
    bounds["newest"] = str(_id_at(min(ends), CLOCKS_APART)) if ends else bounds["high"]
    return "walk_newest", bounds


def _between(what: str, given: dict[str, Any]) -> Params:
    since, until = _utc(f"{what}_from", given), _utc(f"{what}_to", given)
    return {"since": since or "-infinity", "until": until or "infinity"}


def _from(after: JobPlace | None) -> Params:
    """Where a walk begins; those that go by id or end look at a part of it only."""
    if after is None:
        return {"after": None, "priority": 0, "at": "infinity"}
    if not 0 <= after.priority <= LOWEST_PRIORITY:
        raise ValidationError("cursor: is not one of this list with these filters", field="cursor")
    at = "infinity" if after.at is None else utc("cursor", after.at)
    return {"after": str(after.id), "priority": after.priority, "at": at}


def _id_at(at: datetime, shift: timedelta) -> UUID:
    """The lowest id of version 7 that begins with an instant, a little earlier or later."""
    milliseconds = int((at.timestamp() + shift.total_seconds()) * 1000)
    return UUID(int=max(0, min(milliseconds, 2**48 - 1)) << 80)


def _utc(field: str, given: dict[str, Any]) -> str | None:
    return None if given[field] is None else utc(field, given[field])


def _places(rows: Sequence[Row]) -> list[JobPlace]:
    return [JobPlace(row[1], row[2], to_uuid(row[0])) for row in rows]


def _array(values: Any) -> str:
    return "{" + ",".join(values) + "}"
