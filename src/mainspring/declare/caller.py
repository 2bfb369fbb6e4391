"""Who is asking: the defaults that complete a short enqueue.

A middleware sets them once per request; every job enqueued inside carries them. What is not set comes from the
client, and at last from the engine: organisation `default`, actor `system`/`SYSTEM`, fresh ids.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import Context, ContextVar
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from time import monotonic
from typing import TYPE_CHECKING, Any, cast
from uuid import UUID

import msgspec

from mainspring.job import ActorType, Claim

if TYPE_CHECKING:
    import asyncio


@dataclass(frozen=True, slots=True)
class Caller:
    """The organisation, actor and trace that enqueued jobs get unless they say otherwise."""

    org_id: str | None = None
    project_id: UUID | None = None
    actor_type: ActorType | None = None
    actor_id: str | None = None
    request_id: str | None = None
    correlation_id: str | None = None
    parent_id: UUID | None = None
    traceparent: str | None = None


NOBODY = Caller()
TRACE = ("request_id", "correlation_id", "traceparent")
_current: ContextVar[Caller | Claim] = ContextVar("mainspring_caller", default=NOBODY)
_entered: ContextVar[float] = ContextVar("mainspring_entered")  # when this context became a handler's


def current() -> Caller:
    """The caller of the current context; inside a handler, its job: what it enqueues is a follow-up."""
    caller = _current.get()
    return of_job(caller) if isinstance(caller, Claim) else caller


def current_job() -> Claim | None:
    """The job whose handler this is; None outside of handlers."""
    caller = _current.get()
    return caller if isinstance(caller, Claim) else None


def job_of(task: asyncio.Task[Any]) -> Claim | None:
    """The job that a task belongs to, in any thread: its handler's own, or one that the handler began."""
    known = getattr(task, "get_context", None)  # from Python 3.12 on; before, only the collector sees it
    contexts = gc.get_referents(task) if known is None else [known()]
    callers = [context.get(_current) for context in contexts if isinstance(context, Context)]
    return next((caller for caller in callers if isinstance(caller, Claim)), None)


def task_of(error: BaseException) -> asyncio.Task[Any] | None:
    """The task that has ended with this error, if somebody still has it. Slow: only the collector knows all tasks."""
    from asyncio import Task

    ended = (task for task in gc.get_objects() if issubclass(type(task), Task) and task.done() and not task.cancelled())
    return next((task for task in ended if task.exception() is error), None)


def time_of(job: Claim) -> datetime:
    """What the database's clock shows about now, as the handler of a job knows it: its claim, and what passed since."""
    entered = _entered.get(None)
    return job.claimed_at if entered is None else job.claimed_at + timedelta(seconds=monotonic() - entered)


def of_job(claim: Claim) -> Caller:
    """The caller that a handler is: what it enqueues or changes is for its job."""
    return Caller(
        org_id=claim.org_id,
        project_id=claim.project_id,
        actor_type=cast(ActorType, claim.actor_type),
        actor_id=claim.actor_id,
        request_id=claim.request_id,
        correlation_id=claim.correlation_id,
        parent_id=claim.id,
        traceparent=claim.traceparent,
    )


def job_fields(job: Claim) -> dict[str, str | None]:
    """What every log line of a job carries."""
    return {
        "request_id": job.request_id,
        "correlation_id": job.correlation_id,
        "job_id": str(job.id),
        "job_type": job.task,
        "org_id": job.org_id,
        "project_id": str(job.project_id) if job.project_id else None,
    }


def log_fields() -> dict[str, str | None]:
    """What a log line written here carries: the ids of the running job, or those of the request."""
    caller = _current.get()
    if isinstance(caller, Claim):
        return job_fields(caller)
    fields = {"request_id": caller.request_id, "correlation_id": caller.correlation_id, "org_id": caller.org_id}
    return {name: value for name, value in fields.items() if value is not None}


def running(claim: Claim) -> None:
    """From here on this context belongs to a handler. Cheap: the caller is made from the job when it is asked for."""
    _current.set(claim)
    _entered.set(monotonic())


@contextmanager
def calling(caller: Caller) -> Iterator[None]:
    """Enqueue on behalf of a caller inside this block; the ids of the trace that it leaves out are those around it.

    >>> with calling(Caller(org_id="acme", actor_type="user", actor_id="7")):
    ...     current().org_id
    'acme'
    """
    around = current()
    trace = {name: getattr(around, name) for name in TRACE if getattr(caller, name) is None}
    token = _current.set(replace(caller, **trace) if any(trace.values()) else caller)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def following(correlation_id: str | None) -> Iterator[None]:
    """Go on with a story that began elsewhere: inside this block jobs and audit rows carry its correlation id.

    Whoever calls stays the same, and inside a handler so does its job, the parent of what is enqueued. None: no other
    story is known.

    >>> with calling(Caller(org_id="acme", correlation_id="webhook")), following("order-7"):
    ...     current().org_id, current().correlation_id
    ('acme', 'order-7')
    """
    around = _current.get()
    if correlation_id is None:
        correlation_id = around.correlation_id
    if isinstance(around, Claim):
        followed: Caller | Claim = msgspec.structs.replace(around, correlation_id=correlation_id)
    else:
        followed = replace(around, correlation_id=correlation_id)
    token = _current.set(followed)
    try:
        yield
    finally:
        _current.reset(token)
