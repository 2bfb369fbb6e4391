"""What was enqueued: finding the jobs that a test expects, and saying what is there instead."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypedDict, TypeVar, Unpack

import msgspec

from mainspring.db import jobs
from mainspring.db.cipher import Keyring
from mainspring.db.jobs import Who
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.task import Task
from mainspring.job import Job
from mainspring.text.span import Span, span_of
from mainspring.virtual.tasks import shown

T = TypeVar("T")
#: The states of jobs that are to run.
WAITING_STATES = ("scheduled", "ready", "retrying")
_SHOWN_JOBS = 5  # candidates


@dataclass(frozen=True, kw_only=True)
class Expected:
    """The jobs that a test speaks of; what is None says nothing."""

    task: str | None = None
    payload: Mapping[str, Any] | None = None  # some of its fields, at any depth
    queue: str | None = None
    at: datetime | None = None
    within: timedelta = timedelta(0)  # so far from `at`
    key: str | None = None
    org: str | None = None

    def differences(self, job: Job) -> list[str]:
        """What keeps a job from being one of them."""
        found = [
            f"{name} is {is_!r}, not {wanted!r}"
            for name, wanted, is_ in (
                ("task", self.task, job.task),
                ("queue", self.queue, job.queue),
                ("key", self.key, job.idempotency_key),
                ("org", self.org, job.org_id),
            )
            if wanted is not None and wanted != is_
        ]
        if job.state not in WAITING_STATES:
            found.append(f"is {job.state}, and does not wait")
        if self.payload is not None:
            found += _differences("payload", plain(self.payload), job.payload)
        if self.at is not None and (job.due_at is None or abs(job.due_at - self.at) > self.within):
            found.append(f"due_at is {job.due_at}, not {self.at}")
        return found

    def nearest(self, found: Sequence[Job]) -> str:
        """The jobs that come closest, each with what it lacks."""

        def distance(job: Job) -> tuple[bool, int]:
            return self.task not in (None, job.task), len(self.differences(job))

        near = sorted(found, key=distance)[:_SHOWN_JOBS]
        lines = [f"  {_line(job)}\n    {'; '.join(self.differences(job))}" for job in near]
        return "\n".join(["nearest:", *lines]) if lines else "there are no jobs at all"

    def __str__(self) -> str:
        parts = {"payload": self.payload, "queue": self.queue, "at": self.at, "key": self.key, "org": self.org}
        said = ", ".join(f"{name} {value}" for name, value in parts.items() if value is not None)
        return f"{self.task or 'any task'}{' with ' if said else ''}{said}"


class Filters(TypedDict, total=False):
    """What may be said of the jobs that a test expects."""

    payload: Mapping[str, Any]  # some of its fields, at any depth
    queue: str
    at: datetime | Span  # when it is due; a time span: from now
    within: Span  # how far that may be off
    key: str
    org: str


class EnqueuedVerbs(ABC):
    """The verbs that look at what was enqueued."""

    _sql: Sql
    _ring: Keyring

    @abstractmethod
    def _ask(self, dialogue: Dialogue[T]) -> T:
        """Ask the test's database."""

    def now(self) -> datetime:
        """What the database's clock shows."""
        return self._ask(jobs.now(self._sql))

    def jobs(
        self, task: Task[..., Any] | str | None = None, *, state: str | None = None, queue: str | None = None
    ) -> list[Job]:
        """Jobs by task, state and queue, of every organisation, oldest first; at most 1000."""
        dialogue = jobs.select(self._sql, Who(), task=name_of(task), state=state, queue=queue, limit=1000)
        return [shown(job, self._ring) for job in self._ask(dialogue)[::-1]]

    def assert_enqueued(
        self, task: Task[..., Any] | str | None = None, *, count: int | None = None, **filters: Unpack[Filters]
    ) -> Job:
        """Assert that such a job waits to run, and return it; with `count`, that exactly so many wait.

        ::

            mainspring.assert_enqueued(send_receipt, payload={"order_id": 7}, at="4h")
        """
        expected, found = self._expected(task, filters), self.jobs()
        matching = [job for job in found if not expected.differences(job)]
        if matching and count in (None, len(matching)):
            return matching[0]
        if matching:
            raise AssertionError(f"{len(matching)} jobs wait, not {count}: {expected}\n{_list(matching)}")
        wanted = "no job waits" if count is None else f"0 jobs wait, not {count}"
        raise AssertionError(f"{wanted}: {expected}\n{expected.nearest(found)}")

    def refute_enqueued(self, task: Task[..., Any] | str | None = None, **filters: Unpack[Filters]) -> None:
        """Assert that no such job waits to run."""
        expected = self._expected(task, filters)
        if matching := [job for job in self.jobs() if not expected.differences(job)]:
            raise AssertionError(f"{len(matching)} jobs wait, and none should: {expected}\n{_list(matching)}")

    def _expected(self, task: Task[..., Any] | str | None, filters: Filters) -> Expected:
        at = filters.get("at")
        due = at if at is None or isinstance(at, datetime) else self.now() + span_of("at", at)
        return Expected(
            task=name_of(task),
            payload=filters.get("payload"),
            queue=filters.get("queue"),
            at=due,
            within=span_of("within", filters.get("within", 0)),
            key=filters.get("key"),
            org=filters.get("org"),
        )


def name_of(task: Task[..., Any] | str | None) -> str | None:
    """A task by its name."""
    return task.name if isinstance(task, Task) else task


def plain(value: Any) -> Any:
    """A value as JSON has it, so that dates and ids compare with what is stored."""
    return msgspec.json.decode(msgspec.json.encode(value))


def _differences(path: str, wanted: Any, found: Any) -> list[str]:
    """Where a value is not the wanted one; of an object only the wanted fields count.

    >>> _differences("payload", {"order": {"id": 7}}, {"order": {"id": 8, "total": 3}})
    ['payload.order.id is 8, not 7']
    """
    if isinstance(wanted, dict) and isinstance(found, dict):
        return [
            problem
            for name, value in wanted.items()
            for problem in (
                _differences(f"{path}.{name}", value, found[name]) if name in found else [f"{path}.{name} is missing"]
            )
        ]
    return [] if wanted == found else [f"{path} is {found!r}, not {wanted!r}"]


def _list(found: Sequence[Job]) -> str:
    more = [f"  and {len(found) - _SHOWN_JOBS} more"] if len(found) > _SHOWN_JOBS else []
    return "\n".join([f"  {_line(job)}" for job in found[:_SHOWN_JOBS]] + more)


def _line(job: Job) -> str:
    due = f", due {job.due_at}" if job.due_at else ""
    return f"{job.task} {job.id}: {job.state}, on {job.queue}{due}, payload {job.payload}"
