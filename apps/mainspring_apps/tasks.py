"""Tasks whose handlers are handed a value, such as an application's settings and providers.

They are declared once, at a module's top, and bound to a value for each application that runs them: two applications
in one process each have their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, Required, TypedDict, TypeVar, Unpack

import mainspring as ms
from mainspring.declare.schedule import ScheduleOptions
from mainspring.declare.task import TaskOptions
from mainspring.errors import ConfigurationError
from mainspring.retry import Retry
from mainspring.text.span import Span
from mainspring.when import Rule

D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")


class SweepOptions(TypedDict, Generic[D], total=False):
    """What may be said about a sweep, as `ms.Registry.sweep` takes it; a function of params is handed the value."""

    every: Required[Span]
    query: Required[str]
    job: Required[Callable[[Any], ms.NewJob]]
    params: Mapping[str, Any] | Callable[[D], Mapping[str, Any]]
    by: str
    limit: int
    queue: str
    retry: Retry | int
    timeout: Span


class Declare(Protocol[D_co]):
    """A decorator that makes a task of a function of the value, the context, and what its job carries."""

    def __call__(self, fn: Callable[Concatenate[D_co, ms.SyncContext, P], R], /) -> ms.Task[P, R]:
        """The task, to build jobs with: what runs them is bound."""


class Tasks(Generic[D]):
    """Declarations of an application, which `bound` makes a registry of.

    ::

        tasks = Tasks[Desk]("shop")

        @tasks.task(queue="invoices")
        def send_invoice(desk: Desk, ctx: ms.SyncContext, *, booking_id: int) -> None: ...

        app = ms.App(tasks.bound(Desk(settings)), dsn=dsn)
        client.enqueue(send_invoice.job(booking_id=7))
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self._declared: list[Callable[[ms.Registry, D], object]] = []

    def task(self, **options: Unpack[TaskOptions]) -> Declare[D]:
        """Declare a function as a task, as `ms.Registry.task` does."""

        def declare(fn: Callable[..., Any]) -> Any:
            self._declared.append(lambda registry, value: registry.task(**options)(_handler(fn, partial(fn, value))))
            return ms.Task(_handler(fn, partial(_unbound, fn.__name__)), app=self.name, **options)

        return declare

    def schedule(self, name: str, rule: Rule, task: ms.Task[..., Any], /, **options: Unpack[ScheduleOptions]) -> None:
        """Declare that a task runs by a rule of time, as `ms.Registry.schedule` does."""
        self._declared.append(lambda registry, _: registry.schedule(name, rule, task.name, **options))

    def sweep(self, name: str, /, **options: Unpack[SweepOptions[D]]) -> None:
        """Declare what should have happened by now, as `ms.Registry.sweep` does."""

        def declare(registry: ms.Registry, value: D) -> None:
            params = options.get("params")
            about: dict[str, Any] = {**options, "params": partial(params, value) if callable(params) else params}
            registry.sweep(name, **about)

        self._declared.append(declare)

    def bound(self, value: D) -> ms.Registry:
        """The registry of an application whose handlers are handed this value."""
        registry = ms.Registry(self.name)
        for declare in self._declared:
            declare(registry, value)
        return registry


def _handler(fn: Callable[..., Any], call: Callable[..., Any]) -> Callable[..., Any]:
    """`call` under the name and with the parameters of `fn`, without the first."""

    @wraps(fn)
    def handler(*args: Any, **kwargs: Any) -> Any:
        return call(*args, **kwargs)

    signature = inspect.signature(fn)
    handler.__signature__ = signature.replace(  # type: ignore[attr-defined]  # functions may have one, mypy does not know
        parameters=list(signature.parameters.values())[1:]
    )
    return handler


def _unbound(name: str, *_: Any, **__: Any) -> None:
    raise ConfigurationError(f"task {name}: runs in an application, and this is only its declaration")
