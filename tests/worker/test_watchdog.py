"""A worker inside of another program, whose event loop stands still: it says so, once, and goes on."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.worker.stage import SETTINGS, Stage

from mainspring import Registry, fixed
from mainspring.config import WorkerConfig
from mainspring.db.wire.sql import Sql
from mainspring.events import Bus, Event, WorkerStuck
from mainspring.worker import Worker, watchdog
from mainspring.worker.ending import Ending
from mainspring.worker.handover import Handover
from mainspring.worker.outbox import Outbox
from mainspring.worker.watchdog import Watchdog

pytestmark = pytest.mark.anyio

SHORT: dict[str, Any] = {"lease": timedelta(seconds=0.5), "renew_every": timedelta(seconds=0.2)}


def watching(stage: Stage, tasks: Registry, seen: list[Event], **settings: Any) -> Worker:
    def observe(batch: Sequence[Event]) -> None:
        seen.extend(event for event in batch if isinstance(event, WorkerStuck))

    return Worker(stage.dsn, tasks, config=WorkerConfig(**(SETTINGS | SHORT | settings)), observers=[observe])


async def test_a_loop_that_stands_still_in_another_program_is_told_once_with_its_job_and_goes_on(
    stage: Stage, tasks: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Event] = []
    told = threading.Event()

    def of_a_job() -> list[WorkerStuck]:  # a busy machine may stop the loop once more, without the job
        return [event for event in seen if isinstance(event, WorkerStuck) and event.job_id]

    @tasks.task
    async def block() -> None:
        while not of_a_job():  # that is the point: nobody else runs until somebody outside has told
            time.sleep(0.01)
        told.wait(0.5)

    worker = watching(stage, tasks, seen)
    job = await stage.enqueue(block.job())
    with caplog.at_level(logging.CRITICAL, "mainspring.worker"):
        await worker.start()
        await stage.until(of_a_job)
        (event,) = of_a_job()
        # It beats again, which is not the first thing that a freed loop does.
        await stage.until(lambda: worker.state()["mainspring_loop_still_seconds"] < event.seconds)
        await worker.stop()

    assert of_a_job() == [event]
    assert (event.job_id, event.task, event.ends) == (job, "block", False)
    assert event.seconds >= 0.5
    assert "time.sleep(0.01)" in event.stack
    assert f"job {job} of block is on it" in caplog.text
    assert worker.counts["stuck"] == len(seen)


async def test_a_loop_that_runs_is_not_told_of_nor_one_that_is_not_running(stage: Stage, tasks: Registry) -> None:
    seen: list[Event] = []
    worker = watching(stage, tasks, seen)
    await worker.start()
    await asyncio.sleep(1.2)
    await worker.stop()

    assert not seen
    await stage.until(lambda: not any(t.name == "mainspring watchdog" for t in threading.enumerate()))


async def test_slots_that_never_come_back_in_another_program_are_told_once_and_only_if_a_job_waits(
    stage: Stage, tasks: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[Event] = []
    go_on = threading.Event()

    @tasks.task(timeout=timedelta(seconds=0.2), retry=fixed(0, attempts=1))
    def overstay() -> None:
        go_on.wait(30)

    @tasks.task
    def work() -> None: ...

    worker = watching(stage, tasks, seen, threads=1)
    first = await stage.enqueue(overstay.job())
    await worker.start()
    crew, slots = worker._parts.crews["thread"], worker._parts.slots
    await stage.until(lambda: slots._outlived(crew))
    await slots.tick()
    assert not seen, "nobody waits"

    second = await stage.enqueue(work.job())
    await stage.until(lambda: seen)
    await slots.tick()
    await slots.tick()
    go_on.set()
    await stage.until(lambda: worker.counts["succeeded"])
    await worker.stop()

    (event,) = seen
    assert isinstance(event, WorkerStuck)
    assert (event.reason, event.job_id, event.task, event.ends) == ("slots", first, "overstay", False)
    assert "go_on.wait(30)" in event.stack
    assert "1 of overstay" in caplog.text
    assert await stage.state(second) == "succeeded"
    assert not crew.left


def test_a_loop_that_nobody_runs_does_not_stand_still() -> None:
    counts: Counter[str] = Counter()
    loop = asyncio.new_event_loop()
    made: list[Watchdog] = []

    async def make() -> None:
        made.append(Watchdog(WorkerConfig(**SHORT), {}, Ending("w", counts, Bus())))
        made[0].start()

    loop.run_until_complete(make())
    time.sleep(1.2)
    made[0].stop()
    loop.close()

    assert counts["stuck"] == 0


class Known:
    """What a handover reads of an attempt."""

    handle = None
    trusted_until = 0.0

    def __init__(self, epoch: int, *, committing: bool = False) -> None:
        self.claim, self.committing = type("claim", (), {"epoch": epoch}), committing


async def test_handing_over_writes_what_has_ended_and_gives_back_what_nobody_knows(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def greet() -> None: ...

    jobs = [answer.id for answer in await stage.enqueue_many([greet.job() for _ in range(4)])]
    config, outbox = WorkerConfig(), Outbox()
    worker = stage.worker(tasks)
    epochs = stage.claim(worker.id, "greet")
    by_epoch: dict[int, UUID] = dict(stage.rows("select epoch, id from mainspring.running"))

    ended, culprit = Known(epochs[0]), Known(epochs[1])
    outbox.done.append(ended)  # type: ignore[arg-type]  # see above
    runs: Any = {epochs[1]: culprit, epochs[2]: Known(epochs[2])}
    handover = Handover(stage.dsn, Sql(), worker.id, config, runs, outbox)
    count = handover.give_back([culprit])  # type: ignore[list-item]  # see above

    assert count == 2
    states = {job: await stage.state(job) for job in jobs}
    assert states[by_epoch[epochs[0]]] == "succeeded"
    assert states[by_epoch[epochs[1]]] == "running"
    for epoch in epochs[2:]:
        found = await stage.job(by_epoch[epoch])
        assert (found.state, found.attempt, found.crashes) == ("ready", 0, 0)


async def test_handing_over_waits_neither_for_who_is_about_to_commit_nor_for_who_holds_a_row(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def greet() -> None: ...

    await stage.enqueue_many([greet.job() for _ in range(4)])
    worker = stage.worker(tasks)
    epochs = stage.claim(worker.id, "greet")
    runs: Any = {epoch: Known(epoch, committing=epoch == epochs[0]) for epoch in epochs}
    handover = Handover(stage.dsn, Sql(), worker.id, WorkerConfig(), runs, Outbox())
    with psycopg.connect(stage.dsn) as other:
        other.execute("select from mainspring.running where epoch = %s for update", [epochs[1]])
        count = await asyncio.wait_for(asyncio.to_thread(handover.give_back, []), 20)

    assert count == 2
    assert {epoch for (epoch,) in stage.rows("select epoch from mainspring.running")} == set(epochs[:2])


async def test_what_is_renewed_in_place_of_the_loop_is_trusted_again_but_not_what_is_gone(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def greet() -> None: ...

    await stage.enqueue(greet.job())
    worker = stage.worker(tasks)
    (epoch,) = stage.claim(worker.id, "greet")
    kept, gone = Known(epoch), Known(epoch + 1)
    stage.clock.advance(seconds=30)
    Handover(stage.dsn, Sql(), worker.id, WorkerConfig(), {}, Outbox()).keep([kept, gone])  # type: ignore[list-item]  # see above

    assert kept.trusted_until > time.monotonic()
    assert gone.trusted_until == 0
    assert stage.one("select lease_expires_at - mainspring.now() from mainspring.running") == WorkerConfig().lease


class Scripted:
    """A clock and a sleep of the watchdog's thread: each nap takes so long, and uses so much CPU."""

    def __init__(self, *naps: tuple[float, float]) -> None:
        self._naps, self._now, self._cpu = iter(naps), 1000.0, 0.0

    def monotonic(self) -> float:
        return self._now

    def process_time(self) -> float:
        return self._cpu

    def wait(self, seconds: float) -> bool:
        nap = next(self._naps, None)
        self._now, self._cpu = self._now + (nap or (0, 0))[0], self._cpu + (nap or (0, 0))[1]
        return nap is None


BEAT = (1.0, 0.01)


@pytest.mark.parametrize(
    ("naps", "stuck"),
    [
        pytest.param([BEAT] * 59, 0, id="not longer than its lease"),
        pytest.param([BEAT] * 63, 1, id="longer than its lease"),
        pytest.param([BEAT] * 200, 1, id="told once"),
        pytest.param([BEAT, (3600.0, 0.0), BEAT], 0, id="the process was stopped"),
        pytest.param([*[BEAT] * 55, (3600.0, 0.0), *[BEAT] * 55], 0, id="it counts anew after a pause"),
        pytest.param([*[BEAT] * 55, (3600.0, 0.0), *[BEAT] * 63], 1, id="it counts anew, and then up to its lease"),
        pytest.param([*[BEAT] * 40, (30.0, 29.0)], 1, id="the interpreter's lock was held, and let go"),
        pytest.param([(12.0, 0.0)] * 4, 0, id="it had to wait for its turn"),
    ],
)
async def test_only_time_in_which_the_process_itself_could_run_counts(
    naps: list[tuple[float, float]], stuck: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    script: Any = Scripted(*naps)
    monkeypatch.setattr(watchdog, "time", script)
    counts: Counter[str] = Counter()
    dog = Watchdog(WorkerConfig(), {}, Ending("w", counts, Bus()))
    dog._over = script
    dog._watch()  # the loop does not tick meanwhile: we are on it

    assert counts["stuck"] == stuck
