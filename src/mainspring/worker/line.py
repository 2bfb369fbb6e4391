"""One connection for the quiet services, reopened when it is lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import psycopg

from mainspring.db.connect import options

T = TypeVar("T")


class Line:
    """A connection that its users take in turn."""

    def __init__(self, dsn: str, name: str, *, prepare: bool) -> None:
        self._dsn, self._name, self._prepare = dsn, name, prepare
        self._lock = asyncio.Lock()
        self._conn: psycopg.AsyncConnection[Any] | None = None

    async def use(self, talk: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        """Talk to the database; after an error the next one gets a new connection."""
        async with self._lock:
            if self._conn is None or self._conn.closed:
                arguments = options(self._dsn, self._name, prepare=self._prepare)
                self._conn = await psycopg.AsyncConnection.connect(self._dsn, **arguments)
            try:
                return await talk(self._conn)
            except BaseException:
                await self._conn.close()
                raise

    async def close(self) -> None:
        """Hang up."""
        async with self._lock:
            if self._conn is not None:
                await self._conn.close()
