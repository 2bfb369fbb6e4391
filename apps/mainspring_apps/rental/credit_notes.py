"""`issue_credit`: each refund of an invoiced booking gets one credit note that names its invoice (RENT-20.17)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Final, Literal

import msgspec

import mainspring as ms
from mainspring.contrib.vendus import CreditDraft, CreditedLine, DocumentUnknown, FiscalDocument
from mainspring_apps.rental import mails, store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.registry import DOCUMENTS, desk_tasks
from mainspring_apps.rental.rules import documents, refunds
from mainspring_apps.rental.rules.documents import Invoice
from mainspring_apps.rental.store import Conn

_PATIENT: Final = ms.exponential(base="60s", cap="30m", attempts=999)


class Credit(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `credit_notes`, and what it gives back."""

    id: int
    refund_id: int
    booking_id: int
    external_reference: str
    state: Literal["reserved", "issued", "unknown"]
    number: str | None
    net_minor: int
    vat_minor: int
    gross_minor: int
    reason: str


class Done(msgspec.Struct, frozen=True, kw_only=True):
    """A refund that is done."""

    id: int
    booking_id: int
    amount_minor: int


def wanted(desk: Desk, conn: Conn, booking_id: int) -> None:
    """Ask for the credit notes that are still to be issued: none before the invoice stands."""
    for refund in store.column(conn, "refunds_without_credit", booking_id=booking_id):
        desk.enqueue(conn, issue_credit.job(refund_id=refund))


@desk_tasks.task(
    queue=DOCUMENTS, needs=("vendus",), subject="refund_id", retry=_PATIENT,
    dedupe=ms.dedupe.reset_failed("issue_credit:{refund_id}"), snooze_limit=timedelta(days=30),
)  # fmt: skip
def issue_credit(desk: Desk, ctx: ms.SyncContext, *, refund_id: int) -> None:
    """Issue the credit note of a refund, store it, and tell the customer."""
    with ctx.transaction() as conn:
        invoice, row, again = _reserved(conn, refund_id)
    if row.state == "issued":
        return
    vendus = desk.vendus.sync
    vendus.open_register(desk.settings.vendus_register or None)
    assert invoice.provider_id is not None
    draft = CreditDraft(
        document=invoice.provider_id,
        reference=row.external_reference,
        reason=row.reason,
        lines=[CreditedLine(cents=row.gross_minor)],
        register=desk.settings.vendus_register or None,
    )
    try:
        document = vendus.credit(draft, again=again)
    except DocumentUnknown:
        with ctx.transaction() as conn:
            store.do(conn, "credit_unknown", credit_id=row.id)
        raise
    with ctx.complete() as conn:
        _store(desk, conn, row, document)


def _reserved(conn: Conn, refund_id: int) -> tuple[Invoice, Credit, bool]:
    refund = store.needed(conn, Done, "done_refund", refund_id=refund_id)
    invoice = store.needed(conn, Invoice, "lock_invoice", booking_id=refund.booking_id)
    left = store.needed(conn, dict[str, Any], "left_of_invoice", booking_id=refund.booking_id)
    net, vat = refunds.credited(refund.amount_minor, invoice.vat_bps, (left["net"], left["vat"]))
    fresh = store.do(
        conn, "reserve_credit", refund_id=refund_id, booking_id=refund.booking_id,
        reference=f"{invoice.external_reference}-nc-{refund_id}", net=net, vat=vat, gross=refund.amount_minor,
    )  # fmt: skip
    return invoice, store.needed(conn, Credit, "credit", refund_id=refund_id), fresh == 0


def _store(desk: Desk, conn: Conn, row: Credit, document: FiscalDocument) -> None:
    about = {"number": document.number, "net": document.net, "vat": document.vat, "gross": document.gross}
    store.do(conn, "credit_issued", credit_id=row.id, provider_id=document.id, **about)
    desk.record(conn, "credit_issued", "credit", row.id, booking_id=row.booking_id, after={"number": document.number})
    if differ := documents.differs((row.gross_minor, row.net_minor, row.vat_minor), document):
        text = f"{document.number} says other amounts than ours: {msgspec.json.encode(differ).decode()}"
        desk.alert(conn, "credit_differs", desk.subject(row.booking_id), text, critical=True, **differ)
    desk.enqueue(conn, mails.send_notice.job(booking_id=row.booking_id, notice="credit", about=row.id))
