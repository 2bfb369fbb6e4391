"""`mainspring notification`: see what was sent to whom, why not, and send it again."""

from __future__ import annotations

from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal
from uuid import UUID

import msgspec
from cyclopts import App

from mainspring.cli import output
from mainspring.cli.connection import UNSAID_CONNECTION, ConnectionOptions
from mainspring.errors import ValidationError

if TYPE_CHECKING:
    from mainspring.client import Client
    from mainspring.db.notify import Logged

app = App(name="notification", help="See what was sent to whom, and send again.", help_format="plaintext")

COLUMNS = ("ID", "CREATED", "STATUS", "CHANNEL", "TEMPLATE", "RECIPIENT", "SUBJECT", "ATTEMPTS", "SENT", "WHY")
RATES = ("TEMPLATE", "CHANNEL", "SENT", "FAILED", "SKIPPED", "OPEN", "RATE")


@app.command(name="list")
def list_notifications(
    *,
    status: Literal["pending", "sending", "sent", "skipped", "failed"] | None = None,
    channel: Literal["email", "sms", "push", "in_app"] | None = None,
    template: str | None = None,
    recipient: str | None = None,
    subject: str | None = None,
    org: str | None = None,
    limit: int = 50,
    connection: ConnectionOptions = UNSAID_CONNECTION,
) -> None:
    """Show notifications, newest first.

    `failed` follows the job: one that is replayed is pending again. WHY is the
    reason of one that was skipped, or the last error.

    Args:
        status: Only these.
        channel: Only on this channel.
        template: Only of this template.
        recipient: Only to this recipient.
        subject: Only about this, such as "booking 17".
        org: Only of this organisation.
        limit: At most so many.
        connection: The database.
    """
    from mainspring.db import notify

    with connection.client() as client:
        only: dict[str, Any] = {"status": status, "channel": channel, "template": template}
        only |= {"recipient": recipient, "subject": subject}
        dialogue = notify.listing(client.seam.sql, client.seam.who(org), limit=limit, **only)
        found, now = client.seam.run(dialogue), client.now()
    if connection.json:
        return output.as_json([_document(row) for row in found])
    return output.table(COLUMNS, map(_row, found), "There are no such notifications.", now=now)


@app.command
def show(id: UUID, *, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Show one notification: how it stands and why, its stamps, its provider's id, and its job; not the text.

    Args:
        id: The notification's id.
        org: Its organisation, where the schema is secured.
        connection: The database.
    """
    with connection.client() as client:
        row, now = _one(client, id, org), client.now()
    if connection.json:
        return output.as_json(_document(row))
    return output.fields({name.replace("_", " "): value for name, value in _document(row).items()}, now=now)


@app.command
def resend(id: UUID, *, reason: str, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION) -> None:
    """Clear the stamp of a notification, and enqueue the job that sends it again.

    The provider gets another key, so the message arrives a second time. One that
    is still under way is refused.

        mainspring notification resend 0199d2f6-7a5b-7c34-9f3e-0a1b2c3d4e5f --reason "the customer lost it"

    Args:
        id: The notification's id.
        reason: Why, for the audit trail.
        org: Its organisation, where the schema is secured.
        connection: The database, and who acts.
    """
    from mainspring.db import notify

    with connection.client() as client:
        row = _one(client, id, org)
        (job,) = client.seam.complete([notify.delivery(row.id).for_org(row.org_id)])
        client.seam.run(notify.resend(client.seam.sql, client.seam.who(row.org_id), row.id, job, reason))
    if connection.json:
        output.as_json({"notification": row.id, "status": "pending", "job": job.id})
    else:
        output.say(f"notification {row.id} is sent again, by job {job.id}")


@app.command
def rates(
    *, since: datetime | None = None, org: str | None = None, connection: ConnectionOptions = UNSAID_CONNECTION
) -> None:
    """Show how deliveries ended, by template and channel. RATE is the part that was sent of those that ended.

    Args:
        since: Only what was asked for since then.
        org: Only of this organisation.
        connection: The database.
    """
    from mainspring.db import notify

    with connection.client() as client:
        found = client.seam.run(notify.rates(client.seam.sql, client.seam.who(org).org_id, since=since))
    if connection.json:
        return output.as_json([{**msgspec.structs.asdict(row), "rate": row.rate} for row in found])
    rows = (
        (row.template, row.channel, row.sent, row.failed, row.skipped, row.open,
         None if row.rate is None else f"{row.rate:.1%}")
        for row in found
    )  # fmt: skip
    return output.table(RATES, rows, "Nothing was asked for.")


def _one(client: Client, id: UUID, org: str | None) -> Logged:
    from mainspring.db import notify

    found = client.seam.run(notify.listing(client.seam.sql, client.seam.who(org), id=id))
    if not found:
        raise ValidationError(f"id: there is no notification {id}", field="id")
    return found[0]


def _row(row: Logged) -> tuple[object, ...]:
    return (
        row.id, row.created_at, row.status, row.channel, row.template, row.recipient_id, row.subject, row.attempts,
        row.sent_at, row.reason or row.error,
    )  # fmt: skip


def _document(row: Logged) -> dict[str, object]:
    return {("class" if name == "class_" else name): value for name, value in msgspec.structs.asdict(row).items()}
