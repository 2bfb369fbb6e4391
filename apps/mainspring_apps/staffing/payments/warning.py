"""The final warning: on Wednesday at 14:00, where the project is, to whoever has not paid for the next week."""

from __future__ import annotations

from datetime import datetime, timedelta

import mainspring as ms
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import reconcile, standing
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import FINAL_WARNING, tasks
from mainspring_apps.staffing.rules import cutoff as rules
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.settings import ASK_AGAIN, ENQUEUEING_PAGE, RETRY, TASK_TIMEOUT


@tasks.task(queue=FINAL_WARNING, retry=RETRY, timeout=TASK_TIMEOUT, snooze_limit=None, subject="booking_id")
def warn_unpaid(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, instant: datetime) -> None:
    """Warn the borrower of a booking whose next week is unpaid, unless the provider says that the money has come.

    This waits until it says anything; after the cutoff it is too late, and a cutoff that was put off has its own.
    """
    with ctx.transaction() as conn:
        week = standing.look(conn, booking_id, instant)
    if week.payment_id is not None and week.standing.payment == "Pending":
        reconcile.ask(desk, ctx, week.payment_id)
    with ctx.complete() as conn:
        week = standing.look(conn, booking_id, instant)
        step = rules.warning(week.standing, week.due)
        if step == "skip" or desk.now(conn) >= weeks.cutoff(instant, week.zone):
            return
        if step == "wait":
            raise ms.Snooze(ASK_AGAIN)
        # Whoever warns of the same attempt after the same outage says the same.
        about, occurrence = {"ID": booking_id, "booking_id": booking_id}, week.standing.back_at or instant
        desk.tell(conn, "final_warning", people(conn, booking_id, *rules.CUTOFF_WARNED), about, occurrence=occurrence)


tasks.schedule(
    "weekly-final-warning",
    ms.weekly(weeks.CHARGE_DAY, weeks.WARN_AT),
    warn_unpaid,
    zones=store.sql["project_zones"],
    entities=store.sql["unpaid_bookings"],
    page=ENQUEUEING_PAGE,
    within=timedelta(hours=10),  # then the cutoff comes, and a warning is too late
)
