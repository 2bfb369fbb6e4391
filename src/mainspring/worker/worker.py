"""The worker: starts its parts, stops them in good order, and says how it is."""

from __future__ import annotations

import asyncio
import signal
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import psycopg

from mainspring.cipher import Cipher
from mainspring.circuit import Breaker, declared
from mainspring.config import DEFAULT_SCHEMA, WorkerConfig, at_speed
from mainspring.db.limits import declare
from mainspring.db.queues import declare as declare_queues
from mainspring.db.schema.status import check, status
from mainspring.db.wire.connect import Connection, options
from mainspring.db.wire.run import psycopg_door
from mainspring.db.wire.run import run as run_dialogue
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.translate import is_transient
from mainspring.declare.block import Trigger
from mainspring.declare.registry import Registry
from mainspring.errors import DatabaseUnavailable
from mainspring.events import Bus, DatabaseAway, DatabaseBack, Observer, WorkerStarted, WorkerStopped, WorkerStopping
from mainspring.extras import needs
from mainspring.health.trouble import Trouble
from mainspring.limit import DeclaredLimit, check_declared, owner
from mainspring.queue import DEAD_LETTER, QUEUES, Queue
from mainspring.text.sanitize import sanitize
from mainspring.worker import aside
from mainspring.worker.attempt import LiveAttempt, Trace
from mainspring.worker.executor import Authorize
from mainspring.worker.hosting import Hosting
from mainspring.worker.leases import Renewer
from mainspring.worker.parts import Parts, WorkerSettings
from mainspring.worker.rescuer import Heartbeat, Predecessor
from mainspring.worker.service import backoff, job_log, log
from mainspring.worker.watchdog import Watchdog

SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Worker:
    """Runs the jobs of a registry until it is stopped.

    ::

        worker = Worker(dsn, tasks)
        await worker.run()  # until SIGTERM or SIGINT
    """

    def __init__(
        self,
        dsn: str,
        registry: Registry,
        *,
        config: WorkerConfig | None = None,
        schema: str = DEFAULT_SCHEMA,
        authorize: Authorize | None = None,
        observers: Sequence[Observer] = (),
        cipher: Cipher | None = None,
        trace: Trace | None = None,
        breakers: Sequence[Breaker] = (),
        limits: Sequence[DeclaredLimit] | None = None,  # None: they are somebody else's to declare
        declared_queues: Sequence[Queue] | None = None,  # the same
        triggers: Sequence[Trigger] = (),
        hosting: Hosting | None = None,
    ) -> None:
        needs("a worker needs", "worker", "tzdata")
        self._hosting = hosting or Hosting()
        self.id = self._hosting.id
        self.counts: Counter[str] = Counter()
        self._dsn, self._registry, self._schema = dsn, registry, schema
        self._config = config or WorkerConfig()
        self._listen_dsn = self._config.listen_dsn or dsn
        self._authorize = authorize
        self._trace = trace
        self._cipher = cipher
        self._breakers = declared(breakers, registry)
        self._triggers = triggers
        self._declared_queues = declared_queues
        queues = [*self._known_queues(), *self._config.queues]
        self._limits = limits if limits is None else check_declared(limits, registry.names(), queues)
        self._bus = Bus(observers, self._soon)
        self._away_since: float | None = None
        self._outage = Trouble(log, "the database is away", "the database is back", edges=job_log)
        self._attempts: dict[int, LiveAttempt] = {}
        self._started: Parts | None = None
        self._stop = asyncio.Event()
        self._stopping = self._draining = False
        self._watchdog: Watchdog | None = None

    @property
    def running(self) -> int:
        """How many jobs it holds."""
        return len(self._attempts)

    @property
    def listening(self) -> bool:
        """Whether hints reach it; without them it finds jobs by polling."""
        return self._started is not None and self._parts.listener is not None and self._parts.listener.listening

    @property
    def _parts(self) -> Parts:
        assert self._started is not None, "the worker has not started"
        return self._started

    def state(self) -> dict[str, float]:
        """What it says of itself when somebody scrapes its metrics; safe from another thread."""
        if self._started is None:
            return {}
        parts = self._started
        threads, transactions = parts.pool.get_stats(), parts.transactions
        return {
            "mainspring_worker_running": self.running,
            "mainspring_worker_outbox": len(parts.state.outbox),
            "mainspring_loop_still_seconds": self._watchdog.still if self._watchdog else 0.0,
            "mainspring_loop_stuck_total": self.counts["stuck"],
            "mainspring_errors_unread_total": aside.counts["unread"],
            "mainspring_hints_heard_total": self.counts["hints"],
            "mainspring_limits_late_total": self.counts["late"],
            "mainspring_wakeups_listening": self.listening,
            "mainspring_transactions_in_use": transactions.in_use,
            "mainspring_transactions_size": transactions.size,
            "mainspring_thread_connections_in_use": threads["pool_size"] - threads["pool_available"],
            "mainspring_thread_connections_size": threads["pool_max"],
        }

    async def run(self) -> None:
        """Work until SIGTERM or SIGINT, then stop in good order; a second signal ends the grace period."""
        loop = asyncio.get_running_loop()
        for name in SIGNALS:
            loop.add_signal_handler(name, self.request_stop)
            if self._hosting.own_process:  # by the loop, which its wake-up tells; and at once, should it stand still
                signal.signal(name, self._signalled)
        try:
            asked = asyncio.create_task(self._stop.wait())
            starting = asyncio.create_task(self.start())
            await asyncio.wait([asked, starting], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():  # asked to stop while the database was away
                starting.cancel()
                return
            await starting
            await asked
            self._stop.clear()
            await self.stop()
        finally:
            asked.cancel()
            for name in SIGNALS:
                loop.remove_signal_handler(name)

    def request_stop(self) -> None:
        """Make `run` return, or, asked again, end the grace period."""
        self._stop.set()
        if self._stopping and self._parts.cell is not None:
            self._parts.cell.terminate()

    def escaped(self, error: BaseException) -> None:
        """What has left the event loop, otherwise than by the end of `run`: where the process is ours, it ends."""
        if self._hosting.own_process and self._watchdog is not None:
            self._watchdog.escaped(error)

    def _signalled(self, *_: object) -> None:
        if self._watchdog is not None:
            self._watchdog.asked()

    async def start(self) -> None:
        """Begin to work; waits for the database, refuses a schema that does not fit."""
        await self._check_schema()
        parts = self._started = Parts(self._settings(), self._bus, self.counts, self._attempts, self._reachable)
        await parts.breakers.first()
        await self._opening()
        self._watchdog = Watchdog(self._config, self._attempts, parts.ending, self._hosting.pulse)
        self._watchdog.start()
        for service in parts.services:
            service.start()
        self._bus.emit(WorkerStarted(self.id, list(self._queues())))
        if self._draining and parts.scheduler is not None:
            await parts.scheduler.looked.wait()  # what it fires is due, too
        parts.exchange.start()

    async def stop(self, grace: timedelta | None = None) -> None:
        """Stop claiming, let running jobs finish up to the grace period, give the rest back unburnt."""
        grace = self._config.grace if grace is None else grace
        parts, self._stopping = self._parts, True
        self._bus.emit(WorkerStopping(self.id, self.running))
        parts.heartbeat.stopping = True
        parts.heartbeat.wake()
        parts.exchange.stop_claiming()
        await parts.slots.stop()  # who stops needs no free slot
        if parts.cell is not None:
            parts.cell.terminate()
        parts.tracker.stop()
        await self._wait_for_attempts(grace.total_seconds())
        for attempt in list(self._attempts.values()):
            attempt.interrupt("stop")
        self._stop.clear()
        await self._wait_for_attempts(1.0)
        parts.tracker.give_back_all()
        await self._stop_services(parts)
        try:
            await self._closing()
        finally:
            await self._close()
        self._bus.emit(WorkerStopped(self.id, self.counts["succeeded"]))
        self._bus.flush()

    async def _stop_services(self, parts: Parts) -> None:
        """Those that keep leases go last, after everything is written."""
        for service in parts.services:
            if not isinstance(service, Renewer | Heartbeat):
                await service.stop()
        await parts.exchange.close(timeout=10.0)
        for service in parts.services:
            await service.stop()
        try:
            await parts.heartbeat.farewell()
        except psycopg.Error as error:
            log.warning("could not say farewell: %s", error)

    async def _close(self) -> None:
        """Let go of connections, threads and processes."""
        if self._watchdog is not None:
            self._watchdog.stop()
        await self._parts.close()

    async def drain(self) -> None:
        """Work until nothing is due, then stop; for tests and for callers without a worker process."""
        self._draining = True
        await self.start()
        await self._parts.exchange.idle.wait()
        await self.stop()

    async def _opening(self) -> None:
        """What is done once before the first claim; nothing here."""

    async def _closing(self) -> None:
        """What is done once after the last outcome is written; nothing here."""

    # -- what it is told, and what it tells ------------------------------------------------------------------------

    def _settings(self) -> WorkerSettings:
        return WorkerSettings(
            id=self.id, dsn=self._dsn, listen_dsn=self._listen_dsn, schema=self._schema, registry=self._registry,
            config=self._config, queues=self._queues(), breakers=self._breakers, limited=bool(self._limits),
            authorize=self._authorize, cipher=self._cipher, trace=self._trace, triggers=self._triggers,
            hosting=self._hosting, predecessor=self._predecessor(),
        )  # fmt: skip

    def _predecessor(self) -> Predecessor | None:
        if self._hosting.after is None:
            return None
        outlived = [task.name for task in self._registry if task.runs == "process"]
        return Predecessor(*self._hosting.after, outlived)

    def _queues(self) -> dict[str, int]:
        """The queues to serve: those configured, or all that are known."""
        return dict(self._config.queues or {name: 1 for name in self._known_queues() if name != DEAD_LETTER})

    def _known_queues(self) -> list[str]:
        """The engine's, those that the application declares, and those of the tasks."""
        declared = (queue.name for queue in self._declared_queues or ())
        return [*QUEUES, *declared, *(task.queue for task in self._registry)]

    def _reachable(self, error: Exception | None) -> None:
        """The database answers, or does not; told when that changes."""
        now = asyncio.get_running_loop().time()
        self._outage.over() if error is None else self._outage.failed(error)
        for service in self._started.services if self._started is not None else ():
            service.excused = error is not None
        if error is not None and self._away_since is None:
            self._away_since = now
            self._bus.emit(DatabaseAway(self.id, sanitize(str(error), 1000)))
        elif error is None and self._away_since is not None:
            self._bus.emit(DatabaseBack(self.id, now - self._away_since))
            self._away_since = None
            if self._started is not None:  # else it is still about to start
                self._started.pool.drain()  # its connections are lost as well, which is no fault of a job

    def _soon(self, flush: Callable[[], None]) -> None:
        """Batches go out at the next turn of the event loop."""
        asyncio.get_running_loop().call_soon(flush)

    async def _wait_for_attempts(self, seconds: float) -> None:
        """Wait until nothing runs, at most so long, or until a second request to stop."""
        attempts = [attempt.handle for attempt in self._attempts.values() if attempt.handle is not None]
        if not attempts:
            return
        again = asyncio.create_task(self._stop.wait())
        ended: asyncio.Future[Any] = asyncio.gather(*attempts, return_exceptions=True)
        await asyncio.wait([ended, again], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()

    def _look(self) -> None:
        """Refuse a schema that does not fit."""
        with Connection.connect(self._dsn, **options(self._dsn, f"mainspring worker {self.id}")) as conn:
            check(status(conn, schema=self._schema))
            app = owner(self._registry.origins())
            if self._limits is not None:
                run_dialogue(psycopg_door(conn), declare(Sql(self._schema), app, self._limits))
            if self._declared_queues is not None:
                run_dialogue(psycopg_door(conn), declare_queues(Sql(self._schema), app, self._declared_queues))
            row = conn.execute(Sql(self._schema)["speed"]).fetchone()
            assert row is not None
            self._config = at_speed(self._config, row[0])

    async def _check_schema(self) -> None:
        failures = 0
        while True:
            try:
                await asyncio.to_thread(self._look)
                return self._reachable(None)
            except (psycopg.Error, DatabaseUnavailable) as error:
                if not is_transient(error):
                    raise
                failures += 1
                self._reachable(error)
                await asyncio.sleep(backoff(failures))
