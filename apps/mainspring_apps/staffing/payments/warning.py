"""The final warning: hours before the cutoff, where the project is, to whoever has not paid for the next week."""

from __future__ import annotations

from datetime import datetime

import mainspring as ms
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import reconcile, standing
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import FINAL_WARNING, tasks
from mainspring_apps.staffing.rules import cutoff as rules


@tasks.task(queue=FINAL_WARNING, subject="booking_id")
def warn_unpaid(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, instant: datetime) -> None:
    """Warn the borrower of a booking whose next week is unpaid, unless the provider says that the money has come."""
    with ctx.transaction() as conn:
        week = standing.look(desk, conn, booking_id, instant)
    if week.payment_id is not None and week.standing.payment == "Pending":
        try:
            reconcile.ask(desk, ctx, week.payment_id)
        except Exception as error:  # a provider that is away says nothing of success: later is useless, so warn
            ctx.log.warning("the provider did not answer: %s", type(error).__name__)
    with ctx.complete() as conn:
        week = standing.look(desk, conn, booking_id, instant)
        if rules.unpaid(week.standing, week.due):
            about = {"ID": booking_id, "booking_id": booking_id}
            desk.tell(conn, "final_warning", people(conn, booking_id, *rules.CUTOFF_WARNED), about, occurrence=instant)


tasks.schedule(
    "weekly-final-warning",
    lambda desk: ms.weekly(desk.settings.warn_day, desk.settings.warn_at),
    warn_unpaid,
    zones=store.sql["project_zones"],
    entities=store.sql["unpaid_bookings"],
    page=lambda desk: desk.settings.enqueueing_page,
    within=lambda desk: desk.settings.warning_within,
)
