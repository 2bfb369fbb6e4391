"""One connection for the quiet services, reopened when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg

from mainspring.db.wire.connect import AsyncConnection, options

T = TypeVar("T")


class SharedConnection:
    """A connection that its users take in turn, an answer in `patience` seconds at most."""

    def __init__(self, dsn: str, name: str, *, prepare: bool, patience: float = 15.0) -> None:
        self._dsn = dsn
        self._options = options(dsn, name, prepare=prepare) | {"answered_within": patience}
        self._lock = asyncio.Lock()
        self._conn: AsyncConnection | None = None

    async def use(self, do: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Do something in the database; after an error the next one gets a new connection."""
        async with self._lock:
            if self._conn is not None and self._conn.stale:
                await self._conn.close()
            if self._conn is None or self._conn.closed:
                self._conn = await AsyncConnection.connect(self._dsn, **self._options)
            try:
                return await do(self._conn)
            except BaseException:
                await self._conn.close()
                raise

    async def close(self) -> None:
        """Hang up."""
        async with self._lock:
            if self._conn is not None:
                await self._conn.close()
