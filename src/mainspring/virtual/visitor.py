"""Others who act while time passes, such as a provider who sends its webhooks two seconds after a charge."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import datetime
from typing import Protocol


class Visitor(Protocol):
    """Somebody who acts at instants of their own, at which time stops for them.

    ::

        class Customer:
            '''Orders at noon.'''

            def __init__(self, noon: datetime) -> None:
                self.noon: datetime | None = noon

            def next_at(self, now: datetime) -> datetime | None:
                return self.noon

            def visit(self, now: datetime) -> None:
                self.noon = None
                client.enqueue(order.job(order_id=7))


        mainspring.visitors.append(Customer(noon))
        mainspring.advance(hours=24)
    """

    def next_at(self, now: datetime) -> datetime | None:
        """When it wants to act next; None: not for now. Asked often, in any thread: it only looks."""

    def visit(self, now: datetime) -> object:
        """Act; runs where plain handlers do, or in the loop if it is async."""


class Visitors:
    """Those who visit, by one clock."""

    def __init__(
        self, found: Sequence[Visitor] = (), now: Callable[[], datetime] | None = None, threads: Executor | None = None
    ) -> None:
        self._found, self._now, self._threads = found, now, threads

    def next_at(self) -> datetime | None:
        """When the next of them wants to act."""
        if not self._found or self._now is None:
            return None
        now = self._now()
        return min((at for visitor in self._found if (at := visitor.next_at(now)) is not None), default=None)

    async def visit(self) -> bool:
        """Let those act whose time has come, in order; whether anybody did."""
        if not self._found or self._now is None:
            return False
        now = self._now()
        due = [visitor for visitor in self._found if (at := visitor.next_at(now)) is not None and at <= now]
        for visitor in due:
            done = await asyncio.get_running_loop().run_in_executor(self._threads, visitor.visit, now)
            if inspect.isawaitable(done):
                await done
        return bool(due)
