"""Lenders' accounts at the provider: money waits in escrow for a lender who has none (G-65); trouble is told."""

from __future__ import annotations

from typing import Final

import msgspec

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.payments import escrow
from mainspring_apps.staffing.payments.movements import NO_ACCOUNT, pay_lender
from mainspring_apps.staffing.people import By
from mainspring_apps.staffing.registry import PAYMENT_EVENTS_QUEUE, tasks
from mainspring_apps.staffing.rules import names
from mainspring_apps.staffing.rules import provider as rules
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

#: A shift is verified, and nobody has paid for it yet (STAFF-9.35).
UNFUNDED = "unfunded_work"
#: The provider wants something of a lender before it passes money on.
RESTRICTED: Final = "lender_account_restricted"
ACCOUNT_EVENTS: Final = ("account.updated",)
PAYOUT_EVENTS: Final = ("payout.failed",)


class _Lender(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    account: str | None


class _Waiting(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    booking_id: int


def payable(desk: Desk, conn: Conn, booking_id: int) -> bool:
    """Whether the lender of a booking can be paid; if not, the operations team is told and the money stays held."""
    lender = store.needed(conn, _Lender, "lender_of_booking", booking_id=booking_id)
    if lender.account is None:
        words = f"company {lender.id} has no connected account: money of booking {booking_id} stays held"
        desk.alert(conn, NO_ACCOUNT, f"company {lender.id}", words)
    return lender.account is not None


def pay_out(desk: Desk, conn: Conn, booking_id: int, payment_id: int) -> None:
    """Send what a payment has funded and the lender has earned: what is verified, or with `on_webhook` all (G-13)."""
    whole = desk.settings.transfer_timing == "on_webhook"
    shifts = store.column(conn, "payable_shifts", payment_id=payment_id)
    for shift in shifts:
        desk.calm(conn, UNFUNDED, f"time_log {shift}")
    if not (whole or shifts) or not payable(desk, conn, booking_id):
        return
    if whole:
        escrow.release_whole(desk, conn, payment_id)
        return
    for shift in shifts:
        escrow.release(desk, conn, shift)


@event
def connect_account(desk: Desk, conn: Conn, company_id: int, *, account: str, by: By) -> None:
    """Connect a lender's account at Stripe; what waited for it is paid now (STAFF-1.41)."""
    names.check("account", account)
    store.do(conn, "lock_bookings_of_lender", company_id=company_id)
    with store.no_other_company_s("account"):
        connected = store.do(conn, "connect_account", company_id=company_id, account=account)
    if not connected:
        raise Refused("company_id: is no lender, or has this account already", field="company_id")
    desk.record(conn, "account_connected", "company", company_id)
    for name in (NO_ACCOUNT, RESTRICTED):
        desk.calm(conn, name, f"company {company_id}")
    for waiting in store.many(conn, _Waiting, "held_payments_of_lender", company_id=company_id):
        pay_out(desk, conn, waiting.booking_id, waiting.id)
    _try_again(desk, conn, company_id)


def _try_again(desk: Desk, conn: Conn, company_id: int) -> None:
    """Transfers that were refused go on by themselves once the lender's account is good, or another (STAFF-20.25)."""
    for dead in store.column(conn, "refused_transfers", company_id=company_id, task=pay_lender.name):
        desk.client.dead.replay(dead, reason="the lender's account can be paid again", conn=conn)


@tasks.task(queue=PAYMENT_EVENTS_QUEUE)
def account_changed(desk: Desk, ctx: ms.SyncContext, *, provider: str, event_id: str) -> None:
    """Tell the operations team while the provider keeps a lender's account from its money; old news is left alone."""
    event = desk.stripe.sync.event(ctx, event_id)
    wrong = rules.restrictions(event.object)
    with ctx.complete() as conn:
        for company in store.column(conn, "see_account", account=event.object["id"], at=event.created):
            if wrong:
                desk.alert(conn, RESTRICTED, f"company {company}", f"{event.object['id']}: {', '.join(wrong)}")
            else:
                desk.calm(conn, RESTRICTED, f"company {company}")
                _try_again(desk, conn, company)


@tasks.task(queue=PAYMENT_EVENTS_QUEUE)
def payout_failed(desk: Desk, ctx: ms.SyncContext, *, provider: str, event_id: str) -> None:
    """Tell the operations team whose bank did not take what the provider has paid out."""
    event = desk.stripe.sync.event(ctx, event_id)
    payout, account = event.object, event.account
    words = f"payout {payout['id']} of {Money(payout['amount'], payout['currency'])}: {payout.get('failure_code')}"
    with ctx.complete() as conn:
        companies = store.column(conn, "companies_of_account", account=account)
        for subject in [f"company {company}" for company in companies] or [f"account {account or 'of the platform'}"]:
            desk.alert(conn, "payout_failed", subject, words)
