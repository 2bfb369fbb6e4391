"""How the people of the demo act: by jobs, due when somebody would do it, and as often as people do."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

import mainspring as ms
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn
from mainspring_apps.tasks import Tasks

people = Tasks[Desk]("people")
QUEUE: Final = "people"


class DemoShift(msgspec.Struct, frozen=True, kw_only=True):
    """A shift, and who belongs to it."""

    id: int
    booking_id: int
    scheduled_start_time: datetime
    scheduled_end_time: datetime
    auto_approval_time: datetime | None
    worker: int
    supervisor: int


def minutes(low: float, high: float) -> timedelta:
    """Some time between, as people are."""
    return timedelta(minutes=round(random.uniform(low, high)))  # noqa: S311 (people, no secrets)


def one_in(many: int) -> bool:
    """So rarely."""
    return random.randrange(many) == 0  # noqa: S311 (people, no secrets)


def part_of(whole: int) -> int:
    """What somebody gets of it: nothing, all, or some quarters."""
    return whole * random.choice((0, 1, 2, 3, 4)) // 4  # noqa: S311 (people, no secrets)


def act(conn: Conn, event: Callable[[], object]) -> bool:
    """Somebody does something; where the rules refuse it, they shrug. What was written by then is not."""
    try:
        with conn.transaction():
            event()
    except Refused as refused:
        log.info("refused: %s", refused)
        return False
    return True


def of(shift: DemoShift) -> dict[str, int]:
    """What a job about a shift carries."""
    return {"booking_id": shift.booking_id, "time_log_id": shift.id}


def later(desk: Desk, conn: Conn, job: ms.NewJob, at: datetime) -> None:
    """Somebody will do something."""
    desk.enqueue(conn, job.at(max(at, desk.now(conn))))
