"""Settle: what the provider says about a payment, and what follows: escrow is funded, or somebody must act.

Webhooks, a charge's own answer and reconciliation all say the same thing, in any order and more than once. Each change
is one guarded statement under the booking's lock, and what follows it happens in the same transaction, so it happens
once (STAFF-19.06).
"""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final

import msgspec

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring.contrib.stripe import Charge, NotYet
from mainspring_apps.staffing import store, timers
from mainspring_apps.staffing.desk import Desk, booking_subject
from mainspring_apps.staffing.languages import moment
from mainspring_apps.staffing.payments import accounts, confirmation, escrow, no_shows, standing
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import PAYMENT_EVENTS_QUEUE, tasks
from mainspring_apps.staffing.rules import charge as rules
from mainspring_apps.staffing.store import Conn

#: Events of the provider that `payment_changed` wants.
PAYMENT_EVENTS: Final = ("payment_intent.succeeded", "payment_intent.payment_failed", "payment_intent.canceled")


class OpenPayment(msgspec.Struct, frozen=True, kw_only=True):
    """A payment, and what its end depends on."""

    id: int
    booking_id: int
    period_start: datetime
    period_end: datetime
    amount_minor: int
    currency: str
    status: str
    source: rules.Source
    provider_intent_id: str | None
    idempotency_key: str
    failure_code: str | None
    customer: str | None
    correlation_id: str | None
    created_at: datetime

    @property
    def amount(self) -> Money:
        """What is charged."""
        return Money(self.amount_minor, self.currency)


class _PaidBooking(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    status: str
    status_before_suspension: str | None
    start_date: date
    end_date: date
    zone: str


# An event about a payment that stays unknown is somebody else's, or lost: a person looks (STAFF-19.07).
@tasks.task(queue=PAYMENT_EVENTS_QUEUE, snooze_limit=lambda desk: desk.settings.unknown_payment_after)
def payment_changed(desk: Desk, ctx: ms.SyncContext, *, provider: str, event_id: str) -> None:
    """Apply an event of the provider to the payment that it is about."""
    event = desk.stripe.sync.event(ctx, event_id)
    told = event.movement
    if not isinstance(told, Charge):
        return
    with ctx.complete() as conn:
        payment_id = store.value(conn, "payment_of_intent", intent=told.id, key=told.key)
        if payment_id is None:
            raise NotYet
        settle(desk, conn, payment_id, told)


def settle(desk: Desk, conn: Conn, payment_id: int, charge: Charge) -> str:
    """Apply the provider's word to a payment, once and in any order; answers the payment's status afterwards."""
    payment, booking = _held(conn, payment_id)
    with _on_behalf_of(payment):
        heard(desk, conn, payment_id, intent=charge.id, charge=charge.charge)
        match charge.status:
            case "succeeded":
                _succeed(desk, conn, payment, booking)
            case "failed":
                _fail(desk, conn, payment, charge.decline_code or "card_declined")
            case "action_required":
                _fail(desk, conn, payment, "action_required")
            case "canceled":
                _cancel(desk, conn, payment)
            case "pending":
                pass
    return _status(conn, payment_id)


def heard(desk: Desk, conn: Conn, payment_id: int, *, intent: str | None = None, charge: str | None = None) -> None:
    """The provider has said something of a payment: whatever it was, it has answered."""
    about = {"intent": intent, "charge": charge, "silence": desk.settings.silence}
    store.do(conn, "payment_heard", payment_id=payment_id, **about)


def cancel(desk: Desk, conn: Conn, payment_id: int) -> str:
    """A payment that the provider never heard of is not wanted any more; answers its status afterwards."""
    payment, _ = _held(conn, payment_id)
    _cancel(desk, conn, payment)
    return _status(conn, payment_id)


def never_sent(desk: Desk, conn: Conn, payment_id: int) -> bool:
    """Whether a payment of which the provider knows nothing has ended just now, as nobody will send it any more."""
    payment, _ = _held(conn, payment_id)
    ended = bool(store.do(conn, "payment_never_sent", payment_id=payment_id))
    if ended:
        _not_confirmed(desk, conn, payment, "never_sent")
    return ended


def fail(
    desk: Desk, conn: Conn, payment_id: int, code: str, *, intent: str | None = None, person: bool = False
) -> None:
    """A payment was refused for good: the borrower must act, and where nobody's card is to blame, so must we."""
    payment, _ = _held(conn, payment_id)
    with _on_behalf_of(payment):
        heard(desk, conn, payment_id, intent=intent)
        if _fail(desk, conn, payment, code) and person:
            _alert(desk, conn, payment, code)


def not_tried(desk: Desk, conn: Conn, payment_id: int) -> None:
    """A payment that failed before anybody was asked: told as every failure, and to the operations team (1.38)."""
    payment, _ = _held(conn, payment_id)
    _tell(desk, conn, payment, payment.failure_code or "")
    _alert(desk, conn, payment, payment.failure_code or "")


def _succeed(desk: Desk, conn: Conn, payment: OpenPayment, booking: _PaidBooking) -> None:
    """The money has come: one transaction funds escrow, moves the funded week, and pays what is verified (1.30)."""
    if not store.do(conn, "payment_succeeded", payment_id=payment.id):
        if store.do(conn, "payment_received", payment_id=payment.id):  # given up, or paid by another try
            _give_back(desk, conn, payment, "it was no longer wanted")
        return
    _record(desk, conn, payment, "payment_succeeded", "Succeeded")
    desk.calm(conn, "payment_needs_a_person", booking_subject(payment.booking_id))
    before = booking.status_before_suspension or booking.status
    dates = {"end_date": booking.end_date, "start_date": booking.start_date}
    match payment.source:
        case source if source in rules.FOR_SHIFTS:  # whatever became of the booking
            pass
        case "upfront":
            if not confirmation.confirm(desk, conn, payment.booking_id):
                _give_back(desk, conn, payment, "the booking was not confirmed")
                return
        case _:
            if rules.too_late(before, period_start=payment.period_start, zone=booking.zone, **dates):
                _give_back(desk, conn, payment, "the worker was released")
                return
    escrow.fund(desk, conn, payment.id)
    no_shows.watch_over(desk, conn, payment.booking_id)
    if payment.source not in rules.FOR_SHIFTS:
        store.do(conn, "fund_booking", booking_id=payment.booking_id, period_end=payment.period_end)
    accounts.pay_out(desk, conn, payment.booking_id, payment.id)


def _cancel(desk: Desk, conn: Conn, payment: OpenPayment) -> None:
    if store.do(conn, "payment_canceled", payment_id=payment.id):
        _record(desk, conn, payment, "payment_canceled", "Canceled")
        _not_confirmed(desk, conn, payment, "canceled")


def _not_confirmed(desk: Desk, conn: Conn, payment: OpenPayment, why: str) -> None:
    """A payment has ended without its money: what was to be confirmed by it is not."""
    if payment.source == "upfront":
        confirmation.refuse(desk, conn, payment.booking_id, payment.amount, why)


def _give_back(desk: Desk, conn: Conn, payment: OpenPayment, why: str) -> None:
    store.do(conn, "payment_given_back", payment_id=payment.id)
    escrow.refund_whole(desk, conn, payment.id)
    _record(desk, conn, payment, "payment_refunded", why=why)
    words = f"payment {payment.id} of booking {payment.booking_id} was refunded: {why}"
    desk.alert(conn, "late_payment_refunded", booking_subject(payment.booking_id), words)


def _fail(desk: Desk, conn: Conn, payment: OpenPayment, code: str) -> bool:
    """Whether it failed just now: then it is told, once."""
    if not store.do(conn, "payment_failed", payment_id=payment.id, code=code):
        return False
    _tell(desk, conn, payment, code)
    return True


def _tell(desk: Desk, conn: Conn, payment: OpenPayment, code: str) -> None:
    _record(desk, conn, payment, "payment_failed", "Failed", why=code)
    if payment.source == "upfront":
        _not_confirmed(desk, conn, payment, code)
        return
    ids = {"booking_id": payment.booking_id, "payment_id": payment.id}
    booking = store.needed(conn, _PaidBooking, "lock_booking", booking_id=payment.booking_id)
    cutoff = standing.pay_until(desk, conn, payment.booking_id, payment.period_end, payment.created_at)
    if payment.source not in rules.FOR_SHIFTS and cutoff <= desk.now(conn):
        return  # nothing can be done about it any more: the release tells
    about = {"ID": payment.booking_id, "Amount": str(payment.amount), "Cutoff": moment(cutoff, booking.zone), **ids}
    to = people(conn, payment.booking_id, rules.FAILURE_TOLD)
    text = rules.FAILURE_TEXT.get(payment.source, "action_required")
    desk.tell(conn, text, to, about, occurrence=payment.created_at)


def _alert(desk: Desk, conn: Conn, payment: OpenPayment, code: str) -> None:
    words = f"payment {payment.id} of booking {payment.booking_id} failed: {code}"
    desk.alert(conn, "payment_needs_a_person", booking_subject(payment.booking_id), words)


def _record(
    desk: Desk, conn: Conn, payment: OpenPayment, action: str, status: str | None = None, *, why: str | None = None
) -> None:
    """Write what happened to a payment; where it has come to its end, nobody need ask any more."""
    after = None if status is None else {"status": status}
    if status is not None:
        desk.client.timers.cancel(timers.key(timers.RECONCILIATION_TIMER, payment.id), reason=status, conn=conn)
    desk.record(
        conn, action, "payment", payment.id, booking_id=payment.booking_id, reason=why,
        before={"status": payment.status}, after=after,
    )  # fmt: skip


def _held(conn: Conn, payment_id: int) -> tuple[OpenPayment, _PaidBooking]:
    """A payment as it stands under its booking's lock."""
    found = store.needed(conn, OpenPayment, "payment", payment_id=payment_id)
    booking = store.needed(conn, _PaidBooking, "lock_booking", booking_id=found.booking_id)
    return store.needed(conn, OpenPayment, "payment", payment_id=payment_id), booking


def _status(conn: Conn, payment_id: int) -> str:
    return store.needed(conn, OpenPayment, "payment", payment_id=payment_id).status


def _on_behalf_of(payment: OpenPayment) -> Any:
    """What follows carries the id that the charge began with, whoever told of its end (STAFF-16.06)."""
    return ms.following(payment.correlation_id)
