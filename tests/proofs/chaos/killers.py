"""Crashes and who pays for them: `make killers`, or `python -m tests.proofs.chaos.killers rescue killers outage`.

`rescue`   one of two workers is killed with 36 jobs of 2 s: how much longer does everything take?
`held`     a process is killed that holds all jobs there are, 36 of 2 s, and its supervisor starts another
`killers`  50 jobs that kill their process among 200 harmless ones, four workers that are started anew: who is buried?
`outage`   the network of a worker is gone for 10 s at a lease of 6 s, beside a worker that sees it vanish: who crashed?

It uses public interfaces only, so that it runs on older trees as well. Ends with exit code 1 where a promise is broken.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from inspect import signature
from pathlib import Path
from typing import Any

import psycopg

import mainspring as ms
from mainspring.cli.worker import run

ROOT = Path(__file__).parents[3]
tasks = ms.Registry("killers")


@tasks.task
async def slow(*, seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)


@tasks.task(retry=ms.exponential(attempts=2))
def two(*, seconds: float) -> None:
    time.sleep(seconds)


@tasks.task(retry=ms.exponential(attempts=5))
async def five(*, seconds: float, kills: bool = False) -> None:
    import asyncio

    await asyncio.sleep(seconds)
    if kills:
        os.kill(os.getpid(), signal.SIGKILL)


@tasks.task
async def broken(*, seconds: float) -> None:
    import asyncio

    await asyncio.sleep(seconds)
    os.kill(os.getpid(), signal.SIGKILL)


app = ms.App(tasks, dsn=os.environ.get("MAINSPRING_DSN"), maintenance=False)


def say(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


class Workers:
    """Processes of `mainspring worker run`; one that dies is started anew, as a supervisor does."""

    def __init__(
        self, dsn: str, count: int, *, lease: float, concurrency: int, log: Path, supervised: bool = False
    ) -> None:
        self.deaths = 0
        self._supervised = supervised
        self._log = log
        self._env = os.environ | {
            "MAINSPRING_DSN": dsn, "MAINSPRING_CONCURRENCY": str(concurrency), "MAINSPRING_THREADS": str(concurrency),
            "MAINSPRING_LEASE_SECONDS": str(lease), "MAINSPRING_LEASE_RENEW_SECONDS": str(lease / 3),
            "MAINSPRING_RESCUE_SECONDS": "0.5", "MAINSPRING_GRACE_SECONDS": "1",
        }  # fmt: skip
        self.processes = [self._start() for _ in range(count)]

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "mainspring.cli", "worker", "run", "--app", "tests.proofs.chaos.killers:app"]
        if not self._supervised and "supervise" in signature(run).parameters:
            command += ["--no-supervise"]  # we are the supervisor
        with self._log.open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=self._env, stdout=log, stderr=log)

    def kill(self) -> None:
        self.processes[0].kill()

    def look_after(self) -> None:
        for place, process in enumerate(self.processes):
            if process.poll() is not None:
                self.deaths += 1
                self.processes[place] = self._start()

    def stop(self) -> None:
        for process in self.processes:
            process.terminate()
        for process in self.processes:
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


class Case:
    """A database of its own, and what happens in it."""

    def __init__(self, dsn: str, home: Path) -> None:
        self.dsn, self.home = dsn, home
        self.conn: psycopg.Connection[Any] = psycopg.connect(dsn, autocommit=True)

    def one(self, query: str) -> Any:
        row = self.conn.execute(query.encode()).fetchone()
        assert row is not None
        return row[0]

    @contextmanager
    def workers(self, count: int, dsn: str | None = None, **how: Any) -> Iterator[Workers]:
        workers = Workers(dsn or self.dsn, count, log=self.home / "workers.log", **how)
        try:
            yield workers
        finally:
            workers.stop()

    def until(self, holds: Callable[[], object], seconds: float, workers: Workers | None = None) -> float:
        """How long it takes until something is so; at most so long."""
        began = time.monotonic()
        while not holds() and time.monotonic() < began + seconds:
            time.sleep(0.05)
            if workers is not None:
                workers.look_after()
        return time.monotonic() - began

    def left(self) -> int:
        return int(self.one("select count(*) from mainspring.jobs where finished_at is null"))

    def states(self, where: str) -> Mapping[str, int]:
        query = f"select state, count(*) from mainspring.jobs where {where} group by 1 order by 1"
        return dict(self.conn.execute(query.encode()).fetchall())


def rescue(case: Case, *, jobs: int = 432, seconds: float = 2.0, slots: int = 36, lease: float = 6.0) -> bool:
    """One SIGKILL with every slot taken."""
    took = {}
    for kill in (False, True):
        with case.workers(2, lease=lease, concurrency=slots) as workers, ms.Client(case.dsn) as client:
            case.until(lambda: case.one("select count(*) from mainspring.worker where not stopping") == 2, 20)
            client.enqueue_many([slow.job(seconds=seconds) for _ in range(jobs)])
            began = time.monotonic()
            case.until(lambda: case.one("select count(*) from mainspring.running") >= 2 * slots, 20)
            if kill:
                time.sleep(seconds / 2)
                workers.kill()
            case.until(lambda: not case.left(), 150, workers)
            took[kill] = time.monotonic() - began
        if not kill:
            case.conn.execute("delete from mainspring.worker")
    allowed = 2 * took[False] + lease
    say(
        f"rescue: {jobs} jobs of {seconds:g} s, 2 x {slots} slots, lease {lease:g} s: undisturbed {took[False]:.1f} s, "
        f"one SIGKILL {took[True]:.1f} s, allowed {allowed:.1f} s; {case.left()} left, "
        f"suspects {case.one('select count(*) from mainspring.jobs where crashes > 0')}"
    )
    return not case.left() and took[True] <= allowed


def held(case: Case, *, jobs: int = 36, seconds: float = 2.0, lease: float = 6.0) -> bool:
    """One SIGKILL of the only process, with every job in its slots."""
    took = {}
    for kill in (False, True):
        with case.workers(1, lease=lease, concurrency=jobs, supervised=True) as workers, ms.Client(case.dsn) as client:
            case.until(lambda: case.one("select count(*) from mainspring.worker where not stopping") == 1, 20)
            client.enqueue_many([slow.job(seconds=seconds) for _ in range(jobs)])
            began = time.monotonic()
            case.until(lambda: case.one("select count(*) from mainspring.running") == jobs, 20)
            if kill:
                time.sleep(seconds / 2)
                os.kill(case.one("select pid from mainspring.worker where not stopping"), signal.SIGKILL)
            case.until(lambda: not case.left(), 150, workers)
            took[kill] = time.monotonic() - began
        case.conn.execute("delete from mainspring.worker")
    allowed = 2 * took[False] + lease
    say(
        f"held: {jobs} jobs of {seconds:g} s in one process, lease {lease:g} s: undisturbed {took[False]:.1f} s, "
        f"one SIGKILL {took[True]:.1f} s, allowed {allowed:.1f} s; {case.left()} left"
    )
    return not case.left() and took[True] <= allowed


def killers(
    case: Case, *, innocents: int = 200, bad: int = 50, workers: int = 4, slots: int = 25, lease: float = 2.0,
    every: float = 0.5, limit: float = 500.0,
) -> bool:  # fmt: skip
    """A bad deployment: killers keep coming while the others run; half are a task of their own, half a bad payload."""
    killing = [broken.job(seconds=0.1) if n % 2 else five.job(seconds=0.1, kills=True) for n in range(bad)]
    case.conn.execute("create table killer (id uuid)")
    with case.workers(workers, lease=lease, concurrency=slots) as staff, ms.Client(case.dsn) as client:
        client.enqueue_many([(two, five)[n % 2].job(seconds=0.2 + n % 7 * 0.2) for n in range(innocents)])
        began = time.monotonic()

        def ended() -> bool:
            due = min(bad // 5 + int((time.monotonic() - began) / every), bad)
            while len(killing) > bad - due:
                case.conn.execute("insert into killer values (%s)", [client.enqueue(killing.pop()).id])
            return not killing and not case.left()

        took = case.until(ended, limit, staff)
        deaths = staff.deaths
    innocent, guilty = "id not in (select id from killer)", "id in (select id from killer)"
    fates, ends = case.states(innocent), case.states(guilty)
    beyond = case.one(f"select count(*) from mainspring.jobs where {guilty} and crashes > 3")
    crashes = dict(case.conn.execute("select crashes, count(*) from mainspring.jobs group by 1 order by 1").fetchall())
    say(
        f"killers: {innocents} innocents beside {bad} killers, {workers} workers x {slots}, lease {lease:g} s: "
        f"{took:.1f} s, {deaths} workers died; innocents {fates}, killers {ends}, beyond the budget {beyond}; "
        f"jobs by crashes {crashes}"
    )
    return fates == {"succeeded": innocents} and ends == {"dead": bad} and not beyond


def outage(case: Case, *, jobs: int = 5, gone: float = 10.0, lease: float = 6.0) -> bool:
    """The network of one worker is gone, and another takes its jobs back meanwhile, or there is none.

    Jobs of 4.5 s end while the network is gone, those of 8 s are given up.
    """
    from tests.client.proxy import proxied

    fine = True
    for watched, seconds in ((False, 4.5), (False, 8.0), (True, 4.5), (True, 8.0)):
        with (
            proxied(case.dsn) as proxy,
            ms.Client(case.dsn) as client,
            case.workers(1, proxy.dsn, lease=lease, concurrency=jobs),
        ):
            ids = [str(job.id) for job in client.enqueue_many([slow.job(seconds=seconds) for _ in range(jobs)])]
            case.until(lambda: case.one("select count(*) from mainspring.running") == jobs, 20)
            proxy.hold()
            began = time.monotonic()
            with case.workers(int(watched), lease=lease, concurrency=jobs):
                time.sleep(gone)
                proxy.flow()
                case.until(lambda: not case.left(), 40)
            took = time.monotonic() - began
        found = case.conn.execute(
            "select state, crashes, attempt, count(*) from mainspring.jobs where id = any(%s::uuid[]) group by 1, 2, 3",
            [ids],
        ).fetchall()
        crashed = sum(row[3] for row in found if row[1])
        say(
            f"outage: {gone:g} s without a network, jobs of {seconds:g} s, lease {lease:g} s, "
            f"{1 + watched} workers: {crashed} of {jobs} crashed; {took:.1f} s, (state, crashes, attempt, n) {found}"
        )
        fine = fine and not crashed and not case.left()
    return fine


CASES: dict[str, Callable[[Case], bool]] = {"rescue": rescue, "held": held, "killers": killers, "outage": outage}


def main() -> int:
    from mainspring.db.schema.migrate import migrate
    from mainspring.embedded import Cluster

    parser = argparse.ArgumentParser(prog="make killers", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], default=[])
    wanted = parser.parse_args().cases or list(CASES)
    home = Path(tempfile.mkdtemp(prefix="mainspring-killers-"))
    home.chmod(0o755)  # for the account that runs PostgreSQL when we are root
    cluster = Cluster(home / "postgres")
    good = False
    try:
        cluster.start()
        answers = []
        for name in wanted:
            cluster.ensure_database(name)
            with psycopg.connect(cluster.dsn(name)) as conn:
                migrate(conn)
            case = Case(cluster.dsn(name), home)
            answers.append(CASES[name](case))
            case.conn.close()
        good = all(answers)
        return 0 if good else 1
    finally:
        cluster.remove()
        if good:
            shutil.rmtree(home, ignore_errors=True)
        else:
            sys.stderr.write(f"the log of the workers is kept in {home}\n")


if __name__ == "__main__":
    sys.exit(main())
