"""What the database knows about a job that somebody asks about, and about whoever could claim it."""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.job import Job
from mainspring.limit import words
from mainspring.text.span import span

#: What is ahead of a job is counted up to here.
MOST_AHEAD = 1000


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job that waits stands."""

    due: bool
    due_at: datetime
    retrying: bool
    crashes: int
    queue: str
    priority: int


class KeyHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The job of the same key that this one waits for; no state: it is gone."""

    id: UUID
    state: str | None


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Who stopped the queue, and why."""

    paused_at: datetime
    paused_by: str | None
    pause_reason: str | None


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """A job that this one waits for."""

    id: UUID
    task: str
    state: str | None


class FlowWait(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs this one waits for, and one that shows why; or the batch whose end it waits for."""

    open: int
    first: Parent | None
    batch: UUID | None


class BreakerHold(msgspec.Struct, frozen=True, kw_only=True):
    """What the job needs and was put off by."""

    need: str
    state: str
    since: datetime | None
    next_probe: datetime | None
    forced_by: str | None
    forced_reason: str | None


class EndpointPause(msgspec.Struct, frozen=True, kw_only=True):
    """Where the job would deliver to, and which was paused."""

    id: UUID
    state: str | None
    since: datetime | None
    reason: str | None


class LimitStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that concerns the job: how much room it has, and until when it has put the job off."""

    name: str
    by: str
    key: str | None
    rate: int | None
    per_s: float | None
    concurrency: int | None
    in_order: bool
    room: int
    opens_at: datetime | None
    put_off_to: datetime | None
    in_place: bool
    after: UUID | None
    late: str | None = None  # a worker that cannot start in time what was let in

    def __str__(self) -> str:
        by = {"org": " by organisation", "strand": " by strand"}.get(self.by, "")
        per = None if self.per_s is None else timedelta(seconds=self.per_s)
        return f"the limit {self.name}{by} ({words(self.rate, per, self.concurrency, self.in_order)})"


class TaskQuarantine(msgspec.Struct, frozen=True, kw_only=True):
    """Since when the task is held back, because its jobs have killed so many workers."""

    held_at: datetime
    workers: int
    next_probe: datetime


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """The session whose open transaction has locked the ticket: a claim passes over it, and so does a rescue."""

    pid: int
    name: str | None
    state: str | None
    seconds: float | None

    def __str__(self) -> str:
        state = f", {self.state}" if self.state else ""  # a role does not see it of every other
        since = f" for {span(self.seconds)}" if self.seconds is not None else ""
        return f"session {self.pid} ({self.name or 'without a name'}{state}{since})"


class WorkerView(msgspec.Struct, frozen=True, kw_only=True):
    """A living worker, and what it could do for the job."""

    id: str
    host: str
    pid: int
    running: int
    concurrency: int
    serves: bool
    knows: bool


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs the job; without a host, the worker has no heartbeat any more."""

    worker: str
    host: str | None
    pid: int | None
    seen_at: datetime | None
    expired: bool


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What the database knows about a job and whoever could claim it, in one snapshot."""

    now: datetime
    job: Job
    ticket: Ticket | None
    held_by: KeyHolder | None
    paused: Pause | None
    flow: FlowWait | None = None
    breaker: BreakerHold | None = None
    endpoint: EndpointPause | None = None
    limits: list[LimitStanding] = []
    fair: bool = False
    quarantine: TaskQuarantine | None = None
    locked_by: Lock | None
    workers: list[WorkerView]
    ahead: int
    lease: Lease | None
    rescuers: int
