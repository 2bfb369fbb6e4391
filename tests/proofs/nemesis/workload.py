"""The tasks of the nemesis, and the application that its workers run: `mainspring worker run --app …:app`.

Innocent tasks end well, however often they are interrupted. Doomed ones cannot, and how each may end is said here.
"""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import cache
from pathlib import Path
from uuid import uuid4

from tests.proofs.nemesis import hostile
from tests.proofs.nemesis.journal import attempt, say
from tests.proofs.nemesis.plan import HOLDS, PAUSE, RATES, SLOTS, Orders

import mainspring as ms
from mainspring.events import Event, WorkerStarted
from mainspring.limit import Fair, Limit

PATIENT = ms.fixed(0.2, attempts=100)
TWICE = ms.fixed(0.2, attempts=2)
SOON = timedelta(seconds=20)  # handlers are short: one that takes so long hangs

tasks = ms.Registry("nemesis")
TICKING = "ticking"  # the schedule

#: How a job of these tasks may end; all others succeed.
ENDS = {
    "kill": {"dead"},
    "kill_in_thread": {"dead"},
    "harm": {"dead"},
    "harm_in_thread": {"dead"},
    "block": {"dead", "succeeded"},  # succeeded, where nobody else was there to take it over
    "swallow": {"dead", "succeeded"},
    "linger": {"succeeded", "cancelled"},
    "nonsense": {"failed"},
}
#: Each entry into these ends a process.
CRASHING = {"kill", "kill_in_thread"}


@cache
def folder() -> Path:
    return Orders.found().place


# -- innocent ---------------------------------------------------------------------------------------------------------


@tasks.task(retry=PATIENT, timeout=SOON)
async def pulse(ctx: ms.Context, *, sent: float) -> None:
    """Beside everything, on the queue of everybody: shows how long a job waits."""
    with attempt(ctx, repr(sent)):
        pass


@tasks.task(queue="r:paced", retry=PATIENT, timeout=SOON)
async def paced(ctx: ms.Context) -> None:
    with attempt(ctx):
        await asyncio.sleep(0.001)


@tasks.task(queue="r:brisk", retry=PATIENT, timeout=SOON)
def brisk(ctx: ms.SyncContext) -> None:
    with attempt(ctx):
        time.sleep(0.001)


@tasks.task(queue="r:rare", retry=PATIENT, timeout=SOON)
async def rare(ctx: ms.Context) -> None:
    with attempt(ctx):
        await asyncio.sleep(0.001)


@tasks.task(queue="c:slots", retry=PATIENT, timeout=SOON)
async def slot(ctx: ms.Context) -> None:
    with attempt(ctx):
        await asyncio.sleep(HOLDS)


@tasks.task(retry=PATIENT, timeout=SOON)
async def labour(ctx: ms.Context) -> None:
    """Long enough to be hit, and short enough to be waited for."""
    with attempt(ctx):
        await asyncio.sleep(1.5)


@tasks.task(strand="{strand}", retry=PATIENT, timeout=SOON)
async def change(ctx: ms.Context, *, strand: str, number: int) -> None:
    with attempt(ctx, f"{strand}/{number}"):
        await asyncio.sleep(0.01)


@tasks.task(queue="f:fair", retry=PATIENT, timeout=SOON)
async def fairly(ctx: ms.Context) -> None:
    with attempt(ctx):
        await asyncio.sleep(0.02)


@tasks.task(needs=("depot",), retry=PATIENT, timeout=SOON)
async def fetch(ctx: ms.Context) -> None:
    with attempt(ctx):
        if (folder() / "away").exists():
            raise ConnectionError("the depot does not answer")
        await asyncio.sleep(0.001)


@tasks.task(needs=("point:{point}",), retry=PATIENT, timeout=SOON)
async def deliver(ctx: ms.Context, *, point: int) -> None:
    with attempt(ctx, point):
        if point == 0 and (folder() / "away").exists():
            raise ConnectionError("this point does not answer")


@tasks.task(retry=PATIENT, timeout=SOON)
async def doze(ctx: ms.Context, *, times: int) -> None:
    with attempt(ctx):
        done = await ctx.resume_from(0)
        if done < times:
            await ctx.checkpoint(done + 1)
            raise ms.Snooze(0.3)


@tasks.task(retry=PATIENT, timeout=SOON)
async def come_back(ctx: ms.Context, *, after: float) -> None:
    with attempt(ctx):
        if not await ctx.resume_from(0):
            await ctx.checkpoint(1)
            raise ms.RetryAfter(after)


@tasks.task(retry=PATIENT, timeout=SOON)
async def climb(ctx: ms.Context, *, steps: int) -> None:
    """What a step has returned once it returns always."""
    with attempt(ctx):
        for number in range(steps):
            say("kept", ctx.job.id, number, await ctx.step(f"{number}", lambda: str(uuid4())))
            await ctx.progress(number + 1, steps)
            await asyncio.sleep(0.02)


@tasks.task(cpu=True, retry=PATIENT, timeout=SOON)
def crunch(*, name: str) -> int:
    say("crunched", name)
    return sum(number * number for number in range(20_000))


@tasks.task(retry=PATIENT, timeout=SOON)
def plod(ctx: ms.SyncContext, *, pause: float) -> None:
    with attempt(ctx):
        time.sleep(pause)


@tasks.task(retry=PATIENT, timeout=SOON)
async def tick(ctx: ms.Context, *, instant: datetime) -> None:
    with attempt(ctx, instant.timestamp()):
        pass


@tasks.task(retry=PATIENT, timeout=SOON)
async def part(ctx: ms.Context, *, whole: str, place: str) -> None:
    """A job of a flow or a batch: parents are `p`, who waits for them is `c`."""
    with attempt(ctx, f"{whole}/{place}"):
        await asyncio.sleep(0.02)
        if place == "c":
            said = [job.state for job in await ctx.parents()]
            batch = await ctx.batch()
            say("waited", ctx.job.id, "-".join(said), batch.ended if batch else 0, batch.total if batch else 0)


@tasks.task(retry=PATIENT, timeout=SOON)
async def version(ctx: ms.Context, *, key: str, number: int) -> None:
    """A key's latest word."""
    with attempt(ctx, f"{key}/{number}"):
        await asyncio.sleep(0.05)


@tasks.task(dedupe=ms.dedupe.debounce("{key}", wait=timedelta(seconds=0.5)), retry=PATIENT, timeout=SOON)
async def quieten(ctx: ms.Context, *, key: str, number: int) -> None:
    """A key's latest word, once nobody has said another for a while."""
    with attempt(ctx, f"{key}/{number}"):
        pass


@tasks.task(dedupe=ms.dedupe.window("{key}", ttl=timedelta(seconds=1)), retry=PATIENT, timeout=SOON)
async def seldom(ctx: ms.Context, *, key: str) -> None:
    with attempt(ctx, key):
        await asyncio.sleep(0.02)


@tasks.task(retry=PATIENT, timeout=SOON)
async def mend(ctx: ms.Context, *, good: bool) -> None:
    with attempt(ctx):
        if not good:
            raise ms.Permanent("not yet")


@tasks.task(retry=PATIENT, timeout=SOON)
async def broken(ctx: ms.Context) -> None:
    """Fails until somebody has mended it: then its dead letters are replayed."""
    with attempt(ctx):
        if not (folder() / "mended").exists():
            raise ms.Permanent("the new release has a bug")


@tasks.task(retry=PATIENT, timeout=SOON)
async def linger(ctx: ms.Context) -> None:
    with attempt(ctx):
        for _ in range(10):
            await asyncio.sleep(0.1)
            ctx.check()


@tasks.task(retry=PATIENT, timeout=SOON)
def leak(ctx: ms.SyncContext) -> None:
    """Leaves a thread behind, which nobody will ever join."""
    with attempt(ctx):
        threading.Thread(target=time.sleep, args=[5.0], daemon=True).start()


@tasks.task(retry=PATIENT, timeout=SOON)
async def nonsense(ctx: ms.Context) -> object:
    """What it returns no JSON can hold: its own mistake, told as such."""
    with attempt(ctx):
        circle: list[object] = [object(), {1, 2}, float("nan"), "\ud800"]
        circle.append(circle)
        return circle


# -- doomed -----------------------------------------------------------------------------------------------------------


@tasks.task(timeout=SOON)
async def kill(ctx: ms.Context) -> None:
    with attempt(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@tasks.task(timeout=SOON)
def kill_in_thread(ctx: ms.SyncContext) -> None:
    with attempt(ctx):
        os.kill(os.getpid(), signal.SIGKILL)


@tasks.task(retry=TWICE, timeout=SOON)
async def harm(ctx: ms.Context, *, kind: str) -> None:
    with attempt(ctx, kind):
        raise hostile.KINDS[kind]()


@tasks.task(retry=TWICE, timeout=SOON)
def harm_in_thread(ctx: ms.SyncContext, *, kind: str) -> None:
    with attempt(ctx, kind):
        raise hostile.KINDS[kind]()


@tasks.task(timeout=SOON)
async def block(ctx: ms.Context) -> None:
    """Stand on the event loop for longer than the lease."""
    with attempt(ctx):
        time.sleep(Orders.found().plan.lease * 1.6)


@tasks.task(retry=TWICE, timeout=timedelta(seconds=1))
async def swallow(ctx: ms.Context) -> None:
    """Too late, and deaf to whoever says so."""
    with attempt(ctx):
        until = time.monotonic() + 2.5
        while time.monotonic() < until:
            try:
                await asyncio.sleep(0.1)
            except asyncio.CancelledError:
                continue


# -- the application --------------------------------------------------------------------------------------------------


def tick_every_second() -> None:
    tasks.schedule(TICKING, ms.every(seconds=1), tick, catch_up="all")


def hello(events: Sequence[Event]) -> None:
    """Say that this worker begins."""
    for event in events:
        if isinstance(event, WorkerStarted):
            say("hello", os.getpid())


LIMITS: list[Limit | Fair] = [
    *(ms.rate(f"r:{name}", most, per=timedelta(seconds=per)) for name, (most, per) in RATES.items()),
    ms.concurrency("c:slots", SLOTS),
    ms.in_order(task="change"),
    ms.fair("f:fair", weights={"b": 2}),
]
BREAKERS = [ms.breaker(name, failures=3, pause=timedelta(seconds=PAUSE)) for name in ("depot", "point")]
