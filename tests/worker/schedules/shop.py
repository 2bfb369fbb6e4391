"""The application of the command line's tests."""

from __future__ import annotations

import mainspring as ms

tasks = ms.Registry("schedules-shop")


@tasks.task
async def greet(*, name: str) -> None:
    """Greet somebody."""


tasks.schedule("hello", ms.daily("08:00"), greet, payload={"name": "world"})

app = ms.App(tasks)
