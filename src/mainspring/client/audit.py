"""`client.audit`: the trail of who did what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mainspring.audit import AuditEvent, TrailHead, Verified, written_event
from mainspring.checks import check_subject
from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.db import audit
from mainspring.job import Id


class AuditVerbs(Verbs):
    """The audit trail, for sync code."""

    @verb
    def record(
        self,
        event: str,
        detail: Mapping[str, Any] | None = None,
        *,
        subject: str | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[int]:
        """Write an event of your domain, such as `billing.frozen`, in the caller's name; inside a handler by SYSTEM.

        `subject` is what it is about, such as `booking 17`: `events(subject="booking 17")` finds all of them.
        """
        text, about = written_event(event, detail or {}), None if subject is None else check_subject(subject)
        return self.seam.ask(audit.record(self.seam.sql, event, text, self.seam.acting(org), subject=about), conn)

    @verb
    def trail(
        self, job: Id, *, event: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[list[AuditEvent]]:
        """Everything that happened to a job, in order."""
        return self.seam.ask(audit.trail(self.seam.sql, job, event=event, org=self.seam.who(org).org_id), conn)

    @verb
    def events(
        self,
        *,
        org: str | None = None,
        event: str | None = None,
        subject: str | None = None,
        actor: str | None = None,
        job: Id | None = None,
        correlation: str | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
        before: int | None = None,
        limit: int = 50,
        conn: Any = None,
    ) -> Work[list[AuditEvent]]:
        """Stored events, newest first; `before` continues after the id of the last one seen.

        That a job was enqueued, started or succeeded is not stored while the job itself proves it: see `trail`.
        """
        filters: dict[str, Any] = {"event": event, "subject": subject, "actor": actor, "since": since, "until": until}
        filters |= {"job": job, "correlation": correlation, "before": before}
        return self.seam.ask(audit.listing(self.seam.sql, org=self.seam.who(org).org_id, limit=limit, **filters), conn)

    @verb
    def seal(self, *, org: str | None = None) -> Work[int]:
        """Seal now what workers would seal within a minute; returns how many rows were."""
        return self.seam.ask(audit.seal(self.seam.sql, self.seam.who(org).org_id))

    @verb
    def heads(self, *, org: str | None = None, conn: Any = None) -> Work[list[TrailHead]]:
        """The last seal of each organisation: keep their hashes elsewhere."""
        return self.seam.ask(audit.heads(self.seam.sql, self.seam.who(org).org_id), conn)

    @verb
    def verify(
        self,
        *,
        org: str | None = None,
        head: str | None = None,
        newest: int | None = None,
        progress: audit.VerifyProgress = lambda org, seals, rows: None,
        conn: Any = None,
    ) -> Work[list[Verified]]:
        """Recompute every seal, or the newest so many, and say what is not as it was sealed.

        `head` is a hash that was kept elsewhere.
        """
        org_id = self.seam.who(org).org_id
        dialogue = audit.verify(self.seam.sql, org=org_id, head=head, newest=newest, progress=progress)
        return self.seam.ask(dialogue, conn)


class Audit(AuditVerbs, Sync):
    """The audit trail, for sync code."""


class AsyncAudit(AuditVerbs, Async):
    """The audit trail, for async code."""
