"""What is checked every day: each confirmed booking has its invoice and its mails, or a listed reason (RENT-11.01)."""

from __future__ import annotations

from typing import Any

import mainspring as ms
from mainspring_apps.rental import store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.registry import CHECKOUTS, desk_tasks
from mainspring_apps.rental.rules import days


@desk_tasks.task(queue=CHECKOUTS)
def check_bookings(desk: Desk, ctx: ms.SyncContext) -> Any:
    """Open an alert for each booking that lacks something and says nowhere why; answers how many."""
    with ctx.complete() as conn:
        found = store.many(conn, dict[str, Any], "unexplained")
        for one in found:
            text = f"it is confirmed, and lacks without a reason: {', '.join(one['lacking'])}"
            desk.alert(conn, "booking_incomplete", desk.subject(one["id"]), text, critical=True, **one)
        ctx.result = len(found)


@desk_tasks.task(queue=CHECKOUTS)
def check_invoices(desk: Desk, ctx: ms.SyncContext) -> None:
    """In the evening, tell of each booking that was paid on this fiscal day and has no invoice (RENT-20.21)."""
    if not desk.settings.invoicing_enabled:
        return
    with ctx.complete() as conn:
        now, zone = desk.now(conn), desk.settings.zone
        since = days.starts(days.day_of(now, zone), zone)
        for booking_id in store.column(conn, "paid_without_invoice", since=since, until=now):
            text = "it was paid for today, and has no invoice yet: the law wants one on the day of payment"
            desk.alert(conn, "invoice_overdue", desk.subject(booking_id), text, critical=True, booking_id=booking_id)


desk_tasks.schedule(
    "check-invoices", lambda desk: ms.daily(desk.settings.invoice_alert_at, zone=desk.settings.zone), check_invoices,
    catch_up="latest",
)  # fmt: skip
desk_tasks.schedule(
    "check-bookings", lambda desk: ms.daily(desk.settings.check_at, zone=desk.settings.zone), check_bookings,
    catch_up="latest",
)  # fmt: skip
