"""What one run of the nemesis does, drawn from its seed; handed to every process of the run.

Two times are stated here, and the run fails if the engine takes longer: `stall` and `drain`. Leases and both of them
follow how slow this machine is, measured before each run, so that slow is not mistaken for stuck.
"""

from __future__ import annotations

import math
import os
import random
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import msgspec
from tests.proofs.chaos.plan import Plan as Steady

from mainspring.config import WorkerConfig

#: Where the processes of a run find their orders.
ORDERS = "NEMESIS_ORDERS"

#: What may be left out (`--without killers`), or tried alone (`--only rates faults`).
FEATURES = (
    "steady",  # plain and transactional jobs, in loops and threads, with keys kept for ever, by the chaos producer
    "keys",  # live, window, reset_failed, replace, debounce
    "timers",  # set, moved, rescheduled
    "schedules",
    "flows",  # and batches
    "rates",
    "slots",  # limits of concurrency
    "strands",
    "fair",
    "breakers",
    "manners",  # snooze, RetryAfter, steps, progress, CPU children, threads
    "operators",  # cancel, replay of dead letters
    "killers",
    "hostile",  # exceptions
    "rude",  # handlers that block, swallow, leak, return nonsense
    "faults",
    "aftermath",  # two workers are killed at the end, full of work
    "shadow",  # at the end, many jobs wait behind an open breaker, beside others that need nothing
)

FAULTS = ("kill", "freeze", "delay", "cut", "silence", "drop", "postgres", "roll")

#: What importing the engine, and starting a worker, takes on an idle machine, in seconds.
USUAL_IMPORT, USUAL_START = 0.4, 1.5
#: A machine that is slower than this has no business running tests.
SLOWEST_MACHINE = 10.0


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong, when (seconds from the beginning), for how long."""

    at: float
    kind: str
    seconds: float = 0.0
    victim: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much work and how many faults; everything is bounded in count and time."""

    seed: int = 1
    seconds: float = 600.0  # during which work arrives and faults strike
    workers: int = 3
    lease: float = 3.0
    slowness: float = 1.0  # of this machine
    every: float = 2.5  # seconds from one fault to the next
    steady: float = 30.0  # ordinary jobs a second
    killers: float = 0.04  # a second
    parked: int = 5000  # jobs that wait for the dependency when it goes away
    distance: float = 0.02  # seconds to the database, each way, once the faults are over
    finale: float = 8.0  # seconds of work for each limit when the faults are over, and 3 windows of a rate at least
    used: float = 0.6  # so much of a rate and of a limit's places must be used then
    without: tuple[str, ...] = ()
    bugs: tuple[str, ...] = ()  # planted in the workers (tests.proofs.chaos.plants)

    def on_this_machine(self) -> Plan:
        """The plan with leases that a slow machine can keep."""
        began = time.monotonic()
        subprocess.run([sys.executable, "-c", "import mainspring.worker, mainspring.client"], check=True)
        slowness = min(SLOWEST_MACHINE, max(1.0, (time.monotonic() - began) / USUAL_IMPORT))
        root = math.sqrt(slowness)  # leases are mostly waiting; the whole factor would make it endless
        longer = root if self.short else 1.0
        return replace(
            self, lease=self.lease * root, slowness=slowness, seconds=self.seconds * longer, every=self.every * longer
        )

    @property
    def short(self) -> bool:
        return self.seconds < 60

    def has(self, feature: str) -> bool:
        return feature not in self.without

    @property
    def stall(self) -> float:
        """The longest time in which nothing at all may move while work waits and somebody could do it.

        A worker that has just died holds its jobs for a lease; the rescue looks once in a while, and after an outage it
        gives the living a renewal's time; a lost connection is noticed within a lease, and tried again after at most
        5 s; a breaker pauses, an attempt waits to be retried. Once more for what this list forgets.
        """
        rescue = self.lease / 4
        return 2 * (self.lease + rescue + rescue + self.lease) + 2 * self.slowness * (5.0 + PAUSE + 1.0)

    @property
    def drain(self) -> float:
        """How long it may take, after the last fault, until everything has ended.

        A stall; then each killer that is left needs three crashes, at worst one after the other, each of them a lease,
        a look of the rescue and a new process.
        """
        return self.stall + 3 * (self.lease * 1.25 + USUAL_START * self.slowness) * min(self.doomed, 20)

    def comes_back(self, calm: float) -> float:
        """How long work that takes so long in peace may take when two workers die with it.

        A lease and a look of the rescue until it is known, then twice as long as in peace, and a little for a slow
        machine. One by one the jobs of two full workers would take ten times as long as in peace.
        """
        return self.lease * 1.25 + 2.5 * calm + 0.25 * self.slowness

    def unhurried(self, calm: float) -> float:
        """How long a job may wait beside an open breaker, if it waits so long without one: about as long."""
        return 5 * calm + 0.1 * self.slowness

    @property
    def settles(self) -> float:
        """How long the last worker to have died may hold its shares of the rates: until its lease is over."""
        return self.lease * 1.25

    def windows(self, per: float) -> int:
        """How many windows of a rate the finale asks for."""
        return max(3, math.ceil(self.finale / per))

    @property
    def doomed(self) -> int:
        """Killers, each of which ends some workers."""
        return max(1, int(self.seconds * self.killers)) if self.has("killers") else 0

    def config(self) -> WorkerConfig:
        lease = timedelta(seconds=self.lease)
        return WorkerConfig(
            concurrency=16,
            threads=6,
            processes=1,
            lease=lease,
            renew_every=lease / 4,
            rescue_every=lease / 4,
            poll_interval=timedelta(seconds=0.5),
            grace=timedelta(seconds=2),
            transactions=8,
        )

    def chaos(self) -> Steady:
        """What the producer of the crash test is told."""
        return Steady(seed=self.seed, jobs=int(self.steady * self.seconds), seconds=self.seconds, producers=1, held=0.1)

    def faults(self) -> list[Fault]:
        """Every kind in turn, in an order of its own each time; the first after a while of peace."""
        if not self.has("faults"):
            return []
        rand, found = random.Random(f"faults {self.seed}"), [Fault(0.0, "delay", 0.005)]
        kinds: list[str] = []
        at = min(3.0, self.seconds / 6)
        while at < self.seconds:
            kinds = kinds or rand.sample(FAULTS, len(FAULTS))
            kind = kinds.pop()
            lasts = {
                "freeze": self.lease * rand.uniform(1.2, 1.8),
                "delay": rand.choice((0.005, 0.02, 0.05, 0.15)),  # each way
                "silence": self.lease * rand.uniform(0.5, 1.5) * (0.4 if self.short else 1.0),
                "postgres": rand.uniform(0.0, self.lease / 2),
            }
            found.append(Fault(at, kind, lasts.get(kind, 0.0), rand.randrange(1000)))
            at += self.every * rand.uniform(0.6, 1.4)
        return found

    def away(self) -> list[tuple[float, float]]:
        """From when to when the dependency does not answer."""
        rand, found, at = random.Random(f"away {self.seed}"), [], min(2.0, self.seconds / 5)
        while at < self.seconds * 0.9:
            until = min(at + rand.uniform(2.0, 5.0) * max(1.0, self.seconds / 120), self.seconds)
            found.append((at, until))
            at = until + rand.uniform(1.0, 3.0)
        return found


#: How long a breaker stays open, in seconds.
PAUSE = 1.0
#: name → how many handlers may be entered in any window, and its length in seconds; queues are called `r:name`.
RATES = {"paced": (10, 1.0), "brisk": (4, 0.3), "rare": (6, 2.0)}
#: At once, and how long each holds its place.
SLOTS, HOLDS = 3, 0.3

#: Less than twenty seconds of it, for `make test`: each kind of fault once, and every feature.
SHORT = Plan(
    seconds=6.0,
    lease=2.0,
    every=0.6,
    killers=0.17,
    parked=100,
    finale=4.0,
    used=0.25,
    steady=20.0,
    without=("aftermath", "shadow"),
)


@dataclass(frozen=True, slots=True)
class Orders:
    """What a process of the run is told."""

    dsn: str  # through the proxy
    direct: str
    folder: str
    plan: Plan

    def env(self) -> dict[str, str]:
        return os.environ | {
            ORDERS: msgspec.json.encode(self).decode(),
            "MAINSPRING_DSN": self.dsn,
            "MAINSPRING_MAINTENANCE": "off",
        }

    @classmethod
    def found(cls) -> Orders:
        return msgspec.json.decode(os.environ[ORDERS], type=cls)

    @property
    def place(self) -> Path:
        return Path(self.folder)


def only(plan: Plan, features: Sequence[str]) -> Plan:
    """A plan with nothing but these."""
    return replace(plan, without=tuple(name for name in FEATURES if name not in features))
