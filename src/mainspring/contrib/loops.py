"""What belongs to an event loop, such as a pool of connections: made in it when first needed, let go when it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import suppress
from typing import Generic, Protocol, TypeVar


class Closable(Protocol):
    """Something that must be let go of in the loop that made it."""

    async def aclose(self) -> None:
        """Let go."""


T = TypeVar("T", bound=Closable)


class PerLoop(Generic[T]):
    """One of a kind in each event loop.

    It is held by an asynchronous generator, which a loop closes before it ends: so nobody has to remember it.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._held: dict[asyncio.AbstractEventLoop, tuple[T, AsyncGenerator[None, None]]] = {}

    async def get(self) -> T:
        """The one of this loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._held:
            made = self._make()
            life = self._life(loop, made)
            self._held[loop] = made, life
            await anext(life)  # does not wait: nobody comes between
        return self._held[loop][0]

    async def close(self) -> None:
        """Let go of the one of this loop."""
        held = self._held.get(asyncio.get_running_loop())
        if held is not None:
            await held[1].aclose()

    async def _life(self, loop: asyncio.AbstractEventLoop, made: T) -> AsyncGenerator[None, None]:
        try:
            yield
        finally:
            self._held.pop(loop, None)
            with suppress(OSError):
                await made.aclose()
