"""What Vendus holds: registers, clients, ways to pay and documents, their money in whole cents of a euro."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from decimal import Decimal
from typing import Any, Final, Literal

import msgspec

from mainspring.contrib.money import Money

FiscalType = Literal["FR", "FT", "NC"]
VENDUS_CURRENCY: Final = "EUR"
FINAL_CONSUMER: Final = "999999990"  # what stands on a document in place of a tax number


class CashRegister(msgspec.Struct, frozen=True, kw_only=True):
    """A register, from which documents are issued while it is open."""

    id: int
    title: str
    open: bool
    mode: str | None  # `normal`, or `tests`: what it issues then is no document

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> CashRegister:
        """From what Vendus says: it must be open, and switched on."""
        well = body.get("status") == "open" and body.get("situation", "on") == "on"
        return cls(id=int(body["id"]), title=str(body.get("title", "")), open=well, mode=body.get("mode"))


class FiscalClient(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody whom documents are for."""

    id: int
    name: str | None = None
    fiscal_id: str | None = None
    email: str | None = None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> FiscalClient:
        """From what Vendus says; the tax number of whom nobody names is none."""
        said = {name: body.get(name) or None for name in ("name", "fiscal_id", "email")}
        return cls(id=int(body["id"]), **said | ({"fiscal_id": None} if said["fiscal_id"] == FINAL_CONSUMER else {}))

    def __repr__(self) -> str:  # personal data do not go to logs
        return f"<FiscalClient {self.id}>"


class PaymentWay(msgspec.Struct, frozen=True, kw_only=True):
    """A way to pay; each account has its own ids."""

    id: int
    title: str
    type: str | None = None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> PaymentWay:
        """From what Vendus says."""
        return cls(id=int(body["id"]), title=str(body.get("title", "")), type=body.get("type"))


class IssuedLine(msgspec.Struct, frozen=True, kw_only=True):
    """A line of a document, and how much of it can be credited still."""

    id: int | None
    title: str
    price: int  # of one, with VAT, in cents
    qty: Decimal
    left: Decimal  # of the quantity
    tax: str

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> IssuedLine:
        """From what Vendus says of a document that is asked for by its id."""
        qty = Decimal(str(body.get("qty", 1)))
        return cls(
            id=None if body.get("id") is None else int(body["id"]),
            title=str(body.get("title", "")),
            price=cents_of((body.get("amounts") or {}).get("gross_unit", 0)),
            qty=qty,
            left=Decimal(str(body.get("qty_nc", qty))),
            tax=str((body.get("tax") or {}).get("id", "NOR")),
        )


class FiscalDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An invoice or a credit note, as it was issued: it never changes."""

    id: int
    type: str
    number: str  # such as FR 01P2026/1
    date: date
    gross: int  # cents
    net: int
    reference: str | None = None
    atcud: str | None = None
    lines: tuple[IssuedLine, ...] = ()  # of a document that was asked for by its id

    @property
    def vat(self) -> int:
        """What is in it for the state, in cents."""
        return self.gross - self.net

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> FiscalDocument:
        """From what Vendus says."""
        return cls(
            id=int(body["id"]),
            type=str(body["type"]),
            number=str(body["number"]),
            date=date.fromisoformat(str(body["date"])[:10]),
            gross=cents_of(body["amount_gross"]),
            net=cents_of(body["amount_net"]),
            reference=body.get("external_reference") or None,
            atcud=body.get("atcud") or None,
            lines=tuple(map(IssuedLine.read, body.get("items") or ())),
        )


def cents_of(amount: object) -> int:
    """An amount that Vendus wrote, exactly.

    >>> cents_of("49.90"), cents_of(0.29)
    (4990, 29)
    """
    return Money.of(str(amount), VENDUS_CURRENCY).minor


def vat_of(gross: int, bps: int = 2300) -> tuple[int, int]:
    """Net and VAT of a price in cents: the net rounded half up to the cent, so that both make the price again.

    >>> vat_of(12300), vat_of(1), vat_of(10000)
    ((10000, 2300), (1, 0), (8130, 1870))
    """
    net = (2 * gross * 10_000 + 10_000 + bps) // (2 * (10_000 + bps))
    return net, gross - net
