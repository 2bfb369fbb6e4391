"""What wakes the exchange; made first and given to every part that has something for it."""

from __future__ import annotations

import asyncio


class Signal(asyncio.Event):
    """Set when there is something to write, or room for more; with a note where that asks for more than a look."""

    def __init__(self) -> None:
        super().__init__()
        self.hinted = False  # there is work, somebody says
        self.polls = False  # a poll is worth it at once
        self.freed = False  # a place under a limit is free: every crew may get it, whatever its last claim brought

    def hint(self) -> None:
        """There is work, somebody says."""
        self.hinted = True
        self.set()

    def poll(self) -> None:
        """Look at everything now."""
        self.polls = True
        self.set()

    async def sleep(self, seconds: float) -> None:
        """Until it is set, or so long. Cheaper than asyncio.wait_for, which makes a task each time."""
        self.clear()
        timer = asyncio.get_running_loop().call_later(seconds, self.set)
        try:
            await self.wait()
        finally:
            timer.cancel()
