"""The application: a database, the tasks, and who may run them. The composition root of user code."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypedDict, Unpack
from weakref import WeakMethod

from mainspring.cipher import Cipher
from mainspring.circuit import Breaker, declared
from mainspring.client import AsyncClient, Client
from mainspring.client.own import OwnClients
from mainspring.config import (
    DEFAULT_SCHEMA,
    NO_ALIASES,
    Retention,
    SettingAliases,
    WorkerConfig,
    answered_within,
    check_aliases,
    database,
    maintained,
    retention,
    worker_config,
)
from mainspring.db.wire.adopt import is_async
from mainspring.db.wire.sql import Sql
from mainspring.declare.block import Block
from mainspring.declare.caller import NOBODY, Caller
from mainspring.declare.registry import Registry
from mainspring.errors import ConfigurationError, DeclarationError
from mainspring.events import Observer
from mainspring.health.measure import Measure, Measured
from mainspring.health.measure import declared as declared_measures
from mainspring.health.watch import Watch
from mainspring.health.watch import declared as declared_watches
from mainspring.job import DEFAULT_ORG, NewJob
from mainspring.limit import DeclaredLimit
from mainspring.queue import Queue
from mainspring.queue import declared as declared_queues
from mainspring.retry import Retry
from mainspring.text.span import Span, configured_span
from mainspring.upkeep.audience import Audience
from mainspring.upkeep.maintenance import HEARTBEAT
from mainspring.upkeep.maintenance import maintenance as housekeeping
from mainspring.upkeep.watching import Watching

if TYPE_CHECKING:
    from mainspring.db.schema.line import Line
    from mainspring.observe.traces import Spans
    from mainspring.virtual.databases import Preparation
    from mainspring.worker import Worker
    from mainspring.worker.executor import Authorize
    from mainspring.worker.run_due import Summary


RUN_BUDGET = timedelta(seconds=25)  # below the limits of the usual serverless platforms
NOBODY_ELSE: Mapping[str, str] = {}


class RunDueOptions(TypedDict, total=False):
    """What may be said about a run of what is due."""

    concurrency: int  # 1: so many jobs of a kind at once
    queues: Sequence[str] | None  # None: the worker's
    now: datetime | None  # for tests: moves the clock of a test database; elsewhere the database's own decides


class App:
    """What `mainspring worker run --app module:app` and the other commands need to know.

    ::

        app = ms.App(tasks, dsn="postgresql://localhost/shop", authorize=may_run)
        client = app.client()

    Without a DSN it comes from MAINSPRING_DSN or DATABASE_URL, or is that of `mainspring up` in the same directory.
    `authorize` is asked before each attempt: it gets the claimed job and returns None, or the reason why not.
    `answered_within` is how long its clients wait for an answer of the database: 30 s, if nobody says.
    `secured` makes its clients bind each statement to its organisation, as `mainspring schema secure` asks for.
    `observers` are told what happens, in batches: see `mainspring.events`.
    `cipher` encrypts what jobs carry, with a key for each organisation.
    `limits` bound how many jobs start and run at once, over all workers: see `ms.rate`, `ms.concurrency`, `ms.in_order`
    and `ms.fair`.
    `queues` are your own, with how late their jobs may start: `ms.Queue("exports", start_target="5m")`.
    `breakers` say when something that jobs need is no longer called: see `mainspring.circuit`.
    `maintenance` says how long what has ended is kept; False leaves the built-in clean-up out.
    `migrations` are the lines of your own tables and verbs, `ms.Line.of("shop", "shop")`: `mainspring schema migrate
    --app …` applies them after the engine's, and so do `up`, `simulate` and the fixture for tests.
    `prepare` makes demo data, for `mainspring up` and in the scratch database of `mainspring simulate`: SQL, or
    functions that take a connection; run again, it changes nothing.
    `blocks` are ready-made parts, such as `mainspring.contrib.notify`: see `mainspring.declare.block`.
    `watches` say what is wrong, as alerts that last: see `ms.watch` and `ms.watch_dead`; `watch_retry` says when a run
    of them that failed, such as by a lost connection, is tried again.
    `measures` are numbers of your own, shown beside the engine's metrics: see `ms.measure`.
    `routes` are pages of your own, which `mainspring serve` serves beside its own: Starlette's routes, each saying
    who may call it: `public(route)`, `by_role(route, "operator")` or `by_token(route, "SHOP_TOKEN")` of
    `mainspring.web`.
    `setting_aliases` are your own names of settings: `{"SHOP_LEASE_SECONDS": "MAINSPRING_LEASE_SECONDS"}`.
    `about` is what `mainspring up` says at its start: what to look at, and where, `{url}` being its address
    and `{curl}` the command that knows the token of your routes.
    `demo_people` are who else comes in there, by name, and the organisation that exists for each: `{"ana": "acme"}` has
    an access token of a member called `demo ana`, and `{curl.ana}` knows it.
    """

    def __init__(
        self,
        *registries: Registry,
        dsn: str | None = None,
        schema: str = DEFAULT_SCHEMA,
        caller: Caller = NOBODY,
        config: WorkerConfig | None = None,
        authorize: Authorize | None = None,
        secured: bool = False,
        answered_within: Span | None = None,
        observers: Sequence[Observer] = (),
        cipher: Cipher | None = None,
        limits: Sequence[DeclaredLimit] = (),
        queues: Sequence[Queue] = (),
        maintenance: Retention | bool = True,
        migrations: Sequence[Line] = (),
        prepare: Sequence[Preparation] = (),
        breakers: Sequence[Breaker] = (),
        blocks: Sequence[Block] = (),
        routes: Sequence[Any] = (),
        about: str = "",
        demo_people: Mapping[str, str] = NOBODY_ELSE,
        watches: Sequence[Watch] = (),
        watch_retry: Retry | None = None,
        measures: Sequence[Measure] = (),
        setting_aliases: SettingAliases = NO_ALIASES,
    ) -> None:
        check_aliases(setting_aliases)
        for registry in registries:
            if not isinstance(registry, Registry):
                raise DeclarationError("App takes registries first: App(tasks, dsn=...)")
        for block in blocks:
            if not isinstance(block, Block):
                raise DeclarationError(f"blocks: {block!r} is not a block, such as Notify(...)")
        self.registry = Registry("app")
        self.blocks, self.routes = tuple(blocks), tuple(routes)
        self.registry.include(*registries, *(block.registry for block in blocks))
        self.schema, self.about, self.demo_people = schema, about, dict(demo_people)
        self.caller = caller
        self.config, self.setting_aliases = config, setting_aliases
        self.authorize = authorize
        self.secured, self.answered_within = secured, None
        if answered_within is not None:
            self.answered_within = configured_span("answered_within", answered_within).total_seconds()
        self.observers = (*observers, *(observer for block in blocks for observer in block.observers))
        self.cipher = cipher
        self.limits = (*limits, *(limit for block in blocks for limit in block.limits))
        self.queues = declared_queues(queues)
        self.migrations, self.prepare = tuple(migrations), tuple(prepare)
        breakers = (*breakers, *(breaker for block in blocks for breaker in block.breakers))
        self.breakers = tuple(declared(breakers, self.registry).values())
        self.watches, self.measures = declared_watches(watches), declared_measures(measures)
        self.told = Audience(self.observers)  # of alerts; the command line brings its own
        self._dsn = dsn
        self._own = OwnClients()
        self.registry.enqueues_by(WeakMethod(self._enqueue))
        if maintenance is not False and maintained(aliases=setting_aliases) and HEARTBEAT not in self.registry:
            keep = retention(maintenance if isinstance(maintenance, Retention) else None, aliases=setting_aliases)
            self.registry.include(housekeeping(keep, schema=schema, observers=self.observers, told=self.told))
        if self.watches:
            name = registries[0].name if registries else self.registry.name
            org = DEFAULT_ORG if caller.org_id is None else caller.org_id
            self.registry.include(
                Watching(name, self.watches, sql=Sql(schema), org=org, told=self.told, retry=watch_retry)
            )
        for block in blocks:
            block.joined(self)

    @property
    def dsn(self) -> str:
        """The database's address."""
        found = database(self._dsn)
        if found is None:
            from mainspring.embedded.home import local_dsn

            found = local_dsn()
        if found is None:
            way = "say App(tasks, dsn=...), or set MAINSPRING_DSN, or run `mainspring up` in this directory"
            raise ConfigurationError(f"no database: {way}")
        return found

    def at(self, dsn: str, *, secured: bool | None = None, observers: Sequence[Observer] | None = None) -> None:
        """Move it to this database; `secured` and `observers`, where they are given, take the place of its own.

        For programs that run an application of somebody else's, before they run it.
        """
        self._dsn = dsn
        if secured is not None:
            self.secured = secured
        if observers is not None:
            self.observers = tuple(observers)

    def client(self) -> Client:
        """A client for sync code."""
        return Client(self.dsn, **self._about())

    def async_client(self) -> AsyncClient:
        """A client for async code."""
        return AsyncClient(self.dsn, **self._about())

    def close(self) -> None:
        """Close the connections of `task.enqueue`; the next one opens others."""
        self._own.close()

    async def aclose(self) -> None:
        """`close`, and those of the event loop that runs here: say it before the loop ends."""
        await self._own.aclose()

    def measured(self) -> list[Measured]:
        """What the measures say now."""
        from mainspring.db.measures import Measures

        return Measures(self.dsn, self.measures, self.schema)()

    def worker_settings(self) -> WorkerConfig:
        """How its workers work, with what the environment says."""
        return worker_config(self.config, aliases=self.setting_aliases)

    def patience(self) -> float:
        """How long its clients wait for an answer of the database, in seconds, with what the environment says."""
        return answered_within(self.answered_within, aliases=self.setting_aliases)

    def worker(self, config: WorkerConfig | None = None) -> Worker:
        """A worker for this process; without a configuration, the environment's."""
        from mainspring.worker import Worker

        return Worker(self.dsn, self.registry, **self.worker_options(config))

    def worker_options(self, config: WorkerConfig | None = None) -> Any:
        """What a worker of it is told besides its database and tasks; without a configuration, the environment's."""
        about = {"config": config or self.worker_settings(), "schema": self.schema, "authorize": self.authorize}
        about |= {"observers": self.observers, "trace": spans(), "cipher": self.cipher, "limits": self.limits}
        triggers = [trigger for block in self.blocks for trigger in block.triggers]
        about |= {"declared_queues": self.queues}
        return about | {"breakers": self.breakers, "triggers": triggers}

    def run_due(self, limit: int = 10, *, budget: Span = RUN_BUDGET, **how: Unpack[RunDueOptions]) -> Summary:
        """Run what is due once, at most `limit` jobs, for callers without a worker: cron, a serverless function.

        ::

            summary = app.run_due(limit=10, budget="25s")

        Nothing is claimed once the budget is used. Calls may overlap: no job runs twice.
        """
        if loop_runs():
            raise ConfigurationError("an event loop runs here: await app.arun_due(...)")
        return asyncio.run(self.arun_due(limit, budget=budget, **how))

    async def arun_due(self, limit: int = 10, *, budget: Span = RUN_BUDGET, **how: Unpack[RunDueOptions]) -> Summary:
        """`run_due`, in the caller's event loop."""
        from mainspring.worker.run_due import RunDue

        return await RunDue(self.dsn, self.registry, limit=limit, **how, **self.worker_options()).once(budget)

    def _enqueue(self, job: NewJob, conn: Any) -> Any:
        """Enqueue a job for `task.enqueue`: the answer in sync code, in async code what is awaited for it."""
        if loop_runs() if conn is None else is_async(conn):
            return self._own.of_loop(self.dsn, self.async_client).enqueue(job, conn=conn)
        return self._own.sync(self.dsn, self.client).enqueue(job, conn=conn)

    def _about(self) -> Any:
        about = {"schema": self.schema, "caller": self.caller, "secured": self.secured}
        return about | {"answered_within": self.patience(), "observers": self.observers, "cipher": self.cipher}


def loop_runs() -> bool:
    """Whether this is async code: an event loop runs in this thread."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def spans() -> Spans | None:
    """What traces attempts, where this program has set OpenTelemetry up."""
    if "opentelemetry.sdk.trace" not in sys.modules:  # nothing is imported for those who do not trace
        return None
    from mainspring.observe.traces import Spans, in_use

    return Spans() if in_use() else None
