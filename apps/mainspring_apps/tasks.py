"""Tasks whose handlers are handed a value, such as an application's settings and providers.

They are declared once, at a module's top, and bound to a value for each application that runs them: two applications
in one process each have their own.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import partial, wraps
from typing import (
    Any,
    Concatenate,
    Final,
    Generic,
    ParamSpec,
    Protocol,
    Required,
    TypeAlias,
    TypedDict,
    TypeVar,
    Unpack,
)

from msgspec.structs import replace

import mainspring as ms
from mainspring.dedupe import Dedupe
from mainspring.errors import ConfigurationError
from mainspring.retry import Retry
from mainspring.text.span import Span
from mainspring.when import Rule
from mainspring.when.fire import CatchUp

T = TypeVar("T")
D = TypeVar("D")
D_co = TypeVar("D_co", covariant=True)
P = ParamSpec("P")
R = TypeVar("R")

#: An option, or a function that makes it of the value of each application.
Of: TypeAlias = T | Callable[[D], T]
#: These are functions themselves: they are handed the value first.
_HANDED: Final = frozenset({"entities", "job", "params", "zones"})


class BoundTask(TypedDict, Generic[D], total=False):
    """What may be said about a task, as `ms.Registry.task` takes it."""

    queue: str
    retry: Of[Retry | int, D]
    timeout: Of[Span, D]
    snooze_limit: Of[Span | None, D]
    dedupe: Dedupe | None
    needs: tuple[str, ...]
    cancellable: bool
    halve: str | None
    subject: str | None


class BoundSchedule(TypedDict, Generic[D], total=False):
    """What may be said about a schedule, as `ms.Registry.schedule` takes it; its functions are handed the value."""

    zones: str | Callable[[D, Any], Any]
    entities: str | Callable[..., Any]
    page: Of[int, D]
    within: Of[Span | None, D]
    catch_up: CatchUp


class BoundSweep(TypedDict, Generic[D], total=False):
    """What may be said about a sweep, as `ms.Registry.sweep` takes it; its functions are handed the value."""

    every: Required[Of[Span, D]]
    query: Required[str]
    job: Required[Callable[[D, Any], ms.NewJob]]
    params: Mapping[str, Any] | Callable[[D], Mapping[str, Any]]
    by: str
    limit: Of[int, D]
    queue: str
    retry: Of[Retry | int, D]
    timeout: Of[Span, D]


class Declare(Protocol[D_co]):
    """A decorator that makes a task of a function of the value, the context, and what its job carries."""

    def __call__(self, fn: Callable[Concatenate[D_co, ms.SyncContext, P], R], /) -> ms.Task[P, R]:
        """The task, to build jobs with: what runs them is bound."""


class Tasks(Generic[D]):
    """Declarations of an application, which `bound` makes a registry of.

    ::

        tasks = Tasks[Desk]("shop", timeout=lambda desk: desk.settings.task_timeout)

        @tasks.task(queue="invoices")
        def send_invoice(desk: Desk, ctx: ms.SyncContext, *, booking_id: int) -> None: ...

        app = ms.App(tasks.bound(Desk(settings)), dsn=dsn)
        client.enqueue(send_invoice.job(booking_id=7))

    `retry` and `timeout` are those of tasks and sweeps that say nothing else.
    """

    def __init__(
        self, name: str, *, retry: Of[Retry | int, D] | None = None, timeout: Of[Span, D] | None = None
    ) -> None:  # fmt: skip
        self.name = name
        given = {"retry": retry, "timeout": timeout}
        self._usual = {option: said for option, said in given.items() if said is not None}
        self._declared: list[Callable[[ms.Registry, D], object]] = []

    def task(self, **options: Unpack[BoundTask[D]]) -> Declare[D]:
        """Declare a function as a task, as `ms.Registry.task` does."""
        about: dict[str, Any] = {**self._usual, **options}

        def declare(fn: Callable[..., Any]) -> Any:
            self._declared.append(
                lambda registry, value: registry.task(**_asked(about, value))(_handler(fn, partial(fn, value)))
            )
            known = {option: said for option, said in about.items() if not callable(said)}
            return ms.Task(_handler(fn, partial(_unbound, fn.__name__)), app=self.name, **known)

        return declare

    def schedule(
        self, name: str, rule: Of[Rule, D], task: ms.Task[..., Any], /, **options: Unpack[BoundSchedule[D]]
    ) -> None:
        """Declare that a task runs by a rule of time, as `ms.Registry.schedule` does."""

        def declare(registry: ms.Registry, value: D) -> None:
            about = _asked({**options, "rule": rule}, value)
            registry.schedule(name, about.pop("rule"), task.name, **about)

        self._declared.append(declare)

    def sweep(self, name: str, /, **options: Unpack[BoundSweep[D]]) -> None:
        """Declare what should have happened by now, as `ms.Registry.sweep` does."""

        def declare(registry: ms.Registry, value: D) -> None:
            about = _asked({**self._usual, **options}, value)
            job = about.pop("job")
            registry.sweep(name, job=lambda row: fitted(registry, job(row)), **about)

        self._declared.append(declare)

    def bound(self, value: D) -> ms.Registry:
        """The registry of an application whose handlers are handed this value."""
        registry = ms.Registry(self.name)
        for declare in self._declared:
            declare(registry, value)
        return registry


def fitted(registry: ms.Registry, job: ms.NewJob) -> ms.NewJob:
    """A job that a declaration has built, tried as often as the application says whose registry this is.

    A declaration knows no value, and so no option that depends on one.
    """
    return replace(job, max_attempts=registry.get(job.task).retry.attempts) if job.task in registry else job


def _asked(options: Mapping[str, Any], value: Any) -> dict[str, Any]:
    """Options of an application: functions that make one are asked, others are handed the value."""
    return {
        name: said if not callable(said) else partial(said, value) if name in _HANDED else said(value)
        for name, said in options.items()
    }


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
