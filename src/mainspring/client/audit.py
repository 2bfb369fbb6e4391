"""`client.audit`: the trail of who did what, in both colours."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from mainspring.audit import AuditEvent, Head, Verified, written_event
from mainspring.db import audit

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncClient
    from mainspring.client.sync import Client


class Audit:
    """The audit trail, for sync code."""

    def __init__(self, client: Client) -> None:
        self._of = client

    def record(
        self, event: str, detail: Mapping[str, Any] | None = None, *, org: str | None = None, conn: Any = None
    ) -> int:
        """Write an event of your domain, such as `billing.frozen`, in the caller's name; inside a handler by SYSTEM."""
        text = written_event(event, detail or {})
        return self._of._run(audit.record(self._of._sql, event, text, self._of._acting(org)), conn)

    def trail(
        self, job: UUID, *, event: str | None = None, org: str | None = None, conn: Any = None
    ) -> list[AuditEvent]:
        """Everything that happened to a job, in order."""
        return self._of._run(audit.trail(self._of._sql, job, event=event, org=self._of._who(org).org_id), conn)

    def events(
        self,
        *,
        org: str | None = None,
        event: str | None = None,
        actor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
        conn: Any = None,
    ) -> list[AuditEvent]:
        """Stored events, newest first; `before` continues after the id of the last one seen.

        That a job was enqueued, started or succeeded is not stored while the job itself proves it: see `trail`.
        """
        filters: dict[str, Any] = {"event": event, "actor": actor, "since": since, "until": until, "before": before}
        return self._of._run(audit.listing(self._of._sql, org=self._of._who(org).org_id, limit=limit, **filters), conn)

    def seal(self, *, org: str | None = None) -> int:
        """Seal now what workers would seal within a minute; returns how many rows were."""
        return self._of._run(audit.seal(self._of._sql, self._of._who(org).org_id))

    def heads(self, *, org: str | None = None, conn: Any = None) -> list[Head]:
        """The last seal of each organisation: keep their hashes elsewhere."""
        return self._of._run(audit.heads(self._of._sql, self._of._who(org).org_id), conn)

    def verify(
        self,
        *,
        org: str | None = None,
        head: str | None = None,
        progress: audit.Progress = lambda org, seals, rows: None,
        conn: Any = None,
    ) -> list[Verified]:
        """Recompute every seal and say what is not as it was sealed; `head` is a hash that was kept elsewhere."""
        who = self._of._who(org)
        return self._of._run(audit.verify(self._of._sql, org=who.org_id, head=head, progress=progress), conn)


class AsyncAudit:
    """The audit trail, for async code."""

    def __init__(self, client: AsyncClient) -> None:
        self._of = client

    async def record(
        self, event: str, detail: Mapping[str, Any] | None = None, *, org: str | None = None, conn: Any = None
    ) -> int:
        """Write an event of your domain, such as `billing.frozen`, in the caller's name; inside a handler by SYSTEM."""
        text = written_event(event, detail or {})
        return await self._of._run(audit.record(self._of._sql, event, text, self._of._acting(org)), conn)

    async def trail(
        self, job: UUID, *, event: str | None = None, org: str | None = None, conn: Any = None
    ) -> list[AuditEvent]:
        """Everything that happened to a job, in order."""
        return await self._of._run(audit.trail(self._of._sql, job, event=event, org=self._of._who(org).org_id), conn)

    async def events(
        self,
        *,
        org: str | None = None,
        event: str | None = None,
        actor: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
        conn: Any = None,
    ) -> list[AuditEvent]:
        """Stored events, newest first; `before` continues after the id of the last one seen.

        That a job was enqueued, started or succeeded is not stored while the job itself proves it: see `trail`.
        """
        filters: dict[str, Any] = {"event": event, "actor": actor, "since": since, "until": until, "before": before}
        org = self._of._who(org).org_id
        return await self._of._run(audit.listing(self._of._sql, org=org, limit=limit, **filters), conn)

    async def seal(self, *, org: str | None = None) -> int:
        """Seal now what workers would seal within a minute; returns how many rows were."""
        return await self._of._run(audit.seal(self._of._sql, self._of._who(org).org_id))

    async def heads(self, *, org: str | None = None, conn: Any = None) -> list[Head]:
        """The last seal of each organisation: keep their hashes elsewhere."""
        return await self._of._run(audit.heads(self._of._sql, self._of._who(org).org_id), conn)

    async def verify(
        self,
        *,
        org: str | None = None,
        head: str | None = None,
        progress: audit.Progress = lambda org, seals, rows: None,
        conn: Any = None,
    ) -> list[Verified]:
        """Recompute every seal and say what is not as it was sealed; `head` is a hash that was kept elsewhere."""
        who = self._of._who(org)
        return await self._of._run(audit.verify(self._of._sql, org=who.org_id, head=head, progress=progress), conn)
