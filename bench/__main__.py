"""All benchmarks as ratios: `make bench`, or `make bench ARGS=--quick` for a look in about two minutes."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import platform
import sys
import time
from functools import partial
from importlib.metadata import version
from typing import Any

import uvloop

import mainspring as ms
from bench import broker, claims, floor, limits, observed, ours, peers, pickup, rates, simulate, timers
from bench.cluster import Server, server
from bench.report import Pairs, Report, Sample, interleave, rotate
from mainspring import WorkerConfig
from mainspring.cli.worker import collect_seldom


async def drains(report: Report, postgres: Server, quick: bool) -> None:
    jobs, few = (20_000, 2_000) if quick else (100_000, 10_000)
    dsn, theirs, surprised = (postgres.database() for _ in range(3))
    say("drain: we, the floor, pgqueuer, procrastinate, and we with plans of empty tables")
    slow = jobs // 10  # it needs a minute for what takes us two seconds; it is faster with fewer jobs
    mine, *others = await rotate(
        lambda: ours.drain(dsn, jobs),
        lambda: floor.drain(theirs, jobs),
        lambda: peers.pgqueuer(postgres.database(), jobs),
        lambda: peers.procrastinate(postgres.database(), slow),
        lambda: ours.surprised_drain(surprised, jobs),
    )
    for name, other in zip(("floor", "pgqueuer", "procrastinate"), others, strict=False):
        report.compare(f"drain_vs_{name}", Pairs(mine, other), "jobs/s", theirs=name)
    report.compare("plan_stability", Pairs(others[-1], mine), "jobs/s", ours="surprised", theirs="ordinary")
    say("transactional drain")
    connections = WorkerConfig().transactions
    pairs = await interleave(
        lambda: ours.transactional_drain(dsn, few), lambda: floor.transactional_drain(theirs, few, connections)
    )
    report.compare("transactional_drain_vs_floor", pairs, "jobs/s")


async def observing(report: Report, postgres: Server, quick: bool) -> None:
    jobs, runs = (10_000, 3) if quick else (100_000, 5)
    dsn = postgres.database()
    say("drain with logs, metrics, alerts and traces")
    pairs = await interleave(lambda: observed.drain(dsn, jobs), lambda: observed.drain_unseen(dsn, jobs), runs)
    report.compare("observability_cost", pairs, "jobs/s", ours="all on", theirs="all off")


async def enqueues(report: Report, postgres: Server, quick: bool) -> None:
    jobs, few = (20_000, 1_000) if quick else (100_000, 5_000)
    dsn, theirs = postgres.database(), postgres.database()
    say("bulk enqueue")
    pairs = await interleave(lambda: ours.bulk_enqueue(dsn, jobs), lambda: floor.bulk_insert(theirs, jobs))
    report.compare("bulk_enqueue_vs_floor", pairs, "jobs/s")
    say("single and coalesced enqueue")
    single, least, coalesced = await rotate(
        lambda: ours.single_enqueue(dsn, few),
        lambda: floor.single_insert(theirs, few),
        lambda: ours.coalesced_enqueue(dsn, few * 4),
        runs=5,
    )
    report.compare("single_enqueue_vs_floor", Pairs(single, least), "commits/s")
    report.compare("coalesced_vs_single", Pairs(coalesced, single), "jobs/s", ours="100 callers", theirs="1 caller")


async def pickups(report: Report, postgres: Server, quick: bool) -> None:
    n, seconds, crowds = (20, 2, (64,)) if quick else (60, 5, (16, 64))  # the larger crowd is the harder case
    dsn, django, theirs = (postgres.database() for _ in range(3))
    say("pickup, alone and in the caller's transaction")
    alone, *callers, least = await rotate(
        lambda: pickup.pickup(dsn, n),
        lambda: pickup.pickup_sqlalchemy(dsn, n),
        lambda: pickup.pickup_django(django, n),
        lambda: floor.listen_claim_roundtrip(theirs, n),
    )
    report.compare("pickup_vs_floor", Pairs(alone, least), "ms")
    for name, sample in zip(("sqlalchemy", "django"), callers, strict=True):
        report.measured(f"pickup_in_caller_tx_{name}", sample, "ms")
    both = [Pairs(sample, least).ratios for sample in callers]
    report.add("pickup_in_caller_tx", max(both, key=lambda sample: sample.median))
    hinted, polled = postgres.database(), postgres.database()
    with pickup.worker_process(hinted, wakeups=True), pickup.worker_process(polled, wakeups=False):
        await asyncio.sleep(1.0)
        for clients in crowds:
            say(f"{clients} enqueuers with hints and without")
            pairs = await interleave(
                lambda clients=clients: pickup.enqueuers(postgres, hinted, clients, seconds),  # type: ignore[misc]  # bound early
                lambda clients=clients: pickup.enqueuers(postgres, polled, clients, seconds),  # type: ignore[misc]  # bound early
            )
            report.compare(f"wakeups_{clients}", pairs, "commits/s", ours="hints", theirs="polling")
    say("timers")
    late = await pickup.timers(dsn, *((1_000, 2.0) if quick else (10_000, 30.0)))
    report.add("timers_early", late["early"])
    report.add("timer_late_p99_ms", late["p99"])
    report.absolute["timers"] = {"unit": "ms late", **late}


async def brokers(report: Report, postgres: Server, quick: bool) -> None:
    n, few, jobs, runs = (3, 500, 5_000, 3) if quick else (10, 5_000, 100_000, 5)
    dsns = [postgres.database() for _ in range(2 * n)]
    dsn = dsns[0]
    with broker.rabbitmq(n) as blocks:
        say("pickup at a poll interval of 1 s, with a broker and without")
        pairs = await broker.pickups(dsns, blocks)
        report.compare("pickup_broker_vs_poll", pairs, "ms", ours="broker", theirs="polling")
        say("enqueue with a broker and without")
        told = {"observers": blocks[0].observers}
        pairs = await interleave(
            lambda: ours.single_enqueue(dsn, few, **told), lambda: ours.single_enqueue(dsn, few), runs
        )
        report.compare("enqueue_with_broker", pairs, "commits/s", ours="broker", theirs="none")
        pairs = await interleave(
            lambda: ours.bulk_enqueue(dsn, jobs, **told), lambda: ours.bulk_enqueue(dsn, jobs), runs
        )
        report.compare("bulk_enqueue_with_broker", pairs, "jobs/s", ours="broker", theirs="none")


async def costs(report: Report, postgres: Server, quick: bool) -> None:
    many, rounds = (50_000, 16) if quick else (1_000_000, 40)
    dsn = postgres.database()
    held = 20_000 if quick else 100_000
    beside = {"claim_1m_timers": {"timers": many}, "claim_1m_finished": {"finished": many}}
    say("claim beside timers, finished jobs and a held snapshot")
    await claim(report, dsn, rounds, {**beside, "claim_held_snapshot": {"held": held}})
    say("claim beside timers on PostgreSQL 15")
    with server(15) as old:
        await claim(report, old.database(), rounds, {"claim_1m_timers_pg15": {"timers": many}})
    say("a worker's memory")
    report.add("worker_growth_mb", await asyncio.to_thread(claims.growth, dsn, 10_000 if quick else 100_000))


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
    late = await pickup.timers(many_dsn, 300, 2.0, fresh=False)
    report.add("timers_early", max(late["early"], report.ratios.get("timers_early", 0)))
    report.absolute["timers_beside_many"] = {"unit": "ms late", **late}


async def limiting(report: Report, postgres: Server, quick: bool) -> None:
    dsn = postgres.database()
    say("50 a second over four processes")
    found = await asyncio.to_thread(limits.rate, dsn, 500 if quick else 5_000)
    report.add("rate_limit_max_window", found["window"])
    report.add("rate_limit_achieved", found["achieved"])
    jobs = 20_000 if quick else 100_000
    say("drain under a limit that is never reached")
    far = ms.rate("q:default", 1_000_000, per="1s")
    pairs = await interleave(lambda: limits.drain(dsn, jobs, far), lambda: limits.drain(dsn, jobs))
    report.compare("unneeded_limit_cost", pairs, "jobs/s", ours="limited", theirs="unlimited")
    say("a limit of concurrency over two processes, a strand, and a fair queue")
    report.add("concurrency_refill", await asyncio.to_thread(limits.refill, dsn, 60 if quick else 300))
    for name in ("strand", "fair"):
        pairs = await interleave(partial(limits.one_by_one, dsn, name), partial(limits.bare, dsn, name))
        report.compare(f"{name}_vs_claims", pairs, "s", theirs="claims")
    say("a hundred jobs beside a flood of another organisation")
    flooded, alone = await limits.small(dsn, 10_000 if quick else 100_000), await limits.small(dsn, 0)
    report.add("fair_share_slowdown", flooded.median / alone.median)
    report.measured("fair_share_flooded", flooded, "s")
    report.measured("fair_share_alone", alone, "s")


async def distances(report: Report, postgres: Server, quick: bool) -> None:
    dsn = postgres.database()
    worst, over, moves = {True: Sample([9.9]), False: Sample([9.9])}, 0, []
    for millis in rates.FEW if quick else rates.MILLIS:
        for most, per in rates.WINDOWS:
            for busy in (False, True):
                for workers in (1, 2, 4):
                    about: dict[str, Any] = {
                        "most": most,
                        "per": per,
                        "millis": millis,
                        "busy": busy,
                        "workers": workers,
                    }
                    runs = [await asyncio.to_thread(rates.rate, dsn, **about) for _ in range(1 if quick else 3)]
                    found = Sample([run.achieved for run in runs])
                    far = per >= 4 * 2 * millis / 1000
                    worst[far] = min(worst[far], found, key=lambda sample: sample.median)
                    over = max(over, *(run.window - most for run in runs))
                    beside = "beside a backlog" if busy else "idle"
                    say(f"{most} per {per:g} s, {millis} ms away, {workers} workers {beside}: {found.median:.3f}")
        moves.append(await asyncio.to_thread(rates.moved, dsn, most=20, per=1.0, millis=millis))
        say(f"{millis} ms away, demand moves to another worker: {moves[-1]:.2f} s until the rate is reached")
    report.add("rate_beyond_4_round_trips", worst[True])
    if worst[False].median < 9.9:
        report.add("rate_within_4_round_trips", worst[False])
    report.add("rate_exceeded", over)
    report.add("rate_moved_s", Sample(moves))


async def claim(report: Report, dsn: str, rounds: int, beside: dict[str, dict[str, int]]) -> None:
    """What a claim costs beside each of these, and beside nothing."""
    *full, empty = await rotate(
        *(
            lambda rows=rows: asyncio.to_thread(claims.claim_cost, dsn, rounds, **rows)
            for rows in (*beside.values(), {})
        )
    )
    for key, sample in zip(beside, full, strict=True):
        report.compare(key, Pairs(sample, empty), "ms", ours="beside", theirs="empty")


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
    parser.add_argument("--quick", action="store_true", help="the same, smaller, in about two minutes")
    parser.add_argument(
        "--only",
        help="comma-separated parts: drains, observing, enqueues, pickups, brokers, costs, timers, limits, simulate, "
        "and rates, which takes half an hour and runs only when it is named",
    )
    arguments = parser.parse_args()
    parts = {"drains": drains, "observing": observing, "enqueues": enqueues, "pickups": pickups, "costs": costs}
    parts["brokers"] = brokers
    parts["timers"] = timer_ops
    parts["limits"] = limiting
    parts["simulate"] = simulation
    chosen = arguments.only.split(",") if arguments.only else list(parts)
    parts["rates"] = distances
    report = Report()
    collect_seldom()  # as `mainspring worker run` does; everybody who works in this process has the good of it
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
            begun = time.monotonic()
            await parts[name](report, postgres, arguments.quick)
            report.seconds[name] = time.monotonic() - begun
    report.print()
    report.write()
    return 1 if report.failures else 0


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(uvloop.run(main()))
