"""The story of a booking: what has happened, what will happen next and when, and where its money is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

import msgspec
from msgspec.structs import replace

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring_apps.frame.refusal import missing
from mainspring_apps.staffing import people, store, timers
from mainspring_apps.staffing.desk import Desk, booking_subject
from mainspring_apps.staffing.locking import LockedShift
from mainspring_apps.staffing.payments import escrow
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.texts import templates

_MOST_MOMENTS: Final = 1000  # moments of a story
BOOKINGS_PAGE: Final = 100
_HORIZON: Final = timedelta(days=400)  # so far ahead what comes every week is looked for: a booking may begin in a year
#: Rows as people call them.
ENTITIES: Final = {"time_log": "shift"}
#: What each timer will do, in words.
MEANT: Final = {
    "reminder-5m": "reminder: Are you still working?",
    "reminder-30m": "reminder: Urgent: Clock Out.",
    "ladder-0": "message to verify the timesheet",
    "ladder-60m": "message: timesheet pending verification",
    "ladder-3h": "message: timesheet will auto-approve",
    "auto-approve": "auto-approval of the timesheet",
    "no-show": "refund of the shift, which nobody began",
    "dispute-timeout": "the dispute times out",
    "upfront": "the end of the wait for the money of a booking that is paid beforehand",
}


#: Acts in words, where their name is not enough.
SAID: Final = {
    "payment_by_hand": "payment asked for by hand",
    "arrears_by_hand": "payment of what is owed asked for by hand",
    "booking_asked_for": "booking asked for, until its money comes",
    "clock_in": "clocked in",
    "save_draft": "draft saved",
    "submit_timesheet": "timesheet submitted",
    "force_clock_out": "clocked out by the supervisor",
    "edit_timesheet": "timesheet corrected",
    "verify_timesheet": "timesheet verified",
    "confirm_extra_time": "extra time confirmed",
    "auto_approve": "timesheet approved by itself",
    "was_worked": "said to be worked",
    "cancel_shift": "shift cancelled",
    "cancel_booking": "booking cancelled",
    "file_dispute": "dispute filed",
    "resolve_dispute": "dispute ended",
    "dispute_timeout": "dispute timed out",
    "file_incident": "incident reported",
    "resolve_incident": "incident closed",
    "refunded_elsewhere": "refunded at the provider by hand",
    "repeat_refund": "refund to be made again",
    "repeated_elsewhere": "refund made again at the provider by hand",
    "chargeback_inquiry": "the bank asks about a payment",
    "chargeback_open": "charged back by the bank",
    "reverse_transfer": "transfer to be taken back",
    "divide_set_aside": "divided what was set aside",
}


_TIMERS: Final[Mapping[str, Sequence[str]]] = {
    "booking": (timers.UPFRONT_TIMER,),
    "dispute": (timers.DISPUTE_TIMEOUT_TIMER,),
    "time_log": timers.OF_SHIFT,
}


class Moment(msgspec.Struct, frozen=True, kw_only=True):
    """Something at an instant, as the clocks of UTC and of the project show it."""

    utc: datetime
    local: datetime
    what: str
    about: str


class BookingView(msgspec.Struct, frozen=True, kw_only=True):
    """A booking as people see it."""

    id: int
    status: str
    payment_type: str
    zone: str
    project: str
    project_id: int
    worker_id: int
    supervisor_id: int | None
    borrower_company_id: int
    lender_company_id: int
    start_date: date
    end_date: date
    funded_period_end: datetime | None
    rate_minor: int
    currency: str
    cutoff_at: datetime | None


class MoneyPart(msgspec.Struct, frozen=True, kw_only=True):
    """Money of a shift, and where it is."""

    status: str
    amount_minor: int


class ShiftView(msgspec.Struct, frozen=True, kw_only=True):
    """A shift as people see it."""

    id: int
    status: str
    scheduled_start_time: datetime
    scheduled_end_time: datetime | None
    clock_out_time: datetime | None
    work_end_time: datetime | None
    paid_minutes: int | None  # of a submitted timesheet: as it stands
    extra_minutes: int | None  # beyond the planned end: paid once the borrower has confirmed them
    extra_confirmed_at: datetime | None
    auto_approval_time: datetime | None
    cancel_reason: str | None
    money: list[MoneyPart]


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one booking."""

    now: datetime
    booking: BookingView
    ledger: escrow.Ledger
    shifts: list[ShiftView]
    happened: list[Moment]
    next: list[Moment]


class BookingLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the list of bookings."""

    id: int
    status: str
    zone: str
    worker_id: int
    start_date: date
    end_date: date
    funded_period_end: datetime | None


def bookings(conn: Conn, *, after: int = 0, limit: int = BOOKINGS_PAGE, by: int | None = None) -> list[BookingLine]:
    """Bookings by id, those after one; for a user only those in which they play a part."""
    return store.many(conn, BookingLine, "list_bookings", after=after, limit=limit, by=by)


def clocks(desk: Desk, conn: Conn) -> dict[str, datetime]:
    """What the clocks of the projects show now, the first project's first, and UTC."""
    now = desk.now(conn)
    zones = dict.fromkeys(store.column(conn, "zones_of_projects"))
    return {zone: now.astimezone(ZoneInfo(zone)) for zone in [*zones, "UTC"]}


def story(desk: Desk, conn: Conn, booking_id: int, *, by: int | None = None) -> Story:
    """What has happened to a booking, and what comes next; for a user without a part in it there is no such booking."""
    if by is not None and not people.parts_of(conn, by, "booking_id", booking_id):
        raise missing("booking_id", booking_id)
    booking = store.needed(conn, BookingView, "shown_booking", booking_id=booking_id)
    now = desk.now(conn)
    titles = {template.name: template.title for template in templates(desk.settings)}
    happened = store.many(conn, _Happened, "what_happened", subject=booking_subject(booking_id), limit=_MOST_MOMENTS)
    return Story(
        now=now,
        booking=booking,
        ledger=escrow.ledger(conn, booking_id),
        shifts=_shifts(conn, booking_id),
        happened=[_moment(one.at, booking.zone, one.words(titles), one.about) for one in happened],
        next=sorted(_coming(desk, conn, booking, now), key=lambda moment: (moment.utc, moment.what)),
    )


def _shifts(conn: Conn, booking_id: int) -> list[ShiftView]:
    """The shifts of a booking; where a timesheet waits for somebody, with the hours that they would verify."""
    found = {shift.id: shift for shift in store.many(conn, ShiftView, "shown_shifts", booking_id=booking_id)}
    for sheet in store.many(conn, LockedShift, "submitted_shifts", booking_id=booking_id):
        hours = sheet.hours
        found[sheet.id] = replace(found[sheet.id], paid_minutes=hours.paid, extra_minutes=hours.extra)
    return list(found.values())


class _Happened(msgspec.Struct, frozen=True, kw_only=True):
    at: datetime
    what: str
    entity: str
    entity_id: int | None
    amount_minor: int | None
    currency: str | None
    channel: str | None
    note: str | None
    person: str | None
    role: str | None

    def words(self, titles: Mapping[str, str]) -> str:
        if self.entity == "message":
            return f"message: {titles.get(self.what, self.what)}"
        return SAID.get(self.what, self.what.replace("_", " "))

    @property
    def about(self) -> str:
        who = self.person if self.role is None else f"user {self.person} ({self.role})"
        if self.entity == "message":
            return f"{self.channel} to {who}: {self.note}"
        money = str(Money(self.amount_minor, self.currency or "")) if self.amount_minor is not None else None
        parts = (f"{ENTITIES.get(self.entity, self.entity)} {self.entity_id}", money, who and f"by {who}", self.note)
        return ", ".join(part for part in parts if part)


def _coming(desk: Desk, conn: Conn, booking: BookingView, now: datetime) -> list[Moment]:
    found = [
        _moment(at, booking.zone, what, f"for the week of {week}") for at, what, week in weekly(desk, booking, now)
    ]
    if booking.cutoff_at is not None and booking.cutoff_at > now:
        found.append(_moment(booking.cutoff_at, booking.zone, "cutoff of a late payment", f"booking {booking.id}"))
    for entity, id_ in _open(conn, booking.id):
        for timer in _TIMERS[entity]:
            known = desk.client.timers.get(timers.key(timer, id_), conn=conn)
            if known is not None and known.due_at is not None:
                found.append(_moment(known.due_at, booking.zone, MEANT[timer], f"{ENTITIES.get(entity, entity)} {id_}"))
    for policy in store.many(conn, _PolicyView, "next_expiry", booking_id=booking.id)[:2]:
        at = datetime.combine(policy.expiration_date + timedelta(days=1), time(), UTC)
        found.append(
            _moment(at, booking.zone, "insurance expires", f"policy {policy.id} of company {policy.company_id}")
        )
    return found


def weekly(desk: Desk, booking: BookingView, now: datetime) -> list[tuple[datetime, str, date]]:
    """The next charge, warning and cutoff of a booking that is paid week by week, and the Monday of the week it is for.

    What is paid for, or lies before or after the booking, is left out.
    """
    if booking.payment_type != "Weekly_Progress" or booking.status != "Active":
        return []
    s = desk.settings
    rules = (
        (s.charge_day, s.charge_at, "weekly payment"),
        (s.warn_day, s.warn_at, "final warning, if unpaid"),
        (s.cutoff_day, s.cutoff_at, "hard cutoff, if unpaid"),
    )
    found = []
    for day, at, what in rules:
        for tick in ms.weekly(day, at, zone=booking.zone).ticks(now, now + _HORIZON):
            week = weeks.next_week(tick.at, booking.zone)
            first, last = weeks.local_date(week.start, booking.zone), weeks.local_date(week.end, booking.zone)
            if first <= booking.end_date and booking.start_date < last and not _paid(booking, week):
                found.append((tick.at, what, first))
                break
    return found


def _paid(booking: BookingView, week: weeks.Period) -> bool:
    return booking.funded_period_end is not None and booking.funded_period_end >= week.end


class _PolicyView(msgspec.Struct, frozen=True):
    id: int
    company_id: int
    expiration_date: date


class _Row(msgspec.Struct, frozen=True):
    entity: str
    id: int


def _open(conn: Conn, booking_id: int) -> list[tuple[str, int]]:
    return [(row.entity, row.id) for row in store.many(conn, _Row, "open_rows", booking_id=booking_id)]


def _moment(at: datetime, zone: str, what: str, about: Any) -> Moment:
    return Moment(utc=at.astimezone(UTC), local=at.astimezone(ZoneInfo(zone)), what=what, about=str(about))
