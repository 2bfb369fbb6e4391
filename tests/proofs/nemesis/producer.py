"""The clients of a run, in one process: `python -m tests.proofs.nemesis.producer`. One actor for each feature.

What was acknowledged is noted in `sent` files, what an error left open in `doubt`; each call of the client is noted
with its beginning and its end, so that one that hangs is seen. Ordinary jobs are sent by the crash test's producer.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any, TypeVar
from uuid import uuid4

import psycopg
from tests.proofs.chaos import plan as chaos_plan
from tests.proofs.chaos import workload as chaos
from tests.proofs.chaos.journal import Journal
from tests.proofs.chaos.producer import Producer as Steady
from tests.proofs.nemesis import workload
from tests.proofs.nemesis.hostile import KINDS
from tests.proofs.nemesis.plan import HOLDS, RATES, SLOTS, Orders

import mainspring as ms
from mainspring.declare.task import Task
from mainspring.errors import DatabaseUnavailable, KeyReused, TransitionRefused
from mainspring.job import NewJob
from mainspring.uuid7 import uuid7

T = TypeVar("T")


class Ordinary(Steady):
    """The crash test's producer on our client; its own transactions go to the server directly."""

    def __init__(self, orders: Orders) -> None:
        super().__init__(chaos_plan.Orders(orders.direct, orders.folder, orders.plan.chaos()))
        self._orders = orders

    def _connect(self) -> ms.AsyncClient:
        return connect(self._orders)


class Producer:
    """Acts through one client until the time is over."""

    def __init__(self, orders: Orders, client: ms.AsyncClient) -> None:
        self._orders, self._client, self._plan = orders, client, orders.plan
        self._sent, self._doubt, self._calls = (
            Journal(orders.place / f"{kind}-0.txt") for kind in ("sent", "doubt", "call")
        )
        # The files of the crash test, whose checker judges timers as well.
        self._acked, self._unsure = (Journal(orders.place / f"{kind}-timers.txt") for kind in ("acked", "unsure"))
        self._numbers = count()
        self._until = time.monotonic() + self._plan.seconds

    async def run(self) -> None:
        actors: dict[str, list[Callable[[random.Random], Awaitable[None]]]] = {
            "steady": [self._steady, self._pulses],
            "keys": [self._live, self._latest, self._mended],
            "timers": [self._timers],
            "flows": [self._flows],
            "rates": [self._rates],
            "slots": [self._slots],
            "strands": [self._strands],
            "fair": [self._fair],
            "breakers": [self._breakers],
            "manners": [self._manners],
            "operators": [self._operators, self._cancels],
            "killers": [self._killers],
            "hostile": [self._hostile],
            "rude": [self._rude],
        }
        async with asyncio.TaskGroup() as group:
            for feature, acts in actors.items():
                for number, act in enumerate(acts if self._plan.has(feature) else []):
                    group.create_task(act(random.Random(f"{feature} {number} {self._plan.seed}")))  # type: ignore[arg-type]  # they are coroutines

    # -- talking to the client

    async def _call(self, name: str, asked: Awaitable[T], *errors: type[Exception]) -> T | None:
        """What it answers; None when the database was away, or said one of these errors."""
        number = next(self._numbers)
        self._calls.write("asked", number, repr(time.monotonic()), name)
        try:
            return await asked
        except DatabaseUnavailable:
            return None
        except (ms.MainspringError, psycopg.Error) as error:
            if isinstance(error, errors):
                return None
            self._calls.write("odd", number, type(error).__name__, *str(error).split())
            return None
        finally:
            self._calls.write("answered", number, repr(time.monotonic()))

    async def _send(self, *jobs: NewJob, errors: Sequence[type[Exception]] = ()) -> list[ms.Enqueued]:
        """Enqueue under ids of our own, and note each that was acknowledged."""
        named = [job.with_id(uuid7()) for job in jobs]
        answers = await self._call(f"enqueue:{jobs[0].task}", self._client.enqueue_many(named), *errors)
        if answers is None:
            for job in named:
                self._doubt.write(job.id)
            return []
        for job, answer in zip(named, answers, strict=True):
            self._sent.write("job", answer.id, job.task)
        return answers

    async def _rest(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, min(seconds, self._until - time.monotonic())))

    def _going(self) -> bool:
        return time.monotonic() < self._until

    def _spread(self, jobs: int, share: float = 0.7) -> Iterator[float]:
        """Pauses between so many, so that they come during this share of the time."""
        return iter([self._plan.seconds * share / max(1, jobs)] * jobs)

    # -- actors

    async def _steady(self, _: random.Random) -> None:
        await Ordinary(self._orders).run()

    async def _pulses(self, _: random.Random) -> None:
        """Singly, as a web request does it."""
        while self._going():
            job = workload.pulse.job(sent=time.monotonic()).with_id(uuid7())
            if await self._call("enqueue:pulse", self._client.enqueue(job)) is not None:
                self._sent.write("job", job.id, job.task)
            await self._rest(0.25)

    async def _live(self, rand: random.Random) -> None:
        while self._going():
            key = f"live-{rand.randrange(5)}"
            await self._send(workload.version.job(key=key, number=0).with_key(key))
            await self._send(workload.seldom.job(key=f"seldom-{rand.randrange(3)}"))
            await self._rest(0.3)

    async def _latest(self, rand: random.Random) -> None:
        """Of several words under one key the last one is heard."""
        numbers = count(1)
        while self._going():
            key, number = f"latest-{rand.randrange(4)}", next(numbers)
            later = workload.version.job(key=key, number=number).after(rand.uniform(0, 0.5))
            if await self._send(later.with_key(key, "replace")):
                self._sent.write("latest", key, number)
            key = f"quiet-{rand.randrange(2)}"
            if await self._send(workload.quieten.job(key=key, number=number)):
                self._sent.write("latest", key, number)
            await self._rest(0.3)

    async def _mended(self, rand: random.Random) -> None:
        while self._going():
            key = f"mend-{uuid4()}"
            sent = await self._send(workload.mend.job(good=False).with_key(key, "reset_failed"))
            await self._rest(rand.uniform(0.3, 1.0))
            while sent:
                again = workload.mend.job(good=True).with_key(key, "reset_failed")
                if await self._send(again, errors=[KeyReused]):
                    break
                await asyncio.sleep(0.3)  # it has not failed yet

    async def _timers(self, rand: random.Random) -> None:
        while self._going():
            key, due = f"timer-{uuid4()}", time.time() + rand.uniform(0.2, 2.0)
            for _ in range(rand.randint(1, 3)):  # each time later than before
                job = chaos.effect.job(pause=0.01).at(datetime.fromtimestamp(due, UTC)).with_key(key).with_id(uuid7())
                answer = await self._call("timers.set", self._client.timers.set(job))
                (self._acked if answer else self._unsure).write(answer.id if answer else job.id, repr(due))
                due += rand.uniform(0.1, 0.5)
                await self._rest(0.1)
            moved = await self._send(workload.plod.job(pause=0.01).after(3.0))
            for answer in moved:
                delay = timedelta(seconds=rand.uniform(0.0, 2.0))
                await self._call("reschedule", self._client.reschedule(answer.id, delay=delay), TransitionRefused)
            await self._rest(0.4)

    async def _flows(self, rand: random.Random) -> None:
        while self._going():
            whole, parents = f"flow-{uuid4()}", rand.randint(2, 4)
            group = ms.group(*(workload.part.job(whole=whole, place="p").with_id(uuid7()) for _ in range(parents)))
            flow = group.then(workload.part.job(whole=whole, place="c").with_id(uuid7()))
            if await self._call("enqueue:flow", self._client.enqueue(flow)):
                self._sent.write("whole", whole, parents)
            whole = f"batch-{uuid4()}"
            members = [workload.part.job(whole=whole, place="p").with_id(uuid7()) for _ in range(parents)]
            batch = ms.batch(whole, members, on_finish=workload.part.job(whole=whole, place="c"))
            if await self._call("enqueue:batch", self._client.enqueue(batch)):
                self._sent.write("whole", whole, parents)
            await self._rest(rand.uniform(0.3, 1.0))

    async def _rates(self, _: random.Random) -> None:
        """A little less than each rate allows, so that a rate that is not used leaves a backlog."""
        began, sent = time.monotonic(), dict.fromkeys(RATES, 0)
        while self._going():
            for name, (most, per) in RATES.items():
                wanted = int((time.monotonic() - began) * most / per * 0.8) - sent[name]
                if wanted > 0:
                    sent[name] += wanted
                    task: Task[[], Any] = getattr(workload, name)
                    await self._send(*(task.job() for _ in range(min(wanted, 2 * most))))
            await self._rest(0.3)

    async def _slots(self, _: random.Random) -> None:
        while self._going():
            await self._send(*(workload.slot.job() for _ in range(SLOTS)))
            await self._rest(HOLDS * 1.5)

    async def _strands(self, rand: random.Random) -> None:
        numbers = count()
        while self._going():
            strand = f"strand-{rand.randrange(3)}"
            await self._send(*(workload.change.job(strand=strand, number=next(numbers)) for _ in range(4)))
            await self._rest(0.7)

    async def _fair(self, rand: random.Random) -> None:
        while self._going():
            for org, jobs in (("a", 8), ("b", 2), ("c", 1)):
                await self._send(*(workload.fairly.job().for_org(org) for _ in range(jobs)))
            await self._rest(rand.uniform(0.5, 1.5))

    async def _breakers(self, rand: random.Random) -> None:
        """Some all the time; many while the dependency is away."""
        began, parked = time.monotonic(), list(self._plan.away())
        while self._going():
            many = 2
            if parked and time.monotonic() - began > parked[0][0] + 0.3:
                del parked[0]
                many = max(50, self._plan.parked // max(1, len(self._plan.away())))
            await self._send(*(workload.fetch.job() for _ in range(many)))
            await self._send(*(workload.deliver.job(point=rand.randrange(3)) for _ in range(2)))
            await self._rest(0.3)

    async def _manners(self, rand: random.Random) -> None:
        for number in count():
            if not self._going():
                break
            jobs = (
                workload.doze.job(times=rand.randint(1, 3)),
                workload.come_back.job(after=rand.uniform(0.3, 1.0)),
                workload.climb.job(steps=3),
                workload.crunch.job(name=str(uuid4())),
                workload.plod.job(pause=rand.uniform(0.0, 0.3)),
            )
            await self._send(jobs[number % len(jobs)])
            await self._rest(0.2)

    async def _operators(self, _: random.Random) -> None:
        """A release with a bug, then one without, and its dead letters are replayed until none is left."""
        for pause in self._spread(max(5, int(self._plan.seconds / 5)), 0.5):
            await self._send(workload.broken.job())
            await self._rest(pause)
        (self._orders.place / "mended").touch()
        letters, open_ = self._client.dead, True
        while open_:
            for letter in await self._call("dead.list", letters.list(task="broken")) or []:
                replayed = letters.replay(letter.id, reason="it is mended")
                await self._call("dead.replay", replayed, TransitionRefused)
            for state in ("failed", "dead", "running", "ready", "retrying", "scheduled"):
                found = await self._call("jobs", self._client.jobs(task="broken", state=state, limit=1))
                if found is None or found:
                    break
            else:
                open_ = False
            await asyncio.sleep(0.3)

    async def _cancels(self, rand: random.Random) -> None:
        while self._going():
            for answer in await self._send(workload.linger.job().after(0.3)):
                await self._rest(rand.uniform(0.0, 1.0))
                said = await self._call("cancel", self._client.cancel(answer.id, reason="nobody needs it"))
                if said == "cancelled":
                    self._sent.write("cancelled", answer.id)
            await self._rest(0.5)

    async def _killers(self, rand: random.Random) -> None:
        for pause in self._spread(self._plan.doomed):
            await self._send(rand.choice((workload.kill, workload.kill_in_thread)).job())
            await self._rest(pause)

    async def _hostile(self, rand: random.Random) -> None:
        kinds = rand.sample(list(KINDS), len(KINDS))
        times = max(1, int(self._plan.seconds / 60))
        for pause, kind in zip(self._spread(len(kinds) * times), kinds * times, strict=True):
            harm = workload.harm_in_thread if rand.random() < 0.25 else workload.harm
            await self._send(harm.job(kind=kind))
            await self._rest(pause)

    async def _rude(self, rand: random.Random) -> None:
        kinds: list[Task[[], Any]] = [workload.block, workload.swallow, workload.leak, workload.nonsense]
        times = max(1, int(self._plan.seconds / 40))
        for pause, task in zip(self._spread(len(kinds) * times), kinds * times, strict=True):
            await self._send(task.job())
            await self._rest(pause * rand.uniform(0.8, 1.2))


def connect(orders: Orders) -> ms.AsyncClient:
    """A client as a web application has one, on the way that may break."""
    return ms.AsyncClient(orders.dsn)


async def main() -> None:
    orders = Orders.found()
    async with connect(orders) as client:
        await Producer(orders, client).run()


if __name__ == "__main__":
    asyncio.run(main())
