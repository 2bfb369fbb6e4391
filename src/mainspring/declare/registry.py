"""Registries: the tasks of an application, by name."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from typing import Any, Concatenate, ParamSpec, Protocol, TypeAlias, TypeVar, Unpack, overload

from mainspring.category import CATEGORIES
from mainspring.declare.context import Context, SyncContext
from mainspring.declare.enqueuer import Enqueuer
from mainspring.declare.schedule import Schedule, ScheduleOptions
from mainspring.declare.sweep import sweeper
from mainspring.declare.task import TASK_TIMEOUT, Task, TaskOptions
from mainspring.errors import DeclarationError, DuplicateTask, UnknownTask, ValidationError
from mainspring.job import SYSTEM, NewJob
from mainspring.retry import Retry
from mainspring.text.params import QueryParams
from mainspring.text.span import Span
from mainspring.text.texts import did_you_mean
from mainspring.when.rule import Rule
from mainspring.when.rule import every as rule_every

ENGINE_REGISTRY = "mainspring"  # the registry of the engine's own tasks

P = ParamSpec("P")
R = TypeVar("R")
ScheduledTask = TypeVar("ScheduledTask", bound=Task[..., Any, Any])
AsyncTask: TypeAlias = Task[P, R, Coroutine[Any, Any, R]]


class Declare(Protocol):
    """What `@tasks.task(...)` returns: it takes the function. A context parameter is not part of the payload."""

    @overload
    def __call__(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[Concatenate[SyncContext, P], R], /) -> Task[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def __call__(self, fn: Callable[P, R], /) -> Task[P, R]: ...


class Registry:
    """The tasks of one application. In all registries that are joined a name, or an alias, means one task.

    >>> tasks = Registry("shop")
    >>> @tasks.task(queue="q:notifications")
    ... async def send_invoice(*, order_id: int) -> None:
    ...     "Send the invoice of an order."
    >>> tasks.get("send_invoice").job(order_id=7).queue
    'q:notifications'
    """

    def __init__(self, name: str) -> None:
        if name == ENGINE_REGISTRY and type(self) is Registry:  # whose tasks nobody authorizes
            raise DeclarationError(f"registry {name}: this name is the engine's own")
        self.name = name
        self._tasks: dict[str, Task[Any, Any]] = {}  # by name and by alias
        self._categories: dict[str, Task[Any, Any]] = {}  # by name, the first task of each
        self._schedules: dict[tuple[str, str], Schedule] = {}  # by organisation and name
        self._joined: list[Registry] = []
        self._joined_by: list[Registry] = []
        self._enqueuer: Callable[[], Enqueuer | None] | None = None

    @overload
    def task(self, fn: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[Concatenate[SyncContext, P], R], /) -> Task[P, R]: ...
    @overload
    def task(self, fn: Callable[P, Coroutine[Any, Any, R]], /) -> AsyncTask[P, R]: ...
    @overload
    def task(self, fn: Callable[P, R], /) -> Task[P, R]: ...
    @overload
    def task(self, /, **options: Unpack[TaskOptions]) -> Declare: ...
    def task(self, fn: Callable[..., Any] | None = None, /, **options: Unpack[TaskOptions]) -> Any:
        """Declare a function as a task; see `mainspring.declare.task.TaskOptions` for what may be said about it."""

        def declare(fn: Callable[..., R]) -> Task[..., R]:
            task: Task[..., R] = Task(fn, app=self.name, **options)
            self._add([task])
            return task

        return declare if fn is None else declare(fn)

    @overload
    def schedule(
        self, name: str, rule: Rule, task: Task[..., Any, Any] | str, /, **options: Unpack[ScheduleOptions]
    ) -> Schedule: ...
    @overload
    def schedule(
        self, name: str, rule: Rule, /, **options: Unpack[ScheduleOptions]
    ) -> Callable[[ScheduledTask], ScheduledTask]: ...
    def schedule(
        self,
        name: str,
        rule: Rule,
        task: Task[..., Any, Any] | str | None = None,
        /,
        **options: Unpack[ScheduleOptions],
    ) -> Schedule | Callable[[ScheduledTask], ScheduledTask]:
        """Declare that a task runs by a rule of time; see `mainspring.declare.schedule.ScheduleOptions`.

        ::

            tasks.schedule("digest", ms.daily("08:00", zone="Europe/Oslo"), send_digest, catch_up="skip")

            @tasks.schedule("digest", ms.daily("08:00", zone="Europe/Oslo"))  # the same, above the task
            @tasks.task
            async def send_digest() -> None: ...

        Workers write what is declared to the database when they start. With `zones` the rule fires in each of them,
        with `entities` each fire makes a job for each of those.
        """
        if task is None:

            def declare(task: ScheduledTask) -> ScheduledTask:
                if not isinstance(task, Task):
                    raise DeclarationError(f"schedule {name}: put @tasks.task between it and the function")
                self.schedule(name, rule, task, **options)
                return task

            return declare
        try:
            schedule = Schedule(name, rule, self.get(task) if isinstance(task, str) else task, app=self.name, **options)
        except ValidationError as error:
            raise DeclarationError(f"schedule {name}: {error}") from None
        self._add_schedules([schedule])
        return schedule

    def sweep(
        self,
        name: str,
        /,
        *,
        every: Span,
        query: str,
        job: Callable[[Any], NewJob],
        params: QueryParams | None = None,
        by: str = "id",
        limit: int = 1000,
        queue: str = "q:maintenance",
        retry: Retry | int = CATEGORIES["maintenance"].retry,
        timeout: Span = TASK_TIMEOUT,
    ) -> Task[..., None]:
        """Declare what should have happened by now, and the job for each row of it that no timer covers.

        ::

            tasks.sweep(
                "late-approvals",
                every="5m",
                query="select id from timesheet where status = 'pending' and submitted_at <= %(now)s - %(wait)s",
                params={"wait": timedelta(hours=4)},
                job=lambda row: approve.job(timesheet_id=row.id).with_key(f"approve:{row.id}"),
            )

        A row is left alone while a job waits or runs under its key. Rows are read in pages of `limit`, in the order of
        the column `by`, which is unique. `params` may be a function that is asked for each page; `%(now)s` is the
        engine's. It runs as a task of its name, in the organisation SYSTEM: `retry` and `timeout` are those of a page.
        """
        task: Task[..., None] | None = None

        def following(after: Any) -> NewJob:
            assert task is not None
            return task.job(after=after)

        try:
            rule = rule_every(every)
        except ValidationError as error:
            raise DeclarationError(f"sweep {name}: every: {error}") from None
        given = {} if params is None else params
        run = sweeper(name, query, job, params=given, by=by, limit=limit, following=following)
        task = Task(run, app=self.name, name=name, category="maintenance", queue=queue, retry=retry, timeout=timeout)
        task.sweeps = True
        self._add([task])
        self.schedule(name, rule, task, org=SYSTEM, running="skip")
        return task

    def schedules(self) -> list[Schedule]:
        """Every schedule that is declared here or in a registry that was joined."""
        return list(self._schedules.values())

    def origins(self) -> list[str]:
        """The names of this registry and of those that were joined: where what is found here was declared."""
        return list(dict.fromkeys([self.name, *(name for other in self._joined for name in other.origins())]))

    def include(self, *others: Registry) -> None:
        """Join other registries: their tasks, and those they declare later, are found here too."""
        for other in others:
            self._add(list(other))
            self._add_schedules(other.schedules())
            other._joined_by.append(self)
            self._joined.append(other)

    def enqueues_by(self, enqueuer: Callable[[], Enqueuer | None]) -> None:
        """Let what is declared here be enqueued by this enqueuer; a weak reference, so that only living ones count."""
        self._enqueuer = enqueuer

    def enqueuers(self) -> list[Enqueuer]:
        """Those of the applications that this registry is in."""
        found = (registry._enqueuer() for registry in self._above() if registry._enqueuer is not None)
        return [enqueuer for enqueuer in found if enqueuer is not None]

    def get(self, name: str) -> Task[Any, Any]:
        """The task with this name or alias.

        >>> Registry("shop").get("send_invoice")
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
            for task in tasks:
                first = home._categories.get(task.category.name, task)
                if first.category != task.category:
                    pair = f"of {first.name} in {first.app}, and of {task.name} in {task.app}"
                    raise DeclarationError(f"category {task.category.name} has two meanings: {pair}")
        for home in homes:
            home._tasks.update(new)
            home._categories = {task.category.name: task for task in tasks} | home._categories
        for task in tasks:
            task.home = task.home or self

    def _add_schedules(self, schedules: list[Schedule]) -> None:
        homes = self._above()
        for home in homes:
            for schedule in schedules:
                other = home._schedules.get(schedule.place, schedule)
                if other is not schedule:
                    by = f"by {other.app} and by {schedule.app}"
                    raise DeclarationError(f"schedule {schedule.name}: is declared twice: {by}")
        for home in homes:
            home._schedules.update((schedule.place, schedule) for schedule in schedules)

    def _above(self) -> list[Registry]:
        """This registry, and those that have joined it, directly or not."""
        found = [self]
        for registry in found:
            found.extend(other for other in registry._joined_by if other not in found)
        return found
