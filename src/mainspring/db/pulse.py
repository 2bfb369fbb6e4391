"""What happened in the last moment, in numbers, for a person who watches."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, scalar

#: What is younger may not have committed yet.
PULSE_LAG = timedelta(milliseconds=200)
#: What waits is counted up to here.
MOST_COUNTED = 10_000


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """What happened between two instants, and what waits now. `until` is where the next one goes on."""

    since: datetime
    until: datetime
    enqueued: int
    started: int
    succeeded: int
    retried: int
    rescued: int
    failed: int
    dead: int
    ready: int
    later: int
    running: int
    pickup_ms: float | None
    pickup_p95_ms: float | None

    def per_second(self, count: int) -> float:
        """A count of this pulse as a rate."""
        seconds = (self.until - self.since).total_seconds()
        return count / seconds if seconds > 0 else 0.0


class LanePulse(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: what is ready, up to a limit a priority, what runs, and how late the oldest is."""

    name: str
    ready: int
    running: int
    oldest_s: float | None
    target_s: float | None
    paused_by: str | None  # empty: nobody said who

    @property
    def late(self) -> bool:
        """Whether the oldest ready job has waited longer than the queue's target."""
        return (self.oldest_s or 0) > (self.target_s or float("inf"))


class WorkerLoad(msgspec.Struct, frozen=True, kw_only=True):
    """A worker, and how busy it is."""

    id: str
    host: str
    running: int
    concurrency: int
    stopping: bool
    seen_s: float
    gone: bool


class FailureCount(msgspec.Struct, frozen=True, kw_only=True):
    """Failures of one task with one code in the last minutes, and what the latest said."""

    task: str
    code: str | None
    count: int
    message: str | None
    ago_s: float


class Board(msgspec.Struct, frozen=True, kw_only=True):
    """What `top` shows besides the pulse."""

    queues: list[LanePulse]
    workers: list[WorkerLoad]
    failures: list[FailureCount]
    dead_letters: int


_pulse = msgspec.json.Decoder(Pulse).decode
_board = msgspec.json.Decoder(Board).decode


def pulse(sql: Sql, since: datetime) -> Dialogue[Pulse]:
    """What happened since an instant, up to a moment ago."""
    params = {"since": since.isoformat(), "lag": f"{PULSE_LAG.total_seconds()} s"}
    text: str = yield from ask(Statement(sql["pulse"], params, scalar))
    return _pulse(text)


def ended(
    sql: Sql, since: datetime, until: datetime, subjects: Mapping[str, str], most: int, *, own: bool = False
) -> Dialogue[bytes]:
    """The newest attempts that ended between two instants, as JSON: how many, and `entries` as time lines have them.

    `next` is the job that comes next. `subjects` are the fields by which tasks say whom a job is about; `own` brings
    the engine's own jobs as well, and those that were cancelled.
    """
    params: dict[str, Any] = {"since": since.isoformat(), "until": until.isoformat()}
    params |= {"subjects": msgspec.json.encode(subjects).decode(), "most": most, "own": own}
    text: str = yield from ask(Statement(sql["ended"], params, scalar))
    return text.encode()


def board(sql: Sql, gone_after: timedelta) -> Dialogue[Board]:
    """Queues, workers, failures and dead letters as they stand."""
    text: str = yield from ask(Statement(sql["board"], {"gone_after": f"{gone_after.total_seconds()} s"}, scalar))
    return _board(text)
