"""Categories of work: the queue, the retry policy and the key's life time that a task gets unless it says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mainspring.errors import DeclarationError
from mainspring.queue import DEAD_LETTER
from mainspring.retry import Retry, exponential
from mainspring.text.span import NO_SPAN, Span, read_span
from mainspring.text.texts import MAX_NAME, MAX_QUEUE, text_problem


@dataclass(frozen=True, slots=True, init=False)
class Category:
    """Defaults that tasks of one kind of work share: `@tasks.task(category=REPORTS)`.

    >>> REPORTS = Category("reports", queue="exports", retry=exponential(attempts=3, cap="2m"), key_ttl="7d")
    >>> REPORTS.key_ttl
    datetime.timedelta(days=7)
    """

    name: str
    queue: str
    retry: Retry
    key_ttl: timedelta | None  # how long a finished job's key is remembered; None: for ever

    def __init__(
        self, name: str, *, queue: str = "q:default", retry: Retry | None = None, key_ttl: Span | None = "30d"
    ) -> None:
        if problem := text_problem(name, MAX_NAME):
            raise DeclarationError(f"category: its name {problem}")
        if problem := text_problem(queue, MAX_QUEUE):
            raise DeclarationError(f"category {name}: queue {problem}")
        if queue == DEAD_LETTER:
            raise DeclarationError(f"category {name}: queue {DEAD_LETTER} holds dead jobs; no task runs there")
        if not isinstance(retry, Retry | None):
            raise DeclarationError(f"category {name}: retry is not a policy, such as ms.fixed('1m', attempts=3)")
        ttl = read_span(key_ttl)
        if key_ttl is not None and (ttl is None or ttl < timedelta(0)):
            raise DeclarationError(f"category {name}: key_ttl is {NO_SPAN if ttl is None else 'negative'}")
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "queue", queue)
        object.__setattr__(self, "retry", retry or exponential())
        object.__setattr__(self, "key_ttl", ttl)


#: Those that every application has; its own stand in its code.
CATEGORIES: Final = {
    category.name: category
    for category in (
        Category("default"),
        Category("critical", queue="q:critical"),
        Category("audit"),
        Category("maintenance", queue="q:maintenance", key_ttl="7d"),
        Category("notifications", queue="q:notifications", retry=exponential(attempts=10, cap="30m"), key_ttl="7d"),
    )
}
