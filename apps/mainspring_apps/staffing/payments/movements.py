"""Transfers to lenders and refunds to borrowers: each is carried out once, by a job of its own; see also `reversals`.

A row and its key are committed before the provider is called. What the provider refuses is `Failed`, a dead letter and
an alert (STAFF-9.30); a replay of the dead letter tries again. A refund that the bank sends back is `Failed` as well,
and an operator repeats it. What stays `Pending` is asked for at the provider. Where that does not answer, all of them
wait (STAFF-20.17).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final, Literal, TypeVar

import msgspec

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring.contrib.stripe import ActionRequired, Declined, Pending, Refund, RequestRefused, Reversal, Transfer
from mainspring_apps.staffing import store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.locking import lock_booking
from mainspring_apps.staffing.payments.patience import patient
from mainspring_apps.staffing.people import By
from mainspring_apps.staffing.registry import LENDER_TRANSFERS, RECONCILIATION_QUEUE, REFUNDS, tasks
from mainspring_apps.staffing.states import MovementStatus, Refused
from mainspring_apps.staffing.store import Conn

MovementKind = Literal["transfers", "refunds", "reversals"]
Moved = TypeVar("Moved", Transfer, Refund, Reversal)

#: What tells that the provider has moved nothing.
REFUSALS: Final = (RequestRefused, Declined, ActionRequired)
#: Where a refund at the provider says which row of ours it is.
ROW: Final = "staffing_refund"
SAID_OF_MOVEMENTS: Final[dict[str, MovementStatus]] = {
    "pending": "Pending", "action_required": "Pending", "succeeded": "Succeeded", "failed": "Failed",
    "canceled": "Failed",
}  # fmt: skip
#: The borrower's bank did not take a refund, or has sent it back.
RETURNED: Final = "refund_returned"
#: Money waits for a lender who has no account at the provider (G-65).
NO_ACCOUNT: Final = "lender_without_account"


class ToMake(msgspec.Struct, frozen=True, kw_only=True):
    """A transfer, a refund or a reversal, with what the provider must know."""

    id: int
    status: MovementStatus
    amount_minor: int
    currency: str
    idempotency_key: str
    try_: int = msgspec.field(name="try")
    provider_id: str | None
    created_at: datetime
    booking_id: int
    lender_id: int | None = None
    destination: str | None = None  # of a transfer
    charge: str | None = None
    intent: str | None = None  # of a refund
    transfer: str | None = None  # of a reversal

    @property
    def amount(self) -> Money:
        """What moves."""
        return Money(self.amount_minor, self.currency)

    @property
    def key(self) -> str:
        """What is sent: the row's key; after a refusal the next one, since the provider repeats a refusal for a day."""
        return self.idempotency_key if self.try_ == 1 else f"{self.idempotency_key}:{self.try_}"

    def outdated(self, made: Transfer | Refund | Reversal) -> bool:
        """Whether this is of an earlier try, told again; what was made by hand has no key."""
        if made.key is None:
            return self.provider_id is not None and (made.id != self.provider_id or self.status == "Failed")
        return made.key != self.key


def carry_out(kind: MovementKind, row_id: int) -> ms.NewJob:
    """The job that carries out a row of `transfers` or `refunds`."""
    job = pay_lender.job(transfer_id=row_id) if kind == "transfers" else refund_borrower.job(refund_id=row_id)
    return job.with_key(f"{kind}:{row_id}")


def begin(desk: Desk, conn: Conn, kind: MovementKind, ids: Sequence[int]) -> None:
    """Let rows be carried out, and be asked for after a while if their end is not known by then."""
    at = desk.now(conn) + desk.settings.reconcile_after
    desk.enqueue(conn, *(carry_out(kind, id_) for id_ in ids), *(_asking(kind, id_, at) for id_ in ids))


@tasks.task(
    queue=LENDER_TRANSFERS,
    snooze_limit=None,
    subject="transfer_id",
)
def pay_lender(desk: Desk, ctx: ms.SyncContext, *, transfer_id: int) -> None:
    """Transfer released money to the lender's Connected Account."""
    with ctx.transaction() as conn:
        transfer = to_make(conn, "transfers", transfer_id)
        if transfer.destination is None and transfer.status != "Succeeded":
            text = f"company {transfer.lender_id} has no connected account: {transfer.amount} waits for it"
            desk.alert(conn, NO_ACCOUNT, f"company {transfer.lender_id}", text)
        store.do(conn, "aim_transfer", id=transfer.id, destination=transfer.destination)
    if transfer.status == "Succeeded":
        return
    if transfer.destination is None:
        raise ms.Snooze(desk.settings.account_wait)
    destination = transfer.destination
    made = moved(desk, ctx, "transfers", transfer, lambda: desk.stripe.sync.transfer(
        transfer.amount, destination=destination, source=transfer.charge, key=transfer.key, since=transfer.created_at,
    ))  # fmt: skip
    with ctx.complete() as conn:
        settle(desk, conn, "transfers", transfer, made)


@tasks.task(queue=REFUNDS, snooze_limit=None, subject="refund_id")
def refund_borrower(desk: Desk, ctx: ms.SyncContext, *, refund_id: int) -> None:
    """Give money back to the borrower's payment method."""
    with ctx.transaction() as conn:
        refund = to_make(conn, "refunds", refund_id)
    if refund.status == "Succeeded":
        return
    made = moved(desk, ctx, "refunds", refund, lambda: desk.stripe.sync.refund(
        intent=refund.intent, amount=refund.amount, key=refund.key, since=refund.created_at,
        metadata={ROW: str(refund.id)},
    ))  # fmt: skip
    with ctx.complete() as conn:
        settle(desk, conn, "refunds", refund, made)


# What runs is not cancelled: it may be what finds the end, which cancels the timer.
@tasks.task(
    queue=RECONCILIATION_QUEUE,
    snooze_limit=None,
    dedupe=ms.dedupe.live("{kind}:{row_id}"),
    cancellable=False,
)
def reconcile_movement(desk: Desk, ctx: ms.SyncContext, *, kind: MovementKind, row_id: int) -> None:
    """Ask the provider about a transfer or refund until it has an end; if it was never made, its job will make it."""
    with ctx.transaction() as conn:
        row = to_make(conn, kind, row_id)
    if row.status != "Pending" or (kind == "transfers" and row.destination is None):
        return
    which: Literal["transfer", "refund"] = "transfer" if kind == "transfers" else "refund"
    of = row.destination if kind == "transfers" else row.intent
    asked = Pending(kind=which, key=row.key, id=row.provider_id, since=row.created_at, of=of)
    with patient(desk, ctx):
        (finding,) = desk.stripe.sync.reconcile([asked])
    with ctx.complete() as conn:
        if isinstance(finding.found, Transfer | Refund):
            settle(desk, conn, kind, row, finding.found)
        if to_make(conn, kind, row_id).status == "Pending":
            again = _asking(kind, row_id, desk.now(conn) + desk.settings.reconcile_after)
            timers.start(desk, conn, _timer(kind), row_id, again)


def _asking(kind: MovementKind, row_id: int, at: datetime) -> ms.NewJob:
    return reconcile_movement.job(kind=kind, row_id=row_id).at(at).with_key(timers.key(_timer(kind), row_id))


def _timer(kind: MovementKind) -> str:
    """The key of its task, so that a sweep leaves alone what has a timer."""
    return f"reconcile_movement:{kind}"


#: Transfers and refunds whose timer is missing.
tasks.sweep(
    "movement-reconciliation",
    every=lambda desk: desk.settings.reconcile_every,
    query=store.sql["stale_movements"],
    by="key",
    params=lambda desk: {"stale": desk.settings.stale_after},
    job=lambda _, row: reconcile_movement.job(kind=row.kind, row_id=row.id),
    limit=lambda desk: desk.settings.enqueueing_page,
)


def settle(desk: Desk, conn: Conn, kind: MovementKind, row: ToMake, made: Transfer | Refund | Reversal) -> None:
    """Apply the provider's word to a row, once; a failure that comes later needs a person."""
    # A transfer that exists was made: Stripe refuses it, or it is done.
    status: MovementStatus = "Succeeded" if isinstance(made, Transfer) else SAID_OF_MOVEMENTS[made.status]
    entity = kind.removesuffix("s")
    about = {"id": row.id, "try": row.try_}
    if row.outdated(made):
        return
    if status == "Failed":
        if store.do(conn, "fail_refund", refused=True, **about):
            text = f"booking {row.booking_id}: the borrower's bank did not take {row.amount}"
            desk.alert(conn, RETURNED, f"refund {row.id}", text, critical=True)
    elif not store.do(conn, f"settle_{entity}", status=status, provider_id=made.id, **about):
        return
    elif kind == "refunds" and status == "Succeeded":
        desk.calm(conn, RETURNED, f"refund {row.id}")
    if status != "Pending":
        timers.cancel(desk, conn, row.id, _timer(kind), reason=status)
        action = f"{entity}_{status.lower()}"
        desk.record(conn, action, entity, row.id, booking_id=row.booking_id, after={"provider_id": made.id})


@event
def repeat_refund(desk: Desk, conn: Conn, refund_id: int, *, by: By) -> None:
    """An operator has a refund made again that failed, or that the borrower's bank has sent back."""
    lock_booking(conn, to_make(conn, "refunds", refund_id).booking_id)
    refund = to_make(conn, "refunds", refund_id)
    if refund.status != "Failed":
        raise Refused(f"refund_id: refund {refund_id} is {refund.status}, not Failed", field="refund_id")
    desk.record(conn, "repeat_refund", "refund", refund_id, booking_id=refund.booking_id)
    begin(desk, conn, "refunds", [refund_id])


def to_make(conn: Conn, kind: MovementKind, row_id: int) -> ToMake:
    """A row as it stands, with what the provider must know."""
    entity = kind.removesuffix("s")
    return store.needed(conn, ToMake, f"{entity}_to_make", **{f"{entity}_id": row_id})


def moved(desk: Desk, ctx: ms.SyncContext, kind: MovementKind, row: ToMake, move: Callable[[], Moved]) -> Moved:
    """What the provider made of it; what it refuses for good is written down before the job ends."""
    try:
        with patient(desk, ctx):
            return move()
    except ms.Permanent as error:
        entity = kind.removesuffix("s")
        with ctx.transaction() as conn:
            refused = isinstance(error, REFUSALS)
            store.do(conn, f"fail_{entity}", id=row.id, refused=refused, **{"try": row.try_})
            desk.record(conn, f"{entity}_failed", entity, row.id, booking_id=row.booking_id, reason=error.code)
        raise
