"""An application's own clients, made when the first is needed: what `task.enqueue` sends by."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from mainspring.client.aio import AsyncClient
from mainspring.client.sync import Client


class OwnClients:
    """One client for sync code, and one for each event loop; others when the database is another one."""

    def __init__(self) -> None:
        self._sync: Client | None = None
        self._by_loop: dict[asyncio.AbstractEventLoop, AsyncClient] = {}
        self._lock = threading.Lock()

    def sync(self, dsn: str, make: Callable[[], Client]) -> Client:
        """The client for sync code."""
        with self._lock:
            if self._sync is not None and self._sync.dsn != dsn:
                self._sync.close()
                self._sync = None
            self._sync = self._sync or make()
            return self._sync

    def of_loop(self, dsn: str, make: Callable[[], AsyncClient]) -> AsyncClient:
        """The client for the event loop that runs here."""
        with self._lock:
            self._by_loop = {loop: client for loop, client in self._by_loop.items() if not loop.is_closed()}
            loop = asyncio.get_running_loop()
            known = self._by_loop.get(loop)
            if known is None or known.dsn != dsn:
                known = self._by_loop[loop] = make()
            return known

    def close(self) -> None:
        """Close the client for sync code."""
        with self._lock:
            known, self._sync = self._sync, None
        if known is not None:
            known.close()

    async def aclose(self) -> None:
        """Close it, and that of the event loop that runs here."""
        self.close()
        with self._lock:
            known = self._by_loop.pop(asyncio.get_running_loop(), None)
        if known is not None:
            await known.close()
