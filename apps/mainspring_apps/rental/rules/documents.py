"""What an invoice says, and what must be known of a booking before it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import date, datetime
from typing import Any, Literal

import msgspec

from mainspring.contrib.vendus import FiscalDocument, InvoiceDraft, InvoiceLine, vat_of
from mainspring_apps.rental.rules import days


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """A booking, as handlers know it, whoever keeps it."""

    id: int
    machine: str | None
    start_date: date | None
    end_date: date | None
    status: str
    customer_name: str | None
    customer_email: str | None
    billing_address: str | None
    tax_number: str | None
    tax_country: str
    locale: str
    total_minor: int | None
    currency: str
    held_until: datetime | None
    stripe_session_id: str | None
    stripe_payment_intent_id: str | None
    paid_at: datetime | None
    invoice_number: str | None
    invoice_pdf_url: str | None
    confirmation_email_sent_at: datetime | None
    internal_email_sent_at: datetime | None
    invoice_email_sent_at: datetime | None

    def __repr__(self) -> str:  # personal data do not go to logs
        return f"<Facts of booking {self.id}>"


class Invoice(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `invoices`."""

    id: int
    booking_id: int
    external_reference: str
    document_type: Literal["FR", "FT"]
    state: Literal["reserved", "issued", "unknown"]
    provider_id: int | None
    number: str | None
    pdf_url: str | None
    vat_bps: int
    net_minor: int
    vat_minor: int
    gross_minor: int


NEEDED = ("machine", "start_date", "end_date", "customer_name", "customer_email", "total_minor")


def missing(facts: Facts) -> list[str]:
    """What nobody has said of a booking (RENT-4.02)."""
    return [name for name in NEEDED if getattr(facts, name) in (None, "")]


def over(facts: Facts, now: datetime, zone: str) -> bool:
    """Whether the rental is over: its last day has ended."""
    return facts.end_date is not None and days.starts(facts.end_date, zone) <= now


def document_type(facts: Facts) -> Literal["FR", "FT"]:
    """FR when the payment has come, FT where an invoice comes first (RENT-4.06)."""
    return "FR" if facts.paid_at is not None else "FT"


def reference(booking_id: int) -> str:
    """What the invoice of a booking is found again by at Vendus.

    >>> reference(42)
    'rental-42'
    """
    return f"rental-{booking_id}"


def draft(
    facts: Facts, invoice: Invoice, *, client: int, now: datetime, zone: str, paid_by: int, register: int | None
) -> InvoiceDraft:
    """The document, of one line with VAT in its price; issued later than it was paid, it names that day."""
    assert facts.machine is not None
    assert facts.start_date is not None
    assert facts.end_date is not None
    number = days.length(facts.start_date, facts.end_date)
    last = facts.end_date.fromordinal(facts.end_date.toordinal() - 1)
    what = f"{facts.machine}: {facts.start_date} - {last} ({number} d)"
    line = InvoiceLine(title=what, price=invoice.gross_minor, vat_bps=invoice.vat_bps)
    return InvoiceDraft(
        type=invoice.document_type,
        reference=invoice.external_reference,
        lines=[line],
        client=client,
        paid_by=paid_by if invoice.document_type == "FR" else None,
        register=register,
        notes="\n".join(_notes(facts, now, zone)),
    )


def _notes(facts: Facts, now: datetime, zone: str) -> Iterator[str]:
    yield f"Reserva / booking {facts.id}"
    if facts.paid_at is not None and (paid := days.day_of(facts.paid_at, zone)) != days.day_of(now, zone):
        yield f"Pago em / paid on {paid}"


def differs(amounts: tuple[int, int, int], document: FiscalDocument) -> dict[str, Any]:
    """Where an issued document says another gross, net or VAT than ours (RENT-20.24)."""
    ours = dict(zip(("gross", "net", "vat"), amounts, strict=True))
    theirs = {"gross": document.gross, "net": document.net, "vat": document.vat}
    return {name: [ours[name], theirs[name]] for name in ours if ours[name] != theirs[name]}


__all__ = ["Facts", "Invoice", "differs", "document_type", "draft", "missing", "over", "reference", "vat_of"]
