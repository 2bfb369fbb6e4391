"""`mainspring up`: an application on the embedded PostgreSQL, with all it needs, to see it work."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from mainspring.cli.banner import banner, clock_line
from mainspring.cli.connection import load
from mainspring.cli.demo_access import DemoAccess
from mainspring.cli.demo_token import DemoToken
from mainspring.cli.exits import complain
from mainspring.cli.live import MOVED, Live, Screen, WatchMode
from mainspring.cli.providers import SandboxProviders
from mainspring.cli.simulate import check_app, instant
from mainspring.cli.spans import TypedSpan
from mainspring.cli.up_database import UpDatabase
from mainspring.config import DATA
from mainspring.errors import ConfigurationError, ValidationError

if TYPE_CHECKING:
    from mainspring.app import App
    from mainspring.embedded import Cluster
    from mainspring.web import Server
    from mainspring_sandbox.ledger import LedgerEntry

EXAMPLE = "mainspring.example:app"
FASTEST_CLOCK = 3600
MOST_MONEY = 50  # movements that are shown at once
#: Short leases, so that the jobs of a killed worker come back within seconds while you watch; the default is a minute.
LEASES = {"MAINSPRING_LEASE_SECONDS": "6", "MAINSPRING_LEASE_RENEW_SECONDS": "2", "MAINSPRING_RESCUE_SECONDS": "1"}


@dataclass(frozen=True, slots=True)
class Wish:
    """What somebody wants to see."""

    app: str
    processes: int
    rate: float
    port: int
    speed: float
    start: datetime | None  # of virtual time
    watch: WatchMode
    json: bool

    @property
    def virtual(self) -> bool:
        """Whether time is not to be the real one."""
        return self.speed != 1 or self.start is not None


def up(
    *,
    app: str = EXAMPLE,
    data: Annotated[Path | None, Parameter(show_default=False)] = None,
    speed: float = 1.0,
    start: Annotated[str | None, Parameter(name="--from", show_default=False)] = None,
    processes: int = 1,
    rate: float = 20.0,
    port: int = 8080,
    length: Annotated[TypedSpan | None, Parameter(name="--for")] = None,
    watch: Annotated[WatchMode | None, Parameter(show_default=False)] = None,
    json: Annotated[bool, Parameter(negative="", show_default=False)] = False,
) -> int:
    """Run an application, or an example that keeps enqueueing, and say every second what happens.

    Args:
        app: Your application, as module:name or the name of an installed one, in place of the example.
        data: Where the data are kept; they survive restarts. Else .data, or .data/speed where time is not real.
        speed: How many times as fast as real time all clocks run, up to 3600; they stand still while nothing runs.
        start: Where the time of new data begins, such as 2026-03-02 or 2026-03-02T10:00Z; else now.
        processes: How many worker processes.
        rate: How many jobs the example enqueues per second.
        port: Where it is served over HTTP; if somebody has that port, at a free one.
        length: Stop after this long, such as 90s; else run until Ctrl-C.
        watch: What is shown: jobs, all with the engine's own, or the pulse in numbers; else jobs, of the example pulse.
        json: Print one JSON object a second and nothing else.
    """
    from mainspring.embedded import Cluster

    for name, fits, must in (
        ("speed", 1 <= speed <= FASTEST_CLOCK, "is not between 1 and 3600"),
        ("processes", processes >= 1, "must be at least 1"),
        ("rate", 0 <= rate <= 10_000, "is not between 0 and 10,000"),
        ("port", 0 <= port <= 65_535, "is not between 0 and 65,535"),
    ):
        if not fits:
            raise ValidationError(f"{name}: {must}", field=name)
    watch = watch or ("pulse" if app == EXAMPLE else "jobs")
    wish = Wish(app, processes, rate, port, speed, instant(start, "UTC") if start else None, watch, json)
    check_app(app)
    place = data or (DATA / "speed" if wish.virtual else DATA)
    with _alone(place):
        return asyncio.run(Up(Cluster(place / "postgres"), wish).run(length.total_seconds() if length else None))


class Up:
    """PostgreSQL, the sandbox, worker processes, a server, and an application that keeps them busy."""

    def __init__(self, cluster: Cluster, wish: Wish) -> None:
        self._cluster, self._wish = cluster, wish
        self._log = cluster.path.parent / "worker.log"
        self._providers = SandboxProviders(cluster.path.parent)
        self._token = DemoToken(cluster.path.parent)
        self._access, self._link = DemoAccess(cluster.path.parent), ""
        self._database = UpDatabase(
            cluster, speed=wish.speed, start=wish.start, virtual=wish.virtual, secured=wish.app == EXAMPLE
        )
        self._url = ""
        self._introduced = False
        self._screen = Screen(silent=wish.json)
        self._moved = 0  # the last movement of money that was shown

    async def run(self, seconds: float | None) -> int:
        """Run until a signal comes or the time is over; then stop the workers, then PostgreSQL."""
        stop = asyncio.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().add_signal_handler(number, stop.set)
        try:
            self._providers.start()
            self._providers.sandbox.ledger.clock = self._database.now
            self._say("Starting PostgreSQL …")
            await asyncio.to_thread(self._cluster.start)
            os.environ |= self._database.settings()
            app = load(self._wish.app)  # it finds all; a name that leads nowhere is told before anything is written
            os.environ |= _leases(app)
            with suppress(FileNotFoundError):
                self._log.unlink()  # of the last time
            await asyncio.to_thread(self._database.migrate, app)
            return await self._work(app, stop, seconds)
        finally:
            if await asyncio.to_thread(self._stop):
                self._say("PostgreSQL has stopped; the data are kept.")

    def _stop(self) -> bool:
        self._providers.stop()
        self._token.take_back()
        self._access.take_back()
        running = self._cluster.running
        if running:
            self._database.halt()
        self._cluster.stop()
        return running

    async def _work(self, app: App, stop: asyncio.Event, seconds: float | None) -> int:
        from mainspring.cli.supervisor import Supervisor

        command = ["worker", "run", "--app", self._wish.app, "--dsn", self._database.dsn("worker")]
        supervisor = Supervisor(
            command,
            self._wish.processes,
            log_file=self._log,
            started=lambda pid: self._worker_started(app, pid),
            ended=self._worker_ended,
        )
        server = self._server(app)
        serving = asyncio.create_task(server.run(signals=False))
        workers = asyncio.create_task(supervisor.run())
        others: list[asyncio.Task[Any]] = [asyncio.create_task(work) for work in (stop.wait(), self._live(app).run())]
        if self._wish.app == EXAMPLE:
            others.append(asyncio.create_task(self._shop()))
        if self._database.course is not None:
            others.append(asyncio.create_task(self._database.keep_time(self._database.course)))
        running = [workers, serving, *others]
        done, _ = await asyncio.wait(running, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        for other in others:
            other.cancel()
        self._screen.clear()
        await asyncio.to_thread(self._database.halt)  # what becomes due while the others stop would be late
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

    def _server(self, app: App) -> Server:
        """Serve the application, where somebody else has the port at a free one."""
        from mainspring.db.gauges import Reader
        from mainspring.observe import Metrics
        from mainspring.web import Server

        web = logging.getLogger("mainspring.web")  # beside the workers' words, not between the lines that people read
        web.addHandler(logging.FileHandler(self._log))
        web.propagate = False
        observers = list(app.observers)
        if not any(isinstance(observer, Metrics) for observer in observers):  # the gauges are for workers' eyes
            observers.append(Metrics(app.registry, gauges=Reader(self._database.dsn("worker"), app.schema)))
        app.at(self._database.dsn("api"), secured=self._wish.app == EXAMPLE, observers=observers)
        tokens = self._token.give(app)
        server = Server(app, port=self._wish.port, tokens=tokens)
        try:
            self._url = server.listen()
        except ConfigurationError:
            server = Server(app, port=0, tokens=tokens)
            self._url = server.listen()
        self._providers.tell(self._url)
        self._link = self._database.let_in(self._access, app, self._url)
        return server

    # -- what happens, and what is said of it

    async def _shop(self) -> None:
        """Let the example's customers come."""
        from mainspring.example import busy

        await busy(self._database.dsn("api"), self._wish.rate, self._providers.sandbox.url)

    def _live(self, app: App) -> Live:
        subjects = {task.name: task.subject for task in app.registry if task.subject is not None}
        fast = self._database.course is not None
        self._news_of_money()  # what was before
        return Live(
            self._database.dsn("worker"), app.schema, subjects, self._screen,
            watch=self._wish.watch, money=self._news_of_money, json=self._wish.json, fast=fast,
        )  # fmt: skip

    def _news_of_money(self) -> list[LedgerEntry]:
        """What money moved at the sandbox since it was asked last."""
        found = self._providers.sandbox.ledger.find(*MOVED, limit=MOST_MONEY)
        new = [entry for entry in reversed(found) if entry.serial > self._moved]
        self._moved = max((entry.serial for entry in found), default=0)
        return new

    def _worker_started(self, app: App, pid: int) -> None:
        if self._introduced:
            return self._say(f"Worker {pid} starts.")
        self._introduced = True
        fast = self._database.course is not None
        text = banner(
            cluster=self._cluster, log=self._log, pid=pid, url=self._url, sandbox=self._providers.sandbox.url,
            about=app.about, link=self._link, curls={"curl": self._token.curl, **self._access.curls},
            time=clock_line(self._database.now(), self._wish.speed) if fast else "",
        )  # fmt: skip
        return self._say(text)

    def _worker_ended(self, pid: int, how: str, pause: float) -> None:
        self._say(f"Worker {pid} {how}. What it was doing comes back when its leases end.")

    def _last_words(self) -> str:
        """What the worker that gave up complained about."""
        lines = self._log.read_text(errors="replace").splitlines()
        return (lines[-1] if lines else "it said nothing").removeprefix("mainspring: ")

    def _say(self, text: str) -> None:
        self._screen.say(text)


async def _then(event: asyncio.Event, *acts: Callable[[], None]) -> None:
    await event.wait()
    for act in acts:
        act()


def _leases(app: App) -> dict[str, str]:
    """Short leases, unless somebody has said how long they are, under our names or the application's."""
    said = {app.setting_aliases.get(name, name) for name in os.environ}
    lease = {name for name in LEASES if "_LEASE_" in name}
    return {} if said & lease else {name: value for name, value in LEASES.items() if name not in said}


@contextmanager
def _private_files() -> Iterator[None]:
    """Let nobody else read what this process and its workers write."""
    before = os.umask(0o066)
    try:
        yield
    finally:
        os.umask(before)


@contextmanager
def _alone(data: Path) -> Iterator[None]:
    """Refuse to run twice on the same data, and keep others from reading them."""
    try:
        data.mkdir(parents=True, exist_ok=True)
        with _private_files():  # whoever can open it could hold it, and keep us from starting
            file = (data / "up.lock").open("w")
        data.chmod(0o711 if os.geteuid() == 0 else 0o700)  # for root, PostgreSQL's account must find its own folder
    except OSError as error:
        raise ConfigurationError(f"data: cannot be kept in {data}: {error.strerror}") from None
    with file as lock, _private_files():
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError(f"data: `mainspring up` is already running on {data}") from None
        yield
