"""The weekly payment: Wednesday's charge of each booking, and of whoever else finds a week unfunded.

A charge is reserved, sent and settled, each in a transaction of its own: see the modules of these names.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import mainspring as ms
from mainspring_apps.staffing import store, unresolved
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.payments import reserve, send, standing
from mainspring_apps.staffing.people import By
from mainspring_apps.staffing.registry import WEEKLY_PAYMENTS, tasks
from mainspring_apps.staffing.rules import charge, weeks
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn


@tasks.task(queue=WEEKLY_PAYMENTS, snooze_limit=None)
def charge_week(
    desk: Desk,
    ctx: ms.SyncContext,
    *,
    booking_id: int,
    period_start: datetime,
    period_end: datetime,
    occurrence: datetime,
    source: charge.Source = "weekly",
) -> None:
    """Charge a booking for a week, unless it is paused, over, or paid for."""
    with ctx.transaction() as conn:
        booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
        found = unresolved.of_booking(conn, booking_id)
        opened = {"open_a": found.option_a, "open_b": found.option_b}
        act = charge.decide(booking.status, booking.payment_type, **opened, source=source)
        if act == "pause":
            store.do(conn, "pause_booking", booking_id=booking_id)
            before, after = {"status": booking.status}, {"status": "Payment_Paused_Dispute"}
            reason = "an option A dispute or incident is open"
            desk.record(conn, "payment_paused", "booking", booking_id, reason=reason, before=before, after=after)
        period = weeks.Period(period_start, period_end)
        payment = reserve.reserve(desk, conn, booking, period, source, reserve.job_of(ctx)) if act == "charge" else None
    if payment is not None:
        send.send(desk, ctx, payment)


def due_bookings(
    desk: Desk, conn: Conn, zone: str, after: int | None, limit: int, *, instant: datetime
) -> list[tuple[int, Mapping[str, Any]]]:
    """One page of the bookings that a Wednesday charges in a zone, and the week that it is about (STAFF-1.13)."""
    period = weeks.due_week(instant, zone, desk.settings)
    about = {"period_start": period.start, "period_end": period.end, "occurrence": instant}
    which = {"payment_type": charge.PAYMENT_TYPE, "status": charge.STATUS}
    found = store.column(conn, "bookings_to_charge", zone=zone, after=after, limit=limit, **which)
    return [(booking_id, {"booking_id": booking_id, **about}) for booking_id in found]


tasks.schedule(
    "weekly-payments",
    lambda desk: ms.weekly(desk.settings.charge_day, desk.settings.charge_at),
    charge_week,
    zones=store.sql["project_zones"],
    entities=due_bookings,
    page=lambda desk: desk.settings.enqueueing_page,
    within=lambda desk: desk.settings.charge_within,
)


def enqueue_due(desk: Desk, conn: Conn, booking_id: int, *, source: charge.Source) -> bool:
    """Enqueue the charge of the due week (`weeks.due_week`), if it is unfunded and not in charge."""
    booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
    now = desk.now(conn)
    period = weeks.due_week(now, booking.zone, desk.settings)
    if booking.payment_type != charge.PAYMENT_TYPE or charge.funded(booking.funded_period_end, period):
        return False
    if reserve.live(conn, booking_id, period):
        return False
    job = charge_week.job(
        booking_id=booking_id, period_start=period.start, period_end=period.end, occurrence=now, source=source
    )
    desk.enqueue(conn, job.with_key(f"charge:{source}:{booking_id}", "replace"))
    return True


def begin(desk: Desk, conn: Conn, booking_id: int, first: datetime) -> bool:
    """Charge a new booking at once where it begins in a week whose charge, and whose cutoff, it came too late for.

    What comes between the two is left to the cutoff, which charges it and gives a day to pay (STAFF-3.26).
    """
    booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
    if not weeks.begins_unpaid(first, desk.now(conn), booking.zone, desk.settings):
        return False
    return enqueue_due(desk, conn, booking_id, source="late")


@event
def pay_by_hand(desk: Desk, conn: Conn, booking_id: int, *, by: By) -> None:
    """Pay the due week now: after a failure, until the cutoff (STAFF-1.36), or before its Wednesday."""
    booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
    if booking.status != charge.STATUS or booking.payment_type != charge.PAYMENT_TYPE:
        words = f"booking: is {booking.status} and {booking.payment_type}, and no week of it can be paid"
        raise Refused(words, field="booking")
    if unresolved.of_booking(conn, booking_id).option_a:
        raise Refused("payment: waits until no dispute and no incident is open", field="payment")
    now = desk.now(conn)
    period = weeks.due_week(now, booking.zone, desk.settings)
    failed = store.value(conn, "last_failure", booking_id=booking_id, period_start=period.start)
    if charge.funded(booking.funded_period_end, period) or reserve.live(conn, booking_id, period):
        raise Refused("payment: the week is paid, or being paid", field="payment")
    if failed is not None and now >= standing.pay_until(desk, conn, booking_id, period.end, failed):
        raise Refused("payment: the time to pay is over", field="payment")
    desk.record(conn, "payment_by_hand", "booking", booking_id)
    enqueue_due(desk, conn, booking_id, source="manual")
