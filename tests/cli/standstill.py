"""An application whose jobs stop the event loop of their worker."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import sys
import time
from contextlib import suppress
from datetime import timedelta

import mainspring as ms

tasks = ms.Registry("standstill")


@tasks.task(retry=ms.fixed(0, attempts=1))
async def block(*, seconds: float) -> None:
    """Stand on the event loop."""
    time.sleep(seconds)


@tasks.task(retry=ms.fixed(0, attempts=1))
async def seize(*, seconds: int) -> None:
    """Hold the interpreter's lock, inside of C."""
    ctypes.PyDLL(None).sleep(seconds)


@tasks.task(retry=ms.fixed(0, attempts=1))
async def leave(*, code: int) -> None:
    """End the process."""
    os._exit(code)


@tasks.task(retry=ms.fixed(0, attempts=1))
async def escape(*, how: str) -> None:
    """End the event loop, from a task of its own."""

    async def part() -> None:
        if how == "exit":
            sys.exit(2)
        elif how == "stop":
            asyncio.get_running_loop().stop()
        else:
            for task in asyncio.all_tasks():
                task.cancel()

    await asyncio.gather(part(), asyncio.sleep(60))


@tasks.task
async def deafen() -> None:
    """Ignore requests to stop from now on."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@tasks.task
async def linger(*, seconds: float) -> None:
    """Wait for a thread of the event loop's own."""
    await asyncio.to_thread(time.sleep, seconds)


@tasks.task
async def deadlock() -> None:
    """Hold the interpreter's lock, inside of C, where no signal reaches."""
    mutex, lock = ctypes.create_string_buffer(64), ctypes.PyDLL(None).pthread_mutex_lock
    while True:
        lock(mutex)


@tasks.task
async def wait(*, seconds: float) -> None:
    """Wait as one should."""
    await asyncio.sleep(seconds)


ONCE = ms.fixed(0, attempts=1)
SOON = timedelta(seconds=0.2)


@tasks.task(retry=ONCE, timeout=SOON)
def overstay() -> None:
    """Work in a thread for longer than allowed."""
    time.sleep(60)


@tasks.task(retry=ONCE, timeout=SOON)
async def swallow() -> None:
    """Go on after being cancelled."""
    while True:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)


@tasks.task
def work(*, seconds: float) -> None:
    """Work in a thread."""
    time.sleep(seconds)


app = ms.App(tasks)
