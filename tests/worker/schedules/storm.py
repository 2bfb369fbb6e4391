"""Schedulers under random kills: `python -m tests.worker.schedules.storm`, or `make storm`.

Real processes take turns on a database whose clock is moved by this one. Some of them are killed by SIGKILL at random
moments and replaced. Afterwards each instant that the rules name must stand as exactly one fire with exactly one job.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
from tests.databases import fresh_database
from tests.worker.schedules import house

import mainspring as ms
from mainspring.embedded import VOLATILE, Cluster
from mainspring.virtual.clock import Clock
from mainspring.when.rule import Rule

BEGIN = datetime(2026, 3, 1, tzinfo=UTC)  # clocks change in March and April, in London, New York and Sydney
#: Instants a day: about 22 of every hour.
RULES: tuple[Rule, ...] = (
    ms.cron("*/10 * * * *", zone="Europe/London"),
    ms.cron("30 * * * *", zone="Asia/Kolkata"),
    ms.cron("15,45 * * * *", zone="America/New_York"),
    ms.every(minutes=7),
    ms.every(minutes=20),
    ms.daily("02:30", zone="America/New_York"),
    ms.daily("02:30", zone="Australia/Lord_Howe", overlap="both"),
    ms.weekly(("mon", "wed"), "10:00", zone="Asia/Kathmandu"),
)
STEP = timedelta(minutes=20)
DUE = "select from mainspring.schedule_zone where next_at <= mainspring.now() limit 1"


@dataclass(frozen=True)
class Result:
    ticks: int
    fires: int
    duplicate: int
    missing: int
    kills: int
    seconds: float

    def __str__(self) -> str:
        counts = f"ticks={self.ticks} fires={self.fires} duplicate={self.duplicate} missing={self.missing}"
        return f"{counts} kills={self.kills} seconds={self.seconds:.0f}"


def run(dsn: str, *, ticks: int, schedulers: int, kills: int, seed: int) -> Result:
    began, draw = time.monotonic(), random.Random(seed)
    with psycopg.connect(dsn, autocommit=True) as conn, ms.Client(dsn) as client:
        Clock(conn).set(BEGIN)
        # So many copies that a step is worth a few hundred instants: more schedulers meet at them.
        copies = max(1, ticks // 600)
        rules = {f"{copy}-{number}": rule for copy in range(copies) for number, rule in enumerate(RULES)}
        for name, rule in rules.items():
            client.schedules.create(name, rule, "tick", catch_up="all")
        processes = [house.start(dsn) for _ in range(schedulers)]
        try:
            for process in processes:
                house.ready(process)
            end, killed = _drive(conn, rules, processes, dsn, ticks, kills, draw)
        finally:
            for process in processes:
                house.kill(process)
        return _checked(conn, rules, end, killed, began)


def _drive(
    conn: psycopg.Connection[Any], rules: dict[str, Rule], processes: list[house.Process], dsn: str, ticks: int,
    kills: int, draw: random.Random,
) -> tuple[datetime, int]:  # fmt: skip
    """Move the clock step by step, each when the last is done, and kill now and then."""
    clock, now, total, killed = Clock(conn), BEGIN, 0, 0
    per_step = sum(1 for rule in rules.values() for _ in rule.ticks(BEGIN, BEGIN + timedelta(days=1))) / 72
    steps = int(ticks / per_step) + 1
    doomed = sorted(draw.sample(range(1, steps), min(kills, steps - 1)))
    while total < ticks:
        total += sum(1 for rule in rules.values() for _ in rule.ticks(now, now + STEP))
        now = clock.set(now + STEP)
        if doomed and total / per_step >= doomed[0]:
            doomed.pop(0)
            time.sleep(draw.uniform(0, 0.02))
            victim = draw.randrange(len(processes))
            house.kill(processes[victim])
            processes[victim] = house.start(dsn)
            killed += 1
        house.until(lambda: conn.execute(DUE).fetchone() is None)
    return now, killed


def _checked(conn: psycopg.Connection[Any], rules: dict[str, Rule], end: datetime, killed: int, began: float) -> Result:
    expected = Counter((name, tick.at) for name, rule in rules.items() for tick in rule.ticks(BEGIN, end))
    query = """
        select f.schedule, f.instant from mainspring.job j
        join mainspring.fire f on f.job_id = j.id and f.how = 'fired' and j.correlation_id = f.id::text
        where j.scheduled_for = f.instant
    """
    found = Counter((name, at.astimezone(UTC)) for name, at in conn.execute(query.encode()))
    jobs = conn.execute("select count(*) from mainspring.job").fetchone()
    assert jobs is not None
    duplicate = sum((found - expected).values()) + jobs[0] - sum(found.values())
    missing = sum((expected - found).values())
    seconds = time.monotonic() - began
    return Result(sum(expected.values()), sum(found.values()), duplicate, missing, killed, seconds)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--ticks", type=int, default=100_000)
    parser.add_argument("--schedulers", type=int, default=5)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    given = parser.parse_args()
    sys.stderr.write(f"seed={given.seed}\n")
    with tempfile.TemporaryDirectory(prefix="mainspring-storm-") as folder:
        Path(folder).chmod(0o755)  # for the account that runs PostgreSQL when we are root
        cluster = Cluster(Path(folder) / "pg", settings=VOLATILE)
        cluster.start()
        try:
            with fresh_database(cluster) as database:
                result = run(
                    database.dsn, ticks=given.ticks, schedulers=given.schedulers, kills=given.kills, seed=given.seed
                )
        finally:
            cluster.remove()
    sys.stdout.write(f"{result}\n")
    return int(bool(result.duplicate or result.missing))


if __name__ == "__main__":
    raise SystemExit(main())
