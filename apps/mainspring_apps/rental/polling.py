"""Payments and refunds that no event told of: found by asking Stripe, and taken as the webhook takes them."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import mainspring as ms
from mainspring_apps.rental import checkout, refunds, rounds, store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.registry import CHECKOUTS, desk_tasks

SILENT: Final = "webhook_silent"
_HOUR: Final = timedelta(hours=1)
_REACH: Final = timedelta(days=7)


@desk_tasks.task(queue=CHECKOUTS, needs=("stripe",))
def find_payments(desk: Desk, ctx: ms.SyncContext) -> None:
    """Look at every page that was completed since the last event, and for a week at least (RENT-20.09)."""
    with ctx.transaction() as conn:
        now, last = desk.now(conn), store.value(conn, "last_event")
    sessions = desk.stripe.sync.sessions(min(last or now, now - _REACH), status="complete")
    found = 0
    for session in reversed(sessions):  # the oldest first
        with ctx.transaction() as conn:
            confirmed = checkout.paid(desk, conn, session, now) if session.paid else None
        if confirmed is not None:
            rounds.created(confirmed.booking_id, *confirmed.jobs)
            found += 1
    with ctx.complete() as conn:
        if found and (last is None or now - last >= _HOUR):
            text = f"{found} payments were found by asking, and no event has come for an hour"
            desk.alert(conn, SILENT, "stripe", text, critical=True)
        elif last is not None and now - last < _HOUR:
            desk.calm(conn, SILENT, "stripe")


@desk_tasks.task(queue=CHECKOUTS, needs=("stripe",))
def find_refunds(desk: Desk, ctx: ms.SyncContext) -> None:
    """Look at refunds of the last week that no event told of (RENT-20.16)."""
    with ctx.transaction() as conn:
        since = desk.now(conn) - _REACH
    found = [one.id for one in desk.stripe.sync.refunds(since)]
    with ctx.complete() as conn:
        known = set(store.column(conn, "known_refunds", ids=found))
        desk.enqueue(conn, *[refunds.look_at_refund.job(refund=one) for one in reversed(found) if one not in known])


desk_tasks.schedule("find-refunds", ms.every(hours=24), find_refunds, catch_up="latest")
desk_tasks.schedule("find-payments", ms.every(hours=1), find_payments, catch_up="latest")
