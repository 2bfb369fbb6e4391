"""Numbers over HTTP: what waits and runs in each queue, and what is in trouble, counted up to a cap."""

from __future__ import annotations

import msgspec
from msgspec.structs import asdict

from mainspring.db.gauges import COUNTING_CAP, Alarm, Behind, Dead, Fuse, Gauges, LaneGauge, gauges
from mainspring.db.queues import running
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.workers import processes

stats = Resource("stats", "Numbers for those who watch.")


class QueueNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """A queue: what is due, later and running, how old the oldest due job is, and how old it should get at most."""

    name: str
    paused: bool
    late: bool
    target_s: float | None
    oldest_s: float | None
    ready: int
    later: int
    running: int


class WorkerNumbers(msgspec.Struct, frozen=True, kw_only=True):
    """Living workers, how many jobs they may run at once, and how many they do; `stopping` take no more."""

    alive: int
    stopping: int
    slots: int
    running: int


class StatsView(msgspec.Struct, frozen=True, kw_only=True):
    """The engine at one moment; `cap` is where counting ends: that many, or more."""

    cap: int
    queues: list[QueueNumbers]
    workers: WorkerNumbers
    dead: Dead
    breakers: list[Fuse]
    limits: list[Behind]
    alerts: list[Alarm]
    quarantined: list[str]
    heartbeat_s: float | None


@stats.get("/stats", role="viewer", connects="operator")
async def show_stats(asking: Asking) -> StatsView:
    """What waits, runs and is in trouble, by queue: the numbers that metrics show, too."""
    found = await asking.ask(gauges(asking.sql, org=asking.org))
    runs = await asking.ask(running(asking.sql, COUNTING_CAP, asking.org))
    alive = [worker for worker in await processes(asking) if not worker.gone]
    workers = WorkerNumbers(
        alive=len(alive),
        stopping=sum(worker.stopping for worker in alive),
        slots=sum(worker.concurrency for worker in alive if not worker.stopping),
        running=sum(worker.running for worker in alive),
    )
    return StatsView(
        cap=COUNTING_CAP,
        queues=_queues(found, runs),
        workers=workers,
        dead=found.dead,
        breakers=found.breakers,
        limits=found.limits,
        alerts=found.alerts,
        quarantined=found.quarantined,
        heartbeat_s=found.heartbeat_s,
    )


def _queues(found: Gauges, runs: dict[str, int]) -> list[QueueNumbers]:
    lanes = {lane.name: lane for lane in found.lanes}
    return [_numbers(lanes.get(name) or _empty(name), runs.get(name, 0)) for name in sorted({*lanes, *runs})]


def _numbers(lane: LaneGauge, runs: int) -> QueueNumbers:
    late = (lane.oldest_s or 0) > (lane.target_s or float("inf"))
    return QueueNumbers(**asdict(lane), late=late, running=runs)


def _empty(name: str) -> LaneGauge:
    return LaneGauge(name=name, paused=False, target_s=None, ready=0, later=0, oldest_s=None)
