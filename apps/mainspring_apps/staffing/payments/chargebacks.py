"""Chargebacks: a bank takes a payment back for its customer, at once, and decides later whose the money is."""

from __future__ import annotations

from typing import Any, Final

import msgspec

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import accounts, escrow, reversals, takings
from mainspring_apps.staffing.payments.takings import ReceivedPayment
from mainspring_apps.staffing.registry import PAYMENT_EVENTS_QUEUE, tasks
from mainspring_apps.staffing.rules import provider as rules
from mainspring_apps.staffing.store import Conn

#: A bank that only asks first is heard of again, by an update, when it takes the money after all.
CHARGEBACK_EVENTS: Final = ("charge.dispute.created", "charge.dispute.updated", "charge.dispute.closed")
#: What is told while a chargeback stands where it does.
ALERTS: Final = {"Inquiry": "chargeback_inquiry", "Open": "chargeback_open", "Lost": "chargeback_lost"}
_WORDS: Final = {
    "Inquiry": "may be charged back: the bank asks",
    "Open": "was charged back",
    "Lost": "is charged back for good",
}


class Chargeback(msgspec.Struct, frozen=True, kw_only=True):
    """A bank's dispute about a payment."""

    id: int
    payment_id: int
    status: rules.ChargebackStatus
    amount_minor: int
    currency: str
    reason: str


@tasks.task(queue=PAYMENT_EVENTS_QUEUE, snooze_limit=lambda desk: desk.settings.unknown_payment_after)
def chargeback_changed(desk: Desk, ctx: ms.SyncContext, *, provider: str, event_id: str) -> None:
    """Let the ledger follow a chargeback, once for each of its turns and in any order."""
    dispute = desk.stripe.sync.event(ctx, event_id).object
    with ctx.complete() as conn:
        payment = takings.received(conn, dispute.get("payment_intent"))
        found = _written(conn, payment, dispute)
        if found is not None:
            _turned(desk, conn, payment, found)


def _written(conn: Conn, payment: ReceivedPayment, dispute: dict[str, Any]) -> Chargeback | None:
    """Its row, if this was news."""
    turn = {"provider_id": dispute["id"], "status": rules.chargeback(dispute["status"])}
    about = {"amount": dispute["amount"], "currency": dispute["currency"].upper(), "reason": dispute["reason"]}
    new = store.one(conn, Chargeback, "write_chargeback", payment_id=payment.id, **turn, **about)
    return new or store.one(conn, Chargeback, "move_chargeback", **turn)


def _turned(desk: Desk, conn: Conn, payment: ReceivedPayment, found: Chargeback) -> None:
    subject, amount = f"chargeback {found.id}", Money(found.amount_minor, found.currency)
    if found.status == "Won":
        _come_back(desk, conn, payment, found)
    beyond = takings.follow(conn, payment.id).get(("chargeback", found.id), 0)
    action = f"chargeback_{found.status.lower()}"
    desk.record(conn, action, "chargeback", found.id, booking_id=payment.booking_id, reason=found.reason)
    for status, name in ALERTS.items():
        if status == found.status:
            words = f"{amount} {_WORDS[status]} ({found.reason})"
            takings.told(desk, conn, name, subject, words, payment, beyond, critical=status != "Inquiry")
        else:
            desk.calm(conn, name, subject)


def _come_back(desk: Desk, conn: Conn, payment: ReceivedPayment, found: Chargeback) -> None:
    """What was won is with us again, and goes where it would have gone meanwhile."""
    holds = store.many(conn, escrow.Hold, "return_charged_back", chargeback_id=found.id)
    takings.follow(conn, payment.id)
    store.do(conn, "freeze_again", payment_id=payment.id)
    left = store.many(conn, escrow.Hold, "holds_left", ids=[hold.id for hold in holds])
    escrow.catch_up(desk, conn, [hold for hold in left if not hold.set_aside])
    reversals.tell_set_aside(desk, conn, payment.booking_id, left)
    accounts.pay_out(desk, conn, payment.booking_id, payment.id)
