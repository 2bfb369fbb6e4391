"""What the provider took of a payment without us: by hand in its dashboard, or for a bank that charged it back.

The ledger follows as far as the money is still with us. What has gone to the lender stays released, and somebody is
told. The same look is taken when money comes back, so that it goes where it was missed.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final, Literal

import msgspec

from mainspring.contrib.money import Money
from mainspring.contrib.stripe import NotYet
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.locking import lock_booking
from mainspring_apps.staffing.payments.escrow import Hold
from mainspring_apps.staffing.store import Conn

TakingKind = Literal["refund", "chargeback"]
_BECOMES: Final = {"refund": "Refunded", "chargeback": "ChargedBack"}


class ReceivedPayment(msgspec.Struct, frozen=True, kw_only=True):
    """A payment whose money is known to have come."""

    id: int
    booking_id: int
    received_at: datetime | None
    provider_intent_id: str
    created_at: datetime
    amount_minor: int
    currency: str


class _Taking(msgspec.Struct, frozen=True, kw_only=True):
    kind: TakingKind
    id: int
    missing: int


def received(conn: Conn, intent: str | None) -> ReceivedPayment:
    """The payment that an event is about, with its booking locked; the event waits until we know of its money."""
    found = store.one(conn, ReceivedPayment, "payment_at_provider", intent=intent)
    if found is None:
        raise NotYet
    lock_booking(conn, found.booking_id)
    found = store.needed(conn, ReceivedPayment, "payment_at_provider", intent=intent)
    if found.received_at is None:
        raise NotYet
    return found


def follow(conn: Conn, payment_id: int) -> dict[tuple[TakingKind, int], int]:
    """Move what was taken out of the holds of a payment; answers what of it is not with us any more.

    Future shifts give first, as nobody has worked them; what a dispute has frozen gives last.
    """
    beyond = {}
    for taking in store.many(conn, _Taking, "takings", payment_id=payment_id):
        missing = taking.missing
        for hold in store.many(conn, Hold, "takeable_holds", payment_id=payment_id):
            if missing == 0:
                break
            taken = hold
            if hold.amount_minor > missing:
                taken = store.needed(conn, Hold, "split_hold", hold_id=hold.id, kept=hold.amount_minor - missing)
            by = {kind: taking.id if kind == taking.kind else None for kind in _BECOMES}
            about = {"refund_id": by["refund"], "chargeback_id": by["chargeback"]}
            store.do(conn, "take_hold", hold_id=taken.id, status=_BECOMES[taking.kind], **about)
            missing -= taken.amount_minor
        if missing:
            beyond[taking.kind, taking.id] = missing
    return beyond


def told(
    desk: Desk, conn: Conn, name: str, subject: str, words: str, payment: ReceivedPayment, beyond: int, *,
    critical: bool = False,
) -> None:  # fmt: skip
    """Tell the operations team what was taken; what of it the lender has is the platform's loss, and critical."""
    if beyond:
        sent = store.column(conn, "transfers_of_payment", payment_id=payment.id)
        back = f"; transfer {', '.join(map(str, sent))} can be taken back" if sent else ""
        words += f", of which {Money(beyond, payment.currency)} is not with us any more{back}"
    desk.alert(conn, name, subject, f"booking {payment.booking_id}: {words}", critical=critical or bool(beyond))
