"""The supervisor: starts everything, strikes by a seeded schedule, restarts what died, and waits for the last job.

It signals only processes that it started itself. A fault counts only if it hit running work: the victim is stopped
first, and struck once the database shows that it holds jobs (this is coverage; the verdict does not look there).
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg
from tests.proofs.chaos import workload
from tests.proofs.chaos.checker import Effect, Verdict, acknowledged, check, plain_effects
from tests.proofs.chaos.plan import ROOT, Orders, Plan

from mainspring.db.schema.migrate import migrate
from mainspring.embedded import Cluster

TICK = 0.03
REPORT = 5.0
#: A job is dead after three crashes, rightly. The run spares one that had two: one more would make it look lost.
SPARED = 2


@dataclass(slots=True)
class Struck:
    """Faults that hit running work, and the jobs they hit."""

    worker_kills: int = 0
    postgres_kills: int = 0
    freezes: int = 0
    jobs: dict[str, set[str]] = field(default_factory=lambda: {"kill": set(), "postgres": set(), "freeze": set()})


class Storm:
    """One run of the crash test in an empty database of a durable cluster."""

    def __init__(
        self,
        cluster: Cluster,
        dsn: str,
        folder: Path,
        plan: Plan,
        *,
        prepare: Callable[[psycopg.Connection[Any]], None] | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._cluster, self._dsn, self._folder, self._plan = cluster, dsn, folder, plan
        self._prepare, self._say = prepare, say
        self._random = random.Random(plan.seed)
        self._workers: list[subprocess.Popen[bytes]] = []
        self._producers: list[subprocess.Popen[bytes]] = []
        self._frozen: dict[int, float] = {}  # pid → when it thaws
        self._postgres_back = 0.0
        self._began = self._said = 0.0
        self.struck = Struck()

    def run(self) -> Verdict:
        """Do all of it and judge; every process is gone afterwards."""
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            migrate(conn)
            conn.execute(workload.LEDGER)
            if self._prepare:
                self._prepare(conn)
        try:
            self._began = self._said = time.monotonic()
            self._workers = [self._start("worker", n) for n in range(self._plan.workers)]
            self._producers = [self._start("producer", n) for n in range(self._plan.producers)]
            self._rage()
            self._calm()
        finally:
            self._end()
        return check(self._folder, self._ledger())

    # -- faults -------------------------------------------------------------------------------------------------------

    def _rage(self) -> None:
        """Strike until every fault of the plan has hit, bounded by thrice the planned time."""
        plan = self._plan
        faults = ["kill"] * plan.worker_kills + ["postgres"] * plan.postgres_kills + ["freeze"] * plan.freezes
        self._random.shuffle(faults)
        warm = min(3.0, plan.seconds / 6)
        step = (plan.seconds - warm) / max(1, len(faults))
        times = [warm + step * (n + self._random.random()) for n in range(len(faults))]
        while faults and self._elapsed() < plan.seconds * 3:
            if self._elapsed() >= times[0] and not self._postgres_back and self._strike(faults[0]):
                del faults[0], times[0]
            self._tend()

    def _strike(self, fault: str) -> bool:
        """Try one fault; false if it would have hit nothing."""
        if fault == "postgres":
            jobs, _ = self._running()  # an outage is nobody's crash, so no job is spared
            if not jobs:
                return False
            self._cluster.kill()
            self._postgres_back = time.monotonic() + self._random.uniform(0, self._plan.lease / 4)
            self.struck.postgres_kills += 1
        else:
            awake = [worker for worker in self._workers if worker.pid not in self._frozen]
            if len(awake) < 2:
                return False
            victim = self._random.choice(awake)
            victim.send_signal(signal.SIGSTOP)
            time.sleep(0.02)  # what it has sent is committed by then
            jobs, crashes = self._running(victim.pid)
            if not jobs or crashes >= SPARED:
                victim.send_signal(signal.SIGCONT)
                return False
            if fault == "kill":
                victim.kill()
                self.struck.worker_kills += 1
            else:
                low, high = self._plan.frozen
                self._frozen[victim.pid] = time.monotonic() + self._plan.lease * self._random.uniform(low, high)
                self.struck.freezes += 1
        self.struck.jobs[fault] |= jobs
        return True

    def _tend(self) -> None:
        """Thaw, restart, report."""
        now = time.monotonic()
        if self._postgres_back and now >= self._postgres_back:
            self._postgres_back = 0.0
            self._cluster.start()
        for n, worker in enumerate(self._workers):
            if now >= self._frozen.get(worker.pid, now + 1):
                del self._frozen[worker.pid]
                worker.send_signal(signal.SIGCONT)
            if worker.poll() is not None:
                assert worker.returncode == -signal.SIGKILL, f"a worker ended by itself: {self._tail('worker', n)}"
                self._workers[n] = self._start("worker", n)
        for n, producer in enumerate(self._producers):
            assert not producer.poll(), f"a producer failed: {self._tail('producer', n)}"
        if now - self._said > REPORT:
            self._said = now
            s = self.struck
            self._say(
                f"{self._elapsed():5.0f} s  acknowledged {len(acknowledged(self._folder))}  effects {self._effects()}  "
                f"worker kills {s.worker_kills}  postgres kills {s.postgres_kills}  freezes {s.freezes}"
            )
        time.sleep(TICK)

    # -- the end ------------------------------------------------------------------------------------------------------

    def _calm(self) -> None:
        """Let producers and workers finish in peace: until every effect is there, or nothing moves any more."""
        while any(producer.poll() is None for producer in self._producers):
            assert self._elapsed() < self._plan.seconds * 3 + 60, "the producers do not come to an end"
            self._tend()
        best, moved = -1, time.monotonic()
        while time.monotonic() - moved < self._plan.drain and (self._missing() or self._frozen):
            if (count := self._effects()) != best:
                best, moved = count, time.monotonic()
            self._tend()
            time.sleep(0.1)

    def _missing(self) -> int:
        done = {row[0] for row in self._ledger()} | plain_effects(self._folder)
        return len(acknowledged(self._folder) - done)

    def _end(self) -> None:
        """Stop what was started: in good order, then by force."""
        everybody = self._workers + self._producers
        for process in everybody:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGCONT)
                process.terminate()
        deadline = time.monotonic() + 5
        for process in everybody:
            try:
                process.wait(max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._cluster.start()

    # -- what it sees -------------------------------------------------------------------------------------------------

    def _start(self, what: str, number: int) -> subprocess.Popen[bytes]:
        orders = Orders(self._dsn, str(self._folder), self._plan, number)
        with (self._folder / f"{what}-{number}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", f"tests.proofs.chaos.{what}", orders.encode()], cwd=ROOT, stdout=log, stderr=log
            )

    def _tail(self, what: str, number: int) -> str:
        return (self._folder / f"{what}-{number}.log").read_text()[-1500:]

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _running(self, pid: int | None = None) -> tuple[set[str], int]:
        """The jobs that a worker holds, or all do, and how often the worst of them crashed."""
        query = (
            "select id::text, crashes from mainspring.running where %s::int is null or worker like '%%:' || %s || ':%%'"
        )
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            rows = conn.execute(query, [pid, pid]).fetchall()
        return {row[0] for row in rows}, max((row[1] for row in rows), default=0)

    def _effects(self) -> int:
        with suppress(psycopg.OperationalError), psycopg.connect(self._dsn, autocommit=True) as conn:
            row = conn.execute("select count(*) from ledger").fetchone()
            return int(row[0]) if row else 0
        return 0

    def _ledger(self) -> list[Effect]:
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            query = "select job_id::text, epoch, key, extract(epoch from at)::float8 from ledger order by at"
            return [(row[0], row[1], row[2], row[3]) for row in conn.execute(query)]
