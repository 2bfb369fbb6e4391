"""Rows that are held while they change: always the booking first, then its shift (STAFF-19.14)."""

from __future__ import annotations

from datetime import date, datetime, time, timedelta

import msgspec

from mainspring_apps.staffing import store
from mainspring_apps.staffing.rules import pay
from mainspring_apps.staffing.store import Conn


class LockedBooking(msgspec.Struct, frozen=True, kw_only=True):
    """A booking, as far as its shifts must know it; `zone` is its project's."""

    id: int
    status: str
    borrower_company_id: int
    lender_company_id: int
    worker_id: int
    supervisor_id: int | None
    end_date: date
    renewed_in_dispute: bool
    scheduled_end_time: time | None
    zone: str


class LockedShift(msgspec.Struct, frozen=True, kw_only=True):
    """One row of `time_log`, with the dispute that is open about it."""

    id: int
    booking_id: int
    worker_id: int
    status: str
    clock_in_time: datetime
    clock_out_time: datetime | None
    scheduled_start_time: datetime
    scheduled_end_time: datetime | None
    planned_minutes: int
    paid_minutes: int | None
    settled_minor: int | None
    work_end_time: datetime | None
    capped_end_time: datetime | None
    cut_at: datetime | None
    auto_approval_time: datetime | None
    edit_extensions: int
    dispute_id: int | None

    @property
    def hours(self) -> pay.Hours:
        """What was worked, as it is submitted (STAFF-20.01)."""
        stopped = self.work_end_time or self.clock_out_time
        assert stopped is not None, "who has submitted a timesheet has stopped"
        return pay.hours(
            start=self.scheduled_start_time, end=self.scheduled_end_time, planned_minutes=self.planned_minutes,
            clocked_in=self.clock_in_time, stopped=stopped,
        )  # fmt: skip

    @property
    def planned_end(self) -> datetime:
        """When it is to end; where nobody knows, as long after its start as it is planned."""
        return self.planned_until(self.scheduled_end_time)

    def planned_until(self, end: datetime | None) -> datetime:
        """When it would be over if it were to end then."""
        return end or self.scheduled_start_time + timedelta(minutes=self.planned_minutes)


def lock_booking(conn: Conn, booking_id: int) -> LockedBooking:
    """A booking, which nobody else changes before this transaction ends."""
    return store.needed(conn, LockedBooking, "lock_booking", booking_id=booking_id)


def lock_shift(conn: Conn, time_log_id: int) -> tuple[LockedBooking, LockedShift]:
    """A shift and its booking, held in the one order that all keep."""
    booking = store.needed(conn, LockedBooking, "lock_booking_of_shift", time_log_id=time_log_id)
    return booking, store.needed(conn, LockedShift, "lock_shift", time_log_id=time_log_id)
