"""What people do with queues and see of workers, as dialogues."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any

import msgspec

from mainspring.db.jobs import Who, check_limit, check_texts, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, nothing, scalar
from mainspring.queue import Queue
from mainspring.text.texts import MAX_QUEUE

#: A heartbeat is every 10 s; three missed ones and the worker counts as gone.
GONE_AFTER = timedelta(seconds=30)


class QueueRow(msgspec.Struct, frozen=True, kw_only=True):
    """A lane, whether it is paused, how many jobs are ready (up to 10,000), and how late the oldest of them is."""

    name: str
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    start_target_s: float | None
    max_depth: int | None = None  # best-effort jobs are refused while so many are ready
    ready: int
    oldest_age_s: float | None

    @property
    def late(self) -> bool:
        """Whether the oldest ready job has waited longer than the queue's target."""
        return (self.oldest_age_s or 0) > (self.start_target_s or float("inf"))


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A worker process by its heartbeat; `gone` after three missed beats."""

    id: str
    host: str
    pid: int
    version: str
    queues: list[str]
    tasks: list[str]
    concurrency: int
    started_at: datetime
    seen_at: datetime
    running: int
    stopping: bool
    leases: int
    gone: bool


def _reader(kind: type[Any]) -> Any:
    decode = msgspec.json.Decoder(kind).decode
    return lambda rows: [decode(row[0]) for row in rows]


_queues, _workers = _reader(QueueRow), _reader(WorkerRow)


def listing(sql: Sql) -> Dialogue[list[QueueRow]]:
    """Every queue that is declared, served or filled."""
    found: list[QueueRow] = yield from ask(Statement(sql["list_queues"], {}, _queues))
    return found


def depth(sql: Sql, queue: str, limit: int = 10_000) -> Dialogue[int]:
    """How many jobs of a queue are ready, counted up to a limit."""
    check_texts(MAX_QUEUE, queue=queue)
    check_limit(limit, 10_000_000)
    count: int = yield from ask(Statement(sql["queue_depth"], {"queue": queue, "limit": limit}, scalar))
    return count


def pause(sql: Sql, queue: str, who: Who, reason: str | None = None) -> Dialogue[None]:
    """Stop claims from a queue; when this returns, none will commit any more. Running jobs finish.

    In a caller's transaction it holds from their commit on, except for claims that are under way just then.
    """
    check_texts(MAX_QUEUE, queue=queue)
    reason = why(reason)
    params = {"queue": queue, "actor_type": who.actor_type, "actor_id": who.actor_id, "reason": reason}
    yield from ask(Statement(sql["pause"], params, nothing))
    yield from claims_seen(sql)


def claims_seen(sql: Sql) -> Dialogue[None]:
    """Wait for the claims that began before a pause was committed: after it, in a transaction of its own."""
    yield from ask(Statement(sql["claims_seen"], {}, nothing, alone=True))


def resume(sql: Sql, queue: str, who: Who, reason: str | None = None) -> Dialogue[bool]:
    """Start claims from a queue again; False when it was not paused."""
    check_texts(MAX_QUEUE, queue=queue)
    reason = why(reason)
    params = {"queue": queue, "actor_type": who.actor_type, "actor_id": who.actor_id, "reason": reason}
    resumed: bool = yield from ask(Statement(sql["resume"], params, scalar))
    return resumed


def declare(sql: Sql, app: str, queues: Iterable[Queue]) -> Dialogue[None]:
    """Write down the queues that an application's code declares, and forget those that it declares no longer."""
    params = {"app": app, "queues": msgspec.json.encode(list(queues)).decode()}
    yield from ask(Statement(sql["declare_queues"], params, nothing))


def workers(sql: Sql, gone_after: timedelta) -> Dialogue[list[WorkerRow]]:
    """Worker processes, by their heartbeat."""
    params = {"gone_after": f"{gone_after.total_seconds()} s"}
    found: list[WorkerRow] = yield from ask(Statement(sql["list_workers"], params, _workers))
    return found
