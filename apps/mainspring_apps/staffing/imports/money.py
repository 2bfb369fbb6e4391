"""What running bookings were paid for: payments that this marketplace has not made, and keeps to."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from datetime import datetime

from mainspring.contrib.money import Money
from mainspring.contrib.stripe import Charge
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.imports.plan import RunningBooking, RunningShift
from mainspring_apps.staffing.payments import settle
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.store import Conn


def refused_intents(conn: Conn, shifts: Iterable[RunningShift]) -> dict[str, str]:
    """Shifts whose payment is another booking's already, or has two charges."""
    found, charges = {}, dict[str, str | None]()
    for one in shifts:
        intent, charge = one.row.payment_intent, one.row.charge
        if intent is None:
            continue
        if store.value(conn, "payment_of_intent", intent=intent, key=None) is not None:
            found[one.row.external_id] = "payment_intent: has paid for something else already"
        elif charges.setdefault(intent, charge) != charge:
            found[one.row.external_id] = "charge: is another one than that of the same payment_intent"
    return found


def fund(
    desk: Desk, conn: Conn, booking: int, plan: RunningBooking, ids: Mapping[datetime, int],
    shifts: Iterable[RunningShift],
) -> None:  # fmt: skip
    """A payment for what was paid: its money stands in escrow, or nowhere with us; no Wednesday asks for it again."""
    paid: dict[tuple[str | None, str | None], list[RunningShift]] = defaultdict(list)
    for one in sorted(shifts, key=lambda one: one.start):
        if one.funding != "unpaid":
            paid[one.row.payment_intent, one.row.charge].append(one)
    zone = plan.project.timezone
    for (intent, charge), group in paid.items():
        first, last = (weeks.week(weeks.monday(one.start, zone), zone) for one in (group[0], group[-1]))
        number = 1 + int(store.value(conn, "tries", booking_id=booking, period_start=first.start))
        amount = sum(one.price for one in group)
        payment = int(store.value(
            conn, "create_payment", booking_id=booking, period_start=first.start, period_end=last.end, amount=amount,
            currency=plan.row.currency, status="Succeeded" if intent is None else "Pending", source="imported",
            key=f"imported:{booking}:{first.start.isoformat()}:{number}", customer=None, payment_method=None,
            failure_code=None, job_id=None, correlation_id=None, shifts=[ids[one.start] for one in group],
            kinds=["Shift"] * len(group), amounts=[one.price for one in group], **{"try": number},
        ))  # fmt: skip
        about = {"amount_minor": amount, "currency": plan.row.currency, "source": "imported"}
        desk.record(conn, "payment_imported", "payment", payment, booking_id=booking, after=about)
        if intent is not None:
            came = Charge(
                id=intent, status="succeeded", amount=Money(amount, plan.row.currency), charge=charge, customer=None,
                key=None, created=desk.now(conn),
            )  # fmt: skip
            settle.settle(desk, conn, payment, came)
