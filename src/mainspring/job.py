"""The job contract.

What is enqueued is a `NewJob`, what enqueue answers is `Enqueued`, a worker holds a `Claim`, and what is read back is a
`Job`. A `NewJob` is an immutable value that can be built, tested, listed and put in a batch before it is enqueued. Its
fields are the wire format: msgspec writes them, and `mainspring.enqueue_many` reads them, under the same names.
"""

from __future__ import annotations

from collections.abc import Coroutine, Generator
from datetime import datetime, timedelta
from inspect import iscoroutine
from typing import Any, Generic, Literal, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace
from typing_extensions import TypeVar

from mainspring.dedupe import Mode
from mainspring.errors import ConfigurationError, ValidationError
from mainspring.text.span import Span, span_of

ActorType = Literal["user", "system", "api_key"]
Id: TypeAlias = UUID | str  # as everybody may give one
EnqueueAnswer = Literal["created", "existing", "reset", "replaced"]

R_co = TypeVar("R_co", default=Any, covariant=True)  # what the handler returns
A_co = TypeVar("A_co", default=R_co, covariant=True)  # the same where it is asked for: in async code it is awaited

SYSTEM = "SYSTEM"  # the engine's own actor, and the organisation of its housekeeping
DEFAULT_ORG = "default"  # a team with one tenant never types an organisation
DEFAULT_PRIORITY = 2


class NewJob(msgspec.Struct, Generic[R_co], frozen=True, kw_only=True, omit_defaults=True):
    """One request to run a task, not yet enqueued."""

    task: str
    payload: msgspec.Raw
    queue: str = "q:default"
    priority: int = DEFAULT_PRIORITY
    max_attempts: int = 5
    cancellable: bool = True
    id: UUID | None = None
    org_id: str | None = None
    project_id: UUID | None = None
    actor_type: ActorType | None = None
    actor_id: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    parent_id: UUID | None = None
    traceparent: str | None = None
    created_at: datetime | None = None
    scheduled_for: datetime | None = None
    delay: timedelta | None = None
    key: str | None = None
    mode: Mode | None = None
    ttl: timedelta | None = None
    wait: timedelta | None = None
    reset: bool = False
    unless_live: bool = False
    strand: str | None = None
    # What the task demands of the envelope; checked at enqueue, not stored.
    project_scoped: bool = False
    schedulable: bool = True
    by_payload: bool = False
    allow_secrets: tuple[str, ...] = ()
    encrypt: bool = True  # where there is a cipher
    subject: str | None = None
    best_effort: bool = False  # refused while its queue is full

    def at(self, when: datetime) -> NewJob[R_co]:
        """Run no sooner than this instant."""
        if not isinstance(when, datetime):
            raise ValidationError("scheduled_for: is not a time with a time zone", field="scheduled_for")
        if when.tzinfo is None:
            raise ValidationError(f"scheduled_for: {when} has no time zone", field="scheduled_for")
        return replace(self, scheduled_for=when, delay=None)

    def after(self, delay: Span) -> NewJob[R_co]:
        """Run no sooner than this long (a timedelta, seconds or "90s") after the enqueue, by the database's clock."""
        delay = span_of("delay", delay)
        if delay < timedelta(0):
            raise ValidationError(f"delay: {delay} is negative", field="delay")
        return replace(self, delay=delay, scheduled_for=None)

    def with_key(
        self, key: str, mode: Mode | None = None, *, reset: bool = False, unless_live: bool = False
    ) -> NewJob[R_co]:
        """Enqueue under an idempotency key; `reset` asks for a failed job to run again, whatever the mode.

        `unless_live`: a job that waits or runs under the key is the answer, also one with another payload.
        """
        return replace(self, key=key, mode=mode or self.mode, reset=reset, unless_live=unless_live)

    def with_id(self, job_id: UUID) -> NewJob[R_co]:
        """Bring the job's id, so that the same request sent twice is one job."""
        return replace(self, id=job_id)

    def with_priority(self, priority: int) -> NewJob[R_co]:
        """Run earlier (0) or later (3) than the other jobs of the queue."""
        return replace(self, priority=priority)

    def on_queue(self, queue: str) -> NewJob[R_co]:
        """Run on another queue than the task's."""
        return replace(self, queue=queue)

    def on_strand(self, strand: object) -> NewJob[R_co]:
        """Name the strand, such as a booking, that limits by key and order hold together."""
        return replace(self, strand=str(strand))

    def by(self, actor_id: object, actor_type: ActorType = "user") -> NewJob[R_co]:
        """Name who asked for the job."""
        return replace(self, actor_id=str(actor_id), actor_type=actor_type)

    def for_org(self, org_id: object) -> NewJob[R_co]:
        """Name the organisation that the job belongs to."""
        return replace(self, org_id=str(org_id))

    def in_project(self, project_id: UUID) -> NewJob[R_co]:
        """Name the project that the job belongs to."""
        return replace(self, project_id=project_id)

    def traced(
        self, *, request_id: object = None, correlation_id: object = None, traceparent: str | None = None
    ) -> NewJob[R_co]:
        """Carry the ids of the request that caused the job."""
        return replace(
            self,
            request_id=self.request_id if request_id is None else str(request_id),
            correlation_id=self.correlation_id if correlation_id is None else str(correlation_id),
            traceparent=traceparent or self.traceparent,
        )


def no_job(given: object) -> ValidationError:
    """The sentence for who enqueues what is no job.

    >>> str(no_job(print))
    'jobs: print is a function and no task: declare it with @tasks.task, and pass print.job(...)'
    """
    name = str(getattr(given, "__name__", type(given).__name__))
    if callable(getattr(given, "job", None)):
        text = f"{name} is a task: pass {name}.job(...), or call {name}.enqueue(...)"
    elif iscoroutine(given):
        given.close()
        text = f"{name}(...) runs the function here: pass {name}.job(...)"
    elif callable(given):
        text = f"{name} is a function and no task: declare it with @tasks.task, and pass {name}.job(...)"
    else:
        text = f"{name} is no job: build one with task.job(...)"
    return ValidationError(f"jobs: {text}", field="jobs")


class Enqueued(msgspec.Struct, Generic[R_co, A_co], frozen=True, dict=True):
    """What enqueue did, and where the job stands."""

    id: UUID
    answer: EnqueueAnswer
    state: str

    def result(self, *, timeout: Span = 60.0) -> A_co:
        """Wait until the job has ended and return what its handler returned, as JSON has it; in async code, await it.

        ::

            total = client.enqueue(add_up.job(order_id=7)).result(timeout="10s")
        """
        client = self.__dict__.get("client")
        if client is None:
            raise ConfigurationError("this answer is not that of a client: ask one, client.result(answer.id)")
        result: A_co = client.result(self.id, timeout=timeout)
        return result

    def of(self, client: object) -> Enqueued[Any, Any]:
        """The answer, with the client that `result` asks; not a field: answers of two clients may be equal."""
        self.__dict__["client"] = client
        return self


AsyncEnqueued: TypeAlias = Enqueued[R_co, Coroutine[Any, Any, R_co]]


class Enqueuing(Enqueued[R_co], Generic[R_co], frozen=True):
    """What `task.enqueue` is typed as: the answer in sync code, and in async code what is awaited for it."""

    def __await__(self) -> Generator[Any, Any, AsyncEnqueued[R_co]]:
        raise NotImplementedError  # in async code there is a coroutine in its place


class Claim(msgspec.Struct, frozen=True, gc=False):
    """A job that a worker holds under a lease. (worker id, epoch) is its fencing token."""

    id: UUID
    task: str
    payload: str
    org_id: str
    project_id: UUID | None
    actor_type: str
    actor_id: str
    request_id: str
    correlation_id: str
    traceparent: str | None
    key: str | None
    created_at: datetime
    scheduled_for: datetime | None
    max_attempts: int
    epoch: int
    attempt: int
    crashes: int
    snoozes: int
    suspect: bool
    queue: str
    priority: int
    due_at: datetime
    claimed_at: datetime
    strand: str | None = None
    gates: str | None = None  # a limit let it in; JSON: at these its worker counts when its handler is entered

    @property
    def waited(self) -> timedelta:
        """How long before the claim the job was first due."""
        return self.claimed_at - (self.scheduled_for or self.created_at)

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt: the job's key, or its id; send it to systems that accept one."""
        return self.key or str(self.id)


class Progress(msgspec.Struct, frozen=True, kw_only=True):
    """How far a job was when it last said so."""

    done: int | float
    total: int | float | None
    note: str | None
    at: datetime


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """A job as the view `mainspring.jobs` shows it."""

    id: UUID
    task: str
    state: str
    org_id: str
    project_id: UUID | None
    actor_type: str
    actor_id: str
    request_id: str
    correlation_id: str
    parent_id: UUID | None
    traceparent: str | None
    idempotency_key: str
    queue: str
    priority: int
    payload: dict[str, Any]
    attempt: int
    max_attempts: int
    crashes: int
    snoozes: int
    cancellable: bool
    created_at: datetime
    scheduled_for: datetime | None
    due_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    updated_at: datetime
    worker: str | None
    epoch: int | None
    lease_expires_at: datetime | None
    cancel_requested_at: datetime | None
    result: Any
    error: dict[str, Any] | None
    resolution: str | None  # what was decided about a failed or dead job: discarded, fixed_forward
    fixed_by: UUID | None  # the job that does its work with a corrected payload
    fixes: UUID | None  # the dead letter whose work this job does
    progress: Progress | None
    gate: str | None = None  # what it waits at before it may start, such as breaker:stripe
