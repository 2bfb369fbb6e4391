"""`issue_invoice`: a paid booking gets one invoice at Vendus, whatever crashes and whoever answers late."""

from __future__ import annotations

from typing import Any, Final

import msgspec

import mainspring as ms
from mainspring.codes import register
from mainspring.contrib.vendus import DocumentUnknown, FiscalClient, FiscalDocument
from mainspring_apps.rental import credit_notes, mails, rounds, store
from mainspring_apps.rental.desk import Desk, log
from mainspring_apps.rental.registry import BOOKING_JOBS, tasks
from mainspring_apps.rental.rules import documents
from mainspring_apps.rental.rules.documents import Facts, Invoice
from mainspring_apps.rental.store import Conn

register("BOOKING_NOT_CONFIRMED", "permanent", "The booking is not confirmed: it was cancelled, or never paid.")

DISABLED: Final = {"skipped": "INVOICING_DISABLED"}


@tasks.task(queue=BOOKING_JOBS, dedupe=rounds.same("issue_invoice"), subject="booking_id", needs=("vendus",))
def issue_invoice(
    desk: Desk, ctx: ms.SyncContext, *, booking_id: int, stripe_payment_intent_id: str | None, round: int = 1
) -> Any:
    """Issue the invoice of a confirmed booking, store it, and create the mail that brings it."""
    if not desk.settings.invoicing_enabled:
        return DISABLED
    with ctx.transaction() as conn:
        facts = _checked(desk, conn, booking_id, stripe_payment_intent_id)
        invoice, again = _reserved(desk, conn, facts)
    if invoice.state == "issued":
        with ctx.complete() as conn:
            follow_up = _follow_up(desk, conn, booking_id)
        rounds.created(booking_id, *follow_up)
        return None
    document = _issued(desk, ctx, facts, invoice, again)
    with ctx.complete() as conn:
        _store(desk, conn, invoice, document)
        follow_up = _follow_up(desk, conn, booking_id)
    rounds.created(booking_id, *follow_up)
    return None


def _checked(desk: Desk, conn: Conn, booking_id: int, intent: str | None) -> Facts:
    facts = desk.bookings.facts(conn, booking_id, lock=True)  # nobody cancels it while the invoice is reserved
    if facts is None:
        raise ms.Permanent(f"booking_id: there is no booking {booking_id}", code="VALIDATION_ERROR")
    if facts.status != "CONFIRMED":
        raise ms.Permanent(f"booking {booking_id} is {facts.status}", code="BOOKING_NOT_CONFIRMED")
    if intent != facts.stripe_payment_intent_id:
        raise ms.Permanent("stripePaymentIntentId: is not that of the booking", code="VALIDATION_ERROR")
    if lacking := documents.missing(facts):
        raise ms.Permanent(f"{', '.join(lacking)}: nobody has said it", code="VALIDATION_ERROR")
    return facts


def _reserved(desk: Desk, conn: Conn, facts: Facts) -> tuple[Invoice, bool]:
    """The row of the invoice, and whether somebody may have posted it before: then Vendus is asked first."""
    assert facts.total_minor is not None
    net, vat = documents.vat_of(facts.total_minor, desk.settings.vat_bps)
    reference, kind = documents.reference(facts.id), documents.document_type(facts)
    fresh = store.do(
        conn, "reserve_invoice", booking_id=facts.id, reference=reference, type=kind, vat_bps=desk.settings.vat_bps,
        net=net, vat=vat, gross=facts.total_minor,
    )  # fmt: skip
    return store.needed(conn, Invoice, "invoice", booking_id=facts.id), fresh == 0


def _issued(desk: Desk, ctx: ms.SyncContext, facts: Facts, invoice: Invoice, again: bool) -> FiscalDocument:
    vendus, settings = desk.vendus.sync, desk.settings
    client = _client(desk, facts)
    vendus.open_register(settings.vendus_register or None)
    with ctx.transaction() as conn:
        now = desk.now(conn)
    draft = documents.draft(
        facts, invoice, client=client.id, now=now, zone=settings.zone, paid_by=settings.vendus_payment_way,
        register=settings.vendus_register or None,
    )  # fmt: skip
    try:
        return vendus.issue(draft, again=again)
    except DocumentUnknown:
        with ctx.transaction() as conn:
            store.do(conn, "invoice_unknown", booking_id=facts.id)
        raise


def _client(desk: Desk, facts: Facts) -> FiscalClient:
    """Whom the document is for: found by the tax number, else by the address, else made (RENT-4.03)."""
    vendus = desk.vendus.sync
    found = vendus.find_client(fiscal_id=facts.tax_number) if facts.tax_number else None
    if found is None and not facts.tax_number:
        found = vendus.find_client(email=facts.customer_email)
    return found or vendus.create_client(
        name=facts.customer_name or "",
        fiscal_id=facts.tax_number,
        email=facts.customer_email,
        address=facts.billing_address,
        country=facts.tax_country,
    )


def _store(desk: Desk, conn: Conn, invoice: Invoice, document: FiscalDocument) -> None:
    booking_id, pdf_url = invoice.booking_id, desk.vendus.pdf_address(document.id)
    differ = documents.differs((invoice.gross_minor, invoice.net_minor, invoice.vat_minor), document)
    store.do(
        conn, "invoice_issued", booking_id=booking_id, provider_id=document.id, number=document.number,
        pdf_url=pdf_url, net=document.net, vat=document.vat, gross=document.gross,
    )  # fmt: skip
    desk.bookings.invoiced(conn, booking_id, number=document.number, pdf_url=pdf_url)
    desk.calm(conn, "invoice_overdue", desk.subject(booking_id))
    desk.record(conn, "invoice_issued", "invoice", invoice.id, booking_id=booking_id, after={"number": document.number})
    if differ:
        text = f"{document.number} says other amounts than ours: {msgspec.json.encode(differ).decode()}"
        desk.alert(conn, "invoice_differs", desk.subject(booking_id), text, critical=True, **differ)
        log.warning("%s", text)


def _follow_up(desk: Desk, conn: Conn, booking_id: int) -> list[ms.NewJob]:
    """The mail that brings the invoice, once (RENT-4.10, 4.11)."""
    jobs: list[ms.NewJob] = [mails.send_invoice_ready.job(booking_id=booking_id, round=1)]
    rounds.start(desk, conn, booking_id, *jobs)
    credit_notes.wanted(desk, conn, booking_id)  # for what went back before the invoice stood
    return jobs
