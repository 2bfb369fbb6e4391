"""An outage heals without a person: work that failed for a reason that passes is created again (RENT-20.22).

Its three attempts are used up and it is listed as failed; a sweep resets it after 5 minutes, then at growing distance.
What failed for good stays for a person.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any, Final
from uuid import UUID

import msgspec

import mainspring as ms
from mainspring_apps.rental import invoicing, mails, rounds, store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.registry import CHECKOUTS, desk_tasks
from mainspring_apps.rental.rounds import JobKind
from mainspring_apps.rental.rules import documents, healing
from mainspring_apps.rental.store import Conn

_MAILS: Final[dict[JobKind, Any]] = {
    "send_customer_confirmation": mails.send_customer_confirmation,
    "send_internal_confirmation": mails.send_internal_confirmation,
    "send_invoice_ready": mails.send_invoice_ready,
}


class FailedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The latest round of a job of a booking, which failed for a reason that passes."""

    booking_id: int
    type: JobKind
    round: int
    id: UUID
    healed: int
    processed_at: datetime


@desk_tasks.task(queue=CHECKOUTS)
def heal(desk: Desk, ctx: ms.SyncContext) -> None:
    """Create work again that failed for a reason that passes; the oldest payment first."""
    with ctx.complete() as conn:
        now, tries = desk.now(conn), 0
        for failed in store.many(conn, FailedJob, "passing_failures", codes=list(healing.PASSING)):
            if now - failed.processed_at >= healing.distance(failed.healed) and _again(desk, conn, failed, now):
                tries += 1
        ctx.result = {"created": tries}


def _again(desk: Desk, conn: Conn, failed: FailedJob, now: datetime) -> bool:
    facts = desk.bookings.facts(conn, failed.booking_id)
    if facts is None or facts.status != "CONFIRMED":
        return False
    if failed.type != "issue_invoice" and documents.over(facts, now, desk.settings.zone):
        return False
    job: ms.NewJob = (
        invoicing.issue_invoice.job(
            booking_id=facts.id, stripe_payment_intent_id=facts.stripe_payment_intent_id, round=failed.round
        )
        if failed.type == "issue_invoice"
        else _MAILS[failed.type].job(booking_id=facts.id, round=failed.round)
    )
    rounds.start(desk, conn, facts.id, job, number=failed.round)
    store.do(conn, "note_healing", booking_id=facts.id, type=failed.type, round=failed.round)
    return True


desk_tasks.schedule("heal", ms.every(minutes=5), heal, catch_up="latest")
