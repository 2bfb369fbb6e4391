"""Queues: what jobs wait in. Those of the engine, and those that an application declares."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mainspring.errors import DeclarationError
from mainspring.text.span import NO_SPAN, Span, read_span
from mainspring.text.texts import MAX_QUEUE, text_problem

DEAD_LETTER: Final = "q:deadletter"
QUEUES: Final = ("q:critical", "q:default", "q:notifications", "q:maintenance", DEAD_LETTER)


@dataclass(frozen=True, slots=True, init=False)
class Queue:
    """A queue of your own that is listed and served from the start, and is late when a job waits past its target.

    >>> Queue("exports", start_target="5m").start_target
    datetime.timedelta(seconds=300)
    """

    name: str
    start_target: timedelta | None  # how late a job may start

    def __init__(self, name: str, *, start_target: Span | None = None) -> None:
        if problem := text_problem(name, MAX_QUEUE):
            raise DeclarationError(f"queue: its name {problem}")
        if name in QUEUES:
            raise DeclarationError(f"queue {name}: is the engine's own")
        target = read_span(start_target)
        if start_target is not None and (target is None or target <= timedelta(0)):
            raise DeclarationError(f"queue {name}: start_target is {NO_SPAN if target is None else 'not positive'}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "start_target", target)


def declared(queues: Iterable[Queue]) -> tuple[Queue, ...]:
    """Refuse what is no queue, and two of one name."""
    found: dict[str, Queue] = {}
    for queue in queues:
        if not isinstance(queue, Queue):
            raise DeclarationError(f"queues: {queue!r} is not a queue, such as ms.Queue('exports', start_target='5m')")
        if found.setdefault(queue.name, queue) is not queue:
            raise DeclarationError(f"queue {queue.name} is declared twice")
    return tuple(found.values())
