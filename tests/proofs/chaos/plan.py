"""What one run of the crash test does; handed to every process as its only argument."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import msgspec

from mainspring.config import WorkerConfig

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much work, how many faults, and how long; everything is bounded in count and time."""

    seed: int = 1
    jobs: int = 20_000  # transactional ones; plain ones and shared keys come on top
    seconds: float = 110.0  # during which work arrives and faults strike
    workers: int = 4
    producers: int = 4
    worker_kills: int = 22
    postgres_kills: int = 7
    freezes: int = 11
    lease: float = 2.0
    frozen: tuple[float, float] = (1.2, 1.8)  # how long a freeze lasts, as parts of the lease
    longest: float = 0.2  # of a handler, in seconds
    threads: float = 0.2  # the share of jobs that run in threads
    held: float = 0.3  # the longest that a producer keeps its own transaction open
    skews: tuple[float, ...] = (0.0, -300.0, 300.0, 86_400.0)  # how wrong the workers' clocks go, in seconds
    drain: float = 30.0  # how long the last jobs may take without any progress
    bugs: tuple[str, ...] = ()  # planted in the workers and producers (tests.proofs.chaos.plants)

    def config(self) -> WorkerConfig:
        """How the workers work: short leases, so that a freeze is soon too long."""
        return WorkerConfig(
            concurrency=24,
            threads=6,
            lease=timedelta(seconds=self.lease),
            renew_every=timedelta(seconds=self.lease / 4),
            rescue_every=timedelta(seconds=self.lease / 4),
            poll_interval=timedelta(seconds=0.5),
            transactions=12,
        )


@dataclass(frozen=True, slots=True)
class Orders:
    """What a process of the run is told."""

    dsn: str
    folder: str
    plan: Plan
    number: int = 0

    def encode(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def decode(cls, text: str) -> Orders:
        return msgspec.json.decode(text, type=cls)
