"""Who is asking: the defaults that complete a short enqueue.

A middleware sets them once per request; every job enqueued inside carries them. What is not set comes from the
client, and at last from the engine: organisation `default`, actor `system`/`SYSTEM`, fresh ids.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import cast
from uuid import UUID

from mainspring.job import ActorType, Claim


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
_current: ContextVar[Caller | Claim] = ContextVar("mainspring_caller", default=NOBODY)


def current() -> Caller:
    """The caller of the current context; inside a handler, its job: what it enqueues is a follow-up."""
    caller = _current.get()
    if isinstance(caller, Claim):
        caller = Caller(
            org_id=caller.org_id,
            project_id=caller.project_id,
            actor_type=cast(ActorType, caller.actor_type),
            actor_id=caller.actor_id,
            request_id=caller.request_id,
            correlation_id=caller.correlation_id,
            parent_id=caller.id,
            traceparent=caller.traceparent,
        )
        _current.set(caller)
    return caller


def running(claim: Claim) -> None:
    """From here on this context belongs to a handler. Cheap: the caller is made from the job when it is asked for."""
    _current.set(claim)


@contextmanager
def calling(caller: Caller) -> Iterator[None]:
    """Enqueue on behalf of a caller inside this block.

    >>> with calling(Caller(org_id="acme", actor_type="user", actor_id="7")):
    ...     current().org_id
    'acme'
    """
    token = _current.set(caller)
    try:
        yield
    finally:
        _current.reset(token)
