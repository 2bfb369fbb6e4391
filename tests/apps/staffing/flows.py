"""Flows of money whose workers are killed: how each begins, and everything that must be the same at its end."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, NamedTuple

from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, T00, W10, Booking, Town
from tests.apps.staffing.wednesday import SECOND, tried

from mainspring_apps.staffing import bookings, shifts
from mainspring_apps.staffing.conflicts import disputes
from mainspring_apps.staffing.settings import TransferTiming

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
INSTANT = timedelta(microseconds=1)
NIGHT = datetime(2026, 6, 2, 2, tzinfo=UTC)
THURSDAY = date(2026, 6, 4)


class Flow(NamedTuple):
    """What people did before, up to the instant at which the first worker comes; and how long it takes at most."""

    begin: Callable[[Town], object]
    timing: TransferTiming = "on_verification"
    fires: bool = False  # whether a schedule begins it
    lasts: timedelta = timedelta(minutes=10)


def before(town: Town, instant: datetime, *schedules: str) -> None:
    """It is now, and a schedule is about to fire."""
    town.only(*schedules, at=instant - SECOND)
    town.mainspring.drain()  # its zones are known
    town.mainspring.clock.set(instant)


def weekly_payment(town: Town) -> None:
    """Wednesday 10:00; the lender is paid when the money has come."""
    town.booking(shifts=2)
    before(town, W10, "weekly-payments")


def submitted(town: Town, day: date, *ahead: date, paid: bool = True) -> tuple[Booking, int]:
    """A worker has submitted the timesheet of a day that is paid for; other shifts are ahead, paid for or not.

    The clock is only set: nothing of what comes before is worth running again and again.
    """
    town.only()
    booking = town.booking(shifts=[day, *ahead])
    shift = town.row("time_log", booking.shifts[0])
    for event, at in ((shifts.clock_in, "scheduled_start_time"), (shifts.submit_timesheet, "scheduled_end_time")):
        town.mainspring.clock.set(shift[at])
        with town.conn.transaction():
            event(town.desk, town.conn, shift["id"], by=booking.worker_user)
    town.unheard()  # of what was paid before
    town.funded(booking, *(booking.shifts if paid else booking.shifts[:1]))
    town.sandbox.stripe.post.manners.clear()
    return booking, shift["id"]


def disputed(town: Town, day: date, *ahead: date, paid: bool) -> tuple[Booking, int]:
    """A supervisor disputes it at once."""
    booking, shift = submitted(town, day, *ahead, paid=paid)
    with town.conn.transaction():
        return booking, disputes.file_dispute(town.desk, town.conn, shift, option="A", by=_supervisor(booking))


def verified(town: Town) -> None:
    """A supervisor verifies a timesheet."""
    booking, shift = submitted(town, MONDAY)
    with town.conn.transaction():
        shifts.verify_timesheet(town.desk, town.conn, shift, by=_supervisor(booking))


def auto_approved(town: Town) -> None:
    """Nobody verified it for four hours, though everybody was asked."""
    submitted(town, MONDAY)
    town.mainspring.advance(to=town.now + 4 * HOUR - INSTANT)
    town.mainspring.clock.set(town.now + INSTANT)


def dispute_timed_out(town: Town) -> None:
    """Nobody settled it for three hours: the next day's shift is a penalty, that of the day after is refunded."""
    disputed(town, MONDAY, MONDAY + DAY, MONDAY + 2 * DAY, paid=True)
    town.mainspring.clock.set(town.now + 3 * HOUR)


def dispute_settled(town: Town) -> None:
    """On Thursday a dispute is settled: a part for the lender, a part back, and the week that waited is charged."""
    _, dispute = disputed(town, THURSDAY, NEXT_MONDAY, paid=False)
    town.conn.execute("update staffing.bookings set status = 'Payment_Paused_Dispute'")
    with town.conn.transaction():
        disputes.resolve_dispute(
            town.desk,
            town.conn,
            dispute,
            status="Settled",
            lender_minor=10000,
            borrower_minor=14000,
            by=town.operator,
        )


def released(town: Town) -> None:
    """Wednesday ends, and the week is not paid for."""
    booking = town.booking(shifts=2)
    before(town, T00, "weekly-hard-cutoff")
    tried(town, booking)


def owed(town: Town) -> None:
    """A booking has ended unpaid; its borrower puts another card, which is charged for what was worked."""
    town.only()
    booking = town.booking(card="pm_card_chargeDeclined", status="Cancelled")
    town.shift(booking, MONDAY, status="Verified")
    customer = town.row("companies", booking.borrower)["stripe_customer_id"]
    about = {"customer": customer, "payment_method": "pm_card_visa", "by": booking.borrowing_admin}
    with town.conn.transaction():
        bookings.put_card(town.desk, town.conn, booking.borrower, **about)


def booked_upfront(town: Town) -> None:
    """Somebody books a worker for two days, and pays for them at once."""
    town.only()
    town.booking()
    with town.conn.transaction():
        bookings.confirm_booking(
            town.desk, town.conn, project_id=1, worker_id=1, supervisor_id=None, payment_type="Upfront",
            start_date=NEXT_MONDAY, end_date=NEXT_MONDAY + DAY, start=time(9), end=time(17), rate_minor=3000,
            currency="USD", by=town.admin(town.row("projects", 1)["company_id"]),
        )  # fmt: skip


def tokens_expired(town: Town) -> None:
    """Two in the morning, with tokens for three batches."""
    town.conn.execute(
        "insert into staffing.magic_link_tokens (token_hash, expires_at, created_at)"
        " select ('t' || n)::bytea, %(at)s, %(at)s from generate_series(1, 2500) n",
        {"at": NIGHT - HOUR},
    )
    before(town, NIGHT, "magic-link-cleanup")


FLOWS: dict[str, Flow] = {
    "weekly payment": Flow(weekly_payment, timing="on_webhook", fires=True),
    "verification": Flow(verified),
    "auto-approval": Flow(auto_approved),
    "dispute timeout": Flow(dispute_timed_out),
    "settlement": Flow(dispute_settled),
    "arrears": Flow(owed),
    "upfront": Flow(booked_upfront),
    "hard cutoff": Flow(released, fires=True, lasts=8 * HOUR),  # an SMS waits for the morning
    "token cleanup": Flow(tokens_expired, fires=True),
}

#: What is compared, by names that a rolled-back number does not change; instants of attempts are left out.
_MOVED = (
    "select h.time_log_id, h.kind, h.part, p.idempotency_key, m.amount_minor, m.currency, m.status, m.try,"
    " regexp_replace(m.idempotency_key, '[0-9]+', '#'), m.provider_id is not null from staffing.{table} m"
    " left join staffing.escrow_holds h on h.id = m.escrow_hold_id"
    " join staffing.pending_payments p on p.id = coalesce(m.payment_id, h.payment_id)"
)
ROWS = {
    "payments": "select booking_id, idempotency_key, period_start, try, amount_minor, currency, status, source,"
    " failure_code, provider_intent_id is not null, received_at is not null from staffing.pending_payments",
    "holds": "select p.idempotency_key, h.time_log_id, h.kind, h.part, h.amount_minor, h.currency, h.status,"
    " h.dispute_id from staffing.escrow_holds h join staffing.pending_payments p on p.id = h.payment_id",
    "transfers": _MOVED.format(table="transfers"),
    "refunds": _MOVED.format(table="refunds"),
    "shifts": "select id, status, verified_by, cancel_reason from staffing.time_log",
    "bookings": "select id, status, funded_period_end, end_date, cutoff_at from staffing.bookings",
    "disputes": "select id, status, timed_out_at is not null, settlement_lender_minor, settlement_borrower_minor"
    " from staffing.disputes",
    "tokens": "select id from staffing.magic_link_tokens",
    "escrow": "select booking_id, charged, held, frozen, released, refunded, charged_back from staffing.escrow",
    "audit": "select action, actor, entity, reason,"
    " case when entity not in ('payment', 'transfer', 'refund') then entity_id end from staffing.audit_log",
    "messages": "select kind, recipient_id, channel, status, message from staffing.notification_log",
    "jobs": "select task, state from mainspring.jobs",
    "alerts": "select name, subject, severity from mainspring.alert where closed_at is null",
}


def end_of(town: Town) -> dict[str, Counter[Any]]:
    """Everything that a killed worker must not change: rows, messages, audit, jobs, alerts, and money that moved."""
    found: dict[str, Counter[Any]] = {name: Counter(town.rows(query)) for name, query in ROWS.items()}
    moved = town.sandbox.ledger.find("charge", "transfer", "refund")
    return found | {"provider": Counter((entry.kind, entry.body["amount"]) for entry in moved)}


def wrong(town: Town) -> list[Any]:
    """What must not be at any end: a key of ours not once at the provider, money that does not add up, silence."""
    found: list[Any] = []
    for kind, table in (("payment_intent", "pending_payments"), ("transfer", "transfers"), ("refund", "refunds")):
        sent = [entry.body["metadata"].get("mainspring_key") for entry in town.sandbox.ledger.find(f"stripe.{kind}")]
        ours = "select idempotency_key from staffing.{} where idempotency_key !~ '^(town|test):'"  # made by hand
        rows = sorted(key for (key,) in town.rows(ours.format(table)))
        if sorted(filter(None, sent)) != rows:
            found.append((kind, sent, rows))
    found += town.rows(
        "select * from staffing.escrow where charged <> held + frozen + released + refunded + charged_back"
    )
    return found + [message for message in town.messages() if message[3] != "Sent"]


def left(town: Town) -> Counter[tuple[str, str, str]]:
    """What the providers of messages have: (kind, to, text), and how often."""
    found = town.sandbox.ledger.find("sms", "mail")
    return Counter((entry.kind, str(entry.body["to"]), str(entry.body["text"])) for entry in found)


def _supervisor(booking: Booking) -> int:
    assert booking.supervisor is not None
    return booking.supervisor
