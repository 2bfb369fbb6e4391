"""What requests to Vendus hold; a field that is not named here is refused, as by Vendus itself."""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Final, Literal

import msgspec

DocumentType = Literal["FR", "FT", "NC"]
TaxId = Literal["NOR", "INT", "RED", "ISE"]
WorkingMode = Literal["normal", "tests"]
#: Ways to pay; at Vendus each account has its own.
PAYMENT_WAYS: Final = {1: ("Dinheiro", "NU"), 2: ("Multibanco", "MB"), 3: ("Transferência", "TB"), 4: ("Cartão", "CC")}


class _VendusAsked(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A part of a request."""


class CreditedRow(_VendusAsked):
    """The row of an invoice that a line of a credit note takes back."""

    document_number: str
    document_row: Annotated[int, msgspec.Meta(ge=1)]


class AskedLine(_VendusAsked):
    """A line of a document, its price with VAT in it."""

    gross_price: Decimal
    title: str = ""
    qty: Decimal = Decimal(1)
    tax_id: TaxId = "NOR"
    id: int | None = None  # of the product; of the line that is credited
    reference: str | None = None
    tax_exemption: str | None = None
    reference_document: CreditedRow | None = None


class AskedClient(_VendusAsked):
    """Whom a document is for: a client that is known, or what is known of one."""

    id: int | None = None
    fiscal_id: str | None = None
    name: str | None = None
    email: str | None = None
    address: str | None = None
    postalcode: str | None = None
    city: str | None = None
    phone: str | None = None
    country: str = "PT"
    external_reference: str | None = None


class AskedPayment(_VendusAsked):
    """How much was paid in which way."""

    id: int
    amount: Decimal
    date_due: str | None = None


class AskedDocument(_VendusAsked):
    """A document that is to be issued."""

    type: DocumentType
    items: list[AskedLine]
    register_id: int | None = None
    client: AskedClient | None = None
    payments: list[AskedPayment] = []
    date: str | None = None
    external_reference: str | None = None
    notes: str | None = None
    mode: WorkingMode | None = None
    tx_id: str | None = None
    output: str | None = None
    return_qrcode: int | None = None
