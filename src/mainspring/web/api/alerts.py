"""Alerts over HTTP: what somebody should look at, and that somebody has."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from mainspring.db.alerts import runbook
from mainspring.db.decisions import check_reason
from mainspring.db.gauges import gauges
from mainspring.health.alert import MAX_ALERT, AlertRow, Severity
from mainspring.observe.alerts import raised, wrong
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.refused import ApiRefused, not_found
from mainspring.web.api.terms import Instant, NeededReason, QueueName
from mainspring.web.api.version import Versioned

alerts = Resource("alerts", "What somebody should look at, until it is over.")

AlertId = Annotated[UUID, msgspec.Meta(description="The id of an alert.")]
#: Which alerts a list shows: `open`, `over`, or both.
OF_STATE = {"open": True, "over": False, "all": None}


class AlertView(Versioned, frozen=True, kw_only=True):
    """An alert: what is wrong, since when, how often it was seen; `runbook` says what to do, where the engine knows."""

    id: AlertId
    org_id: str
    name: str
    subject: str
    severity: Severity
    text: str
    detail: dict[str, Any]
    opened_at: Instant
    last_at: Instant
    count: int
    closed_at: Instant | None
    closed_by: str | None
    runbook: str | None

    def version(self) -> tuple[Any, ...]:
        """Whether it is over; that it is seen again does not change it."""
        return self.id, self.closed_at


class EngineAlertView(msgspec.Struct, frozen=True, kw_only=True):
    """What the state of the database says now: it is over by itself, so nobody closes it."""

    name: str
    queue: QueueName | None
    severity: Severity
    text: str
    runbook: str


class AlertClosed(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """NeededReason an alert is closed."""

    reason: NeededReason


@alerts.get("/alerts", role="viewer")
async def list_alerts(
    asking: Asking,
    page: Paging[tuple[datetime, UUID]],
    state: Literal["open", "over", "all"] = "open",
    name: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_ALERT)] | None = None,
) -> PageOf[AlertView]:
    """Alerts that are open, or over, newest first."""
    how: dict[str, Any] = {"open": OF_STATE[state], "name": name, "limit": page.wanted, "place": page.after}
    found = await asking.client.alerts.list(**how, conn=asking.conn)
    return page.of([_view(asking, one) for one in found], lambda one: (one.opened_at, one.id))


@alerts.get("/alerts/engine", role="viewer", connects="operator", shared=True)
async def list_engine_alerts(asking: Asking) -> PageOf[EngineAlertView]:
    """What the engine says of itself at this moment: queues that are late, workers that are gone."""
    found = [raised(name, text, None, queue) for (name, queue), text in wrong(await asking.ask(gauges(asking.sql)))]
    return PageOf(
        items=[
            EngineAlertView(
                name=one.alert, queue=one.queue, severity=one.severity, text=asking.show(one.text), runbook=one.runbook
            )
            for one in found
        ]
    )


@alerts.get("/alerts/{id}", role="viewer")
async def show_alert(asking: Asking, id: AlertId) -> AlertView:
    """One alert, open or over."""
    found = await asking.client.alerts.get(id, conn=asking.conn)
    if found is None:
        raise not_found()
    return _view(asking, found)


@alerts.post("/alerts/{id}/close", role="operator", connects="api", if_match="optional")
async def close_alert(asking: Asking, id: AlertId, body: AlertClosed) -> AlertView:
    """Say that somebody has looked at it; a watch that still finds it wrong opens another."""
    await asking.lock("alert", id)
    seen = await show_alert(asking, id)
    asking.match(seen)
    # Where a request is about all organisations, its own is named: the same may be open in another.
    about: dict[str, Any] = {"org": seen.org_id, "reason": check_reason(body.reason), "conn": asking.conn}
    if seen.closed_at is not None or not await asking.client.alerts.close(seen.name, seen.subject, **about):
        raise ApiRefused(409, "ALREADY_CLOSED", "The alert is over already.")
    return await show_alert(asking, id)


def _view(asking: Asking, row: AlertRow) -> AlertView:
    shown = {"text": asking.show(row.text), "detail": asking.show(row.detail)}
    return AlertView(**asdict(row) | shown, runbook=runbook(row.name) or None)
