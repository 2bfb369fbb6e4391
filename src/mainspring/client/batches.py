"""Batches in both colours: `client.batches`. Each method is one line over a flow of `mainspring.db`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

from mainspring.batch import Batch
from mainspring.db import batches
from mainspring.job import Enqueued, Job, NewJob

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncClient
    from mainspring.client.sync import Client

# Named here, because inside the classes `list` is a method.
Found: TypeAlias = list[Batch]
Jobs: TypeAlias = list[Job]
Answers: TypeAlias = list[Enqueued]


class Batches:
    """Jobs that are counted together; `client.enqueue(ms.batch(...))` begins a batch.

    ::

        client.batches.get(batch_id).percent
        client.batches.retry_failed(batch_id, reason="the supplier is back")
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def get(self, batch: UUID, *, org: str | None = None, conn: Any = None) -> Batch:
        """One batch with its counts, or BatchNotFound."""
        c = self._client
        return c._run(batches.get(c._sql, batch, c._who(org)), conn)

    def list(
        self,
        *,
        state: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Found:
        """Batches, newest first; `before` continues after the last one seen."""
        c = self._client
        return c._run(batches.listing(c._sql, c._who(org), state=state, before=before, limit=limit), conn)

    def members(
        self,
        batch: UUID,
        *,
        state: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Jobs:
        """The jobs of a batch with their results and errors, newest first; `before` continues after the last one."""
        c = self._client
        found = c._run(batches.members(c._sql, batch, c._who(org), state=state, before=before, limit=limit), conn)
        return [c._shown(job) for job in found]

    def add(self, batch: UUID, jobs: Sequence[NewJob], *, org: str | None = None, conn: Any = None) -> Answers:
        """Enqueue more jobs into a batch that has not finished, all or none."""
        c = self._client
        wanted = c._complete(jobs)
        if c._ring.cipher is not None:
            wanted = c._ring.sealed(wanted)
        flow = batches.add(c._sql, batch, batches.org_of(wanted, c._who(org).org_id), wanted)
        return c._tell(wanted, c._run(flow, conn), conn)

    def close(self, batch: UUID, *, org: str | None = None, conn: Any = None) -> None:
        """Say that no more will be added: an open batch finishes when its jobs have ended."""
        c = self._client
        return c._run(batches.close(c._sql, batch, c._who(org)), conn)

    def retry_failed(self, batch: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> int:
        """Replay the jobs of a batch that failed or died, and only those; returns how many."""
        c = self._client
        return c._run(batches.retry_failed(c._sql, batch, c._who(org), reason), conn)

    def cancel(self, batch: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> None:
        """Cancel what has not started of a batch, and ask what runs to stop."""
        c = self._client
        return c._run(batches.cancel(c._sql, batch, c._who(org), reason), conn)


class AsyncBatches:
    """Jobs that are counted together; `await client.enqueue(ms.batch(...))` begins a batch.

    ::

        (await client.batches.get(batch_id)).percent
        await client.batches.retry_failed(batch_id, reason="the supplier is back")
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def get(self, batch: UUID, *, org: str | None = None, conn: Any = None) -> Batch:
        """One batch with its counts, or BatchNotFound."""
        c = self._client
        return await c._run(batches.get(c._sql, batch, c._who(org)), conn)

    async def list(
        self,
        *,
        state: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Found:
        """Batches, newest first; `before` continues after the last one seen."""
        c = self._client
        return await c._run(batches.listing(c._sql, c._who(org), state=state, before=before, limit=limit), conn)

    async def members(
        self,
        batch: UUID,
        *,
        state: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Jobs:
        """The jobs of a batch with their results and errors, newest first; `before` continues after the last one."""
        c = self._client
        found = await c._run(batches.members(c._sql, batch, c._who(org), state=state, before=before, limit=limit), conn)
        return [await c._shown(job) for job in found]

    async def add(self, batch: UUID, jobs: Sequence[NewJob], *, org: str | None = None, conn: Any = None) -> Answers:
        """Enqueue more jobs into a batch that has not finished, all or none."""
        c = self._client
        wanted = c._complete(jobs)
        if c._ring.cipher is not None:
            wanted = await c._sealed(wanted)
        flow = batches.add(c._sql, batch, batches.org_of(wanted, c._who(org).org_id), wanted)
        return c._tell(wanted, await c._run(flow, conn), conn)

    async def close(self, batch: UUID, *, org: str | None = None, conn: Any = None) -> None:
        """Say that no more will be added: an open batch finishes when its jobs have ended."""
        c = self._client
        return await c._run(batches.close(c._sql, batch, c._who(org)), conn)

    async def retry_failed(self, batch: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> int:
        """Replay the jobs of a batch that failed or died, and only those; returns how many."""
        c = self._client
        return await c._run(batches.retry_failed(c._sql, batch, c._who(org), reason), conn)

    async def cancel(self, batch: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> None:
        """Cancel what has not started of a batch, and ask what runs to stop."""
        c = self._client
        return await c._run(batches.cancel(c._sql, batch, c._who(org), reason), conn)
