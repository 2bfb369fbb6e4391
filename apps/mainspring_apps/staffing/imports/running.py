"""A booking that runs, with its shifts and their money: all of it in one transaction, or nothing of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

import msgspec

from mainspring.text.texts import shown
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.imports import known, money, plan
from mainspring_apps.staffing.imports.columns import Raw
from mainspring_apps.staffing.imports.plan import RunningBooking, RunningShift
from mainspring_apps.staffing.imports.report import RowReport
from mainspring_apps.staffing.locking import lock_booking
from mainspring_apps.staffing.rules import imports as rules
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn


class _Started(msgspec.Struct, frozen=True, kw_only=True):
    scheduled_start_time: datetime
    id: int


def bring_in(desk: Desk, conn: Conn, raw: Raw, shifts: Sequence[Raw]) -> list[RowReport]:
    """Import a booking with its shifts, each unless it was before; one that is refused keeps all of them out."""
    done: RowReport | None = None
    seen: list[RowReport] = []
    new = shifts
    try:
        with conn.transaction():
            known.hold(conn)
            done = known.before(conn, "bookings", raw)
            before = [(shift, known.before(conn, "shifts", shift)) for shift in shifts]
            seen, new = [found for _, found in before if found], [shift for shift, found in before if not found]
            if done is not None and not new:
                return [done, *seen]
            made = plan.booking(desk, conn, raw)
            wanted = _wanted(desk, conn, made, new)
            booking = _new(desk, conn, made) if done is None or done.id is None else _still(conn, done.id)
            ids = _add_shifts(conn, booking, made, wanted)
            money.fund(desk, conn, booking, made, ids, wanted)
            first = done or known.remember(conn, "bookings", raw, booking)
            return [first, *seen, *(known.remember(conn, "shifts", one.raw, ids[one.start]) for one in wanted)]
    except WrongShifts as error:
        return kept_out(raw, new, error, done=done, seen=seen)
    except known.UNFIT as error:
        return kept_out(raw, new, WrongShifts({}, error), done=done, seen=seen)


class WrongShifts(Exception):
    """Why a booking stays out: shifts that are refused, by their place in memory, or itself."""

    def __init__(self, shifts: Mapping[int, Exception], booking: Exception | None = None) -> None:
        self.shifts = shifts
        self.booking = booking or Refused("shifts: some are refused", field="shifts")


def kept_out(
    raw: Raw, shifts: Iterable[Raw], wrong: WrongShifts, *, done: RowReport | None = None,
    seen: Sequence[RowReport] = (),
) -> list[RowReport]:  # fmt: skip
    """What becomes of the rows of a booking of which nothing more is imported."""
    rest = Refused("booking_id: its booking is refused", field="booking_id") if done is None else wrong.booking
    others = [known.refused("shifts", shift, wrong.shifts.get(id(shift), rest)) for shift in shifts]
    return [done or known.refused("bookings", raw, wrong.booking), *seen, *others]


def _wanted(desk: Desk, conn: Conn, made: RunningBooking, raws: Iterable[Raw]) -> list[RunningShift]:
    """The shifts as they are to be; if one of them cannot be, there is no booking."""
    now, found, wrong = desk.now(conn), list[RunningShift](), dict[int, Exception]()
    for raw in raws:
        try:
            found.append(plan.shift(desk, made, raw, now))
        except known.UNFIT as error:
            wrong[id(raw)] = error
    spans = [one.span for one in found]
    clashes = {name: f"day: overlaps {shown(other)}" for name, other in rules.overlapping(spans).items()}
    starts, ends = [span.start for span in spans], [span.until for span in spans]
    busy = set(store.column(conn, "shifts_in_the_way", worker_id=made.worker.id, starts=starts, ends=ends))
    clashes |= {span.name: "day: the worker is booked then already" for span in spans if span.start in busy}
    clashes |= money.refused_intents(conn, found)
    for one in found:
        if why := clashes.get(one.row.external_id):
            wrong[id(one.raw)] = Refused(why, field=why.partition(":")[0])
    if wrong:
        raise WrongShifts(wrong)
    return found


def _new(desk: Desk, conn: Conn, made: RunningBooking) -> int:
    one = made.row
    booking = int(store.value(
        conn, "add_booking", project_id=made.project.id, worker_id=made.worker.id, supervisor_id=made.supervisor_id,
        borrower_id=made.project.company_id, lender_id=made.worker.company_id, payment_type="Weekly_Progress",
        status="Active", start_date=one.start_date, end_date=one.end_date, start=one.start_time, end=one.end_time,
        rate_minor=made.rate_minor, currency=one.currency,
    ))  # fmt: skip
    if made.funded_end is not None:
        store.do(conn, "fund_booking", booking_id=booking, period_end=made.funded_end)
    desk.record(conn, "booking_imported", "booking", booking, after="Active")
    return booking


def _still(conn: Conn, booking_id: int) -> int:
    """A booking that was imported before, for further shifts."""
    booking = lock_booking(conn, booking_id)
    if booking.status != "Active":
        raise Refused(f"external_id: its booking is {booking.status} by now", field="external_id")
    return booking.id


def _add_shifts(conn: Conn, booking: int, made: RunningBooking, shifts: Sequence[RunningShift]) -> dict[datetime, int]:
    """The shifts by their starts; no two begin together."""
    planned = [one.planned for one in shifts]
    added = store.many(
        conn, _Started, "add_shifts", booking_id=booking, worker_id=made.worker.id, starts=[p.start for p in planned],
        ends=[p.end for p in planned], minutes=[p.minutes for p in planned],
    )  # fmt: skip
    return {one.scheduled_start_time: one.id for one in added}
