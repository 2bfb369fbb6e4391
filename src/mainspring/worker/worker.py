"""The worker: builds the parts, starts and stops them."""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import signal
import socket
from collections import Counter
from datetime import timedelta
from typing import Any

import psycopg

from mainspring import __version__
from mainspring.category import DEAD_LETTER, QUEUES
from mainspring.config import DEFAULT_SCHEMA, WorkerConfig
from mainspring.db.connect import pool
from mainspring.db.migrate import check, status
from mainspring.db.schema import Sql
from mainspring.db.translate import is_transient
from mainspring.errors import UnknownTask
from mainspring.job import Claim
from mainspring.outcome import Error, Move
from mainspring.registry import Registry
from mainspring.worker.crew import PATIENCE, Crew
from mainspring.worker.exchange import Exchange
from mainspring.worker.executor import Authorize, Executor
from mainspring.worker.leases import Canceller, Renewer, Watch, trust
from mainspring.worker.line import Line
from mainspring.worker.outbox import Outbox
from mainspring.worker.rescuer import Heartbeat, Rescuer
from mainspring.worker.run import Run
from mainspring.worker.service import Service, backoff, log
from mainspring.worker.transactions import Transactions
from mainspring.worker.wakeups import Listener

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
        listen_dsn: str | None = None,
    ) -> None:
        host = re.sub(r"[^\w.-]", "-", socket.gethostname())
        self.id = f"{host}:{os.getpid()}:{secrets.token_hex(4)}"  # unique per process start
        self.counts: Counter[str] = Counter()
        self._dsn, self._registry, self._schema = dsn, registry, schema
        self._listen_dsn = listen_dsn or dsn
        self._config = config or WorkerConfig()
        self._authorize = authorize
        self._runs: dict[int, Run] = {}
        self._services: list[Service] = []
        self._stop = asyncio.Event()
        self._stopping = False

    @property
    def running(self) -> int:
        """How many jobs it holds."""
        return len(self._runs)

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
        self._line = Line(self._dsn, name, prepare=config.prepare)
        wait = config.lease.total_seconds()  # for a connection: whoever waits longer has lost its lease
        self._transactions = Transactions(self._dsn, name, size=config.transactions, prepare=config.prepare)
        self._sync_pool = pool(self._dsn, size=config.threads, name=name, prepare=config.prepare, timeout=wait)
        outbox = Outbox()
        self._executor = Executor(
            sql, self.id, outbox, self._runs, self._transactions, self._sync_pool,
            config.threads, self._authorize, self.counts, lambda: self._exchange.rescued_ended(),
        )  # fmt: skip
        crews = self._crews()
        self._exchange = Exchange(
            self._dsn, sql, self.id, config, list(crews.values()), outbox,
            accept=self._accept, lost=self._lost, known=lambda: set(self._runs), counts=self.counts,
        )  # fmt: skip
        about = {
            "id": self.id,
            "version": __version__,
            "queues": list(self._queues()),
            "concurrency": config.concurrency,
        }
        self._heartbeat = Heartbeat(self._line, sql, about, lambda: self.running)
        canceller = Canceller(self._line, sql, self.id, self._runs)
        self._services = [
            Renewer(self._line, sql, self.id, config, self._runs, self._lose),
            canceller,
            Watch(config, self._runs, lose=self._lose, time_out=self._time_out, give_back=self._give_back_stale),
            Rescuer(self._line, sql, config, self.counts, self._exchange.wake),
            self._heartbeat,
        ]
        if config.wakeups:

            def woke() -> None:
                self._exchange.wake()
                canceller.wake()

            self._services.append(Listener(self._listen_dsn, self._schema, name, woke))
        for service in self._services:
            service.start()
        self._exchange.start()

    async def stop(self, grace: timedelta | None = None) -> None:
        """Stop claiming, let running jobs finish up to the grace period, give the rest back unburnt."""
        grace = self._config.grace if grace is None else grace
        self._stopping = True
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
        self._executor.close()
        await self._line.close()
        await self._transactions.close()
        await asyncio.to_thread(self._sync_pool.close)

    async def drain(self) -> None:
        """Work until nothing is due, then stop; for tests and for callers without a worker process."""
        await self.start()
        await self._exchange.idle.wait()
        await self.stop()

    # -- the parts' questions -------------------------------------------------------------------------------------

    def _queues(self) -> dict[str, int]:
        """The queues to serve: those configured, or the stock ones and those of the tasks."""
        if self._config.queues:
            return dict(self._config.queues)
        names = [*QUEUES, *(task.queue for task in self._registry)]
        return {name: 1 for name in names if name != DEAD_LETTER}

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
                self._executor.crews[kind] = Crew(names, size, queues, self._executor.begin, most)
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
            if self._stopping:  # the claim was under way when the stop came
                self._executor.give_back(run)
            else:
                crew.add(run)

    def _refuse(self, claim: Claim) -> None:
        error = Error("UNKNOWN_JOB_TYPE", "permanent", f"Unknown job type: {claim.task}")
        self._exchange.outbox.move(claim.epoch, Move("reject", error=error))
        if claim.crashes:
            self._exchange.rescued_ended()

    def _lost(self, epochs: set[int]) -> None:
        """The database refused to record these: their lease was lost."""
        self.counts["stale"] += len(epochs)
        log.warning("lease_lost: %d outcomes were refused because the job was no longer ours", len(epochs))

    def _lose(self, run: Run) -> None:
        """A lease can no longer be trusted: stop the handler, write nothing more."""
        self.counts["lost"] += 1
        log.warning("lease_lost: stopping job %s of %s", run.claim.id, run.claim.task)
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

    async def _check_schema(self) -> None:
        def look() -> Any:
            with psycopg.connect(self._dsn, autocommit=True, connect_timeout=5) as conn:
                return status(conn, schema=self._schema)

        failures = 0
        while True:
            try:
                return check(await asyncio.to_thread(look))
            except psycopg.Error as error:
                if not is_transient(error):
                    raise
                failures += 1
                log.warning("the database is away, trying again: %s", error)
                await asyncio.sleep(backoff(failures))
