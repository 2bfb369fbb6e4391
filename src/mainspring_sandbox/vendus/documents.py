"""Documents: numbered without a gap in each series, dated in Lisbon, and never changed."""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Any, Final
from zoneinfo import ZoneInfo

import msgspec

from mainspring_sandbox.vendus.amounts import PERCENT, cents, euros, net_of
from mainspring_sandbox.vendus.asked import PAYMENT_WAYS, AskedDocument, AskedLine
from mainspring_sandbox.vendus.credits import credited
from mainspring_sandbox.vendus.refused import VendusRefused, wrong

if TYPE_CHECKING:
    from mainspring_sandbox.vendus.state import VendusStandIn

FISCAL_ZONE: Final = ZoneInfo("Europe/Lisbon")
#: What a list and the answer to who issues say of a document.
_BRIEF: Final = (
    *("id", "type", "subtype", "number", "date", "system_time", "local_time", "amount_gross", "amount_net"),
    *("hash", "atcud", "tax_authority_id", "external_reference", "register_id", "store_id", "status"),
)


def issue(vendus: VendusStandIn, asked: AskedDocument) -> dict[str, Any]:
    """Write a document, or say why not."""
    register, ledger = vendus.register(), vendus.world.ledger
    if asked.register_id not in (None, register["id"]):
        raise wrong("register_id", "there is no such register")
    if register["status"] != "open":
        raise VendusRefused(403, "R001", "The register is closed.")
    if not asked.items:
        raise wrong("items", "is empty")
    mode, reference = asked.mode or register["mode"], asked.external_reference
    if reference and vendus.settings.unique_references and vendus.find_documents(mode, external_reference=reference):
        raise VendusRefused(409, "D409", "external_reference: another document has it.")
    rows = credited(vendus, asked, mode) if asked.type == "NC" else [_row(line) for line in asked.items]
    gross, net = sum(row["gross"] for row in rows), sum(row["net"] for row in rows) - vendus.settings.vat_off_by
    _paid(asked, gross)
    now = vendus.world.now()
    series = f"{'T' if mode == 'tests' else ''}01P{now.astimezone(FISCAL_ZONE).year}"
    number, day = _numbered(vendus, f"{asked.type} {series}", asked, now.astimezone(FISCAL_ZONE).date())
    client, id = vendus.addressee(asked.client), ledger.number()
    body: dict[str, Any] = {
        "provider": "vendus", "to": client and (client["email"] or client["name"]), "mode": mode,
        "id": id, "type": asked.type, "subtype": asked.type, "number": f"{asked.type} {series}/{number}",
        "date": day, "system_time": f"{now:%Y-%m-%d %H:%M:%S}", "status": "N", "store_id": register["store_id"],
        "local_time": f"{now.astimezone(FISCAL_ZONE):%Y-%m-%d %H:%M:%S}", "register_id": register["id"],
        "amount_gross": euros(gross), "amount_net": euros(net), "tax_authority_id": "",
        "hash": f"{id:04X}"[-4:], "atcud": f"SANDBOX{len(series)}-{number}",
        "external_reference": reference, "notes": asked.notes, "client": client,
        "payments": msgspec.to_builtins(asked.payments), "items": rows,
        "related_docs": sorted({row["credits"][0] for row in rows if row["credits"]}),
    }  # fmt: skip
    return ledger.add("invoice", str(id), body).body


def brief(document: dict[str, Any], *, qrcode: bool = False) -> dict[str, Any]:
    """The answer to who issues one: the client is not in it."""
    said = {name: document[name] for name in _BRIEF}
    code = f"A:500000000*B:999999990*D:{document['type']}*G:{document['number']}*O:{document['amount_gross']}"
    return said | ({"qrcode": code} if qrcode else {})


def listed(document: dict[str, Any]) -> dict[str, Any]:
    """One of a list."""
    return brief(document) | {"client_id": document["client"] and document["client"]["id"]}


def whole(document: dict[str, Any]) -> dict[str, Any]:
    """A document with its lines, and how much of each can be credited still."""
    rows = [
        {
            "id": row["id"],
            "title": row["title"],
            "reference": row["reference"],
            "qty": row["qty"],
            "qty_nc": row["qty_nc"],
            "tax": {"id": row["tax_id"], "rate": PERCENT[row["tax_id"]]},
            "amounts": {"gross_unit": row["gross_unit"], "gross_total": euros(row["gross"])},
        }
        for row in document["items"]
    ]
    more = {name: document[name] for name in ("client", "payments", "notes", "related_docs")}
    return brief(document) | more | {"items": rows}


def printed(document: dict[str, Any]) -> list[str]:
    """What stands on paper."""
    client, taken = document["client"] or {"name": "Consumidor final", "fiscal_id": None}, document["related_docs"]
    lines = [document["number"], f"Data {document['date']}", client["name"], f"NIF {client['fiscal_id'] or '-'}"]
    lines += [f"{row['qty']} x {row['title']} {row['gross_unit']} EUR" for row in document["items"]]
    lines += [f"Ref. {number}" for number in taken]
    return [*lines, f"Total {document['amount_gross']} EUR", f"Sem IVA {document['amount_net']} EUR"]


def _row(line: AskedLine) -> dict[str, Any]:
    if line.reference_document is not None:
        raise wrong("items.reference_document", "is for credit notes")
    if not line.title or line.qty <= 0 or line.gross_price < 0:
        raise wrong("items", "title, qty or gross_price is missing or wrong")
    gross = cents(line.gross_price * line.qty)
    return {
        "id": line.id, "title": line.title, "reference": line.reference, "tax_id": line.tax_id, "credits": None,
        "qty": str(line.qty), "qty_nc": str(line.qty), "gross_unit": euros(cents(line.gross_price)),
        "gross": gross, "net": net_of(gross, line.tax_id), "gross_nc": gross, "net_nc": net_of(gross, line.tax_id),
    }  # fmt: skip


def _paid(asked: AskedDocument, gross: int) -> None:
    """An FR says how it was paid, when it is issued."""
    if any(payment.id not in PAYMENT_WAYS for payment in asked.payments):
        raise wrong("payments.id", "there is no such way to pay")
    if asked.type == "FR" and sum(cents(payment.amount) for payment in asked.payments) != gross:
        raise wrong("payments", "an FR is paid when it is issued, and in full")


def _numbered(vendus: VendusStandIn, series: str, asked: AskedDocument, today: date) -> tuple[int, str]:
    """The next number of a series, and the day that the document bears."""
    ledger = vendus.world.ledger
    last = ledger.get("vendus.series", series) or ledger.add("vendus.series", series, {"number": 0, "date": ""})
    number, day = last.body["number"] + 1, _day(asked, today, last.body["date"])
    ledger.change("vendus.series", series, number=number, date=day)
    return number, day


def _day(asked: AskedDocument, today: date, last: str) -> str:
    """Its date: today in Lisbon; never before the one of the same series that was issued last."""
    try:
        day = today if asked.date is None else date.fromisoformat(asked.date)
    except ValueError:
        raise wrong("date", "is no date") from None
    if day > today or day.isoformat() < last:
        raise wrong("date", "is in the future, or before the last document of its series")
    return day.isoformat()
