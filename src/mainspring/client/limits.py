"""Limits, in both colours."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from mainspring.db import limits
from mainspring.db.limits import FairRow, LimitRow
from mainspring.limit import Limit

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncClient
    from mainspring.client.sync import Client

Rows: TypeAlias = list[LimitRow]
Turns: TypeAlias = list[FairRow]


class Limits:
    """How many jobs may start, and run at once: what holds, and changes at run time, which win over the code.

    ::

        client.limits.set(ms.rate("weekly-payments", 20, per="1s"), reason="the bank asked for it")
        client.limits.reset("rate:weekly-payments", reason="the bank is well again")
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(self, *, conn: Any = None) -> Rows:
        """Every limit, what it has let in, and how many jobs wait because of it."""
        return self._client._run(limits.listing(self._client._sql), conn)

    def get(self, name: str, *, conn: Any = None) -> LimitRow:
        """One limit."""
        return self._client._run(limits.get(self._client._sql, name), conn)

    def set(self, limit: Limit, *, reason: str | None = None, conn: Any = None) -> None:
        """Let a limit hold from now on, also for what waits already."""
        return self._client._run(limits.put(self._client._sql, limit, self._client._who(), reason), conn)

    def drop(self, name: str, *, reason: str | None = None, conn: Any = None) -> None:
        """Take a limit away; one that the code declares comes back when a worker starts."""
        return self._client._run(limits.drop(self._client._sql, name, self._client._who(), reason), conn)

    def reset(self, name: str, *, reason: str | None = None, conn: Any = None) -> bool:
        """Let what the code declares hold again; False when nobody had said otherwise."""
        return self._client._run(limits.reset(self._client._sql, name, self._client._who(), reason), conn)

    def fair(
        self, queue: str, *, weights: Mapping[str, int] | None = None, reason: str | None = None, conn: Any = None
    ) -> None:
        """Let the organisations of a queue take turns."""
        flow = limits.take_turns(self._client._sql, queue, weights, self._client._who(), reason)
        return self._client._run(flow, conn)

    def unfair(self, queue: str, *, reason: str | None = None, conn: Any = None) -> bool:
        """Let the jobs of a queue start by their due time again; False when its organisations did not take turns."""
        return self._client._run(limits.by_due_time(self._client._sql, queue, self._client._who(), reason), conn)

    def turns(self, *, conn: Any = None) -> Turns:
        """Every queue whose organisations take turns."""
        return self._client._run(limits.turns(self._client._sql), conn)

    def depth(self, queue: str, most: int | None, *, reason: str | None = None, conn: Any = None) -> None:
        """Refuse best-effort jobs of a queue while so many are ready; None: take them all."""
        return self._client._run(limits.limit_depth(self._client._sql, queue, most, self._client._who(), reason), conn)


class AsyncLimits:
    """How many jobs may start, and run at once: what holds, and changes at run time, which win over the code.

    ::

        await client.limits.set(ms.rate("weekly-payments", 20, per="1s"), reason="the bank asked for it")
        await client.limits.reset("rate:weekly-payments", reason="the bank is well again")
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list(self, *, conn: Any = None) -> Rows:
        """Every limit, what it has let in, and how many jobs wait because of it."""
        return await self._client._run(limits.listing(self._client._sql), conn)

    async def get(self, name: str, *, conn: Any = None) -> LimitRow:
        """One limit."""
        return await self._client._run(limits.get(self._client._sql, name), conn)

    async def set(self, limit: Limit, *, reason: str | None = None, conn: Any = None) -> None:
        """Let a limit hold from now on, also for what waits already."""
        return await self._client._run(limits.put(self._client._sql, limit, self._client._who(), reason), conn)

    async def drop(self, name: str, *, reason: str | None = None, conn: Any = None) -> None:
        """Take a limit away; one that the code declares comes back when a worker starts."""
        return await self._client._run(limits.drop(self._client._sql, name, self._client._who(), reason), conn)

    async def reset(self, name: str, *, reason: str | None = None, conn: Any = None) -> bool:
        """Let what the code declares hold again; False when nobody had said otherwise."""
        return await self._client._run(limits.reset(self._client._sql, name, self._client._who(), reason), conn)

    async def fair(
        self, queue: str, *, weights: Mapping[str, int] | None = None, reason: str | None = None, conn: Any = None
    ) -> None:
        """Let the organisations of a queue take turns."""
        flow = limits.take_turns(self._client._sql, queue, weights, self._client._who(), reason)
        return await self._client._run(flow, conn)

    async def unfair(self, queue: str, *, reason: str | None = None, conn: Any = None) -> bool:
        """Let the jobs of a queue start by their due time again; False when its organisations did not take turns."""
        return await self._client._run(limits.by_due_time(self._client._sql, queue, self._client._who(), reason), conn)

    async def turns(self, *, conn: Any = None) -> Turns:
        """Every queue whose organisations take turns."""
        return await self._client._run(limits.turns(self._client._sql), conn)

    async def depth(self, queue: str, most: int | None, *, reason: str | None = None, conn: Any = None) -> None:
        """Refuse best-effort jobs of a queue while so many are ready; None: take them all."""
        flow = limits.limit_depth(self._client._sql, queue, most, self._client._who(), reason)
        return await self._client._run(flow, conn)
