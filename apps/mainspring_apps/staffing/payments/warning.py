"""The final warning: hours before the cutoff, where the project is, to whoever has not paid for the next week."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import mainspring as ms
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.languages import moment
from mainspring_apps.staffing.payments import reconcile, standing
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import FINAL_WARNING, tasks
from mainspring_apps.staffing.rules import cutoff as rules
from mainspring_apps.staffing.rules import weeks


@tasks.task(queue=FINAL_WARNING, snooze_limit=None, subject="booking_id")
def warn_unpaid(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, instant: datetime) -> None:
    """Warn the borrower of a booking whose next week is unpaid, unless the provider says that the money has come.

    This waits until it says anything; after the cutoff it is too late, and one that was moved has its own.
    """
    with ctx.transaction() as conn:
        week = standing.look(desk, conn, booking_id, instant)
    if week.payment_id is not None and week.standing.payment == "Pending":
        reconcile.ask(desk, ctx, week.payment_id)
    with ctx.complete() as conn:
        week = standing.look(desk, conn, booking_id, instant)
        step, usual = rules.warning(week.standing, week.due), weeks.cutoff(instant, week.zone, desk.settings)
        cutoff = standing.pay_until(desk, conn, booking_id, week.due.end, instant)
        if step == "skip" or desk.now(conn) >= min(cutoff, usual):
            return
        if step == "wait":
            raise ms.Snooze(desk.settings.ask_again)
        # Whoever warns of the same attempt after the same outage says the same.
        occurrence, kind = week.standing.back_at or instant, "final_warning"
        about: dict[str, Any] = {"ID": booking_id, "booking_id": booking_id}
        if cutoff != usual:
            kind, about["Cutoff"] = "late_warning", moment(cutoff, week.zone)
        desk.tell(conn, kind, people(conn, booking_id, *rules.CUTOFF_WARNED), about, occurrence=occurrence)


tasks.schedule(
    "weekly-final-warning",
    lambda desk: ms.weekly(desk.settings.warn_day, desk.settings.warn_at),
    warn_unpaid,
    zones=store.sql["project_zones"],
    entities=store.sql["unpaid_bookings"],
    page=lambda desk: desk.settings.enqueueing_page,
    within=lambda desk: desk.settings.warning_within,
)
