"""What people do with queues and see of workers, as dialogues."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from mainspring.db.jobs import Who, check_limit, check_texts, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Statement, ask, nothing, scalar
from mainspring.queue import Queue
from mainspring.text.texts import MAX_NAME, MAX_QUEUE

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


class HeldJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job that a worker runs, or that holds a place of a limit; in order it keeps its place between two attempts."""

    job_id: UUID
    org_id: str
    task: str
    queue: str
    state: str | None
    attempt: int | None
    worker: str | None
    started_at: datetime | None
    lease_expires_at: datetime | None


def _reader(kind: type[Any]) -> Any:
    decode = msgspec.json.Decoder(kind).decode
    return lambda rows: [decode(row[0]) for row in rows]


_queues, _workers, held_jobs = _reader(QueueRow), _reader(WorkerRow), _reader(HeldJob)


def listing(sql: Sql, org: str | None = None) -> Dialogue[list[QueueRow]]:
    """Every queue that is declared, served or filled, with what is ready: all of it, or of one organisation."""
    found: list[QueueRow] = yield from ask(Statement(sql["list_queues"], {"org": org}, _queues))
    return found


def depth(sql: Sql, queue: str, limit: int = 10_000) -> Dialogue[int]:
    """How many jobs of a queue are ready, counted up to a limit."""
    check_texts(MAX_QUEUE, queue=queue)
    check_limit(limit, 10_000_000)
    count: int = yield from ask(Statement(sql["queue_depth"], {"queue": queue, "limit": limit}, scalar))
    return count


def running(sql: Sql, limit: int = 10_000, org: str | None = None) -> Dialogue[dict[str, int]]:
    """How many jobs of each queue run, of all or of one organisation, counted up to a limit."""
    check_limit(limit, 10_000_000)
    return (
        yield from ask(
            Statement(sql["running_by_queue"], {"limit": limit, "org": org}, lambda rows: {r[0]: r[1] for r in rows})
        )
    )


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


def workers(sql: Sql, gone_after: timedelta, org: str | None = None) -> Dialogue[list[WorkerRow]]:
    """Worker processes, by their heartbeat, with what they run: all of it, or of one organisation."""
    params = {"gone_after": f"{gone_after.total_seconds()} s", "org": org}
    found: list[WorkerRow] = yield from ask(Statement(sql["list_workers"], params, _workers))
    return found


def worker_jobs(
    sql: Sql, worker: str, org: str | None, limit: int = 100, after: tuple[datetime, UUID] | None = None
) -> Dialogue[list[HeldJob]]:
    """What a worker holds, those that have run longest first: all, or those of an organisation."""
    check_texts(MAX_NAME, worker=worker)
    check_limit(limit, 10_000)
    params: Params = {"worker": worker, "org": org, "limit": limit, "after": None, "after_id": None}
    if after is not None:
        params |= {"after": after[0].isoformat(), "after_id": str(after[1])}
    found: list[HeldJob] = yield from ask(Statement(sql["worker_jobs"], params, held_jobs))
    return found
