"""Reversals: an operator takes a transfer back from the lender, once, for the borrower or to be divided anew.

What comes back "to held" is set aside: nothing that runs by itself pays it out or gives it back. An operator divides
it, by `divide_set_aside`.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Final, Literal

import msgspec

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring.contrib.stripe import NotYet
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk, booking_subject
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.locking import lock_booking
from mainspring_apps.staffing.payments import escrow, movements, takings
from mainspring_apps.staffing.people import By, people
from mainspring_apps.staffing.registry import LENDER_TRANSFERS, PAYMENT_EVENTS_QUEUE, tasks
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

Destination = Literal["borrower", "held"]
REVERSAL_EVENTS: Final = ("transfer.reversed",)
#: Somebody took a transfer back in the provider's dashboard,
REVERSED_ELSEWHERE: Final = "transfer_reversed_elsewhere"
#: which the lender hears in these words.
ELSEWHERE: Final = "reversed at the payment provider"
#: Money waits for an operator.
SET_ASIDE: Final = "money_set_aside"


class _Transfer(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    status: str
    booking_id: int
    payment_id: int
    amount_minor: int
    taken_minor: int
    currency: str


class _Reversal(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    transfer_id: int
    destination: Destination
    reason: str
    created_at: datetime


@event
def reverse_transfer(desk: Desk, conn: Conn, transfer_id: int, *, to: Destination, reason: str, by: By) -> int:
    """Take a transfer back from the lender, for the borrower or to be divided anew. Answers the reversal's id."""
    _check(reason)
    lock_booking(conn, _transfer(conn, transfer_id).booking_id)
    transfer = _transfer(conn, transfer_id)
    if transfer.status in ("Pending", "Failed"):
        raise Refused(
            f"transfer_id: transfer {transfer_id} is {transfer.status}: nothing has arrived yet", field="transfer_id"
        )
    found = store.value(conn, "create_reversal", transfer_id=transfer_id, destination=to, reason=reason)
    if found is None:
        raise Refused(f"transfer_id: transfer {transfer_id} is taken back already, or about to be", field="transfer_id")
    desk.record(
        conn, "reverse_transfer", "reversal", found, booking_id=transfer.booking_id, reason=reason,
        after={"transfer_id": transfer_id, "to": to},
    )  # fmt: skip
    if not _run_again(desk, conn, found):
        desk.enqueue(conn, take_back.job(reversal_id=found))
    return int(found)


@event
def divide_set_aside(
    desk: Desk, conn: Conn, booking_id: int, *, lender_minor: int, borrower_minor: int, reason: str, by: By
) -> None:
    """Divide what is set aside of a booking: so much to the lender, so much back, together all of it."""
    _check(reason)
    lock_booking(conn, booking_id)
    holds = store.many(conn, escrow.Hold, "freeze_set_aside", booking_id=booking_id)
    if not holds:
        raise Refused("booking_id: nothing of this booking is set aside", field="booking_id")
    escrow.settle(desk, conn, holds, lender_minor=lender_minor, borrower_minor=borrower_minor)
    after = {"lender_minor": lender_minor, "borrower_minor": borrower_minor}
    desk.record(conn, "divide_set_aside", "booking", booking_id, booking_id=booking_id, reason=reason, after=after)
    desk.calm(conn, SET_ASIDE, booking_subject(booking_id))
    for transfer in store.column(conn, "transfers_taken", booking_id=booking_id):
        desk.calm(conn, REVERSED_ELSEWHERE, f"transfer {transfer}")


@tasks.task(
    queue=LENDER_TRANSFERS,
    snooze_limit=None,
    dedupe=ms.dedupe.live("{reversal_id}"),
    subject="reversal_id",
)
def take_back(desk: Desk, ctx: ms.SyncContext, *, reversal_id: int) -> None:
    """Take a transfer back at the provider; what nobody answered is asked for again under the same key."""
    with ctx.transaction() as conn:
        row = movements.to_make(conn, "reversals", reversal_id)
    if row.status == "Succeeded":
        return
    made = movements.moved(desk, ctx, "reversals", row, lambda: desk.stripe.sync.reverse(
        row.transfer or "", amount=row.amount, key=row.key, since=row.created_at,
    ))  # fmt: skip
    with ctx.complete() as conn:
        lock_booking(conn, row.booking_id)
        row = movements.to_make(conn, "reversals", reversal_id)
        if row.status != "Succeeded":
            movements.settle(desk, conn, "reversals", row, made)
            _came_back(desk, conn, store.needed(conn, _Reversal, "reversal", reversal_id=reversal_id))


@tasks.task(queue=PAYMENT_EVENTS_QUEUE, snooze_limit=lambda desk: desk.settings.unknown_payment_after)
def transfer_reversed(desk: Desk, ctx: ms.SyncContext, *, provider: str, event_id: str) -> None:
    """Follow a reversal that somebody made at the provider: what came back of a transfer is set aside, and told."""
    told = desk.stripe.sync.event(ctx, event_id).object
    with ctx.complete() as conn:
        found = store.value(conn, "transfer_of_provider", provider_id=told["id"])
        if found is None:
            raise NotYet  # our own answer is not committed yet, or it is nobody's of us
        lock_booking(conn, _transfer(conn, found).booking_id)
        transfer = _transfer(conn, found)
        known = store.value(conn, "reversal_of_transfer", transfer_id=transfer.id)
        if known == "Pending":
            raise NotYet  # we are asking for it ourselves, and hear the answer
        if known == "Succeeded" or transfer.status != "Succeeded":
            return
        gone = Money(told["amount_reversed"] - transfer.taken_minor, transfer.currency)
        if gone.minor <= 0:
            return  # it was told before
        if gone.minor == transfer.amount_minor:
            _follow(desk, conn, transfer, event_id)
        else:
            _follow_part(desk, conn, transfer, gone)
        words = f"booking {transfer.booking_id}: {gone} of transfer {transfer.id} was taken back at the provider"
        desk.alert(conn, REVERSED_ELSEWHERE, f"transfer {transfer.id}", words, critical=True)


def _follow(desk: Desk, conn: Conn, transfer: _Transfer, event_id: str) -> None:
    """Write a whole reversal that we did not ask for; one that we asked for in vain has come to pass."""
    about = {"transfer_id": transfer.id, "reason": ELSEWHERE, "event_id": event_id}
    found = store.needed(conn, _Reversal, "write_reversal_elsewhere", **about)
    desk.record(
        conn, "reversed_elsewhere", "reversal", found.id, booking_id=transfer.booking_id,
        after={"transfer_id": transfer.id},
    )  # fmt: skip
    _came_back(desk, conn, found)
    _run_again(desk, conn, found.id)  # it finds that there is nothing left to ask for


def _run_again(desk: Desk, conn: Conn, reversal_id: int) -> bool:
    """Let the job of a reversal that the provider refused look again: its dead letter is over, with the alert."""
    found = store.column(conn, "refused_reversals", reversal_id=reversal_id, task=take_back.name)
    for dead in found:
        desk.client.dead.replay(dead, reason="the reversal is decided anew", conn=conn)
    return bool(found)


def _follow_part(desk: Desk, conn: Conn, transfer: _Transfer, gone: Money) -> None:
    """Set aside what came back of a transfer; the lender keeps the rest, and only that can still be taken back."""
    missing = gone.minor
    ids: list[int] = []
    for hold in store.many(conn, escrow.Hold, "released_holds", transfer_id=transfer.id):
        part = min(hold.amount_minor, missing)
        if part == 0:
            break
        if part < hold.amount_minor:
            hold = store.needed(conn, escrow.Hold, "split_hold", hold_id=hold.id, kept=hold.amount_minor - part)
        store.do(conn, "set_hold_aside", hold_id=hold.id)
        missing, ids = missing - part, [*ids, hold.id]
    store.do(conn, "take_part", transfer_id=transfer.id, part=gone.minor)
    takings.follow(conn, transfer.payment_id)
    tell_set_aside(desk, conn, transfer.booking_id, store.many(conn, escrow.Hold, "holds_left", ids=ids))
    after = {"transfer_id": transfer.id, "amount_minor": gone.minor}
    desk.record(conn, "reversed_in_part", "transfer", transfer.id, booking_id=transfer.booking_id, after=after)
    about = {"ID": transfer.booking_id, "booking_id": transfer.booking_id, "Amount": str(gone), "Reason": ELSEWHERE}
    to = people(conn, transfer.booking_id, "Lending Admin")
    desk.tell(conn, "transfer_reversed", to, about, occurrence=desk.now(conn))


#: Reversals whose end nobody knows, and no job is left to ask.
tasks.sweep(
    "reversal-reconciliation",
    every=lambda desk: desk.settings.reconcile_every,
    query=store.sql["stale_reversals"],
    params=lambda desk: {"stale": desk.settings.stale_after},
    job=lambda _, row: take_back.job(reversal_id=row.id),
    limit=lambda desk: desk.settings.enqueueing_page,
)


def tell_set_aside(desk: Desk, conn: Conn, booking_id: int, holds: Iterable[escrow.Hold]) -> None:
    """Tell the operations team what waits for one of them."""
    if waiting := sum(hold.amount_minor for hold in holds if hold.set_aside):
        text = f"booking {booking_id}: {waiting} minor units came back, and an operator divides them"
        desk.alert(conn, SET_ASIDE, booking_subject(booking_id), text)


def _check(reason: str) -> None:
    if not reason.strip():
        raise Refused("reason: is empty", field="reason")


def _came_back(desk: Desk, conn: Conn, reversal: _Reversal) -> None:
    """The money is with us: what the provider has taken meanwhile is missed first, the rest goes where it was to go."""
    transfer, aside = _transfer(conn, reversal.transfer_id), reversal.destination == "held"
    store.do(conn, "reverse_transfer", transfer_id=transfer.id)
    holds = store.many(conn, escrow.Hold, "take_holds_back", transfer_id=transfer.id, set_aside=aside)
    takings.follow(conn, transfer.payment_id)
    left = store.many(conn, escrow.Hold, "holds_left", ids=[hold.id for hold in holds])
    if aside:
        tell_set_aside(desk, conn, transfer.booking_id, left)
    else:
        escrow.refund(desk, conn, [hold.id for hold in left])
        _tell(desk, conn, transfer, reversal, "refund_made", "Borrowing Admin", sum(hold.amount_minor for hold in left))
    _tell(desk, conn, transfer, reversal, "transfer_reversed", "Lending Admin", transfer.amount_minor)


def _tell(
    desk: Desk, conn: Conn, transfer: _Transfer, reversal: _Reversal, kind: str,
    part: Literal["Borrowing Admin", "Lending Admin"], amount: int,
) -> None:  # fmt: skip
    ids = {"ID": transfer.booking_id, "booking_id": transfer.booking_id, "reversal_id": reversal.id}
    about = ids | {"Amount": str(Money(amount, transfer.currency)), "Reason": reversal.reason}
    if amount:
        desk.tell(conn, kind, people(conn, transfer.booking_id, part), about, occurrence=reversal.created_at)


def _transfer(conn: Conn, transfer_id: int) -> _Transfer:
    return store.needed(conn, _Transfer, "transfer_to_reverse", transfer_id=transfer_id)
