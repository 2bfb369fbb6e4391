"""How a booking stands before its due week: paid for, in charge, or not."""

from __future__ import annotations

from datetime import date, datetime

import msgspec

from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.rules import cutoff as rules
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.rules.cutoff import Standing
from mainspring_apps.staffing.rules.weeks import Period
from mainspring_apps.staffing.store import Conn


class Week(msgspec.Struct, frozen=True, kw_only=True):
    """A booking, locked, and the week that is due at an instant."""

    booking_id: int
    zone: str
    due: Period
    standing: Standing
    payment_id: int | None
    confirmed_at: datetime
    end_date: date


def look(desk: Desk, conn: Conn, booking_id: int, instant: datetime, *, before: datetime | None = None) -> Week:
    """Lock a booking and look at the week that was due at an instant; only attempts that began `before` count."""
    booking = store.needed(conn, _FundedBooking, "lock_booking", booking_id=booking_id)
    due = weeks.due_week(instant, booking.zone, desk.settings)
    last = store.one(conn, _Attempt, "last_attempt", booking_id=booking_id, period_end=due.end, before=before)
    standing = Standing(
        status=booking.status,
        payment_type=booking.payment_type,
        funded_period_end=booking.funded_period_end,
        cutoff_at=booking.cutoff_at,
        payment=last.status if last else None,
        heard=last is not None and last.heard,
        back_at=last.back_at if last else None,
    )
    return Week(
        booking_id=booking_id,
        zone=booking.zone,
        due=due,
        standing=standing,
        payment_id=last.id if last else None,
        confirmed_at=booking.created_at,
        end_date=booking.end_date,
    )


def pay_until(desk: Desk, conn: Conn, booking_id: int, period_end: datetime, begun_at: datetime) -> datetime:
    """Until when an attempt to pay for a week that began then may be made good by another."""
    booking = store.needed(conn, _FundedBooking, "lock_booking", booking_id=booking_id)
    last = store.one(conn, _Attempt, "last_attempt", booking_id=booking_id, period_end=period_end, before=None)
    back_at = last.back_at if last else None
    return rules.ahead(begun_at, booking.zone, desk.settings, moved=booking.cutoff_at, back_at=back_at)


class _FundedBooking(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    payment_type: str
    funded_period_end: datetime | None
    cutoff_at: datetime | None
    created_at: datetime
    end_date: date
    zone: str


class _Attempt(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    status: str
    heard: bool
    back_at: datetime | None
