"""Ask the provider about payments whose end nobody told us, and let go of those that come too late.

Who asks waits while the provider is away, and hears the end when it is back.
"""

from __future__ import annotations

import mainspring as ms
from mainspring.contrib.stripe import Charge
from mainspring_apps.staffing import store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import settle
from mainspring_apps.staffing.payments.patience import patient
from mainspring_apps.staffing.payments.settle import OpenPayment
from mainspring_apps.staffing.registry import RECONCILIATION_QUEUE, tasks
from mainspring_apps.staffing.store import Conn


# What runs is not cancelled: it may be what finds the end, which cancels the timer.
@tasks.task(
    queue=RECONCILIATION_QUEUE,
    snooze_limit=None,
    dedupe=ms.dedupe.live("{payment_id}"),
    cancellable=False,
    subject="payment_id",
)
def reconcile_payment(desk: Desk, ctx: ms.SyncContext, *, payment_id: int) -> None:
    """Ask about a payment whose end nobody told us, until it has one (STAFF-19.08)."""
    if ask(desk, ctx, payment_id) == "Pending":
        with ctx.complete() as conn:
            watch_over(desk, conn, payment_id)


def watch_over(desk: Desk, conn: Conn, payment_id: int) -> None:
    """Ask about a payment after a while, unless its end is known by then."""
    job = reconcile_payment.job(payment_id=payment_id).at(desk.now(conn) + desk.settings.reconcile_after)
    timers.start(desk, conn, timers.RECONCILIATION_TIMER, payment_id, job)


#: Payments whose timer is missing.
tasks.sweep(
    "payment-reconciliation",
    every=lambda desk: desk.settings.reconcile_every,
    query=store.sql["stale_payments"],
    params=lambda desk: {"stale": desk.settings.stale_after},
    job=lambda _, row: reconcile_payment.job(payment_id=row.id),
    limit=lambda desk: desk.settings.enqueueing_page,
)


def ask(desk: Desk, ctx: ms.SyncContext, payment_id: int) -> str:
    """Ask the provider about a payment that is still `Pending`, apply the answer, and say its status.

    What it never heard of, and no job will send any more, is let go.
    """
    payment, found = _asked(desk, ctx, payment_id)
    if payment.status != "Pending":
        return payment.status
    with ctx.transaction() as conn:
        if found is not None:
            return settle.settle(desk, conn, payment_id, found)
        return "Canceled" if settle.never_sent(desk, conn, payment_id) else "Pending"


def give_up(desk: Desk, ctx: ms.SyncContext, payment_id: int) -> str:
    """Cancel the intent of a `Pending` payment; if it was paid meanwhile it is funded. Answers its status.

    A payment that the provider never heard of is cancelled here alone. It stays `Pending` where the provider can
    neither cancel nor end it now.
    """
    payment, found = _asked(desk, ctx, payment_id)
    if payment.status != "Pending":
        return payment.status
    if found is not None and found.status not in ("succeeded", "canceled"):
        # Each try under a key of its own: a refusal would be repeated under the same one.
        with patient(desk, ctx):
            found = desk.stripe.sync.cancel(found.id, key=f"cancel:{payment_id}:{ctx.job.id}:{ctx.attempt}")
    with ctx.transaction() as conn:
        if found is not None:
            return settle.settle(desk, conn, payment_id, found)
        return settle.cancel(desk, conn, payment_id)


def _asked(desk: Desk, ctx: ms.SyncContext, payment_id: int) -> tuple[OpenPayment, Charge | None]:
    """A payment, and what the provider has of it: by its id, or by its key where nobody wrote the id down."""
    with ctx.transaction() as conn:
        payment = store.needed(conn, OpenPayment, "payment", payment_id=payment_id)
    if payment.status != "Pending":
        return payment, None
    line = desk.stripe.sync
    with patient(desk, ctx):
        if payment.provider_intent_id is not None:
            return payment, line.intent(payment.provider_intent_id)
        return payment, line.find_charge(payment.idempotency_key, payment.created_at, customer=payment.customer)
