"""Plain handlers called in the thread of the test or the simulation, where Ctrl-C arrives."""

from __future__ import annotations

import _thread
import asyncio
import threading
from concurrent.futures import Executor
from contextlib import suppress
from typing import Any

import pytest

from mainspring.virtual.calling_thread import run_from_thread


def test_ctrl_c_inside_of_a_handler_ends_everything() -> None:
    ended: list[str] = []

    def handler() -> None:
        raise KeyboardInterrupt

    async def main(executor: Executor) -> Any:
        loop = asyncio.get_running_loop()
        try:
            with pytest.raises(KeyboardInterrupt):
                await loop.run_in_executor(executor, handler)
            await asyncio.sleep(3600)  # as a simulation would go on
        finally:
            ended.append(threading.current_thread().name)

    with pytest.raises(KeyboardInterrupt):
        run_from_thread(main)

    assert len(ended) == 1


def test_ctrl_c_between_two_handlers_does_not_leave_the_next_one_waiting_for_its_thread() -> None:
    ended: list[str] = []

    async def main(executor: Executor) -> None:
        loop = asyncio.get_running_loop()
        interrupt = loop.run_in_executor(executor, _thread.interrupt_main)
        queued = loop.run_in_executor(executor, lambda: ended.append("ran"))
        try:
            await asyncio.gather(interrupt, asyncio.sleep(3600))
        finally:
            with suppress(asyncio.CancelledError):  # as a worker does, which cannot stop a thread
                await asyncio.shield(queued)
            with suppress(asyncio.CancelledError):
                await loop.run_in_executor(executor, lambda: ended.append("ran later"))
            ended.append("ended")

    with pytest.raises(KeyboardInterrupt):
        run_from_thread(main)

    assert ended[-1] == "ended"
    assert "ran later" not in ended


def test_other_errors_of_a_handler_are_the_handlers() -> None:
    def handler() -> None:
        raise SystemExit(3)

    async def main(executor: Executor) -> str:
        with pytest.raises(SystemExit):
            await asyncio.get_running_loop().run_in_executor(executor, handler)
        return "went on"

    assert run_from_thread(main) == "went on"


def test_ctrl_c_is_said_again_until_it_is_heard() -> None:
    swallowed: list[str] = []

    async def main(threads: Executor) -> None:
        asyncio.get_running_loop().run_in_executor(threads, interrupt)
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            swallowed.append("once")
        await asyncio.sleep(60)

    def interrupt() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_from_thread(main)
    assert swallowed == ["once"]
