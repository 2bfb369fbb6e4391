"""`client.alerts`: what somebody should look at.

With `conn` an alert is part of the caller's transaction: it opens with the business act that found it, or not at all.
Observers hear of it once it is committed: from this client where it commits by itself, else from a worker, soon after.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.client.seam import Seam
from mainspring.db import alerts
from mainspring.events import Alert
from mainspring.health.alert import AlertRow, Severity, Wrong, wrong
from mainspring.job import DEFAULT_ORG, Id


class AlertVerbs(Verbs):
    """Alerts, for sync code."""

    @verb
    def open(
        self,
        name: str,
        subject: str = "",
        *,
        text: str = "",
        severity: Severity = "warning",
        detail: Mapping[str, Any] | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[bool]:
        """Say that something is wrong: True when it opens an alert, False when one is open and only counts.

        ::

            client.alerts.open("payment-needs-a-person", f"booking {booking}", text="the card was removed", conn=conn)
        """
        what, told = wrong(name, subject, text, severity, detail), _tells(self.seam, conn)
        org = self.seam.acting(org).org_id
        opened = yield from self.seam.ask(alerts.open_alert(self.seam.sql, what, org, told=told), conn)
        if opened and told:
            self.seam.tell(None, _opened(what, org))
        return opened

    @verb
    def close(
        self, name: str, subject: str = "", *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[bool]:
        """Say that it is over: False when nothing was open. A reason, of a person, goes to the audit trail."""
        told, who = _tells(self.seam, conn), self.seam.who(org)
        dialogue = alerts.close_alert(self.seam.sql, name, subject, who, told=told, reason=reason)
        closed = yield from self.seam.ask(dialogue, conn)
        if closed is not None and told:
            self.seam.tell(None, alerts.event_of(closed))
        return closed is not None

    @verb
    def list(
        self,
        *,
        open: bool | None = True,
        name: str | None = None,
        limit: int = 100,
        place: tuple[datetime, UUID] | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[builtins.list[AlertRow]]:
        """Alerts, newest first: open ones, with `open=False` those that are over, with `open=None` both.

        `place` continues after the last one seen: when it opened, and its id.
        """
        how: dict[str, Any] = {"is_open": open, "name": name, "limit": limit, "place": place}
        return self.seam.ask(alerts.listing(self.seam.sql, self.seam.who(org), **how), conn)

    @verb
    def get(self, alert: Id, *, org: str | None = None, conn: Any = None) -> Work[AlertRow | None]:
        """One alert by its id, open or over; None: there is none."""
        return self.seam.ask(alerts.get(self.seam.sql, alert, self.seam.who(org)), conn)


class ClientAlerts(AlertVerbs, Sync):
    """Alerts, for sync code."""


class AsyncClientAlerts(AlertVerbs, Async):
    """Alerts, for async code."""


def _tells(seam: Seam, conn: Any) -> bool:
    """Whether this client tells by itself: its own transaction commits here, and somebody listens."""
    return conn is None and seam.observed


def _opened(what: Wrong, org: str | None) -> Alert:
    about: dict[str, Any] = {"subject": what.subject, "org_id": DEFAULT_ORG if org is None else org}
    return Alert(what.name, what.severity, what.text or what.name, "", **about)
