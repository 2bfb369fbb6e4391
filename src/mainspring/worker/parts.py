"""The parts of a worker, each built from those before it: nothing is wired afterwards."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool

from mainspring import __version__
from mainspring.cipher import Cipher
from mainspring.circuit import Breaker
from mainspring.config import WorkerConfig
from mainspring.db.cipher import Keyring
from mainspring.db.wire.connect import pool
from mainspring.db.wire.sql import Sql
from mainspring.declare.block import Trigger
from mainspring.declare.registry import Registry
from mainspring.events import Bus, WakeupsLost, WakeupsRestored
from mainspring.worker.announcer import Announcer
from mainspring.worker.attempt import LiveAttempt, Trace
from mainspring.worker.breakers import BreakerService
from mainspring.worker.cell import Cell
from mainspring.worker.connection import SharedConnection
from mainspring.worker.crew import Crew
from mainspring.worker.ending import Ending
from mainspring.worker.exchange import Exchange
from mainspring.worker.executor import Authorize, Executor
from mainspring.worker.handlers import Handlers
from mainspring.worker.handover import Handover
from mainspring.worker.hosting import Hosting
from mainspring.worker.leases import Canceller, LeaseWatch, Renewer
from mainspring.worker.outbox import Outbox
from mainspring.worker.pace import Pace
from mainspring.worker.processes import Children
from mainspring.worker.rates import Rates
from mainspring.worker.reporter import Reporter, Reports
from mainspring.worker.rescuer import Heartbeat, Predecessor, Rescuer
from mainspring.worker.resources import Resources
from mainspring.worker.schedules.fan_out import FanOut
from mainspring.worker.schedules.firing import Firing
from mainspring.worker.schedules.scheduler import Scheduler
from mainspring.worker.sealer import Sealer
from mainspring.worker.service import Service
from mainspring.worker.signal import Signal
from mainspring.worker.slots import THREADS, SlotWatch
from mainspring.worker.solitude import Solitude
from mainspring.worker.state import WorkerState
from mainspring.worker.statements import ExchangeStatements
from mainspring.worker.tracker import Tracker
from mainspring.worker.transactions import Transactions
from mainspring.worker.wakeups import HintListener, TriggerListener

_FIRING_S = 60.0  # seconds that a turn of the scheduler may take, the queries of applications included


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What a worker is told."""

    id: str
    dsn: str
    listen_dsn: str
    schema: str
    registry: Registry
    config: WorkerConfig
    queues: Mapping[str, int]  # to serve, with their weights
    breakers: Mapping[str, Breaker]
    limited: bool  # limits are declared
    authorize: Authorize | None
    cipher: Cipher | None
    trace: Trace | None
    triggers: Sequence[Trigger]
    hosting: Hosting
    predecessor: Predecessor | None  # whose place it takes

    @property
    def name(self) -> str:
        """As its connections are called."""
        return f"mainspring worker {self.id}"


class Parts:
    """Built in the order in which they need each other; starting and stopping them is the worker's business."""

    def __init__(
        self,
        settings: WorkerSettings,
        bus: Bus,
        counts: Counter[str],
        attempts: dict[int, LiveAttempt],
        reachable: Callable[[Exception | None], None],
    ) -> None:
        self._settings, self._bus, self._sql = settings, bus, Sql(settings.schema)
        config, signal = settings.config, Signal()
        rescue, renew = asyncio.Event(), asyncio.Event()  # wake services that are built after who wakes them
        rates = Rates(config.speed, known=settings.limited, wake=signal.set)
        announcer = Announcer(bus, settings.id, asyncio.get_running_loop()) if bus else None
        self.state = WorkerState(settings.id, config, signal, Outbox(signal.set), rates, announcer, counts, attempts)
        self.ending = self._ending()
        self.connection = self._connection(config.lease.total_seconds() / 4)
        self.transactions = Transactions(settings.dsn, settings.name, size=config.transactions, prepare=config.prepare)
        self.pool = self._pool()
        self.breakers = self._breakers()
        self._ring, self._reports = Keyring(settings.cipher, settings.dsn, self._sql, secured=True), Reports()
        self.handlers = self._handlers()
        self.executor = Executor(self.state, self.handlers, settings.authorize, settings.trace)
        self.cell = self._cell(rescue.set)
        self._solitude = Solitude(
            only=settings.hosting.alone and self.cell is None, elsewhere=None if self.cell is None else self.cell.want,
            poll=signal.poll, rescue=rescue.set,
        )  # fmt: skip
        self.crews = self._crews()
        self.tracker = Tracker(self.state, settings.registry, self.crews, self.executor)
        self.scheduler = self._scheduler() if config.scheduler else None
        canceller = Canceller(self.connection, self._sql, settings.id, attempts)
        self.listener = self._listener(canceller) if config.wakeups else None
        self.exchange = self._exchange(reachable)
        renewer = Renewer(self.connection, self._sql, settings.id, config, attempts, self.tracker.lose, renew)
        self.watch = LeaseWatch(config, attempts, self.tracker)
        self.rescuer = Rescuer(
            self.connection, self._sql, self.state, self.exchange, self._solitude.probed, renew, rescue,
            settings.predecessor,
        )  # fmt: skip
        self.heartbeat = self._heartbeat()
        self.slots = SlotWatch(
            self.connection, self._sql, self.state, list(settings.queues), self.crews, self.executor, self.ending,
            self._solitude.only,
        )  # fmt: skip
        self.services = [renewer, canceller, *self._other_services()]

    def _other_services(self) -> list[Service]:
        settings, connection, sql = self._settings, self.connection, self._sql
        triggers = [TriggerListener(trigger, self.state.signal.hint) for trigger in settings.triggers]
        optional = self.scheduler, self.listener, *triggers, self.cell  # last, as its end may take long
        return [
            self.watch, self.slots, Reporter(connection, sql, settings.id, self._reports), self.rescuer,
            Sealer(connection, sql, settings.config), self.heartbeat, self.breakers,
            *(service for service in optional if service is not None),
        ]  # fmt: skip

    def _ending(self) -> Ending:
        settings, state, handover = self._settings, self.state, None
        if settings.hosting.own_process:
            about = settings.id, settings.config, state.attempts, state.outbox
            handover = Handover(settings.dsn, self._sql, *about)
        return Ending(settings.id, state.counts, self._bus, handover)

    def _pool(self) -> ConnectionPool[Connection[Any]]:
        """For plain functions in threads."""
        settings = self._settings
        wait = settings.config.lease.total_seconds()  # for a connection: whoever waits longer has lost its lease
        return pool(
            settings.dsn, size=settings.config.threads, name=settings.name, prepare=settings.config.prepare,
            timeout=wait, answered_within=None,  # a handler takes its time
        )  # fmt: skip

    def _breakers(self) -> BreakerService:
        settings, serves = self._settings, (list(self._settings.queues), self._settings.registry.names())
        use, hint, speed = self.connection.use, self.state.signal.hint, settings.config.speed
        return BreakerService(use, self._sql, settings.breakers, serves, self._bus, hint, speed)

    def _handlers(self) -> Handlers:
        resources = Resources(
            self._sql, self._settings.id, self.transactions, self.pool, self.breakers, self._ring, self._reports,
            self.state.announcer,
        )  # fmt: skip
        threads = ThreadPoolExecutor(self._settings.config.threads, thread_name_prefix=THREADS)
        return Handlers(resources, threads, Children(), self.state.rates)

    def _connection(self, patience: float) -> SharedConnection:
        settings = self._settings
        return SharedConnection(settings.dsn, settings.name, prepare=settings.config.prepare, patience=patience)

    def _cell(self, died: Callable[[], None]) -> Cell | None:
        settings = self._settings
        if (command := settings.hosting.cell) is None:
            return None
        return Cell(command, settings.id, self.connection, self._sql, settings.config.grace.total_seconds(), died)

    def _crews(self) -> dict[str, Crew]:
        """One for each kind of handler that there are tasks of, and one for async ones in any case."""
        config, registry, state = self._settings.config, self._settings.registry, self.state
        sizes = {
            "async": config.concurrency,
            "thread": config.threads,
            "process": config.processes or os.cpu_count() or 1,
        }
        crews = {}
        for kind, size in sizes.items():
            names = [name for name in registry.names() if registry.get(name).runs == kind]
            if names or kind == "async":
                crews[kind] = Crew(
                    names, size, self._settings.queues, config.batch * config.exchanges, state.rates,
                    self.executor.begin, state.signal.set, self._solitude,
                )  # fmt: skip
        return crews

    def _scheduler(self) -> Scheduler:
        settings = self._settings
        firing = Firing(self._sql, settings.registry, self._ring, self._bus, housekeeping=settings.hosting.housekeeping)
        fan_out = FanOut(self._sql, firing, self.pool, None)
        return Scheduler(self.connection, self._connection(_FIRING_S), self._sql, settings.config, firing, fan_out)

    def _listener(self, canceller: Canceller) -> HintListener:
        settings, state, scheduler, breakers = self._settings, self.state, self.scheduler, self.breakers

        def heard(hint: str) -> None:
            state.counts["hints"] += 1
            state.signal.hint()
            canceller.wake()
            breakers.wake()
            if hint == "schedule" and scheduler is not None:
                scheduler.wake()

        def changed(alive: bool) -> None:
            self._bus.emit((WakeupsRestored if alive else WakeupsLost)(settings.id))

        return HintListener(settings.listen_dsn, settings.schema, settings.name, heard, changed)

    def _exchange(self, reachable: Callable[[Exception | None], None]) -> Exchange:
        settings, listener, crews = self._settings, self.listener, list(self.crews.values())
        tasks = [name for crew in crews for name in crew.tasks]
        statements = ExchangeStatements(self._sql, settings.id, settings.config, list(settings.queues), tasks)
        pace = Pace(settings.config, crews, self._solitude)
        return Exchange(
            settings.dsn, self.state, statements, self.tracker, pace, reachable,
            hears=lambda: listener is not None and listener.listening,
        )  # fmt: skip

    def _heartbeat(self) -> Heartbeat:
        settings, attempts = self._settings, self.state.attempts
        about = {
            "id": settings.id,
            "version": __version__,
            "queues": list(settings.queues),
            "tasks": settings.registry.names(),
            "concurrency": settings.config.concurrency,
            "watched": self._solitude.only,
        }
        return Heartbeat(self.connection, self._sql, about, lambda: len(attempts))

    async def close(self) -> None:
        """Let go of connections, threads and processes."""
        self.executor.close()
        await self.connection.close()
        await self.transactions.close()
        await asyncio.to_thread(self.pool.close)
