"""What a worker tells its observers: events made from attempts, after the database has accepted them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

from mainspring.codes import CODES
from mainspring.events import (
    Bus,
    Event,
    JobCancelled,
    JobDeadlettered,
    JobDeferred,
    JobEvent,
    JobFailed,
    JobFailedLate,
    JobLate,
    JobLeaseExpired,
    JobLeaseLost,
    JobReleased,
    JobRetried,
    JobStale,
    JobStarted,
    JobSucceeded,
    LimitLate,
    SweepFound,
    TaskQuarantined,
    TaskReleased,
    enqueued,
    subject_of,
)
from mainspring.outcome import Error, Move
from mainspring.states import WORDS
from mainspring.worker.attempt import NO_DEADLINE, Created, LiveAttempt

START_ON_TIME_S = 60.0  # seconds after its due time that a start may come

#: What is told of a job: (job_id, task, queue, org_id, project_id, request_id, correlation_id, attempt, subject).
JobFields = tuple[UUID, str, str, str, UUID | None, str, str, int, dict[str, Any] | None]


def about(attempt: LiveAttempt) -> JobFields:
    """The fields that every event of an attempt begins with."""
    job, field = attempt.claim, attempt.task.subject
    subject = subject_of(job.payload, field) if field else None
    return (
        job.id, job.task, job.queue, job.org_id, job.project_id, job.request_id, job.correlation_id, job.attempt,
        subject,
    )  # fmt: skip


class Announcer:
    """Tells observers what happens to the jobs of this worker. Made only where somebody observes."""

    def __init__(self, bus: Bus, worker: str, loop: asyncio.AbstractEventLoop | None = None) -> None:
        self.bus, self._worker = bus, worker
        self._loop = loop  # where the bus is at home

    def started(self, attempt: LiveAttempt) -> None:
        """The handler is about to be entered."""
        late = (attempt.claim.claimed_at - attempt.claim.due_at).total_seconds() + attempt.began - attempt.received_at
        self.bus.emit(JobStarted(*about(attempt), late))
        if late > START_ON_TIME_S:
            self.bus.emit(JobLate(*about(attempt), late))

    def succeeded(self, attempts: Iterable[LiveAttempt]) -> None:
        """These successes are committed, and with them the follow-ups of their own transactions."""
        events: list[Event] = []
        for attempt in attempts:
            events.append(JobSucceeded(*about(attempt), attempt.ended - attempt.began))
            if attempt.created:
                events += _created(attempt, attempt.created)
        self.bus.extend(events)

    def created(self, attempt: LiveAttempt, jobs: Sequence[Created]) -> None:
        """A block in the middle of the job has committed these; called where its handler runs, in the loop or not."""
        events = _created(attempt, jobs)
        if self._loop is None:
            return self.bus.extend(events)
        with suppress(RuntimeError):  # the worker has ended
            self._loop.call_soon_threadsafe(self.bus.extend, events)
        return None

    def moved(self, attempt: LiveAttempt, move: Move, verb: str) -> None:
        """This end is committed; `verb` is what the database made of it."""
        self.bus.extend(_ends(attempt, move, verb))

    def failed_late(self, attempt: LiveAttempt, error: Error) -> None:
        """Its handler failed after the job was completed, and that is recorded."""
        self.bus.emit(JobFailedLate(*about(attempt), error.code, error.error_class, error.message, error.stack))

    def lost(self, attempt: LiveAttempt) -> None:
        """The lease can no longer be trusted."""
        self.bus.emit(JobLeaseLost(*about(attempt)))

    def stale(self, attempt: LiveAttempt, verb: str) -> None:
        """The database refused the outcome."""
        self.bus.emit(JobStale(*about(attempt), WORDS[verb]))

    def rescued(self, rows: Sequence[Sequence[Any]]) -> None:
        """These jobs were taken back from workers that are gone."""
        for job_id, worker, state, task, queue, org_id, project_id, request_id, correlation_id, attempt, *rest in rows:
            job: JobFields = job_id, task, queue, org_id, project_id, request_id, correlation_id, attempt, None
            shared, quarantined = rest
            self.bus.emit(JobLeaseExpired(*job, worker, state, shared))
            if quarantined:
                self.bus.emit(TaskQuarantined(task))
            if state == "dead":
                self.bus.emit(JobDeadlettered(*job, "LEASE_EXPIRED", CODES["LEASE_EXPIRED"].text))
            elif state == "cancelled":
                self.bus.emit(JobCancelled(*job))

    def let_go(self, task: str) -> None:
        """A task is no longer in quarantine."""
        self.bus.emit(TaskReleased(task, self._worker, "a probe succeeded"))

    def limit_late(self, limit: str) -> None:
        """Jobs that a limit let in could not be started in time."""
        self.bus.emit(LimitLate(self._worker, limit))


def _created(attempt: LiveAttempt, jobs: Sequence[Created]) -> list[Event]:
    """That they are there, and what a sweep has found by them."""
    events: list[Event] = [enqueued(job, state) for job, state in jobs]
    found = sum(job.task != attempt.task.name for job, _ in jobs) if attempt.task.sweeps else 0  # not its next page
    return [*events, SweepFound(attempt.task.name, found, attempt.claim.id)] if found else events


def _ends(attempt: LiveAttempt, move: Move, verb: str) -> list[JobEvent]:
    job, error = about(attempt), move.error
    delay = move.delay.total_seconds() if move.delay else 0.0
    events: list[JobEvent] = []
    if error is not None and verb in ("fail", "reject", "bury"):
        duration = attempt.ended - attempt.began
        events.append(
            JobFailed(*job, duration, error.code, error.error_class, error.message, error.stack, verb != "fail")
        )
    match verb:
        case "fail":
            events.append(JobRetried(*job, delay))
        case "bury":
            events.append(JobDeadlettered(*job, error.code if error else "", error.message if error else ""))
        case "snooze" | "defer":
            events.append(JobDeferred(*job, delay))
        case "stop":
            events.append(JobCancelled(*job))
        case "release" if attempt.deadline < NO_DEADLINE:  # it had begun
            events.append(JobReleased(*job))
    return events
