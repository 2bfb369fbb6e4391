"""Send: ask the provider for the money of a payment that is reserved. `settle` hears what became of it."""

from __future__ import annotations

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring.contrib.stripe import ActionRequired, Declined, RequestRefused
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import settle
from mainspring_apps.staffing.payments.patience import patient
from mainspring_apps.staffing.payments.reserve import PaymentTry


def send(desk: Desk, ctx: ms.SyncContext, payment: PaymentTry) -> None:
    """Send a payment that is committed, and end the job; a card that is refused ends the payment as well.

    While nobody answers, it is sent again with the same key. `succeeded` at once changes nothing: the webhook funds.
    """
    try:
        with patient(desk, ctx):
            sent = desk.stripe.sync.charge(
                Money(payment.amount_minor, payment.currency),
                customer=payment.customer or "",
                payment_method=payment.payment_method or "",
                key=payment.idempotency_key,
                since=payment.created_at,
                metadata={"booking_id": str(payment.booking_id), "payment_id": str(payment.id)},
            )
    except Declined as declined:
        with ctx.complete() as conn:
            settle.fail(desk, conn, payment.id, declined.decline_code or "card_declined", intent=declined.intent)
    except ActionRequired as required:
        with ctx.complete() as conn:
            settle.fail(desk, conn, payment.id, "action_required", intent=required.intent)
    except RequestRefused as refused:
        with ctx.complete() as conn:
            settle.fail(desk, conn, payment.id, refused.reason or "refused", person=True)
    except ms.ValidationError as error:  # the provider cannot even be asked
        with ctx.complete() as conn:
            settle.fail(desk, conn, payment.id, error.field or "refused", person=True)
    else:
        with ctx.complete() as conn:
            settle.heard(desk, conn, payment.id, intent=sent.id, charge=sent.charge)
