"""All benchmarks as ratios: `make bench`, or `make bench ARGS=--quick` for a look in under two minutes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import sys
import time
from importlib.metadata import version

import uvloop

import mainspring as ms
from bench import broker, claims, floor, limits, observed, ours, peers, pickup, simulate, timers
from bench.cluster import Server, server
from bench.report import Report, Sample, interleave
from mainspring import WorkerConfig


async def drains(report: Report, postgres: Server, quick: bool) -> None:
    jobs, few = (20_000, 2_000) if quick else (100_000, 10_000)
    dsn, theirs = postgres.database(), postgres.database()
    say("drain against the floor")
    report.compare(
        "drain_vs_floor", await interleave(lambda: ours.drain(dsn, jobs), lambda: floor.drain(theirs, jobs)), "jobs/s"
    )
    say("drain against pgqueuer")
    pairs = await interleave(lambda: ours.drain(dsn, jobs), lambda: peers.pgqueuer(postgres.database(), jobs))
    report.compare("drain_vs_pgqueuer", pairs, "jobs/s", theirs="pgqueuer")
    say("drain against procrastinate")
    slow = jobs // 10  # it needs a minute for what takes us two seconds; it is faster with fewer jobs
    pairs = await interleave(lambda: ours.drain(dsn, jobs), lambda: peers.procrastinate(postgres.database(), slow))
    report.compare("drain_vs_procrastinate", pairs, "jobs/s", theirs="procrastinate")
    say("transactional drain")
    connections = WorkerConfig().transactions
    pairs = await interleave(
        lambda: ours.transactional_drain(dsn, few), lambda: floor.transactional_drain(theirs, few, connections)
    )
    report.compare("transactional_drain_vs_floor", pairs, "jobs/s")
    say("plan stability")
    many = 20_000 if quick else 60_000
    pairs = await interleave(lambda: ours.surprised_drain(dsn, many), lambda: ours.drain(dsn, many))
    report.compare("plan_stability", pairs, "jobs/s", ours="surprised", theirs="ordinary")


async def observing(report: Report, postgres: Server, quick: bool) -> None:
    jobs = 20_000 if quick else 100_000
    dsn = postgres.database()
    say("drain with logs, metrics, alerts and traces")
    pairs = await interleave(lambda: observed.drain(dsn, jobs), lambda: observed.drain_unseen(dsn, jobs), 5)
    report.compare("observability_cost", pairs, "jobs/s", ours="all on", theirs="all off")


async def enqueues(report: Report, postgres: Server, quick: bool) -> None:
    jobs, few = (20_000, 1_000) if quick else (100_000, 5_000)
    dsn, theirs = postgres.database(), postgres.database()
    say("bulk enqueue")
    pairs = await interleave(lambda: ours.bulk_enqueue(dsn, jobs), lambda: floor.bulk_insert(theirs, jobs))
    report.compare("bulk_enqueue_vs_floor", pairs, "jobs/s")
    say("single enqueue")
    pairs = await interleave(lambda: ours.single_enqueue(dsn, few), lambda: floor.single_insert(theirs, few), 5)
    report.compare("single_enqueue_vs_floor", pairs, "commits/s")
    say("coalesced enqueue")
    pairs = await interleave(lambda: ours.coalesced_enqueue(dsn, few * 4), lambda: ours.single_enqueue(dsn, few))
    report.compare("coalesced_vs_single", pairs, "jobs/s", ours="100 callers", theirs="1 caller")


async def pickups(report: Report, postgres: Server, quick: bool) -> None:
    n, seconds = (30, 1) if quick else (60, 6)
    dsn, theirs = postgres.database(), postgres.database()
    say("pickup")
    pairs = await interleave(lambda: pickup.pickup(dsn, n), lambda: floor.listen_claim_roundtrip(theirs, n))
    report.compare("pickup_vs_floor", pairs, "ms")
    say("pickup in the caller's transaction")
    django = postgres.database()
    both = []
    for name, measure in (("sqlalchemy", pickup.pickup_sqlalchemy), ("django", pickup.pickup_django)):
        where = django if name == "django" else dsn
        pairs = await interleave(
            lambda measure=measure, where=where: measure(where, n),  # type: ignore[misc]  # bound early on purpose
            lambda: floor.listen_claim_roundtrip(theirs, n),
        )
        report.compare("pickup_in_caller_tx", pairs, "ms", ours=name)
        report.absolute[f"pickup_in_caller_tx_{name}"] = report.absolute.pop("pickup_in_caller_tx")
        both.append(pairs.ratios)
    report.add("pickup_in_caller_tx", max(both, key=lambda sample: sample.median))
    for clients in (16, 64):
        say(f"{clients} enqueuers with hints and without")
        pairs = await interleave(
            lambda clients=clients: pickup.enqueuers(postgres, clients, seconds, wakeups=True),  # type: ignore[misc]  # bound early
            lambda clients=clients: pickup.enqueuers(postgres, clients, seconds, wakeups=False),  # type: ignore[misc]  # bound early
        )
        report.compare(f"wakeups_{clients}", pairs, "commits/s", ours="hints", theirs="polling")
    say("timers")
    late = await pickup.timers(dsn, *((1_000, 3.0) if quick else (10_000, 30.0)))
    report.add("timers_early", late["early"])
    report.add("timer_late_p99_ms", late["p99"])
    report.absolute["timers"] = {"unit": "ms late", **late}


async def brokers(report: Report, postgres: Server, quick: bool) -> None:
    n, few, jobs = (3, 1_000, 20_000) if quick else (10, 5_000, 100_000)
    dsn = postgres.database()
    with broker.rabbitmq() as block:
        say("pickup at a poll interval of 1 s, with a broker and without")
        pairs = await interleave(lambda: broker.pickup(dsn, n, block), lambda: broker.pickup(dsn, n))
        report.compare("pickup_broker_vs_poll", pairs, "ms", ours="broker", theirs="polling")
        say("enqueue with a broker and without")
        told = {"observers": block.observers}
        pairs = await interleave(
            lambda: ours.single_enqueue(dsn, few, **told), lambda: ours.single_enqueue(dsn, few), 5
        )
        report.compare("enqueue_with_broker", pairs, "commits/s", ours="broker", theirs="none")
        pairs = await interleave(lambda: ours.bulk_enqueue(dsn, jobs, **told), lambda: ours.bulk_enqueue(dsn, jobs), 5)
        report.compare("bulk_enqueue_with_broker", pairs, "jobs/s", ours="broker", theirs="none")


async def costs(report: Report, postgres: Server, quick: bool) -> None:
    many, rounds = (50_000, 16) if quick else (1_000_000, 40)
    dsn = postgres.database()
    for key, label, beside in (
        ("claim_1m_timers", "timers", {"timers": many}),
        ("claim_1m_finished", "finished jobs", {"finished": many}),
        ("claim_held_snapshot", "a held snapshot", {"held": 20_000 if quick else 100_000}),
    ):
        say(f"claim beside {label}")
        await claim(report, key, dsn, rounds, beside)
    say("claim beside timers on PostgreSQL 15")
    with server(15) as old:
        await claim(report, "claim_1m_timers_pg15", old.database(), rounds, {"timers": many})
    say("a worker's memory")
    report.add("worker_growth_mb", await asyncio.to_thread(claims.growth, dsn, 20_000 if quick else 100_000))


async def timer_ops(report: Report, postgres: Server, quick: bool) -> None:
    many, rounds, number = (100_000, 3, 100) if quick else (1_000_000, 5, 100)
    few_dsn, many_dsn = postgres.database(), postgres.database()
    say("timers by key beside a million others")
    found = await asyncio.to_thread(timers.ops, few_dsn, many_dsn, many, rounds=rounds, number=number)
    for op, pairs in found.items():
        report.compare("timer_ops_1m", pairs, "ms", ours="beside many", theirs="beside few")
        report.absolute[f"timer_ops_1m_{op}"] = report.absolute.pop("timer_ops_1m")
    report.add("timer_ops_1m", max((pairs.ratios for pairs in found.values()), key=lambda sample: sample.median))
    say("timers that become due beside them")
    late = await pickup.timers(many_dsn, 300, 3.0, fresh=False)
    report.add("timers_early", max(late["early"], report.ratios.get("timers_early", 0)))
    report.absolute["timers_beside_many"] = {"unit": "ms late", **late}


async def limiting(report: Report, postgres: Server, quick: bool) -> None:
    dsn = postgres.database()
    say("50 a second over four processes")
    found = await asyncio.to_thread(limits.rate, dsn, 1_000 if quick else 5_000)
    report.add("rate_limit_max_window", found["window"])
    report.add("rate_limit_achieved", found["achieved"])
    jobs = 20_000 if quick else 100_000
    say("drain under a limit that is never reached")
    far = ms.rate("q:default", 1_000_000, per="1s")
    pairs = await interleave(lambda: limits.drain(dsn, jobs, far), lambda: limits.drain(dsn, jobs))
    report.compare("unneeded_limit_cost", pairs, "jobs/s", ours="limited", theirs="unlimited")
    say("a hundred jobs beside a flood of another organisation")
    flooded, alone = await limits.small(dsn, 100_000), await limits.small(dsn, 0)
    report.add("fair_share_slowdown", flooded.median / alone.median)
    report.measured("fair_share_flooded", flooded, "s")
    report.measured("fair_share_alone", alone, "s")


async def claim(report: Report, key: str, dsn: str, rounds: int, beside: dict[str, int]) -> None:
    async def full() -> float:
        return await asyncio.to_thread(claims.claim_cost, dsn, rounds, **beside)

    async def empty() -> float:
        return await asyncio.to_thread(claims.claim_cost, dsn, rounds)

    report.compare(key, await interleave(full, empty), "ms", ours="beside", theirs="empty")


async def simulation(report: Report, postgres: Server, quick: bool) -> None:
    say("a simulated year of 20 schedules")
    share = 0.05 if quick else 1.0
    runs = [await asyncio.to_thread(simulate.year, share) for _ in range(1 if quick else 3)]
    report.add("simulate_year_s", Sample([seconds for seconds, _ in runs]))
    report.absolute["simulate_year"] = {"unit": "s", "runs": [seconds for seconds, _ in runs], "fires": runs[0][1]}


def say(what: str) -> None:
    print(f"  {time.strftime('%H:%M:%S')} {what} ...", file=sys.stderr, flush=True)


async def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the same, smaller, in under two minutes")
    parser.add_argument(
        "--only",
        help="comma-separated parts: drains, observing, enqueues, pickups, brokers, costs, timers, limits, simulate",
    )
    arguments = parser.parse_args()
    parts = {"drains": drains, "observing": observing, "enqueues": enqueues, "pickups": pickups, "costs": costs}
    parts["brokers"] = brokers
    parts["timers"] = timer_ops
    parts["limits"] = limiting
    parts["simulate"] = simulation
    chosen = arguments.only.split(",") if arguments.only else list(parts)
    report = Report()
    with server() as postgres:
        report.settings = {
            "quick": arguments.quick,
            "python": platform.python_version(),
            "cores": os.cpu_count(),
            "psycopg": version("psycopg"),
            "pgqueuer": version("pgqueuer"),
            "procrastinate": version("procrastinate"),
            "postgres": postgres.settings(),
        }
        for name in chosen:
            await parts[name](report, postgres, arguments.quick)
    report.print()
    report.write()
    return 1 if report.failures else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(uvloop.run(main()))
