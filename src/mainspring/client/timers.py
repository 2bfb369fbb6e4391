"""Timers in both colours: `client.timers`. Each method is one line over a flow of `mainspring.db`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.db import timers
from mainspring.db.jobs import CancelOutcome
from mainspring.db.timers import Timer
from mainspring.job import Enqueued, NewJob

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncClient
    from mainspring.client.sync import Client


class Timers:
    """Jobs that start at an instant, addressed by a key: set, moved and cancelled with the business change.

    ::

        client.timers.set(auto_approve.job(time_log_id=9).at(deadline).with_key("auto-approve:9"), conn=conn)
        client.timers.get("auto-approve:9", conn=conn)
        client.timers.cancel("auto-approve:9", conn=conn)
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def set(self, job: NewJob, *, conn: Any = None) -> Enqueued:
        """Set a timer, or move the one under its key, with its payload: `created`, or `replaced` under the old id.

        One that has started is not moved: the new one is created, and starts after it.
        """
        return self._client.enqueue(timers.timer(job), conn=conn)

    def get(self, key: str, *, org: str | None = None, conn: Any = None) -> Timer | None:
        """What is under way for a key, or None; in the caller's transaction it sees what that has done."""
        return self._client._run(timers.get(self._client._sql, key, self._client._who(org)), conn)

    def cancel(self, key: str, *, org: str | None = None, reason: str | None = None, conn: Any = None) -> CancelOutcome:
        """Stop what is under way for a key; the same as `client.cancel(key=...)`."""
        return self._client.cancel(key=key, org=org, reason=reason, conn=conn)


class AsyncTimers:
    """The same for asyncio."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def set(self, job: NewJob, *, conn: Any = None) -> Enqueued:
        """Set a timer, or move the one under its key, with its payload: `created`, or `replaced` under the old id."""
        return await self._client.enqueue(timers.timer(job), conn=conn)

    async def get(self, key: str, *, org: str | None = None, conn: Any = None) -> Timer | None:
        """What is under way for a key, or None; in the caller's transaction it sees what that has done."""
        return await self._client._run(timers.get(self._client._sql, key, self._client._who(org)), conn)

    async def cancel(
        self, key: str, *, org: str | None = None, reason: str | None = None, conn: Any = None
    ) -> CancelOutcome:
        """Stop what is under way for a key; the same as `client.cancel(key=...)`."""
        return await self._client.cancel(key=key, org=org, reason=reason, conn=conn)
