"""Moving an application through time: a scratch database, the clockwork, and what is told of it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import partial

from mainspring.app import App
from mainspring.db.cipher import Keyring
from mainspring.db.wire.connect import AsyncConnection, Connection, options
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql, render
from mainspring.errors import ConfigurationError
from mainspring.simulate.chance import Chance
from mainspring.simulate.clockwork import SAME, Clockwork
from mainspring.simulate.loopback import loopback_only
from mainspring.simulate.messages import Messages
from mainspring.simulate.providers import SimulatedClock, SimulatedProviders, providers
from mainspring.simulate.scratch import QUICKEN, scratch
from mainspring.simulate.timeline import Tally, TimelineEntry, Totals
from mainspring.virtual.calling_thread import run_from_thread
from mainspring.virtual.clock import Clock
from mainspring.virtual.databases import Database, install, take
from mainspring.virtual.runner import running
from mainspring.virtual.tasks import DeclaredTasks
from mainspring.virtual.visitor import Visitors

SIMULATION_NAME = "mainspring simulate"
SIMULATED_MOMENT = timedelta(microseconds=1)
NOTHING_HAPPENS = (
    "app: nothing will happen: it declares no schedules, and its prepare enqueues no jobs. Declare one, or let "
    "App(prepare=[...]) enqueue what your customers would"
)
#: What a worker logs of each job and each schedule stands in the time line already.
SILENCED_LOGS = ("mainspring.worker.job", "mainspring.worker")

#: Takes what happened at one instant, in order.
Tell = Callable[[Sequence[TimelineEntry]], object]


@dataclass(frozen=True, slots=True)
class Simulated:
    """What a simulation came to, and where its database is, if it was kept."""

    totals: Totals
    dsn: str


def simulate(
    load: Callable[[], App],
    start: datetime,
    end: datetime,
    tell: Tell,
    *,
    seed: int = 0,
    zone: str = "UTC",
    dsn: str | None = None,
    keep: bool = False,
    maintenance: bool = False,
) -> Simulated:
    """Run an application's schedules and jobs from one instant up to another, in a scratch database.

    `load` is called when the scratch database and the sandbox are there: an application that reads their addresses from
    the environment finds those. The same seed gives the same time line.
    """
    chance = Chance(seed)
    with (
        scratch(dsn, keep=keep) as database,
        loopback_only(database.dsn),
        providers(SimulatedClock(start), seed) as others,
        chance.ruling(),
        _quiet(),
    ):
        app = load()
        others.meet(app)
        _prepare(app, database, chance, start)
        totals = run_from_thread(
            lambda threads: _move(threads, app, database, chance, others, start, end, tell, zone, maintenance)
        )
        return Simulated(totals, database.dsn)


def _prepare(app: App, database: Database, chance: Chance, start: datetime) -> None:
    with database.connect() as conn:
        install(conn, schema=app.schema)
        conn.execute(chance.sql(app.schema).encode())
        Clock(conn, schema=app.schema).set(start)
        conn.execute(render(QUICKEN, app.schema))
        chance.move(start)
        chance.shake("prepare")
        run(psycopg_door(conn), DeclaredTasks.by(app).declare(Sql(app.schema)))
        take(conn, (*app.migrations, *app.prepare), schema=app.schema)


async def _move(
    threads: Executor, app: App, database: Database, chance: Chance, others: SimulatedProviders, start: datetime,
    end: datetime, tell: Tell, zone: str, maintenance: bool,
) -> Totals:  # fmt: skip
    tasks, tally = DeclaredTasks.by(app), Tally()
    sql = Sql(tasks.schema)
    ring = Keyring(tasks.cipher, database.dsn, sql)
    given = options(database.dsn, SIMULATION_NAME) | {"answered_within": None}  # nobody else is here
    with Connection.connect(database.dsn, **given) as plain:
        conn, own = Messages(plain, {sql[name] for name in SAME}), await AsyncConnection.connect(database.dsn, **given)
        visitors = Visitors(others.visitors, others.watch, threads)
        # Schedules are declared a moment before time begins, so that an instant exactly then is one of theirs.
        kind = partial(
            Clockwork, chance=chance, watch=others.watch, own=own, start=start - SIMULATED_MOMENT, zone=zone,
            maintenance=maintenance,
        )  # fmt: skip
        work = running(kind, database.dsn, tasks, conn, ring, threads, visitors=visitors)
        async with own, work as clockwork:
            await clockwork.sync()
            at: datetime | None = start
            while at is not None and at < end:
                await clockwork.move(at)
                if entries := await clockwork.instant():
                    tally.add(entries)
                    tell(entries)
                at = await clockwork.next()
                if at is None and not tally:
                    raise ConfigurationError(NOTHING_HAPPENS)
            ((waiting,),) = await (await conn.execute(sql["left_waiting"])).fetchall()
            ring.close()
            return tally.totals(end, waiting, others.asked())


@contextmanager
def _quiet() -> Iterator[None]:
    said: set[str] = set()

    def once(record: logging.LogRecord) -> bool:
        """What fails at every instant of a year is told when it fails first."""
        text = record.getMessage()
        new = text not in said
        said.add(text)
        return new

    loggers = [logging.getLogger(name) for name in SILENCED_LOGS]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
        logger.addFilter(once)
    try:
        yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.removeFilter(once)
            logger.setLevel(level)
