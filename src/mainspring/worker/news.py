"""What a worker tells its observers: events made from attempts, after the database has accepted them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
    JobLate,
    JobLeaseExpired,
    JobLeaseLost,
    JobReleased,
    JobRetried,
    JobStale,
    JobStarted,
    JobSucceeded,
    SweepFound,
    enqueued,
    subject_of,
)
from mainspring.outcome import Move
from mainspring.worker.run import NEVER, Run

ON_TIME = 60.0  # seconds after its due time that a start may come

#: What is told of a job: (job_id, task, queue, org_id, project_id, request_id, correlation_id, attempt, subject).
About = tuple[UUID, str, str, str, UUID | None, str, str, int, dict[str, Any] | None]


def about(run: Run) -> About:
    """The fields that every event of an attempt begins with."""
    job, field = run.claim, run.task.subject
    subject = subject_of(job.payload, field) if field else None
    return (
        job.id, job.task, job.queue, job.org_id, job.project_id, job.request_id, job.correlation_id, job.attempt,
        subject,
    )  # fmt: skip


class News:
    """Tells observers what happens to the jobs of this worker. Made only where somebody observes."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus

    def started(self, run: Run) -> None:
        """The handler is about to be entered."""
        late = (run.claim.claimed_at - run.claim.due_at).total_seconds() + run.began - run.held_since
        self.bus.emit(JobStarted(*about(run), late))
        if late > ON_TIME:
            self.bus.emit(JobLate(*about(run), late))

    def succeeded(self, runs: Iterable[Run]) -> None:
        """These successes are committed, and with them the follow-ups of their own transactions."""
        events: list[Event] = []
        for run in runs:
            events.append(JobSucceeded(*about(run), run.ended - run.began))
            if run.created:
                events += [enqueued(job, state) for job, state in run.created]
                if run.task.sweeps:
                    found = sum(job.task != run.task.name for job, _ in run.created)  # the other is its next page
                    events += [SweepFound(run.task.name, found, run.claim.id)] if found else []
        self.bus.extend(events)

    def moved(self, run: Run, move: Move, verb: str) -> None:
        """This end is committed; `verb` is what the database made of it."""
        self.bus.extend(_ends(run, move, verb))

    def lost(self, run: Run) -> None:
        """The lease can no longer be trusted."""
        self.bus.emit(JobLeaseLost(*about(run)))

    def stale(self, run: Run, outcome: str) -> None:
        """The database refused the outcome."""
        self.bus.emit(JobStale(*about(run), outcome))

    def rescued(self, rows: Sequence[Sequence[Any]]) -> None:
        """These jobs were taken back from workers that are gone."""
        for job_id, worker, state, task, queue, org_id, project_id, request_id, correlation_id, attempt in rows:
            job: About = job_id, task, queue, org_id, project_id, request_id, correlation_id, attempt, None
            self.bus.emit(JobLeaseExpired(*job, worker, state))
            if state == "dead":
                self.bus.emit(JobDeadlettered(*job, "LEASE_EXPIRED", CODES["LEASE_EXPIRED"].text))
            elif state == "cancelled":
                self.bus.emit(JobCancelled(*job))


def _ends(run: Run, move: Move, verb: str) -> list[JobEvent]:
    job, error = about(run), move.error
    delay = move.delay.total_seconds() if move.delay else 0.0
    events: list[JobEvent] = []
    if error is not None and verb in ("fail", "reject", "bury"):
        duration = run.ended - run.began
        events.append(
            JobFailed(*job, duration, error.code, error.error_class, error.message, error.stack, verb != "fail")
        )
    match verb:
        case "fail":
            events.append(JobRetried(*job, delay))
        case "bury":
            events.append(JobDeadlettered(*job, error.code if error else "", error.message if error else ""))
        case "snooze":
            events.append(JobDeferred(*job, delay))
        case "stop":
            events.append(JobCancelled(*job))
        case "release" if move.gate is not None:
            events.append(JobDeferred(*job, delay))
        case "release" if run.deadline < NEVER:  # it had begun
            events.append(JobReleased(*job))
    return events
