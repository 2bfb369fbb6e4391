"""Registries: the tasks of an application, by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar, Unpack, overload

from mainspring.context import Context, SyncContext
from mainspring.errors import DuplicateTask, UnknownTask
from mainspring.task import Options, Task
from mainspring.texts import did_you_mean

P = ParamSpec("P")
R = TypeVar("R")


class Declare(Protocol):
    """What `@tasks.task(...)` returns: it takes the function. A context parameter is not part of the payload."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[SyncContext, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class Registry:
    """The tasks of one application. A name, or an alias, means one task in all registries that are joined.

    >>> tasks = Registry("rental")
    >>> @tasks.task(queue="q:notifications")
    ... async def send_invoice(*, booking_id: int) -> None:
    ...     "Send the invoice of a booking."
    >>> tasks.get("send_invoice").job(booking_id=7).queue
    'q:notifications'
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: dict[str, Task[Any, Any]] = {}  # by name and by alias
        self._joined_by: list[Registry] = []

    @overload
    def task(self, fn: Callable[Concatenate[Context, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[SyncContext, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[Options]) -> Declare: ...
    def task(self, fn: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
        """Declare a function as a task; see `mainspring.task.Options` for what may be said about it."""

        def declare(fn: Callable[..., R]) -> Task[..., R]:
            task: Task[..., R] = Task(fn, app=self.name, **options)
            self._add([task])
            return task

        return declare if fn is None else declare(fn)

    def include(self, *others: Registry) -> None:
        """Join other registries: their tasks, and those they declare later, are found here too."""
        for other in others:
            self._add(list(other))
            other._joined_by.append(self)

    def get(self, name: str) -> Task[Any, Any]:
        """The task with this name or alias.

        >>> Registry("rental").get("send_invoice")
        Traceback (most recent call last):
        mainspring.errors.UnknownTask: no task is called 'send_invoice'
        """
        try:
            return self._tasks[name]
        except KeyError:
            raise UnknownTask(f"no task is called {name!r}{did_you_mean(name, self._tasks)}") from None

    def names(self) -> list[str]:
        """Every name that a stored job may have: of the tasks, and their aliases."""
        return list(self._tasks)

    def __iter__(self) -> Iterator[Task[Any, Any]]:
        return iter(dict.fromkeys(self._tasks.values()))

    def __contains__(self, name: object) -> bool:
        return name in self._tasks

    def __len__(self) -> int:
        return len(set(self._tasks.values()))

    def __repr__(self) -> str:
        return f"<Registry {self.name}: {len(self)} tasks>"

    def _add(self, tasks: list[Task[Any, Any]]) -> None:
        homes = self._above()
        new = [(name, task) for task in tasks for name in dict.fromkeys((task.name, *task.aliases))]
        for home in homes:  # all are asked before any is changed
            for name, task in new:
                other = home._tasks.get(name, task)
                if other is not task:
                    raise DuplicateTask(f"task {name} is declared twice: by {other.app} and by {task.app}")
        for home in homes:
            home._tasks.update(new)

    def _above(self) -> list[Registry]:
        """This registry, and those that have joined it, directly or not."""
        found = [self]
        for registry in found:
            found.extend(other for other in registry._joined_by if other not in found)
        return found
