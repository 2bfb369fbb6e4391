"""What happened, as values: the contract that logs, metrics, traces, alerts and test waits are subscribers of.

An observer is a function that takes a batch of events. A worker calls it in its event loop, a client in the thread of
its caller, so it must be quick. `docs/events.md` says when each event is told.

>>> def watch(batch):
...     for event in batch:
...         match event:
...             case JobFailed(task=task, code=code, final=True):
...                 print(f"{task} failed for good: {code}")
>>> tell([watch], [JobFailed(UUID(int=7), "pay", "q:default", "acme", None, "r", "c", 3, code="TIMEOUT", final=True)])
pay failed for good: TIMEOUT
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeAlias
from uuid import UUID

import msgspec

from mainspring.health.alert import Severity
from mainspring.job import DEFAULT_ORG, NewJob
from mainspring.text.sanitize import sanitize

log = logging.getLogger("mainspring.events")


class Event(msgspec.Struct, frozen=True, gc=False, tag_field="event"):
    """Something that happened; its name is the tag of its class."""

    @property
    def name(self) -> str:
        """The name under which it is documented, such as `job.started`."""
        return str(type(self).__struct_config__.tag)


Observer: TypeAlias = Callable[[Sequence[Event]], None]


# -- jobs -----------------------------------------------------------------------------------------------------------


class JobEvent(Event, frozen=True, gc=False):
    """Something that happened to a job. Never its payload; `subject` is the one field that its task names for logs."""

    job_id: UUID
    task: str
    queue: str
    org_id: str
    project_id: UUID | None
    request_id: str
    correlation_id: str
    attempt: int
    subject: dict[str, Any] | None = None


class JobEnqueued(JobEvent, frozen=True, gc=False, tag="job.enqueued"):
    """A job was created and its transaction has committed; an enqueue that found its key taken tells nothing."""

    parent_id: UUID | None = None
    state: str = "ready"


class JobStarted(JobEvent, frozen=True, gc=False, tag="job.started"):
    """An attempt begins: its handler is about to be entered, `lateness` seconds after the job was due."""

    lateness: float = 0.0


class JobLate(JobEvent, frozen=True, gc=False, tag="job.late"):
    """An attempt begins more than 60 s after its job was due; up to there it is on time."""

    lateness: float = 0.0


class JobSucceeded(JobEvent, frozen=True, gc=False, tag="job.succeeded"):
    """The success of an attempt is committed."""

    duration: float = 0.0


class JobFailed(JobEvent, frozen=True, gc=False, tag="job.failed"):
    """The failure of an attempt is committed; `final` when it is not tried again. Texts are sanitised."""

    duration: float = 0.0
    code: str = "INTERNAL_ERROR"
    error_class: str = "retryable"
    message: str = ""
    stack: str | None = None
    final: bool = False


class JobFailedLate(JobEvent, frozen=True, gc=False, tag="job.failed_late"):
    """A handler raised, returned a value or ran out of time after it had completed its job, which stays succeeded."""

    code: str = "INTERNAL_ERROR"
    error_class: str = "retryable"
    message: str = ""
    stack: str | None = None


class JobRetried(JobEvent, frozen=True, gc=False, tag="job.retried"):
    """A failed job is to run again, `delay` seconds later."""

    delay: float = 0.0


class JobDeadlettered(JobEvent, frozen=True, gc=False, tag="job.deadlettered"):
    """A job entered the dead letter: no attempt is left, it crashes workers, or it failed again after a replay."""

    code: str = "INTERNAL_ERROR"
    message: str = ""


class JobDeferred(JobEvent, frozen=True, gc=False, tag="job.deferred"):
    """A claimed job is put off, for `delay` seconds or until a breaker lets it go; the attempt is given back."""

    delay: float = 0.0


class JobReleased(JobEvent, frozen=True, gc=False, tag="job.released"):
    """An attempt that had begun was given back without being counted, because its worker stops."""


class JobCancelled(JobEvent, frozen=True, gc=False, tag="job.cancelled"):
    """A claimed job was cancelled: it stopped, or was about to be tried again."""


class JobLeaseExpired(JobEvent, frozen=True, gc=False, tag="job.lease_expired"):
    """A job was taken back from a worker that stopped renewing its lease; `state` is where the job stands now.

    `shared`: that worker held others as well, so nobody knows whose crash it was, and the attempt is given back.
    """

    worker: str = ""
    state: str = "ready"
    shared: bool = False


class JobLeaseLost(JobEvent, frozen=True, gc=False, tag="job.lease_lost"):
    """This worker can no longer trust its lease: the handler is stopped, and nothing more is written for it."""


class JobStale(JobEvent, frozen=True, gc=False, tag="job.stale"):
    """The database refused the outcome of an attempt, because the job was no longer this worker's."""

    outcome: str = ""


# -- workers and the rest ----------------------------------------------------------------------------------------------


class WorkerStarted(Event, frozen=True, gc=False, tag="worker.started"):
    """A worker begins to claim."""

    worker: str
    queues: list[str]


class WorkerStopping(Event, frozen=True, gc=False, tag="worker.stopping"):
    """A worker claims nothing more, and waits for the jobs that it runs."""

    worker: str
    running: int


class WorkerStopped(Event, frozen=True, gc=False, tag="worker.stopped"):
    """A worker has ended in good order; `succeeded` is how many jobs it completed."""

    worker: str
    succeeded: int


class WorkerStuck(Event, frozen=True, gc=False, tag="worker.stuck"):
    """A worker cannot go on; told by another thread. `ends` says whether its process ends now, and gives back its jobs.

    `reason` is `still`: its event loop has stood still for longer than its lease; `left`: a job has ended the event
    loop, such as by `sys.exit` in a task that it began; or `slots`: all slots of a kind are held by handlers that have
    outlived their time limit. `stack` is where it stands, or what ended it; `job_id` and `task` are the job to blame,
    where that is known.
    """

    worker: str
    seconds: float
    job_id: UUID | None
    task: str | None
    stack: str
    ends: bool
    reason: str = "still"


class WakeupsLost(Event, frozen=True, gc=False, tag="wakeups.lost"):
    """A worker hears no hints any more; it finds jobs by polling."""

    worker: str


class WakeupsRestored(Event, frozen=True, gc=False, tag="wakeups.restored"):
    """A worker hears hints again."""

    worker: str


class DatabaseAway(Event, frozen=True, gc=False, tag="database.away"):
    """The database does not answer: nothing starts, and outcomes wait."""

    worker: str
    reason: str


class DatabaseBack(Event, frozen=True, gc=False, tag="database.back"):
    """The database answers again, after so many seconds."""

    worker: str
    seconds: float


class SweepFound(Event, frozen=True, gc=False, tag="sweep.found"):
    """A page of a sweep is committed that had to enqueue jobs: `count` things were due that nothing covered."""

    sweep: str
    count: int
    job_id: UUID


class QueuePaused(Event, frozen=True, gc=False, tag="queue.paused"):
    """Somebody paused a queue."""

    queue: str
    actor_id: str
    reason: str | None


class QueueResumed(Event, frozen=True, gc=False, tag="queue.resumed"):
    """Somebody resumed a queue."""

    queue: str
    actor_id: str


class LimitLate(Event, frozen=True, gc=False, tag="limit.late"):
    """A worker holds jobs that a rate let in, and cannot start them in time: it gives them back, and starts none."""

    worker: str
    limit: str


class BreakerOpened(Event, frozen=True, gc=False, tag="breaker.opened"):
    """Too many calls of a dependency failed, or a probe did: jobs that need it wait, for `pause` seconds at least."""

    breaker: str
    key: str | None
    org_id: str
    failures: int
    pause: float


class BreakerClosed(Event, frozen=True, gc=False, tag="breaker.closed"):
    """A probe succeeded: jobs that need the dependency run again."""

    breaker: str
    key: str | None
    org_id: str


class BreakerForced(Event, frozen=True, gc=False, tag="breaker.forced"):
    """Somebody holds a breaker `open` or `closed`, or made it `automatic` again."""

    breaker: str
    key: str | None
    org_id: str
    to: str
    actor_id: str
    reason: str | None


class TaskQuarantined(Event, frozen=True, gc=False, tag="task.quarantined"):
    """Jobs of a task have killed several workers: they wait, but for one a second at most, which runs alone.

    It is over when a probe succeeds, or when somebody says so.
    """

    task: str


class TaskReleased(Event, frozen=True, gc=False, tag="task.released"):
    """A task is no longer in quarantine: somebody said so, or a probe succeeded."""

    task: str
    actor_id: str
    reason: str | None


class EndpointDisabled(Event, frozen=True, gc=False, tag="webhook.endpoint_disabled"):
    """The receiver of a webhook said that it is gone: it gets nothing more until somebody resumes its endpoint."""

    endpoint: UUID
    org_id: str
    reason: str


class Alert(Event, frozen=True, gc=False, tag="alert"):
    """Somebody should look; `runbook` is where it says what to do. `firing` is False when it is over.

    `subject` is what an alert of the application is about, and `org_id` whose it is.
    """

    alert: str
    severity: Severity
    text: str
    runbook: str
    firing: bool = True
    job_id: UUID | None = None
    queue: str | None = None
    subject: str = ""
    org_id: str | None = None


# -- telling ----------------------------------------------------------------------------------------------------------


_failing: set[int] = set()  # observers that have raised: said once each


def tell(observers: Iterable[Observer], batch: Sequence[Event]) -> None:
    """Hand a batch to every observer. One that raises is logged once, and harms nobody."""
    for observer in observers:
        try:
            observer(batch)
        except Exception:
            if id(observer) not in _failing:
                _failing.add(id(observer))
                log.exception("observer %r failed; it is called again, but this is said once", observer)


class Bus:
    """Collects events and hands them on in batches, soon after. False when nobody observes: then nothing is built."""

    __slots__ = ("_batch", "_observers", "_soon")

    def __init__(self, observers: Sequence[Observer] = (), soon: Callable[[Callable[[], None]], object] | None = None):
        self._observers = tuple(observers)
        self._soon = soon  # calls a function a little later; None: at once
        self._batch: list[Event] = []

    def __bool__(self) -> bool:
        return bool(self._observers)

    def emit(self, event: Event) -> None:
        """Tell this, together with what else happens in this moment."""
        if self._batch:
            self._batch.append(event)
        else:
            self.extend((event,))

    def extend(self, events: Sequence[Event]) -> None:
        """The same for many."""
        if not self._observers or not events:
            return
        if not self._batch and self._soon is not None:
            self._soon(self.flush)
        self._batch += events
        if self._soon is None:
            self.flush()

    def tell_now(self, events: Sequence[Event]) -> None:
        """Tell past the batch, from another thread, while whoever else tells stands still."""
        tell(self._observers, events)

    def flush(self) -> None:
        """Tell now."""
        batch, self._batch = self._batch, []
        if batch:
            tell(self._observers, batch)


def enqueued(job: NewJob, state: str) -> JobEnqueued:
    """The event of a job that was created; what the caller left empty is what the database filled in."""
    assert job.id is not None
    own = str(job.id)
    return JobEnqueued(
        job.id, job.task, job.queue, job.org_id or DEFAULT_ORG, job.project_id, job.request_id or own,
        job.correlation_id or own, 0, subject_of(job.payload, job.subject), job.parent_id, state,
    )  # fmt: skip


def subject_of(payload: str | bytes | msgspec.Raw, field: str | None) -> dict[str, Any] | None:
    """The field of a payload that its task names for logs, if it is a number or a text."""
    if field is None:
        return None
    try:
        value = msgspec.json.decode(payload).get(field)
    except (msgspec.MsgspecError, RecursionError, ValueError):  # put in by hand: its own attempt says what is wrong
        return None
    if isinstance(value, str):
        value = sanitize(value, 200)
    return {field: value} if isinstance(value, str | int) else None
