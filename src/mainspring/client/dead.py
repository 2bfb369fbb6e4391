"""Dead letters in both colours: `client.dead`. Each method is one line over a flow of `mainspring.db`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, Unpack
from uuid import UUID

from mainspring.db import bulk, dead, decisions
from mainspring.db.bulk import Bulk
from mainspring.db.dead import Case, DeadLetter, Group, Only, Size
from mainspring.db.decisions import Fix
from mainspring.db.readable import key_in, readable_case
from mainspring.task import Task

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncClient
    from mainspring.client.sync import Client

# Named here, because inside the classes `list` is a method.
Letters: TypeAlias = list[DeadLetter]
Groups: TypeAlias = list[Group]
Sizes: TypeAlias = list[Size]


class DeadLetters:
    """Failed and dead jobs that nobody has decided about, and the three decisions: replay, discard, fix.

    ::

        client.dead.groups()
        client.dead.replay_many(fingerprint="5f0c4e7a91b2", rate=10, reason="the supplier is back")
        client.dead.fix(job_id, set={"cents": 1250}, task=place_order, reason="the till sent euros")
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def list(
        self,
        *,
        limit: int = 50,
        before: UUID | None = None,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Letters:
        """Open dead letters, newest first; `before` continues after the last one seen."""
        c = self._client
        return c._run(dead.listing(c._sql, c._who(org), only, limit=limit, before=before), conn)

    def groups(self, *, limit: int = 50, org: str | None = None, conn: Any = None, **only: Unpack[Only]) -> Groups:
        """Open dead letters by what their errors have in common, the most frequent first."""
        c = self._client
        return c._run(dead.groups(c._sql, c._who(org), only, limit=limit), conn)

    def summary(self, *, org: str | None = None, conn: Any = None) -> Sizes:
        """How many are open and how old the oldest is, by task and queue; cheap enough for metrics."""
        c = self._client
        return c._run(dead.summary(c._sql, c._who(org)), conn)

    def show(self, job: UUID, *, org: str | None = None, conn: Any = None) -> Case:
        """One failed or dead job: every attempt with its error, what the error means and what to do."""
        c = self._client
        case = c._run(dead.show(c._sql, job, c._who(org)), conn)
        key = key_in(case.job)
        return case if key is None else readable_case(case, c._keys(case.job, key))

    def replay(self, job: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> None:
        """Make a failed or dead job ready again, attempts 0."""
        c = self._client
        return c._run(decisions.replay(c._sql, job, c._who(org), reason), conn)

    def discard(self, job: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> None:
        """Take a dead letter off the open list; the job stays as it is."""
        c = self._client
        return c._run(decisions.discard(c._sql, job, c._who(org), reason), conn)

    def fix(
        self,
        job: UUID,
        *,
        reason: str,
        payload: Mapping[str, Any] | None = None,
        set: Mapping[str, Any] | None = None,
        unset: Sequence[str] = (),
        task: Task[..., Any] | None = None,
        dry_run: bool = False,
        org: str | None = None,
        conn: Any = None,
    ) -> Fix:
        """Enqueue a successor with a corrected payload: a whole one, or the old one with fields set and unset.

        With `task` the payload is checked against its types. A dry run shows the difference and writes nothing.
        """
        c = self._client
        how: dict[str, Any] = {"payload": payload, "set": set, "unset": unset, "task": task, "dry_run": dry_run}
        how["ring"] = c._ring
        return c._run(decisions.fix(c._sql, job, c._who(org), reason, **how), conn)

    def replay_many(
        self,
        *,
        reason: str | None = None,
        rate: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Bulk:
        """Replay the dead letters that are meant, oldest first, at most `limit`; `rate` a second are due.

        A dry run counts them; only it needs no reason.
        """
        c = self._client
        how: dict[str, Any] = {"rate": rate, "limit": limit, "dry_run": dry_run}
        return c._run(bulk.act(c._sql, "replay", c._who(org), only, reason, **how), conn)

    def discard_many(
        self,
        *,
        reason: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Bulk:
        """Discard the dead letters that are meant, oldest first, at most `limit`; a dry run counts them."""
        c = self._client
        return c._run(bulk.act(c._sql, "discard", c._who(org), only, reason, limit=limit, dry_run=dry_run), conn)


class AsyncDeadLetters:
    """Failed and dead jobs that nobody has decided about, and the three decisions: replay, discard, fix.

    ::

        await client.dead.groups()
        await client.dead.replay_many(fingerprint="5f0c4e7a91b2", rate=10, reason="the supplier is back")
        await client.dead.fix(job_id, set={"cents": 1250}, task=place_order, reason="the till sent euros")
    """

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def list(
        self,
        *,
        limit: int = 50,
        before: UUID | None = None,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Letters:
        """Open dead letters, newest first; `before` continues after the last one seen."""
        c = self._client
        return await c._run(dead.listing(c._sql, c._who(org), only, limit=limit, before=before), conn)

    async def groups(
        self, *, limit: int = 50, org: str | None = None, conn: Any = None, **only: Unpack[Only]
    ) -> Groups:
        """Open dead letters by what their errors have in common, the most frequent first."""
        c = self._client
        return await c._run(dead.groups(c._sql, c._who(org), only, limit=limit), conn)

    async def summary(self, *, org: str | None = None, conn: Any = None) -> Sizes:
        """How many are open and how old the oldest is, by task and queue; cheap enough for metrics."""
        c = self._client
        return await c._run(dead.summary(c._sql, c._who(org)), conn)

    async def show(self, job: UUID, *, org: str | None = None, conn: Any = None) -> Case:
        """One failed or dead job: every attempt with its error, what the error means and what to do."""
        c = self._client
        case = await c._run(dead.show(c._sql, job, c._who(org)), conn)
        key = key_in(case.job)
        return case if key is None else readable_case(case, await c._keys(case.job, key))

    async def replay(self, job: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> None:
        """Make a failed or dead job ready again, attempts 0."""
        c = self._client
        return await c._run(decisions.replay(c._sql, job, c._who(org), reason), conn)

    async def discard(self, job: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> None:
        """Take a dead letter off the open list; the job stays as it is."""
        c = self._client
        return await c._run(decisions.discard(c._sql, job, c._who(org), reason), conn)

    async def fix(
        self,
        job: UUID,
        *,
        reason: str,
        payload: Mapping[str, Any] | None = None,
        set: Mapping[str, Any] | None = None,
        unset: Sequence[str] = (),
        task: Task[..., Any] | None = None,
        dry_run: bool = False,
        org: str | None = None,
        conn: Any = None,
    ) -> Fix:
        """Enqueue a successor with a corrected payload: a whole one, or the old one with fields set and unset.

        With `task` the payload is checked against its types. A dry run shows the difference and writes nothing.
        """
        c = self._client
        how: dict[str, Any] = {"payload": payload, "set": set, "unset": unset, "task": task, "dry_run": dry_run}
        if c._ring.cipher is not None:  # take its keys first: the flow must not wait for them
            await c.get(job, org=org, conn=conn)
        how["ring"] = c._ring
        return await c._run(decisions.fix(c._sql, job, c._who(org), reason, **how), conn)

    async def replay_many(
        self,
        *,
        reason: str | None = None,
        rate: float | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Bulk:
        """Replay the dead letters that are meant, oldest first, at most `limit`; `rate` a second are due.

        A dry run counts them; only it needs no reason.
        """
        c = self._client
        how: dict[str, Any] = {"rate": rate, "limit": limit, "dry_run": dry_run}
        return await c._run(bulk.act(c._sql, "replay", c._who(org), only, reason, **how), conn)

    async def discard_many(
        self,
        *,
        reason: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Bulk:
        """Discard the dead letters that are meant, oldest first, at most `limit`; a dry run counts them."""
        c = self._client
        return await c._run(bulk.act(c._sql, "discard", c._who(org), only, reason, limit=limit, dry_run=dry_run), conn)
