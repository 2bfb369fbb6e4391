"""Documents that are to be issued: what they say, and how Vendus wants it said."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from decimal import ROUND_HALF_UP, Decimal
from typing import Any, Final, Literal

import msgspec

from mainspring.contrib.vendus.errors import DocumentRejected
from mainspring.contrib.vendus.values import FiscalDocument, IssuedLine
from mainspring.errors import ValidationError

#: Vendus' names for the rates of the mainland; other regions have other rates under the same names.
TAX_IDS: Final[Mapping[int, str]] = {2300: "NOR", 1300: "INT", 600: "RED", 0: "ISE"}


class InvoiceLine(msgspec.Struct, frozen=True, kw_only=True):
    """What is sold: so many at a price in cents, with VAT in it."""

    title: str
    price: int
    qty: int = 1
    vat_bps: int = 2300
    code: str | None = None  # of the article, for people
    exemption: str | None = None  # M01 to M99, where there is no VAT


class InvoiceDraft(msgspec.Struct, frozen=True, kw_only=True):
    """An invoice. FR: it was paid, in the way `paid_by`; FT: it is to be paid."""

    type: Literal["FR", "FT"]
    reference: str  # ours: under it the document is found again
    lines: Sequence[InvoiceLine]
    client: int | None = None  # None: a final consumer, whom nobody names
    paid_by: int | None = None  # the id of one of `payment_ways`
    register: int | None = None  # None: the account's own choice
    notes: str | None = None
    day: date | None = None  # None: the day on which it is issued, in Lisbon

    @property
    def gross(self) -> int:
        """What it comes to, in cents."""
        return sum(line.price * line.qty for line in self.lines)

    def body(self) -> dict[str, Any]:
        """As Vendus takes it."""
        if self.type == "FR" and self.paid_by is None:
            raise ValidationError("paid_by: is missing: an FR says how it was paid", field="paid_by")
        if not self.lines:
            raise ValidationError("lines: is empty", field="lines")
        return {
            "type": self.type,
            **_common(self.reference, self.register, self.notes),
            **_given(date=self.day and self.day.isoformat()),
            **({} if self.client is None else {"client": {"id": self.client}}),
            "items": [_line(line) for line in self.lines],
            **({"payments": [{"id": self.paid_by, "amount": _euros(self.gross)}]} if self.type == "FR" else {}),
        }


class CreditedLine(msgspec.Struct, frozen=True, kw_only=True):
    """What is taken back of a row of an invoice: so many cents with VAT in them, or all that is left."""

    row: int = 1  # from 1
    cents: int | None = None


class CreditDraft(msgspec.Struct, frozen=True, kw_only=True):
    """A credit note on an invoice, with the reason that the law asks for; without lines it takes all that is left."""

    document: int  # the id of the invoice
    reference: str
    reason: str
    lines: Sequence[CreditedLine] = ()
    register: int | None = None

    @property
    def gross(self) -> int | None:
        """What it comes to, in cents; None: that depends on what is left of the invoice."""
        parts = [line.cents for line in self.lines]
        return None if not parts or None in parts else sum(cents for cents in parts if cents is not None)

    def body(self, of: FiscalDocument) -> tuple[dict[str, Any], int]:
        """As Vendus takes it, and what it comes to in cents.

        Vendus credits rows by their quantity. A part of a price is therefore a part of a quantity, with as many
        decimals as it takes to come to the cent again; how many Vendus allows is not publicly described.
        """
        if not self.reason.strip():
            raise ValidationError("reason: is missing: a credit note says why", field="reason")
        wanted = self.lines or [CreditedLine(row=n) for n, line in enumerate(of.lines, 1) if line.left > 0]
        taken = [_taken(of, line) for line in wanted]
        if not taken:
            raise DocumentRejected("Vendus: nothing is left of the document to be credited")
        body = {"type": "NC", **_common(self.reference, self.register, self.reason)}
        return body | {"items": [item for item, _ in taken]}, sum(cents for _, cents in taken)


def tax_id(vat_bps: int) -> str:
    """Vendus' name of a rate.

    >>> tax_id(2300), tax_id(600)
    ('NOR', 'RED')
    """
    if vat_bps not in TAX_IDS:
        raise ValidationError(f"vat_bps: {vat_bps} is none of {', '.join(map(str, TAX_IDS))}", field="vat_bps")
    return TAX_IDS[vat_bps]


def part_of(price: int, cents: int) -> Decimal:
    """The part of one that comes to so many cents of its price.

    >>> part_of(10000, 3333), part_of(12345, 1000), part_of(12345, 12345)
    (Decimal('0.3333'), Decimal('0.081'), Decimal('1'))
    """
    part = (Decimal(cents) / price).quantize(Decimal(10) ** -len(str(price)), ROUND_HALF_UP)
    return part.quantize(Decimal(1)) if part == part.to_integral() else part.normalize()


def _taken(of: FiscalDocument, line: CreditedLine) -> tuple[dict[str, Any], int]:
    if not 1 <= line.row <= len(of.lines):
        raise ValidationError(f"row: the document has {len(of.lines)} of them, not {line.row}", field="row")
    row = of.lines[line.row - 1]
    left = _cents(row, row.left)
    cents = left if line.cents is None else line.cents
    if not 0 < cents <= left:
        raise DocumentRejected(f"Vendus: {left} cents are left of row {line.row}, not {cents}")
    qty = row.left if cents == left else part_of(row.price, cents)
    item = {"id": row.id, "title": row.title, "qty": qty, "gross_price": _euros(row.price), "tax_id": row.tax}
    named = {"document_number": of.number, "document_row": line.row}
    return {name: value for name, value in item.items() if value is not None} | {"reference_document": named}, cents


def _cents(row: IssuedLine, qty: Decimal) -> int:
    return int((qty * row.price).quantize(Decimal(1), ROUND_HALF_UP))


def _line(line: InvoiceLine) -> dict[str, Any]:
    if line.price < 0 or line.qty < 1:
        raise ValidationError("lines: a price is negative, or a quantity is below one", field="lines")
    said = {"title": line.title, "qty": line.qty, "gross_price": _euros(line.price), "tax_id": tax_id(line.vat_bps)}
    return said | _given(reference=line.code, tax_exemption=line.exemption)


def _common(reference: str, register: int | None, notes: str | None) -> dict[str, Any]:
    if not reference.strip():
        raise ValidationError("reference: is missing: without it a document is not found again", field="reference")
    return {"external_reference": reference, **_given(register_id=register, notes=notes)}


def _euros(cents: int) -> Decimal:
    return Decimal(cents).scaleb(-2)


def _given(**fields: Any) -> dict[str, Any]:
    return {name: value for name, value in fields.items() if value is not None}
