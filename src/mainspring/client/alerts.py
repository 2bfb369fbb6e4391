"""`client.alerts`: what somebody should look at, in both colours.

With `conn` an alert is part of the caller's transaction: it opens with the business act that found it, or not at all.
Observers hear of it once it is committed: from this client where it commits by itself, else from a worker, soon after.
"""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from mainspring.alert import AlertRow, Severity, Wrong, wrong
from mainspring.db import alerts
from mainspring.events import Alert
from mainspring.job import DEFAULT_ORG

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncClient
    from mainspring.client.common import Common
    from mainspring.client.sync import Client


class Alerts:
    """Alerts, for sync code."""

    def __init__(self, client: Client) -> None:
        self._of = client

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
    ) -> bool:
        """Say that something is wrong: True when it opens an alert, False when one is open and only counts.

        ::

            client.alerts.open("payment-needs-a-person", f"booking {booking}", text="the card was removed", conn=conn)
        """
        what, told = wrong(name, subject, text, severity, detail), _tells(self._of, conn)
        org = self._of._acting(org).org_id
        opened = self._of._run(alerts.open_alert(self._of._sql, what, org, told=told), conn)
        if opened and told:
            self._of._committed(None, _opened(what, org))
        return opened

    def close(
        self, name: str, subject: str = "", *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Say that it is over: False when nothing was open. A reason, of a person, goes to the audit trail."""
        told, who = _tells(self._of, conn), self._of._who(org)
        closed = self._of._run(alerts.close_alert(self._of._sql, name, subject, who, told=told, reason=reason), conn)
        if closed is not None and told:
            self._of._committed(None, alerts.event_of(closed))
        return closed is not None

    def list(
        self,
        *,
        open: bool | None = True,
        name: str | None = None,
        limit: int = 100,
        org: str | None = None,
        conn: Any = None,
    ) -> builtins.list[AlertRow]:
        """Alerts, newest first: open ones, with `open=False` those that are over, with `open=None` both."""
        flow = alerts.listing(self._of._sql, self._of._who(org), is_open=open, name=name, limit=limit)
        return self._of._run(flow, conn)


class AsyncAlerts:
    """Alerts, for async code."""

    def __init__(self, client: AsyncClient) -> None:
        self._of = client

    async def open(
        self,
        name: str,
        subject: str = "",
        *,
        text: str = "",
        severity: Severity = "warning",
        detail: Mapping[str, Any] | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> bool:
        """Say that something is wrong: True when it opens an alert, False when one is open and only counts."""
        what, told = wrong(name, subject, text, severity, detail), _tells(self._of, conn)
        org = self._of._acting(org).org_id
        opened = await self._of._run(alerts.open_alert(self._of._sql, what, org, told=told), conn)
        if opened and told:
            self._of._committed(None, _opened(what, org))
        return opened

    async def close(
        self, name: str, subject: str = "", *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Say that it is over: False when nothing was open. A reason, of a person, goes to the audit trail."""
        told, who = _tells(self._of, conn), self._of._who(org)
        flow = alerts.close_alert(self._of._sql, name, subject, who, told=told, reason=reason)
        closed = await self._of._run(flow, conn)
        if closed is not None and told:
            self._of._committed(None, alerts.event_of(closed))
        return closed is not None

    async def list(
        self,
        *,
        open: bool | None = True,
        name: str | None = None,
        limit: int = 100,
        org: str | None = None,
        conn: Any = None,
    ) -> builtins.list[AlertRow]:
        """Alerts, newest first: open ones, with `open=False` those that are over, with `open=None` both."""
        flow = alerts.listing(self._of._sql, self._of._who(org), is_open=open, name=name, limit=limit)
        return await self._of._run(flow, conn)


def _tells(client: Common, conn: Any) -> bool:
    """Whether this client tells by itself: its own transaction commits here, and somebody listens."""
    return conn is None and bool(client._bus)


def _opened(what: Wrong, org: str | None) -> Alert:
    about: dict[str, Any] = {"subject": what.subject, "org_id": DEFAULT_ORG if org is None else org}
    return Alert(what.name, what.severity, what.text or what.name, "", **about)
