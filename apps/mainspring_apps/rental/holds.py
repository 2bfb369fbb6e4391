"""What ends a hold without its payment, or finds that payment after all: Stripe is asked, whatever an event said.

Events other than a paid session are hints: a task reads the session anew and applies how it stands now, so that their
order and repeats do not matter (RENT-20.07, 20.08).
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import mainspring as ms
from mainspring.contrib.stripe import CheckoutSession
from mainspring_apps.frame import timers
from mainspring_apps.rental import checkout, mails, rounds, store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.registry import CHECKOUTS, desk_tasks
from mainspring_apps.rental.rules import holds as rules
from mainspring_apps.rental.rules.documents import Facts
from mainspring_apps.rental.store import Conn

HOLD_TIMER: Final = "hold"


def begin(desk: Desk, conn: Conn, booking_id: int, until: datetime) -> None:
    """Set the timer of a hold."""
    timers.start(desk, conn, HOLD_TIMER, booking_id, end_hold.job(booking_id=booking_id).at(until))


@desk_tasks.task(
    queue=CHECKOUTS, needs=("stripe",), subject="booking_id", retry=ms.exponential(base="30s", cap="10m", attempts=999)
)
def end_hold(desk: Desk, ctx: ms.SyncContext, *, booking_id: int) -> None:
    """The hold of a booking is over: its page is closed at Stripe, and it expires unless it was paid meanwhile."""
    with ctx.transaction() as conn:
        facts = desk.bookings.facts(conn, booking_id)
    if facts is None or facts.status != "PENDING":
        return
    page = facts.stripe_session_id
    session = None if page is None else desk.stripe.sync.session(page)
    if session is not None and session.status == "open":
        session = desk.stripe.sync.expire_session(session.id, key=ctx.step_key("expire"))
    _apply(desk, ctx, session, booking_id, failed=False)


@desk_tasks.task(
    queue=CHECKOUTS, needs=("stripe",), dedupe=ms.dedupe.live("{session_id}:{failed}"),
    retry=ms.exponential(base="30s", cap="10m", attempts=999),
)  # fmt: skip
def look_at_session(desk: Desk, ctx: ms.SyncContext, *, session_id: str, failed: bool) -> None:
    """Something happened to a page at Stripe: read it anew, and apply how it stands now."""
    session = desk.stripe.sync.session(session_id)
    booking_id = None if session is None else checkout.booking_of(session)
    if session is not None and booking_id is not None:
        _apply(desk, ctx, session, booking_id, failed=failed)


def _apply(desk: Desk, ctx: ms.SyncContext, session: CheckoutSession | None, booking_id: int, *, failed: bool) -> None:
    confirmed = None
    with ctx.complete() as conn:
        facts = desk.bookings.facts(conn, booking_id, lock=True)
        if facts is None or facts.held_until is None:
            return
        now = desk.now(conn)
        match rules.ending(_held(desk, conn, facts, session, failed=failed), now, desk.settings.delayed_payment_days):
            case "paid":
                assert session is not None
                confirmed = checkout.paid(desk, conn, session, now)
            case "expire":
                _expire(desk, conn, facts, told=failed)
            case datetime() as later:
                begin(desk, conn, booking_id, later)
            case "leave":
                pass
    if confirmed is not None:
        rounds.created(confirmed.booking_id, *confirmed.jobs)


def _held(desk: Desk, conn: Conn, facts: Facts, session: CheckoutSession | None, *, failed: bool) -> rules.Held:
    assert facts.held_until is not None
    # A page that this one has taken the place of says nothing about the booking but that somebody paid there.
    current = session is None or session.id == facts.stripe_session_id
    return rules.Held(
        status=facts.status,
        held_until=facts.held_until,
        paid=session is not None and session.paid,
        waits_since=session.created if session is not None and session.waits and current and not failed else None,
        ended=current and (failed or (session is not None and session.status == "expired")),
        disputed=bool(store.value(conn, "open_mismatch", booking_id=facts.id)),
    )


def _expire(desk: Desk, conn: Conn, facts: Facts, *, told: bool) -> None:
    """The machine is free; a payment that failed is told to who tried it, an unpaid hold to nobody."""
    desk.bookings.expire(conn, facts.id)
    timers.cancel(desk, conn, facts.id, HOLD_TIMER, reason="expired")
    desk.record(conn, "expired", "booking", facts.id, booking_id=facts.id)
    if told:
        desk.enqueue(conn, mails.send_notice.job(booking_id=facts.id, notice="payment_failed", about=facts.id))
