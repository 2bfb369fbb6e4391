"""Credit notes: each line takes back a row of an invoice, or a part of one, and never more than is left of it."""

from __future__ import annotations

from decimal import Decimal
from typing import TYPE_CHECKING, Any

from mainspring_sandbox.vendus.amounts import cents, euros, net_of
from mainspring_sandbox.vendus.asked import AskedDocument, AskedLine
from mainspring_sandbox.vendus.refused import wrong

if TYPE_CHECKING:
    from mainspring_sandbox.vendus.state import VendusStandIn


def credited(vendus: VendusStandIn, asked: AskedDocument, mode: str) -> list[dict[str, Any]]:
    """The rows of a credit note; what they take is gone from the rows that they name."""
    return [_taken(vendus, line, mode) for line in asked.items]


def _taken(vendus: VendusStandIn, line: AskedLine, mode: str) -> dict[str, Any]:
    named = line.reference_document
    if named is None:
        raise wrong("items.reference_document", "is missing: a credit note names the row that it takes back")
    found = vendus.world.ledger.find("invoice", number=named.document_number, mode=mode)
    if not found or found[0].body["type"] == "NC" or named.document_row > len(found[0].body["items"]):
        raise wrong("items.reference_document", "there is no such invoice, or no such row")
    rows = found[0].body["items"]
    row = rows[named.document_row - 1]
    left = Decimal(row["qty_nc"])
    gross = row["gross_nc"] if line.qty == left else cents(line.gross_price * line.qty)
    if not 0 < line.qty <= left or not 0 < gross <= row["gross_nc"]:
        raise wrong("items.qty", f"{line.qty} x {line.gross_price} is more than is left of the row, or nothing")
    last = gross == row["gross_nc"]  # whoever takes the rest takes what rounding left of its VAT, too
    net = row["net_nc"] if last else net_of(gross, row["tax_id"])
    row |= {"qty_nc": str(left - line.qty), "gross_nc": row["gross_nc"] - gross, "net_nc": row["net_nc"] - net}
    vendus.world.ledger.change("invoice", found[0].id, items=rows)
    return {
        "id": row["id"], "title": line.title or row["title"], "reference": row["reference"], "tax_id": row["tax_id"],
        "credits": [named.document_number, named.document_row], "qty": str(line.qty), "qty_nc": "0",
        "gross_unit": euros(cents(line.gross_price)), "gross": gross, "net": net, "gross_nc": 0, "net_nc": 0,
    }  # fmt: skip
