"""The application of these tests."""

from __future__ import annotations

import asyncio
import time

import mainspring as ms

tasks = ms.Registry("shop")


@tasks.task
async def greet(*, name: str, times: int = 1) -> str:
    """Greet somebody."""
    return "hello " * times + name


@tasks.task(queue="q:exports", retry=ms.fixed(60, attempts=1))
async def fail(*, text: str) -> None:
    """Fail at once."""
    raise RuntimeError(text)


@tasks.task
async def slow(*, seconds: float) -> None:
    """Take some time."""
    await asyncio.sleep(seconds)


@tasks.task
def stuck(*, seconds: float) -> None:
    """Take some time in a thread that nothing can stop."""
    time.sleep(seconds)


app = ms.App(tasks)
