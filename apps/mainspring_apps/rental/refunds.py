"""Money that goes back: asked for under the lock of its booking, sent once, and followed by its credit note."""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring.contrib.stripe import Refund
from mainspring_apps.frame.refusal import Refused, missing
from mainspring_apps.rental import credit_notes, mails, store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.events import event
from mainspring_apps.rental.people import By, Staff
from mainspring_apps.rental.registry import CHECKOUTS, desk_tasks
from mainspring_apps.rental.rules import documents
from mainspring_apps.rental.rules import refunds as rules
from mainspring_apps.rental.rules.documents import Facts, Invoice
from mainspring_apps.rental.store import Conn

_PATIENT: Final = ms.exponential(base="30s", cap="10m", attempts=999)


class RefundRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `refunds`."""

    id: int
    booking_id: int
    payment_intent: str
    amount_minor: int
    currency: str
    state: Literal["asked", "done", "failed"]
    stripe_refund_id: str | None
    created_at: datetime


@event
def refund(desk: Desk, conn: Conn, booking_id: int, *, amount_minor: int, reason: str, by: By) -> int:
    """Give a part of a payment back; the booking stays as it is."""
    facts = _locked(desk, conn, booking_id)
    return _ask(desk, conn, facts, amount_minor, reason, by)


@event
def cancel_booking(desk: Desk, conn: Conn, booking_id: int, *, give_back_minor: int, reason: str, by: By) -> None:
    """Cancel a confirmed booking until its rental ends, and give so much back: the machine is free at once."""
    facts = _locked(desk, conn, booking_id)
    if facts.status != "CONFIRMED":
        raise Refused(f"booking_id: is {facts.status}, not CONFIRMED", field="booking_id")
    if documents.over(facts, desk.now(conn), desk.settings.zone):
        raise Refused("booking_id: its rental is over", field="booking_id")
    left = (facts.total_minor or 0) - _given_back(conn, booking_id)
    invoice = store.one(conn, Invoice, "lock_invoice", booking_id=booking_id)
    rules.check_documented(
        None if invoice is None else invoice.state,
        keeps_money=give_back_minor < left,
        invoicing=desk.settings.invoicing_enabled,
    )
    if give_back_minor:
        _ask(desk, conn, facts, give_back_minor, reason, by)
    desk.bookings.cancel(conn, booking_id)
    for job in store.column(conn, "waiting_jobs", booking_id=booking_id):
        desk.client.cancel(job, reason="the booking was cancelled", conn=conn)
    desk.enqueue(conn, mails.send_notice.job(booking_id=booking_id, notice="cancelled", about=booking_id))
    desk.record(
        conn, "cancelled", "booking", booking_id, booking_id=booking_id, reason=reason, give_back_minor=give_back_minor
    )  # fmt: skip


def proposed(desk: Desk, conn: Conn, booking_id: int) -> int:
    """What is proposed to go back if a booking is cancelled now."""
    facts = desk.bookings.facts(conn, booking_id)
    if facts is None or facts.start_date is None:
        raise missing("booking_id", booking_id)
    left = (facts.total_minor or 0) - _given_back(conn, booking_id)
    return rules.proposal(facts.start_date, desk.settings.zone, desk.now(conn), left, desk.settings.free_cancel_hours)


@desk_tasks.task(queue=CHECKOUTS, needs=("stripe",), subject="refund_id", retry=_PATIENT)
def make_refund(desk: Desk, ctx: ms.SyncContext, *, refund_id: int) -> None:
    """Give money back at Stripe, once for its row."""
    with ctx.transaction() as conn:
        row = store.needed(conn, RefundRow, "refund", refund_id=refund_id)
    if row.state != "asked":
        return
    amount = Money(row.amount_minor, row.currency)
    try:
        made = desk.stripe.sync.refund(
            intent=row.payment_intent, amount=amount, key=f"rental:refund:{row.id}", since=row.created_at
        )  # fmt: skip
    except ms.Permanent as refused:
        with ctx.transaction() as conn:
            _fail(desk, conn, row, str(refused))
        raise
    with ctx.complete() as conn:
        _apply(desk, conn, row, made)


@desk_tasks.task(queue=CHECKOUTS, needs=("stripe",), dedupe=ms.dedupe.live("{refund}"), retry=_PATIENT)
def look_at_refund(desk: Desk, ctx: ms.SyncContext, *, refund: str) -> None:
    """Something happened to a refund at Stripe, ours or of its dashboard: apply how it stands now (RENT-20.16)."""
    found = desk.stripe.sync.get_refund(refund)
    if found is None or found.intent is None:
        return
    with ctx.complete() as conn:
        row = store.one(conn, RefundRow, "refund_of_stripe", stripe_refund_id=found.id, key=found.key or "")
        if row is None:
            row = _taken_over(desk, conn, found)
        if row is not None:
            _apply(desk, conn, row, found)


def _locked(desk: Desk, conn: Conn, booking_id: int) -> Facts:
    facts = desk.bookings.facts(conn, booking_id, lock=True)
    if facts is None:
        raise missing("booking_id", booking_id)
    return facts


def _given_back(conn: Conn, booking_id: int) -> int:
    return int(store.value(conn, "given_back", booking_id=booking_id))


def _ask(desk: Desk, conn: Conn, facts: Facts, amount: int, reason: str, by: By) -> int:
    if facts.stripe_payment_intent_id is None:
        raise Refused("booking_id: nobody has paid for it", field="booking_id")
    before = _given_back(conn, facts.id)
    rules.check_amount(amount, facts.total_minor or 0, before)
    unlimited = not isinstance(by, Staff) or by.role == "admin"
    rules.check_limit(amount, before, desk.settings.refund_limit_cents, unlimited=unlimited)
    refund_id: int = store.value(
        conn, "ask_refund", booking_id=facts.id, payment_intent=facts.stripe_payment_intent_id, amount_minor=amount,
        currency=facts.currency, reason=reason,
    )  # fmt: skip
    desk.enqueue(conn, make_refund.job(refund_id=refund_id))
    desk.record(conn, "refund_asked", "refund", refund_id, booking_id=facts.id, reason=reason, amount_minor=amount)
    return refund_id


def _apply(desk: Desk, conn: Conn, row: RefundRow, made: Refund) -> None:
    """A refund as it stands at Stripe; one that failed later is failed again, and was not given back."""
    if made.status == "succeeded":
        if store.do(conn, "refund_done", refund_id=row.id, stripe_refund_id=made.id):
            desk.calm(conn, "refund_failed", f"refund {row.id}")
            credit_notes.wanted(desk, conn, row.booking_id)
    elif made.status == "failed":
        _fail(desk, conn, row, made.failure or "it failed at Stripe", made.id)
    else:
        store.do(conn, "refund_under_way", refund_id=row.id, stripe_refund_id=made.id)


def _fail(desk: Desk, conn: Conn, row: RefundRow, why: str, stripe_refund_id: str | None = None) -> None:
    if store.do(conn, "refund_failed", refund_id=row.id, stripe_refund_id=stripe_refund_id):
        text = f"{Money(row.amount_minor, row.currency)} were not given back: {why}"
        desk.alert(conn, "refund_failed", f"refund {row.id}", text, critical=True, booking_id=row.booking_id)


def _taken_over(desk: Desk, conn: Conn, found: Refund) -> RefundRow | None:
    """A refund that somebody made in Stripe's dashboard: a row of ours, once, and a question (RENT-20.16)."""
    assert found.intent is not None
    booking = store.value(conn, "booking_of_payment", payment_intent=found.intent)
    reason = store.value(
        conn, "settled_by_refund", payment_intent=found.intent, amount_minor=found.amount.minor
    )  # fmt: skip
    if reason is not None:  # it confirmed nothing: nothing was invoiced, and nothing is credited
        desk.calm(conn, reason.lower(), found.intent)
        return None
    if booking is None:
        return None
    _locked(desk, conn, booking)
    refund_id = store.value(
        conn, "ask_refund", booking_id=booking, payment_intent=found.intent, amount_minor=found.amount.minor,
        currency=found.amount.currency, reason="refunded in Stripe's dashboard",
    )  # fmt: skip
    text = f"{found.amount} were given back in Stripe's dashboard: is the booking to be cancelled?"
    desk.alert(conn, "refunded_outside", desk.subject(booking), text, booking_id=booking)
    desk.record(conn, "refund_taken_over", "refund", refund_id, booking_id=booking)
    return store.needed(conn, RefundRow, "refund", refund_id=refund_id)
