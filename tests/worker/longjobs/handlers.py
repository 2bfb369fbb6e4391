"""One script as a handler of either colour."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any

from mainspring import Context, Registry, SyncContext
from mainspring.declare.task import Task

VERBS = {"step", "checkpoint", "resume_from", "progress", "enqueue"}
Script = Callable[[Any], Coroutine[Any, Any, Any]]


class Plain:
    """A plain handler's context, whose verbs can be awaited: they answer at once."""

    def __init__(self, ctx: SyncContext) -> None:
        self._ctx = ctx

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._ctx, name)

        async def answer(*args: Any, **kwargs: Any) -> Any:
            return value(*args, **kwargs)

        return answer if name in VERBS else value


def declare(tasks: Registry, colour: str, script: Script, **options: Any) -> Task[Any, Any]:
    """A task `work` whose handler is the script, as an async function, or as a plain one in a thread."""

    async def in_loop(ctx: Context) -> Any:
        return await script(ctx)

    def in_thread(ctx: SyncContext) -> Any:
        coroutine = script(Plain(ctx))
        try:
            coroutine.send(None)
        except StopIteration as end:
            return end.value
        raise AssertionError("a plain handler waits for nothing")

    task: Task[Any, Any] = tasks.task(name="work", **options)(in_loop if colour == "async" else in_thread)
    return task


async def until(flag: threading.Event) -> None:
    """Wait for a flag: in a thread by blocking it, in the loop without."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        assert flag.wait(60)
        return
    while not flag.is_set():
        await asyncio.sleep(0.005)
