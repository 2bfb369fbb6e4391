"""Hints from elsewhere, such as a broker, beside the database's own."""

from __future__ import annotations

from collections.abc import Callable

from mainspring.block import Trigger
from mainspring.worker.service import Service

AGAIN = 1.0  # seconds until a trigger that has ended listens again


class Triggered(Service):
    """Listens to a trigger as long as the worker works; a trigger that fails is begun anew, and harms nobody."""

    def __init__(self, trigger: Trigger, woke: Callable[[], None]) -> None:
        super().__init__(AGAIN)
        self._trigger, self._woke = trigger, woke

    async def tick(self) -> None:
        """Listen until it ends."""
        await self._trigger.listen(self._woke)
