"""A booking that runs and its shifts as they are to be: each row read, and checked against what it names."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

import msgspec

from mainspring_apps.staffing import bookings, store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.imports import known
from mainspring_apps.staffing.imports.columns import BookingRow, Raw, ShiftRow, row
from mainspring_apps.staffing.rules import imports as rules
from mainspring_apps.staffing.rules import pay, planning, weeks
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn


@dataclass(frozen=True, slots=True)
class RunningBooking:
    """A booking as it is to be, with whom and what it names."""

    row: BookingRow
    project: bookings.Project
    worker: bookings.Worker
    supervisor_id: int | None
    rate_minor: int
    funded_end: datetime | None


@dataclass(frozen=True, slots=True)
class RunningShift:
    """A shift as it is to be, and how it is paid for."""

    raw: Raw
    row: ShiftRow
    planned: planning.Planned
    price: int
    funding: rules.Funding

    @property
    def start(self) -> datetime:
        """When it begins."""
        return self.planned.start

    @property
    def span(self) -> rules.Span:
        """When its worker is busy, by its name at home."""
        return rules.Span(self.row.external_id, self.planned.start, self.planned.busy_until)


def booking(desk: Desk, conn: Conn, raw: Raw) -> RunningBooking:
    """A row of bookings, checked against what it names; the worker is held."""
    one = row(BookingRow, "bookings", raw)
    project_id = known.id_of(conn, "project_id", "projects", one.project_id)
    project = store.needed(conn, bookings.Project, "project", project_id=project_id)
    worker_id = known.id_of(conn, "worker_id", "workers", one.worker_id)
    worker = store.needed(conn, bookings.Worker, "lock_worker", worker_id=worker_id)
    supervisor = None
    if one.supervisor_id is not None:
        supervisor = known.id_of(conn, "supervisor_id", "users", one.supervisor_id)
        bookings.check_person(conn, "supervisor_id", supervisor, project.company_id)
    payer = store.needed(conn, _Card, "payers_card", project_id=project_id)
    if payer.customer is None or payer.card is None:
        raise Refused("project_id: its company has no customer and card to be charged", field="project_id")
    today = weeks.local_date(desk.now(conn), project.timezone)
    rules.check_dates(
        one.start_date, one.end_date, today, ahead=max(desk.settings.earliest_booking, desk.settings.longest_booking)
    )
    bookings.check_times(start_time=one.start_time, end_time=one.end_time)
    until = rules.funded_until(one.funded_until, one.end_date, today)
    return RunningBooking(
        one, project, worker, supervisor, rules.minor("rate", one.rate, one.currency, desk.settings.highest_rate),
        weeks.midnight(until, project.timezone) if until is not None else None,
    )  # fmt: skip


def shift(desk: Desk, plan: RunningBooking, raw: Raw, now: datetime) -> RunningShift:
    """A row of shifts, checked against its booking."""
    one, zone, currency = row(ShiftRow, "shifts", raw), plan.project.timezone, plan.row.currency
    rules.check_day(one.day, plan.row.start_date, plan.row.end_date, now.date())
    bookings.check_times(start_time=one.start_time, end_time=one.end_time)
    begins, ends = weeks.shift(one.day, one.start_time, one.end_time, zone)
    planned = planning.Planned(begins, ends, ends or begins + desk.settings.open_shift)
    rules.check_span(one.day, planned.start, planned.busy_until, now, zone)
    price = pay.shift_pay(planned.minutes, plan.rate_minor, desk.settings.platform_fee_bps)
    paid = None if one.paid is None else rules.minor("paid", one.paid, currency, price)
    funding = rules.funding(
        paid=paid, price=price, intent=one.payment_intent, charge=one.charge, settled=one.settled, start=planned.start,
        funded_end=plan.funded_end, currency=currency,
    )  # fmt: skip
    return RunningShift(raw, one, planned, price, funding)


class _Card(msgspec.Struct, frozen=True):
    customer: str | None
    card: str | None
