"""The supervisor of a run: starts everything, strikes by the plan, restarts what died, and waits for the last job.

It signals only processes that it started itself, or that these started. Progress is what handlers wrote, never what
the engine says of itself.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psycopg
from psycopg.conninfo import make_conninfo
from tests.proofs.chaos import workload as chaos
from tests.proofs.chaos.plan import ROOT
from tests.proofs.chaos.storm import SPARED
from tests.proofs.nemesis import workload
from tests.proofs.nemesis.checker import Seen, Verdict, judge
from tests.proofs.nemesis.journal import Tail
from tests.proofs.nemesis.plan import FAULTS, HOLDS, RATES, SLOTS, Fault, Orders, Plan
from tests.proofs.nemesis.proxy import Proxy

import mainspring as ms
from mainspring.db.schema.migrate import migrate
from mainspring.embedded import Cluster

TICK = 0.03
LEFT = ("running", "ready", "retrying", "scheduled")
REPORT = 10.0
COMMAND = [sys.executable, "-m", "mainspring.cli", "worker", "run", "--app", "tests.proofs.nemesis.worker:app"]


@dataclass(slots=True)
class Place:
    """Where a worker stands: the command that was started, and the process that works."""

    number: int
    command: subprocess.Popen[bytes]
    started: float
    pid: int | None = None  # once it has said hello
    well_since: float = 0.0
    thaws_at: float | None = None
    stopping_since: float | None = None


class Nemesis:
    """One run in an empty database of a durable cluster."""

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
        self._cluster, self._dsn, self._folder, self._plan = cluster, dsn, folder, plan.on_this_machine()
        self._prepare, self._say = prepare, say
        self._places: list[Place] = []
        self._producer: subprocess.Popen[bytes] | None = None
        self._tail, self._attempts = Tail(folder, "stamp"), Tail(folder, "worker")
        self._lines = 0
        self._begun: Counter[str] = Counter()
        self._moved = self._database_since = self._said = self._began = time.monotonic()
        self._postgres_back: float | None = None
        self._silent_until: float | None = None
        self._rolling: list[Place] = []
        self.seen = Seen()
        self.struck: Counter[str] = Counter()

    def run(self) -> Verdict:
        """Do all of it and judge; every process is gone afterwards."""
        with psycopg.connect(self._dsn, autocommit=True) as conn:
            migrate(conn)
            conn.execute(chaos.LEDGER)
            if self._prepare:
                self._prepare(conn)
        self._proxy = Proxy(self._dsn)
        try:
            self._orders = Orders(self._proxy.dsn, self._dsn, str(self._folder), self._plan)
            self._places = [self._start(number) for number in range(self._plan.workers)]
            self._meet()
            self._began = time.monotonic()
            self._producer = self._run("producer", [sys.executable, "-m", "tests.proofs.nemesis.producer"])
            self._rage()
            self._peace()
            self._drain()
            self._finale()
            self._aftermath()
            self._shadow()
            self._explain()
        finally:
            self._end()
            self._proxy.close()
        return judge(self._folder, self._dsn, self._plan, self.seen)

    # -- faults -------------------------------------------------------------------------------------------------------

    def _meet(self) -> None:
        """Wait for every worker."""
        began = time.monotonic()
        while not all(place.pid for place in self._places):
            assert time.monotonic() - began < 120, f"the workers do not start: {self._log('worker-0')}"
            self._tend()

    def _rage(self) -> None:
        """Strike by the plan, each kind once at the least. What would hit nobody is tried again for a while."""
        faults, away = self._plan.faults(), self._plan.away() if self._plan.has("breakers") else []
        flag = self._folder / "away"
        least = len(FAULTS) + 1 if faults else 0
        while not self.seen.stuck and (
            self._elapsed() < self._plan.seconds
            or (sum(self.struck.values()) < least and self._elapsed() < 2 * self._plan.seconds)
        ):
            if faults and self._elapsed() >= faults[0].at and self._strike(faults[0]):
                self.seen.faults.append((self._elapsed(), faults[0].kind))
                self.struck[faults[0].kind] += 1
                del faults[0]
            gone = any(begin <= self._elapsed() < end for begin, end in away)
            flag.touch() if gone else flag.unlink(missing_ok=True)
            self._tend()
        flag.unlink(missing_ok=True)

    def _strike(self, fault: Fault) -> bool:
        """Try one fault; false if it would hit nobody, or somebody who was hit too often."""
        if self._postgres_back or self._silent_until:
            return False
        match fault.kind:
            case "kill" | "freeze":
                return self._hit(fault)
            case "delay":
                self._proxy.delay = fault.seconds
            case "cut":
                self._proxy.cut()
            case "drop":
                self._proxy.drop(3)
            case "silence":
                self._proxy.silence()
                self._silent_until = time.monotonic() + fault.seconds
            case "postgres":
                self._cluster.kill()
                self._postgres_back = time.monotonic() + fault.seconds
            case "roll" if self._rolling:
                return False
            case "roll":
                self._rolling = list(self._places)
        return True

    def _hit(self, fault: Fault) -> bool:
        """Kill or freeze a worker that holds jobs, unless one of them would be dead of it, rightly."""
        awake = [place for place in self._places if place.pid and not place.thaws_at and not place.stopping_since]
        if len(awake) < 2:
            return False
        victim = awake[fault.victim % len(awake)]
        assert victim.pid is not None
        self._signal(victim.pid, signal.SIGSTOP)
        time.sleep(0.02)  # what it has sent is committed by then
        try:
            with psycopg.connect(self._dsn, autocommit=True) as conn:
                query = "select count(*), coalesce(max(crashes), 0) from mainspring.running where worker like %s"
                jobs, crashes = conn.execute(query, [f"%:{victim.pid}:%"]).fetchone() or (0, 0)
        except psycopg.OperationalError:
            jobs, crashes = 0, 0
        if not jobs or crashes >= SPARED:
            self._signal(victim.pid, signal.SIGCONT)
            return False
        if fault.kind == "kill":
            self._signal(victim.pid, signal.SIGKILL)
            victim.pid = None
        else:
            victim.thaws_at = time.monotonic() + fault.seconds
        return True

    # -- tending ------------------------------------------------------------------------------------------------------

    def _tend(self) -> None:
        """Thaw, bring back, restart, listen, and see whether anything moves."""
        now = time.monotonic()
        if self._postgres_back and now >= self._postgres_back:
            self._postgres_back = None
            self._cluster.start()
            self._database_since = time.monotonic()
        if self._silent_until and now >= self._silent_until:
            self._silent_until = None
            self._proxy.speak()
            self._database_since = now
        for place in self._places:
            if place.thaws_at and now >= place.thaws_at:
                self._thaw(place, now)
            if place.pid and not _lives(place.pid):
                place.pid = None
            if place.command.poll() is not None:
                self.seen.ends[place.command.returncode] += 1
                self._places[place.number] = self._start(place.number)
        self._roll(now)
        self._listen(now)
        self._look(now)
        if now - self._said > REPORT:
            self._said = now
            self._say(f"{self._elapsed():5.0f} s  {self._lines} stamps  {dict(self.struck)}  {self._left()} jobs left")
        time.sleep(TICK)

    def _thaw(self, place: Place, now: float) -> None:
        place.thaws_at, place.well_since = None, now
        if place.pid:
            self.seen.thaws.append((place.pid, now))
            self._signal(place.pid, signal.SIGCONT)

    def _roll(self, now: float) -> None:
        """A rolling restart: one stops in good order, another takes its place, then the next."""
        if not self._rolling:
            return
        place = self._rolling[0]
        if self._places[place.number] is not place:  # it has ended, however
            if self._places[place.number].pid:
                del self._rolling[0]
        elif place.stopping_since is None and not place.thaws_at:
            place.stopping_since = now
            place.command.terminate()
        elif place.stopping_since and now - place.stopping_since > self._patience():
            self.seen.wrong("ignores SIGTERM", None, f"worker {place.number} for {now - place.stopping_since:.0f} s")
            self._kill(place)

    def _listen(self, now: float) -> None:
        """Hear what handlers wrote: hellos of workers, and that anything moves at all."""
        found = self._tail.more()
        for what, _, *words in found:
            if what == "began":
                self._begun[words[2]] += 1
            if what == "hello":
                for place in self._places:
                    if _works_for(int(words[0]), place.command.pid):
                        place.pid, place.well_since = int(words[0]), now
                        self.seen.starts.append(now - place.started)
        more = len(found) + len(self._attempts.more())
        if more:
            self._lines += more
            self._moved = now

    def _look(self, now: float) -> None:
        """Whether work waits, somebody could do it, and yet nothing moves."""
        well = [place.well_since for place in self._places if place.pid and not place.thaws_at]
        if not well or self._postgres_back or self._silent_until:
            return
        quiet = now - max(self._moved, self._database_since, min(well))
        self.seen.quiet = max(self.seen.quiet, quiet)
        if quiet > self._patience() and not self.seen.stuck and self._left():
            self.seen.stuck = True
            self.seen.wrong("stands still", None, f"nothing has moved for {quiet:.0f} s, {self._left()} jobs wait")

    # -- the end ------------------------------------------------------------------------------------------------------

    def _peace(self) -> None:
        """End every fault: from here on everything must come to its end."""
        self._rolling = []
        if self._postgres_back:
            self._postgres_back = time.monotonic()
        if self._silent_until:
            self._silent_until = time.monotonic()
        self._proxy.spare()
        self._proxy.delay = self._plan.distance
        for place in self._places:
            if place.thaws_at:
                place.thaws_at = time.monotonic()
        self._tend()
        self.seen.peace = time.monotonic()
        if self._plan.has("schedules"):
            try:
                with ms.Client(self._patient()) as client:
                    client.schedules.pause(workload.TICKING, reason="the run ends")
            except (ms.MainspringError, psycopg.Error) as error:
                self.seen.wrong("an operator waits", None, f"a schedule cannot be paused: {error}")
                self.seen.stuck = True

    def _drain(self) -> None:
        """Until nothing is left, or nothing moves any more."""
        producing = True
        while (producing or self._left()) and not self.seen.stuck:
            self._tend()
            assert self._producer is not None
            if producing and (code := self._producer.poll()) is not None:
                producing = False
                assert code == 0, f"the producer failed: {self._log('producer')}"
            if time.monotonic() - self.seen.peace > self._plan.drain:
                told = f"{self._left()} jobs left" + (", and a client still waits" if producing else "")
                self.seen.wrong("not drained", None, f"after {self._plan.drain:.0f} s: {told}")
                self.seen.stuck = True
            time.sleep(0.05)
        self.seen.drained = time.monotonic() - self.seen.peace

    def _finale(self) -> None:
        """With nobody in the way, ask for what is limited, and see how well the limits are used."""
        self._settle()
        if self.seen.stuck:
            return
        with ms.Client(self._patient()) as client:
            for name, (most, per) in RATES.items() if self._plan.has("rates") else ():
                wanted = most * self._plan.windows(per)
                jobs = client.enqueue_many([getattr(workload, name).job() for _ in range(wanted)])
                self.seen.finale[name] = [str(job.id) for job in jobs]
            if self._plan.has("slots"):
                wanted = SLOTS * self._plan.windows(HOLDS)
                jobs = client.enqueue_many([workload.slot.job() for _ in range(wanted)])
                self.seen.finale["slot"] = [str(job.id) for job in jobs]
        while self._left() and not self.seen.stuck:
            self._tend()

    def _settle(self) -> None:
        """Wait until every worker is back, and nobody dead holds a share of anything."""
        while not self.seen.stuck and not self._settled():
            self._tend()

    def _settled(self) -> bool:
        since = time.monotonic() - self._plan.settles
        return all(place.pid and not place.thaws_at and place.well_since < since for place in self._places)

    def _aftermath(self) -> None:
        """The same work in peace, and when two workers die full of it."""
        if self._plan.has("aftermath") and not self.seen.stuck:
            self.seen.calm = self._labour(kills=0)
            self.seen.aftermath = self._labour(kills=2)

    def _labour(self, kills: int) -> float:
        """Give every worker as much as it can hold, kill some, and say how long all of it took."""
        wanted = self._plan.workers * self._plan.config().concurrency
        began, before = time.monotonic(), self._begun["labour"]
        with ms.Client(self._patient()) as client:
            client.enqueue_many([workload.labour.job() for _ in range(wanted)])
        while self._left() and not self.seen.stuck:
            if kills and self._begun["labour"] - before >= wanted:
                for place in self._places[:kills]:
                    self._kill(place)
                kills = 0
            self._tend()
        return time.monotonic() - began

    def _shadow(self) -> None:
        """Jobs that need nothing, alone and beside many that wait for what does not answer."""
        if not self._plan.has("shadow") or self.seen.stuck:
            return
        self.seen.pulses["alone"] = self._pulses()
        (self._folder / "away").touch()
        with ms.Client(self._patient()) as client:
            client.enqueue_many([workload.fetch.job() for _ in range(self._plan.parked)])
        for _ in range(30):  # until the breaker is open, and most of them have met it
            self._tend()
        self.seen.pulses["shadowed"] = self._pulses()
        (self._folder / "away").unlink()
        while self._left() and not self.seen.stuck:
            self._tend()

    def _pulses(self) -> list[str]:
        sent = []
        with ms.Client(self._patient()) as client:
            for _ in range(10):
                sent.append(str(client.enqueue(workload.pulse.job(sent=time.monotonic())).id))
                for _ in range(5):
                    self._tend()
        return sent

    def _explain(self) -> None:
        """Ask why some have not ended, while the workers are here, who are a part of the answer."""
        self.struck.update(self._proxy.counts)
        with ms.Client(self._patient()) as client:
            waiting = [job for state in LEFT for job in client.jobs(state=state, limit=10)]
            self.seen.reasons = {str(job.id): client.explain(job.id).verdict for job in waiting}

    def _left(self) -> int:
        """Jobs that have not ended."""
        query = "select (select count(*) from mainspring.waiting) + (select count(*) from mainspring.running)"
        with suppress(psycopg.OperationalError), psycopg.connect(self._dsn, autocommit=True) as conn:
            row = conn.execute(query).fetchone()
            return int(row[0]) if row else 0
        return 1

    def _end(self) -> None:
        """Stop what was started: in good order, then by force."""
        if self._producer is not None:
            self._producer.kill()
            self._producer.wait()
        for place in self._places:
            if place.pid:
                self._signal(place.pid, signal.SIGCONT)
            place.command.terminate()
        deadline = time.monotonic() + self._patience()
        for place in self._places:
            try:
                place.command.wait(max(0.01, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.seen.wrong("ignores SIGTERM", None, f"worker {place.number} for {self._patience():.0f} s")
                self._kill(place)
                place.command.wait()
        self._cluster.start()

    # -- processes ----------------------------------------------------------------------------------------------------

    def _start(self, number: int) -> Place:
        return Place(number, self._run(f"worker-{number}", COMMAND), time.monotonic())

    def _run(self, name: str, command: list[str]) -> subprocess.Popen[bytes]:
        with (self._folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(command, cwd=ROOT, env=self._orders.env(), stdout=log, stderr=log)

    def _kill(self, place: Place) -> None:
        if place.pid:
            self._signal(place.pid, signal.SIGKILL)
        place.command.kill()

    @staticmethod
    def _signal(pid: int, number: signal.Signals) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, number)

    def _log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()[-1500:]

    def _elapsed(self) -> float:
        return time.monotonic() - self._began

    def _patient(self) -> str:
        """The way of an operator, who does not wait for ever."""
        return make_conninfo(self._dsn, options=f"-c statement_timeout={self._patience():.0f}s")

    def _patience(self) -> float:
        return self._plan.stall


def _lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def _works_for(pid: int, command: int) -> bool:
    """Whether a process is the worker of a command: itself, or one that it supervises, but no cell for one job."""
    try:
        if pid != command and b"--alone" in Path(f"/proc/{pid}/cmdline").read_bytes():
            return False
        while pid > 1 and pid != command:
            pid = int(Path(f"/proc/{pid}/status").read_text().partition("PPid:")[2].split()[0])
    except OSError:  # it has ended meanwhile
        return False
    return pid == command
