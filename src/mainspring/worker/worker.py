"""The worker: builds the parts, starts and stops them."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import socket
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import psycopg

from mainspring import __version__
from mainspring.block import Trigger
from mainspring.breaker import Breaker, declared
from mainspring.category import DEAD_LETTER, QUEUES
from mainspring.cipher import Cipher
from mainspring.config import DEFAULT_SCHEMA, WorkerConfig, at_speed
from mainspring.db.cipher import Keyring
from mainspring.db.connect import Connection, options, pool
from mainspring.db.limits import declare
from mainspring.db.migrate import check, status
from mainspring.db.run import psycopg_door
from mainspring.db.run import run as say
from mainspring.db.schema import Sql
from mainspring.db.translate import is_transient
from mainspring.errors import DatabaseUnavailable, UnknownTask
from mainspring.events import (
    Bus,
    DatabaseAway,
    DatabaseBack,
    Observer,
    WakeupsLost,
    WakeupsRestored,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from mainspring.job import Claim
from mainspring.limit import Declared as Limits
from mainspring.limit import check_declared, owner
from mainspring.outcome import Error, Move
from mainspring.registry import Registry
from mainspring.sanitize import sanitize
from mainspring.task import Task
from mainspring.worker.breakers import Breakers
from mainspring.worker.crew import PATIENCE, Crew
from mainspring.worker.exchange import Exchange
from mainspring.worker.executor import Authorize, Executor
from mainspring.worker.fanout import FanOut
from mainspring.worker.firing import Firing
from mainspring.worker.leases import Canceller, Renewer, Watch, trust
from mainspring.worker.line import Line
from mainspring.worker.news import News
from mainspring.worker.outbox import Letter, Outbox
from mainspring.worker.reporter import Reporter
from mainspring.worker.rescuer import Heartbeat, Rescuer
from mainspring.worker.run import Run, Trace
from mainspring.worker.scheduler import Scheduler
from mainspring.worker.sealer import Sealer
from mainspring.worker.service import Service, backoff, job_log, log
from mainspring.worker.transactions import Transactions
from mainspring.worker.triggered import Triggered
from mainspring.worker.wakeups import Listener

SIGNALS = (signal.SIGTERM, signal.SIGINT)
FIRING = 60.0  # seconds that a turn of the scheduler may take, the queries of applications included


async def _unknown() -> None: ...


UNKNOWN: Task[Any, Any] = Task(_unknown, app="mainspring", name="unknown")  # stands in for a task that we do not know


class Worker:
    """Runs the jobs of a registry until it is stopped.

    ::

        worker = Worker(dsn, tasks)
        await worker.run()  # until SIGTERM or SIGINT
    """

    housekeeping = True  # fires the engine's own schedules, too

    def __init__(
        self,
        dsn: str,
        registry: Registry,
        *,
        config: WorkerConfig | None = None,
        schema: str = DEFAULT_SCHEMA,
        authorize: Authorize | None = None,
        listen_dsn: str | None = None,
        observers: Sequence[Observer] = (),
        cipher: Cipher | None = None,
        trace: Trace | None = None,
        breakers: Sequence[Breaker] = (),
        limits: Sequence[Limits] | None = None,  # None: they are somebody else's to declare
        triggers: Sequence[Trigger] = (),
    ) -> None:
        host = re.sub(r"[^\w.-]", "-", socket.gethostname())
        self.id = f"{host}:{os.getpid()}:{secrets.token_hex(4)}"  # unique per process start
        self.counts: Counter[str] = Counter()
        self._dsn, self._registry, self._schema = dsn, registry, schema
        self._config = config or WorkerConfig()
        self._listen_dsn = listen_dsn or self._config.listen_dsn or dsn
        self._listener: Listener | None = None
        self._scheduler: Scheduler | None = None
        self._authorize = authorize
        self._trace = trace
        self._cipher = cipher
        self._breakers = declared(breakers, registry)
        self._triggers = triggers
        queues = [*QUEUES, *(task.queue for task in registry), *self._config.queues]
        self._limits = limits if limits is None else check_declared(limits, registry.names(), queues)
        self._bus = Bus(observers, self._soon)
        self._news = News(self._bus) if observers else None
        self._away_since: float | None = None
        self._runs: dict[int, Run] = {}
        self._services: list[Service] = []
        self._stop = asyncio.Event()
        self._stopping = self._draining = False

    @property
    def running(self) -> int:
        """How many jobs it holds."""
        return len(self._runs)

    @property
    def listening(self) -> bool:
        """Whether hints reach it; without them it finds jobs by polling."""
        return self._listener is not None and self._listener.listening

    def state(self) -> dict[str, float]:
        """What it says of itself when somebody scrapes its metrics; safe from another thread."""
        if not self._services:
            return {}
        threads, transactions = self._sync_pool.get_stats(), self._transactions
        return {
            "mainspring_worker_running": self.running,
            "mainspring_worker_outbox": len(self._exchange.outbox),
            "mainspring_hints_heard_total": self.counts["hints"],
            "mainspring_permits_late_total": self.counts["late"],
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

    async def start(self) -> None:
        """Begin to work; waits for the database, refuses a schema that does not fit."""
        await self._check_schema()
        config, sql = self._config, Sql(self._schema)
        name = f"mainspring worker {self.id}"
        self._line = Line(self._dsn, name, prepare=config.prepare, patience=config.lease.total_seconds() / 4)
        wait = config.lease.total_seconds()  # for a connection: whoever waits longer has lost its lease
        self._transactions = Transactions(self._dsn, name, size=config.transactions, prepare=config.prepare)
        self._sync_pool = pool(self._dsn, size=config.threads, name=name, prepare=config.prepare, timeout=wait)
        outbox = Outbox()
        self._executor = Executor(
            sql, self.id, outbox, self._runs, self._transactions, self._sync_pool,
            config.threads, self._authorize, self.counts, lambda: self._exchange.rescued_ended(), self._news,
            self._trace,
        )  # fmt: skip
        crews = self._crews()
        self._exchange = Exchange(
            self._dsn, sql, self.id, config, list(crews.values()), outbox,
            accept=self._accept, written=self._written, reachable=self._reachable, known=lambda: set(self._runs),
            counts=self.counts,
        )  # fmt: skip
        about = {
            "id": self.id,
            "version": __version__,
            "queues": list(self._queues()),
            "tasks": self._registry.names(),
            "concurrency": config.concurrency,
        }
        self._heartbeat = Heartbeat(self._line, sql, about, lambda: self.running)
        canceller = Canceller(self._line, sql, self.id, self._runs)
        reporter = Reporter(self._line, sql, self.id)
        self._executor.unsaid = reporter.unsaid
        ring = Keyring(self._cipher, self._dsn, sql, secured=True)
        self._executor.take_keys(ring)
        renewer = Renewer(self._line, sql, self.id, config, self._runs, self._lose)
        self._rescuer = Rescuer(self._line, sql, config, self.counts, self._exchange.wake, self._news, renewer.wake)
        self._services = [
            renewer,
            canceller,
            Watch(config, self._runs, lose=self._lose, time_out=self._time_out, give_back=self._give_back_stale),
            reporter,
            self._rescuer,
            Sealer(self._line, sql, config),
            self._heartbeat,
        ]
        breakers = Breakers(self._line.use, sql, self._breakers, self._bus, self._exchange.wake, config.speed)
        if self._breakers:
            self._executor.breakers = breakers
            self._services.append(breakers)
            await breakers.first()
        self._scheduler = self._schedules(ring, name) if config.scheduler else None
        if self._scheduler is not None:
            self._services.append(self._scheduler)
        if config.wakeups:

            def woke() -> None:
                self.counts["hints"] += 1
                self._exchange.wake()
                canceller.wake()
                breakers.wake()

            def changed(alive: bool) -> None:
                self._bus.emit((WakeupsRestored if alive else WakeupsLost)(self.id))

            self._listener = Listener(self._listen_dsn, self._schema, name, woke, changed, self._told)
            self._exchange.hears = lambda: self.listening
            self._services.append(self._listener)
        self._services += [Triggered(trigger, self._exchange.wake) for trigger in self._triggers]
        await self._opening()
        for service in self._services:
            service.start()
        self._bus.emit(WorkerStarted(self.id, list(self._queues())))
        if self._draining and self._scheduler is not None:
            await self._scheduler.looked.wait()  # what it fires is due, too
        self._exchange.start()

    async def stop(self, grace: timedelta | None = None) -> None:
        """Stop claiming, let running jobs finish up to the grace period, give the rest back unburnt."""
        grace = self._config.grace if grace is None else grace
        self._stopping = True
        self._bus.emit(WorkerStopping(self.id, self.running))
        self._heartbeat.stopping = True
        self._heartbeat.wake()
        self._exchange.stop_claiming()
        for crew in self._executor.crews.values():
            for run in crew.give_back(float("inf")):
                self._executor.give_back(run)
        await self._wait_for_runs(grace.total_seconds())
        for run in list(self._runs.values()):
            run.interrupt("stop")
        self._stop.clear()
        await self._wait_for_runs(1.0)
        for run in list(self._runs.values()):  # threads that did not look at their token: fencing keeps them harmless
            self._executor.give_back(run)
        for service in self._services:
            if not isinstance(service, Renewer | Heartbeat):
                await service.stop()
        await self._exchange.close(timeout=10.0)
        for service in self._services:
            await service.stop()
        try:
            await self._heartbeat.farewell()
        except psycopg.Error as error:
            log.warning("could not say farewell: %s", error)
        try:
            await self._closing()
        finally:
            await self._close()
        self._bus.emit(WorkerStopped(self.id, self.counts["succeeded"]))
        self._bus.flush()

    async def _close(self) -> None:
        """Let go of connections, threads and processes."""
        self._executor.close()
        await self._line.close()
        await self._transactions.close()
        await asyncio.to_thread(self._sync_pool.close)

    async def drain(self) -> None:
        """Work until nothing is due, then stop; for tests and for callers without a worker process."""
        self._draining = True
        await self.start()
        await self._exchange.idle.wait()
        await self.stop()

    async def _opening(self) -> None:
        """What is done once before the first claim; nothing here."""

    async def _closing(self) -> None:
        """What is done once after the last outcome is written; nothing here."""

    # -- the parts' questions -------------------------------------------------------------------------------------

    def _queues(self) -> dict[str, int]:
        """The queues to serve: those configured, or the stock ones and those of the tasks."""
        if self._config.queues:
            return dict(self._config.queues)
        names = [*QUEUES, *(task.queue for task in self._registry)]
        return {name: 1 for name in names if name != DEAD_LETTER}

    def _schedules(self, ring: Keyring, name: str) -> Scheduler:
        config, sql = self._config, Sql(self._schema)
        firing = Firing(sql, self._registry, ring, self._bus, housekeeping=self.housekeeping)
        fan_out = FanOut(sql, firing, self._sync_pool, None)
        own = Line(self._dsn, name, prepare=config.prepare, patience=FIRING)
        return Scheduler(self._line, own, sql, config, firing, fan_out)

    def _told(self, news: str) -> None:
        """Somebody says what a hint is about."""
        if news == "schedule" and self._scheduler is not None:
            self._scheduler.wake()

    def _crews(self) -> dict[str, Crew]:
        config, queues = self._config, self._queues()
        sizes = {
            "async": config.concurrency,
            "thread": config.threads,
            "process": config.processes or os.cpu_count() or 1,
        }
        for kind, size in sizes.items():
            names = [name for name in self._registry.names() if self._registry.get(name).runs == kind]
            if names or kind == "async":
                most = config.batch * config.exchanges
                crew = self._executor.crews[kind] = Crew(names, size, queues, self._executor.begin, most)
                crew.bounds.margin *= config.speed
        return self._executor.crews

    def _accept(self, claims: list[Claim], crew: Crew, asked_at: float) -> None:
        """Take claimed jobs in."""
        now, trusted = asyncio.get_running_loop().time(), trust(self._config, asked_at)
        get, runs = self._registry.get, self._runs
        for claim in claims:
            try:
                run = Run(claim, get(claim.task), now, trusted)
            except UnknownTask:
                self._refuse(claim)
                continue
            runs[claim.epoch] = run
            if claim.permit is not None:
                run.start_by = asked_at + claim.permit.total_seconds()
            if self._stopping:  # the claim was under way when the stop came
                self._executor.give_back(run)
            else:
                crew.add(run)

    def _refuse(self, claim: Claim) -> None:
        error = Error("UNKNOWN_JOB_TYPE", "permanent", f"Unknown job type: {claim.task}")
        now = asyncio.get_running_loop().time()
        self._exchange.outbox.move(Run(claim, UNKNOWN, now, now), Move("reject", error=error))
        if claim.crashes:
            self._exchange.rescued_ended()

    def _written(self, letter: Letter, accepted: dict[int, str | None]) -> None:
        """A letter is committed; what the database refused to record was no longer ours."""
        succeeded = letter.succeeded
        if len(accepted) != len(letter):
            refused = [run for run in letter.runs if run.claim.epoch not in accepted]
            succeeded = [run for run in succeeded if run.claim.epoch in accepted]
            self._refused(refused, {run.claim.epoch: move.verb for run, move in letter.moves})
        # Some own transactions had committed, unseen by their handlers.
        succeeded += [run for run, move in letter.moves if accepted.get(run.claim.epoch, move.verb) is None]
        self.counts["succeeded"] += len(succeeded)
        if self._news is None:
            return
        self._news.succeeded(succeeded)
        for run, move in letter.moves:
            if (verb := accepted.get(run.claim.epoch)) is not None:
                self._news.moved(run, move, verb)

    def _refused(self, runs: list[Run], verbs: dict[int, str]) -> None:
        if not runs:
            return
        self.counts["stale"] += len(runs)
        job_log.warning("lease_lost: %d outcomes were refused because the job was no longer ours", len(runs))
        if self._news is not None:
            for run in runs:
                self._news.stale(run, verbs.get(run.claim.epoch, "complete"))

    def _reachable(self, error: Exception | None) -> None:
        """The database answers, or does not; told when that changes."""
        now = asyncio.get_running_loop().time()
        if error is not None and self._away_since is None:
            self._away_since = now
            self._bus.emit(DatabaseAway(self.id, sanitize(str(error), 1000)))
        elif error is None and self._away_since is not None:
            self._bus.emit(DatabaseBack(self.id, now - self._away_since))
            self._away_since = None

    def _soon(self, flush: Callable[[], None]) -> None:
        """Batches go out at the next turn of the event loop."""
        asyncio.get_running_loop().call_soon(flush)

    def _lose(self, run: Run) -> None:
        """A lease can no longer be trusted: stop the handler, write nothing more."""
        self.counts["lost"] += 1
        job_log.warning("lease_lost: stopping job %s of %s", run.claim.id, run.claim.task)
        if self._news is not None:
            self._news.lost(run)
        if run.claim.crashes and run.handle is None and not run.settled:
            self._exchange.rescued_ended()
        run.settled = True
        run.interrupt("lost")
        self._runs.pop(run.claim.epoch, None)

    def _time_out(self, run: Run) -> None:
        run.interrupt("timeout")

    def _give_back_stale(self, now: float) -> None:
        for crew in self._executor.crews.values():
            for run in crew.give_back(now - PATIENCE):
                self._executor.give_back(run)

    async def _wait_for_runs(self, seconds: float) -> None:
        """Wait until nothing runs, at most so long, or until a second request to stop."""
        runs = [run.handle for run in self._runs.values() if run.handle is not None]
        if not runs:
            return
        again = asyncio.create_task(self._stop.wait())
        ended: asyncio.Future[Any] = asyncio.gather(*runs, return_exceptions=True)
        await asyncio.wait([ended, again], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        again.cancel()

    def _look(self) -> None:
        """Refuse a schema that does not fit."""
        with Connection.connect(self._dsn, **options(self._dsn, f"mainspring worker {self.id}")) as conn:
            check(status(conn, schema=self._schema))
            if self._limits is not None:
                say(psycopg_door(conn), declare(Sql(self._schema), owner(self._registry.origins()), self._limits))
            row = conn.execute(Sql(self._schema)["speed"]).fetchone()
            assert row is not None
            self._config = at_speed(self._config, row[0])

    async def _check_schema(self) -> None:
        failures = 0
        while True:
            try:
                return await asyncio.to_thread(self._look)
            except (psycopg.Error, DatabaseUnavailable) as error:
                if not is_transient(error):
                    raise
                failures += 1
                log.warning("the database is away, trying again: %s", error)
                await asyncio.sleep(backoff(failures))
