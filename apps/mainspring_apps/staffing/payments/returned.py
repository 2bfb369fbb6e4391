"""Refunds as the provider tells of them: ours end, and those that people make there by hand are followed.

One by hand is taken for ours where one of the same amount has failed, or came back: somebody has repeated it there.
"""

from __future__ import annotations

from typing import Final

from msgspec import structs

import mainspring as ms
from mainspring.contrib.stripe import Refund
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import movements, takings
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import PAYMENT_EVENTS_QUEUE, RECONCILIATION_QUEUE, tasks
from mainspring_apps.staffing.store import Conn

#: Events that show a refund, and those that only show how much of a charge is refunded.
REFUND_EVENTS: Final = ("refund.created", "refund.updated", "refund.failed", "charge.refund.updated")
CHARGE_EVENTS: Final = ("charge.refunded",)


@tasks.task(queue=PAYMENT_EVENTS_QUEUE, snooze_limit=lambda desk: desk.settings.unknown_payment_after)
def refund_changed(desk: Desk, ctx: ms.SyncContext, *, provider: str, event_id: str) -> None:
    """Write what the provider says about a refund."""
    event = desk.stripe.sync.event(ctx, event_id)
    told, row = event.movement, (event.object.get("metadata") or {}).get(movements.ROW)
    if isinstance(told, Refund):
        with ctx.complete() as conn:
            _write(desk, conn, told, int(row) if row is not None else None)


@tasks.task(
    queue=RECONCILIATION_QUEUE, needs=("stripe",), snooze_limit=lambda desk: desk.settings.unknown_payment_after
)
def charge_refunded(desk: Desk, ctx: ms.SyncContext, *, provider: str, event_id: str) -> None:
    """Ask for the refunds of a charge of which more is refunded than we know of."""
    charge = desk.stripe.sync.event(ctx, event_id).object
    with ctx.transaction() as conn:
        payment = takings.received(conn, charge.get("payment_intent"))
        known = int(store.value(conn, "refunds_known", payment_id=payment.id))
    if known >= charge["amount_refunded"]:
        return
    found = desk.stripe.sync.refunds(payment.created_at, intent=payment.provider_intent_id)
    with ctx.complete() as conn:
        for refund in reversed(found):
            if refund.key is None:  # what has a key of ours is ended by its own job
                _write(desk, conn, refund, None)


def _write(desk: Desk, conn: Conn, refund: Refund, row: int | None) -> None:
    """Apply the provider's word to the row of a refund; one that nobody of us asked for becomes a row, once."""
    known = row or store.value(conn, "refund_of_provider", provider_id=refund.id)
    if known is not None:
        movements.settle(desk, conn, "refunds", movements.to_make(conn, "refunds", known), refund)
        return
    status = movements.SAID_OF_MOVEMENTS[refund.status]
    if status == "Failed":
        return
    payment = takings.received(conn, refund.intent)
    failed = store.value(conn, "refund_to_repeat", payment_id=payment.id, amount=refund.amount.minor)
    if failed is not None:
        desk.record(conn, "repeated_elsewhere", "refund", failed, booking_id=payment.booking_id)
        ours = structs.replace(movements.to_make(conn, "refunds", failed), provider_id=None)  # what failed is over
        movements.settle(desk, conn, "refunds", ours, refund)
        return
    about = {"amount": refund.amount.minor, "currency": refund.amount.currency, "status": status}
    found = store.value(conn, "write_refund_elsewhere", payment_id=payment.id, provider_id=refund.id, **about)
    if found is None:
        return
    beyond = takings.follow(conn, payment.id).get(("refund", found), 0)
    desk.record(
        conn, "refunded_elsewhere", "refund", found, booking_id=payment.booking_id, after={"provider_id": refund.id}
    )
    words = f"{refund.amount} was refunded at the provider by hand"
    takings.told(desk, conn, "refunded_elsewhere", f"refund {found}", words, payment, beyond)
    to = people(conn, payment.booking_id, "Borrowing Admin")
    booking = {"ID": payment.booking_id, "booking_id": payment.booking_id}
    desk.tell(conn, "refund_made", to, {"Amount": str(refund.amount), "refund_id": found, **booking},
              occurrence=refund.created)  # fmt: skip
