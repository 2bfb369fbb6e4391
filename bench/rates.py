"""Rates wherever the database is: part of the rate reached, most in any window, and how soon after demand moved."""

from __future__ import annotations

import asyncio
import contextlib
import math
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, cast

import psycopg
import uvloop
from psycopg.conninfo import conninfo_to_dict, make_conninfo

import mainspring as ms
from bench import ours
from bench.limits import largest
from mainspring.worker import Worker

WARM = 2.0  # seconds that do not count: shares find their place
MILLIS = (0, 5, 20, 50, 150)  # each way
FEW = (0, 20)
WINDOWS = ((20, 1.0), (10, 0.1))
entered: list[float] = []


async def charge() -> None:
    """Remember when it was entered; all processes of a machine share this clock."""
    entered.append(time.monotonic())


async def refund() -> None:
    """The same, for another worker."""
    entered.append(time.monotonic())


async def small() -> None:
    """One of many that keep the worker busy."""
    await asyncio.sleep(0.001)


class Rate(NamedTuple):
    """What one trial showed."""

    achieved: float  # part of the rate
    window: int  # the most in any window


# -- a database that is far away ---------------------------------------------------------------------------------------


class Far(asyncio.Protocol):
    """One end of a connection through which bytes come later, in their order."""

    def __init__(self, delay: float, other: Far | None = None) -> None:
        self._delay, self.other, self._late = delay, other, deque[bytes]()
        self.transport: asyncio.Transport | None = None
        self._early: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        for data in self._early:
            self.transport.write(data)

    def data_received(self, data: bytes) -> None:
        self._late.append(data)
        asyncio.get_running_loop().call_later(self._delay, self._pass_on)

    def _pass_on(self) -> None:
        data, other = self._late.popleft(), self.other
        if other is not None and other.transport is None:
            other._early.append(data)
        elif other is not None and other.transport is not None and not other.transport.is_closing():
            other.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        if self.other is not None and self.other.transport is not None:
            self.other.transport.close()


async def delay(host: str, port: int, seconds: float) -> None:
    """Pass on what comes, later; says its own port first."""
    loop = asyncio.get_running_loop()
    behind: set[asyncio.Task[object]] = set()

    def accept() -> Far:
        near = Far(seconds)
        far = near.other = Far(seconds, near)
        path = f"{host}/.s.PGSQL.{port}"
        reach: Any = (
            loop.create_unix_connection(lambda: far, path)
            if host.startswith("/")
            else loop.create_connection(lambda: far, host, port)
        )
        task: asyncio.Task[object] = loop.create_task(reach)
        behind.add(task)
        task.add_done_callback(behind.discard)
        return near

    server = await loop.create_server(accept, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


@contextmanager
def away(dsn: str, millis: float) -> Iterator[str]:
    """The same database, so many milliseconds away each way."""
    if not millis:
        yield dsn
        return
    where = conninfo_to_dict(dsn)
    host, port = str(where.get("host", "127.0.0.1")), str(where.get("port", 5432))
    command = [sys.executable, "-m", "bench.rates", "delay", host, port, str(millis / 1000)]
    proxy = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert proxy.stdout is not None
        yield make_conninfo(dsn, host="127.0.0.1", port=proxy.stdout.readline().strip())
    finally:
        proxy.terminate()
        proxy.wait(10)


# -- workers -----------------------------------------------------------------------------------------------------------


async def work(dsn: str, near: str, names: str) -> None:
    """One worker process with some of the tasks: until it is told to stop, then it says what its handlers saw."""
    await Worker(dsn, registry(*names.split(","))).run()
    with psycopg.connect(near, autocommit=True) as conn, conn.cursor().copy("copy entered from stdin") as copy:
        for at in entered:
            copy.write_row([at, names])


def registry(*names: str) -> ms.Registry:
    """Some of the tasks."""
    some = ms.Registry("rates")
    for handler, queue in ((charge, "paid"), (refund, "paid"), (small, "q:default")):
        if handler.__name__ in names:
            some.task(queue=queue)(handler)
    return some


@contextmanager
def working(dsn: str, near: str, tasks: Sequence[str]) -> Iterator[None]:
    """Worker processes, each with its tasks."""
    command = [sys.executable, "-m", "bench.rates", "work", dsn, near]
    workers = [subprocess.Popen([*command, names]) for names in tasks]
    try:
        with psycopg.connect(near, autocommit=True) as conn:
            deadline = time.monotonic() + 60
            while conn.execute("select count(*) from mainspring.worker").fetchone() != (len(tasks),):
                if time.monotonic() > deadline:
                    raise TimeoutError("the workers do not start")
                time.sleep(0.05)
        yield
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait(30)


def prepare(dsn: str, conn: psycopg.Connection[Any]) -> None:
    ours.install(dsn)
    conn.execute("drop table if exists entered")
    conn.execute("create table entered (at double precision, tasks text)")


def seen(conn: psycopg.Connection[Any]) -> list[float]:
    return [at for (at,) in conn.execute("select at from entered order by at")]


def job(handler: Any, count: int) -> list[ms.NewJob]:
    task = registry(handler.__name__).get(handler.__name__)
    return [task.job() for _ in range(count)]


def rate(
    dsn: str, *, most: int, per: float, millis: float = 0, busy: bool = False, workers: int = 1, seconds: float = 5.0
) -> Rate:
    """Steady demand under a rate, by workers so far from the database, idle or beside a backlog of small jobs."""
    with psycopg.connect(dsn, autocommit=True) as conn, ms.Client(dsn) as client, away(dsn, millis) as far:
        prepare(dsn, conn)
        client.limits.set(ms.rate("paid", most, per=f"{per * 1000:g}ms"))
        for _ in range(0, int((WARM + seconds + 5) * most / per) + 1, 1000):
            client.enqueue_many(job(charge, 1000))
        for _ in range(60 if busy else 0):
            client.enqueue_many(job(small, 1000))
        with working(far, dsn, ["charge,small"] * workers):
            time.sleep(WARM)
            begun = time.monotonic()
            while time.monotonic() < begun + seconds:
                left = conn.execute("select count(*) from mainspring.waiting where queue = 'q:default'").fetchone()
                if busy and left is not None and left[0] < 20_000:
                    client.enqueue_many(job(small, 1000))
                else:
                    time.sleep(0.1)
        stamps = seen(conn)
    return Rate(reached(stamps, begun, begun + seconds, per) / most, largest(stamps, per))


def reached(stamps: Sequence[float], since: float, until: float, per: float) -> float:
    """How many start in a window, on average; what comes at once counts as one, wherever the time begins."""
    start = bisect_left(stamps, since)
    if start == len(stamps):
        return 0.0
    first, last = bisect_left(stamps, stamps[start] + per) - 1, bisect_left(stamps, until) - 1
    return (last - first) / (stamps[last] - stamps[first]) * per if last > first else 0.0


def moved(dsn: str, *, most: int, per: float, millis: float = 0) -> float:
    """Seconds from when one worker has no more jobs and another's come, until those are started at the rate."""
    with psycopg.connect(dsn, autocommit=True) as conn, ms.Client(dsn) as client, away(dsn, millis) as far:
        prepare(dsn, conn)
        client.limits.set(ms.rate("paid", most, per=f"{per * 1000:g}ms"))
        first = int(3 * most / per)
        client.enqueue_many(job(charge, first))
        with working(far, dsn, ["charge", "refund"]):
            while conn.execute("select count(*) from mainspring.finished").fetchone() != (first,):
                time.sleep(0.01)
            came = time.monotonic()
            client.enqueue_many(job(refund, int(10 * most / per)))
            time.sleep(7.0)
        stamps = [at for at in seen(conn) if at > came]
    enough = math.ceil(0.95 * most)
    for last in range(enough - 1, len(stamps)):
        if stamps[last] - stamps[last - enough + 1] <= per:
            return stamps[last] - came
    return math.inf


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        match sys.argv[1:]:
            case ["delay", host, port, seconds]:
                uvloop.run(delay(host, int(port), float(seconds)))
            case ["work", dsn, near, names]:
                uvloop.run(work(dsn, near, names))
