"""`mainspring up`: Mainspring with an example application on the embedded PostgreSQL, to see it work."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from cyclopts import Parameter

from mainspring.cli.connection import load
from mainspring.cli.exits import complain
from mainspring.cli.providers import Providers
from mainspring.config import DATA
from mainspring.errors import ConfigurationError, DatabaseUnavailable, ValidationError

if TYPE_CHECKING:
    import psycopg

    from mainspring.db.pulse import Pulse
    from mainspring.embedded import Cluster
    from mainspring.web import Server

TICK = 0.1  # seconds between two enqueues of the example
EXAMPLE = "mainspring.example:app"
LOGINS = {"worker": "shop_worker", "api": "shop_web"}  # what the example's parts connect as, on a secured schema

BANNER = """
Mainspring runs on a PostgreSQL of its own; its data are in {data}.
Every second, a line of what happened. Ctrl-C stops it. In another terminal, from this directory:

  look at jobs    {mainspring} job list{elsewhere}
  see what left   {mainspring} outbox list{sandbox}    every mail, SMS, charge and webhook, in a sandbox
  ask over HTTP   curl {url}/v1/health/ready
  look with SQL   {psql} "{dsn}" -c "select * from mainspring.jobs limit 5"
  read its log    tail -f {log}
  kill a worker   kill -9 {pid}    and watch: another takes over, and nothing is lost
"""


def up(
    *,
    app: str = EXAMPLE,
    data: Path = DATA,
    processes: int = 1,
    rate: float = 20.0,
    port: int = 8080,
    seconds: float | None = None,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Run an application, or an example that keeps enqueueing, and say every second what happens.

    Args:
        app: Your application, as module:name, in place of the example.
        data: Where the data are kept; they survive restarts.
        processes: How many worker processes.
        rate: How many jobs the example enqueues per second.
        port: Where it is served over HTTP; if somebody has that port, at a free one.
        seconds: Stop after so long; else run until Ctrl-C.
        json: Print one JSON object a second and nothing else.
    """
    from mainspring.embedded import Cluster

    for name, fits, must in (
        ("processes", processes >= 1, "must be at least 1"),
        ("rate", 0 <= rate <= 10_000, "is not between 0 and 10,000"),
        ("port", 0 <= port <= 65_535, "is not between 0 and 65,535"),
        ("seconds", (seconds or 0) >= 0, "must not be negative"),
    ):
        if not fits:
            raise ValidationError(f"{name}: {must}", field=name)
    with _alone(data):
        return asyncio.run(Up(Cluster(data / "postgres"), app, processes, rate, port, json).run(seconds))


class Up:
    """PostgreSQL, the sandbox, worker processes, a server, and an application that keeps them busy."""

    def __init__(self, cluster: Cluster, app: str, processes: int, rate: float, port: int, json: bool) -> None:
        self._cluster, self._app, self._processes, self._rate, self._json = cluster, app, processes, rate, json
        self._log = cluster.path.parent / "worker.log"
        self._providers = Providers(cluster.path.parent)
        self._port, self._url = port, ""
        self._introduced = False

    async def run(self, seconds: float | None) -> int:
        """Run until a signal comes or the time is over; then stop the workers, then PostgreSQL."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            self._providers.start()
            self._say("Starting PostgreSQL …")
            await asyncio.to_thread(self._cluster.start)
            os.environ["MAINSPRING_DSN"] = self._dsn("api")
            load(self._app)  # it finds both; a name that leads nowhere is told before anything is written
            with suppress(FileNotFoundError):
                self._log.unlink()  # of the last time
            await asyncio.to_thread(self._migrate)
            return await self._work(stop, seconds)
        finally:
            if await asyncio.to_thread(self._stop):
                self._say("PostgreSQL has stopped; the data are kept.")

    def _stop(self) -> bool:
        self._providers.stop()
        running = self._cluster.running
        self._cluster.stop()
        return running

    async def _work(self, stop: asyncio.Event, seconds: float | None) -> int:
        from mainspring.cli.supervisor import Supervisor

        command = ["worker", "run", "--app", self._app, "--dsn", self._dsn("worker")]
        supervisor = Supervisor(
            command,
            self._processes,
            log_file=self._log,
            started=self._worker_started,
            ended=self._worker_ended,
        )
        server = self._server()
        serving = asyncio.create_task(server.run(signals=False))
        workers = asyncio.create_task(supervisor.run())
        busy = [self._shop()] if self._app == EXAMPLE else []
        others: list[asyncio.Task[Any]] = [asyncio.create_task(work) for work in (stop.wait(), self._watch(), *busy)]
        running = [workers, serving, *others]
        done, _ = await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        server.stop()
        if workers in done:
            complain(f"a worker cannot run: {self._last_words()}")
        else:
            self._say("Stopping: running jobs finish …")
        stop.clear()
        supervisor.stop()
        hurry = asyncio.create_task(_then(stop, supervisor.stop, server.stop))  # a second signal ends the grace period
        code = await workers
        hurry.cancel()
        await asyncio.gather(hurry, serving, *others, return_exceptions=True)
        for finished in done:
            finished.result()  # raises what broke it
        return code

    def _server(self) -> Server:
        """Serve the application, where somebody else has the port at a free one."""
        from mainspring.db.gauges import Reader
        from mainspring.observe import Metrics
        from mainspring.web import Server

        web = logging.getLogger("mainspring.web")  # beside the workers' words, not between the lines that people read
        web.addHandler(logging.FileHandler(self._log))
        web.propagate = False
        app = load(self._app)
        app._dsn, app.secured = self._dsn("api"), self._app == EXAMPLE
        if not any(isinstance(observer, Metrics) for observer in app.observers):  # the gauges are for workers' eyes
            app.observers = (*app.observers, Metrics(app.registry, gauges=Reader(self._dsn("worker"), app.schema)))
        server = Server(app, port=self._port)
        try:
            self._url = server.listen()
        except ConfigurationError:
            server = Server(app, port=0)
            self._url = server.listen()
        self._providers.tell(self._url)
        return server

    def _migrate(self) -> None:
        import psycopg

        from mainspring.db.migrate import migrate
        from mainspring.embedded import SUPERUSER
        from mainspring.example import MIGRATIONS

        with psycopg.connect(self._cluster.dsn(), autocommit=True) as conn:
            migrate(conn)
            if self._app == EXAMPLE:
                migrate(conn, line=MIGRATIONS)
        with psycopg.connect(self._cluster.dsn(user=SUPERUSER), autocommit=True) as conn:
            self._secure(conn)

    def _secure(self, conn: psycopg.Connection[Any]) -> None:
        """Run the example as it should be in production; an application of yours by its one role, to begin with."""
        from psycopg import errors, sql

        from mainspring.db.secure import is_secured, secure, unsecure

        if self._app != EXAMPLE:
            if is_secured(conn):
                unsecure(conn)
            return
        secure(conn)
        for role, login in LOGINS.items():
            with suppress(errors.DuplicateObject):
                conn.execute(sql.SQL("create role {} login").format(sql.Identifier(login)))
            conn.execute(sql.SQL("grant {} to {}").format(sql.Identifier(f"mainspring_{role}"), sql.Identifier(login)))
        conn.execute(
            "grant select, insert, update on mainspring.shop_order, mainspring.shop_payment to mainspring_worker"
        )

    def _dsn(self, role: str) -> str:
        return self._cluster.dsn(user=LOGINS[role]) if self._app == EXAMPLE else self._cluster.dsn()

    async def _shop(self) -> None:
        """Enqueue what the example's customers do."""
        from mainspring.client import AsyncClient, Client
        from mainspring.example import customers, till

        assert till is not None
        with Client(self._dsn("api"), secured=True) as office:
            await asyncio.to_thread(till.settle_in, office, self._providers.sandbox.url)
        jobs, owed = customers(), 0.0
        async with AsyncClient(self._dsn("api"), secured=True) as client:
            while True:
                owed += self._rate * TICK
                batch = list(islice(jobs, int(owed)))
                owed -= len(batch)
                if batch:
                    with suppress(DatabaseUnavailable):  # customers come again
                        await client.enqueue_many(batch)
                await asyncio.sleep(TICK)

    async def _watch(self) -> None:
        """Say every second what happened."""
        from mainspring.db.connect import async_pool
        from mainspring.db.jobs import now
        from mainspring.db.pulse import LAG, pulse
        from mainspring.db.run import async_psycopg_door, run_async
        from mainspring.db.schema import Sql
        from mainspring.db.translate import unavailable

        sql, since = Sql(), None
        async with async_pool(self._dsn("worker"), size=1, name="mainspring up") as pool:
            while True:
                try:
                    with unavailable():
                        async with pool.connection() as conn:
                            door = async_psycopg_door(conn)
                            if since is None:
                                since = await run_async(door, now(sql)) - LAG
                            else:
                                moment = await run_async(door, pulse(sql, since))
                                since = moment.until
                                print(msgspec.json.encode(moment).decode() if self._json else words(moment), flush=True)
                except DatabaseUnavailable as error:
                    self._say(str(error))
                await asyncio.sleep(1)

    def _worker_started(self, pid: int) -> None:
        if self._introduced:
            return self._say(f"Worker {pid} starts.")
        from mainspring.embedded import find_binaries
        from mainspring.embedded.home import at_home

        self._introduced = True
        mainspring = "mainspring" if shutil.which("mainspring") else os.path.relpath(sys.argv[0])
        psql = "psql" if shutil.which("psql") else os.path.relpath(find_binaries(18) / "psql")
        dsn, data, log = at_home(self._cluster), self._cluster.path.parent, os.path.relpath(self._log)
        here = data == DATA.resolve()
        where = {"data": data, "dsn": dsn, "log": log, "pid": pid, "url": self._url}
        where["elsewhere"] = "" if here else f' --dsn "{dsn}"'
        where["sandbox"] = "" if here else f" --sandbox {self._providers.sandbox.url}"
        return self._say(BANNER.format(mainspring=mainspring, psql=psql, **where))

    def _worker_ended(self, pid: int, how: str, pause: float) -> None:
        self._say(f"Worker {pid} {how}. What it was doing comes back when its leases end.")

    def _last_words(self) -> str:
        """What the worker that gave up complained about."""
        lines = self._log.read_text(errors="replace").splitlines()
        return (lines[-1] if lines else "it said nothing").removeprefix("mainspring: ")

    def _say(self, text: str) -> None:
        if not self._json:
            print(text, flush=True)


def words(p: Pulse) -> str:
    """A moment in one line."""
    troubles = {"retried": p.retried, "rescued": p.rescued, "failed": p.failed, "dead": p.dead}
    parts = [f"enqueued {p.enqueued:3}", f"started {p.started:3}", f"succeeded {p.succeeded:3}"]
    parts += [f"{name} {count}" for name, count in troubles.items() if count or name in ("retried", "dead")]
    parts += [f"waiting {p.ready} (+{p.later} later)", f"running {p.running}"]
    if p.pickup_ms is not None:
        parts.append(f"picked up after {p.pickup_ms:.0f} ms")
    return f"{p.until.astimezone():%H:%M:%S}  {' · '.join(parts)}"


async def _then(event: asyncio.Event, *acts: Callable[[], None]) -> None:
    await event.wait()
    for act in acts:
        act()


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Refuse to run twice on the same data."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        file = (data / "up.lock").open("w")
    except OSError as error:
        raise ConfigurationError(f"data: cannot be kept in {data}: {error.strerror}") from None
    with file as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"data: `mainspring up` is already running on {data}") from None
        yield
