"""What people of the company do when something went wrong: send again, try again, issue what was left out.

Each is one act with its reason, and audited with it (RENT-8.02, 8.07, 8.08, 4.18, 20.02).
"""

from __future__ import annotations

from typing import Any, Final, get_args

import mainspring as ms
from mainspring_apps.frame.refusal import Refused, missing
from mainspring_apps.rental import invoicing, mails, rounds, store
from mainspring_apps.rental.booking_table import MailKind
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.events import event
from mainspring_apps.rental.people import By
from mainspring_apps.rental.rounds import JobKind
from mainspring_apps.rental.store import Conn

_MAILS: Final[dict[MailKind, Any]] = {
    "confirmation": mails.send_customer_confirmation,
    "internal": mails.send_internal_confirmation,
    "invoice": mails.send_invoice_ready,
}


@event
def resend_mail(desk: Desk, conn: Conn, booking_id: int, *, mail: MailKind, reason: str, by: By) -> None:
    """Send a mail once more: its stamp is cleared, and the next round of its job is created."""
    facts = desk.bookings.facts(conn, booking_id, lock=True)
    if facts is None:
        raise missing("booking_id", booking_id)
    _next_mail(desk, conn, booking_id, mail)
    desk.record(conn, "mail_resent", "booking", booking_id, booking_id=booking_id, reason=reason, mail=mail)


@event
def retry_job(desk: Desk, conn: Conn, booking_id: int, *, kind: JobKind, reason: str, by: By) -> None:
    """Try a failed job of a booking again, and no other (RENT-8.08)."""
    if kind not in get_args(JobKind):
        raise Refused(f"Unknown job type: {kind}", field="kind")
    job_id = store.value(conn, "failed_job", booking_id=booking_id, type=kind)
    if job_id is None:
        raise Refused(f"kind: booking {booking_id} has no {kind} that failed", field="kind")
    desk.client.replay(job_id, reason=reason, conn=conn)
    desk.record(conn, "job_retried", "booking", booking_id, booking_id=booking_id, reason=reason, kind=kind)


@event
def send_skipped(desk: Desk, conn: Conn, limit: int, *, reason: str, by: By) -> int:
    """Send mails that were left out in a dry run, the oldest first; answers how many (RENT-8.02)."""
    if not desk.settings.send_emails:
        raise Refused("limit: mails are a dry run still: SEND_EMAILS is not true", field="limit")
    found = store.many(conn, dict[str, Any], "skipped_mails", limit=limit)
    for one in found:
        _next_mail(desk, conn, one["booking_id"], one["kind"])
        desk.record(
            conn, "mail_sent_late", "booking", one["booking_id"], booking_id=one["booking_id"], reason=reason
        )  # fmt: skip
    return len(found)


@event
def issue_skipped(desk: Desk, conn: Conn, limit: int, *, reason: str, by: By) -> int:
    """Issue invoices that were left out while invoicing was off, the oldest first; answers how many (RENT-4.18)."""
    if not desk.settings.invoicing_enabled:
        raise Refused("limit: invoicing is off still: INVOICING_ENABLED", field="limit")
    found = store.column(conn, "not_invoiced", limit=limit)
    for booking_id in found:
        facts = desk.bookings.facts(conn, booking_id)
        assert facts is not None
        number = rounds.next_round(conn, booking_id, "issue_invoice")
        job: ms.NewJob = invoicing.issue_invoice.job(
            booking_id=booking_id, stripe_payment_intent_id=facts.stripe_payment_intent_id, round=number
        )
        rounds.start(desk, conn, booking_id, job, number=number)
        desk.record(conn, "invoiced_late", "booking", booking_id, booking_id=booking_id, reason=reason)
    return len(found)


def _next_mail(desk: Desk, conn: Conn, booking_id: int, mail: MailKind) -> None:
    task = _MAILS[mail]
    number = rounds.next_round(conn, booking_id, task.name)
    desk.bookings.stamp_mail(conn, booking_id, mail, None)
    rounds.start(desk, conn, booking_id, task.job(booking_id=booking_id, round=number), number=number)
