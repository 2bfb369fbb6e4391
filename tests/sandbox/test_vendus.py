"""The stand-in for Vendus, from the outside: what it takes, numbers, credits and refuses."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import httpx2
import pytest
from tests.contrib.senders.kit import NOBODY
from tests.sandbox.till import Clock, ask

from mainspring_sandbox import Sandbox
from mainspring_sandbox.faults import Fault

DOCUMENT: dict[str, Any] = {
    "type": "FT",
    "external_reference": "booking-7",
    "client": {"fiscal_id": "123456789", "name": "Jo", "email": "jo@example.com"},
    "items": [{"title": "Digger", "gross_price": "123.00", "qty": 1}],
}


@pytest.fixture
def vendus(sandbox: Sandbox) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{sandbox.url}/vendus/v1.1", auth=("key", ""), verify=NOBODY, trust_env=False) as made:
        yield made


def issued(vendus: httpx2.Client, reference: str | None = "booking-7", **changes: Any) -> Any:
    answer = vendus.post("/documents/", json={**DOCUMENT, "external_reference": reference, **changes})
    assert answer.status_code == 201, answer.text
    return answer.json()


def crediting(number: str, qty: str, price: str = "123.00", **changes: Any) -> dict[str, Any]:
    row = {"document_number": number, "document_row": 1}
    item = {"title": "Digger", "gross_price": price, "qty": qty, "reference_document": row}
    return {"type": "NC", "items": [item], "external_reference": None, **changes}


def test_document_is_issued_found_by_its_reference_and_printed(sandbox: Sandbox, vendus: httpx2.Client) -> None:
    document = issued(vendus)

    assert (document["number"][:6], document["amount_gross"], document["amount_net"]) == ("FT 01P", "123.00", "100.00")
    (found,) = vendus.get("/documents/", params={"external_reference": "booking-7"}).json()
    assert (found["id"], found["external_reference"]) == (document["id"], "booking-7")
    whole = vendus.get(f"/documents/{document['id']}/").json()
    assert whole["client"]["fiscal_id"] == "123456789"
    assert (whole["items"][0]["qty_nc"], whole["items"][0]["amounts"]["gross_unit"]) == ("1", "123.00")
    printed = vendus.get(f"/documents/{document['id']}.pdf")
    assert (printed.headers["content-type"], printed.content[:5], printed.content[-6:]) == (
        "application/pdf", b"%PDF-", b"%%EOF\n",
    )  # fmt: skip
    assert document["number"].encode() in printed.content
    assert [entry.id for entry in sandbox.ledger.find("invoice")] == [str(document["id"])]


def test_empty_list_is_a_404_that_says_so(vendus: httpx2.Client) -> None:
    for path in ("/documents/?external_reference=booking-8", "/clients/?email=no@example.com", "/documents/7/"):
        answer = vendus.get(path)
        assert (answer.status_code, answer.json()["errors"][0]["code"]) == (404, "A001")


def test_numbers_run_without_a_gap_in_each_series(vendus: httpx2.Client) -> None:
    paid = [{"id": 4, "amount": 123}]
    asked: list[dict[str, Any]] = [
        {"type": "FR", "payments": paid},
        {"type": "FT"},
        {"type": "FR", "payments": paid},
        {"mode": "tests"},
    ]

    numbers = [issued(vendus, None, **changes)["number"] for changes in asked]

    assert [(number[:2], number.partition("/")[2]) for number in numbers] == [
        ("FR", "1"), ("FT", "1"), ("FR", "2"), ("FT", "1"),
    ]  # fmt: skip
    assert numbers[-1].startswith("FT T01P")


def test_document_bears_the_day_of_lisbon_and_is_never_dated_back(vendus: httpx2.Client, clock: Clock) -> None:
    clock.at = datetime(2026, 7, 31, 23, 30, tzinfo=UTC)

    assert issued(vendus)["date"] == "2026-08-01"
    for day in ("2026-07-31", "2026-08-02", "soon"):
        assert vendus.post("/documents/", json=DOCUMENT | {"external_reference": day, "date": day}).status_code == 403


def test_reference_is_used_once_unless_it_is_told_otherwise(sandbox: Sandbox, vendus: httpx2.Client) -> None:
    issued(vendus)
    assert vendus.post("/documents/", json=DOCUMENT).status_code == 409

    sandbox.vendus.settings.unique_references = False
    issued(vendus)

    assert sandbox.ledger.count("invoice") == 2


def test_credit_notes_name_a_row_and_never_exceed_it(vendus: httpx2.Client) -> None:
    invoice = issued(vendus)
    thirds = [crediting(invoice["number"], qty) for qty in ("0.3333", "0.3333", "0.3334")]

    notes = [vendus.post("/documents/", json=note).json() for note in thirds]

    assert [note["number"].partition("/")[2] for note in notes] == ["1", "2", "3"]
    assert [note["amount_gross"] for note in notes] == ["41.00", "41.00", "41.00"]
    assert sum(float(note["amount_net"]) for note in notes) == pytest.approx(100)  # the last takes what is left
    refused = vendus.post("/documents/", json=crediting(invoice["number"], "0.0001"))
    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "P001")
    assert vendus.get(f"/documents/{invoice['id']}/").json()["items"][0]["qty_nc"] == "0.0000"
    other = issued(vendus, "booking-8")
    for qty, price in (("2", "10.00"), ("1.5", "123.00"), ("0", "123.00"), ("-1", "123.00")):
        assert vendus.post("/documents/", json=crediting(other["number"], qty, price)).status_code == 403


@pytest.mark.parametrize("number", ["FT 01P2026/9", "", "NC"])
def test_credit_note_on_nothing_is_refused(vendus: httpx2.Client, number: str) -> None:
    note = issued(vendus, **crediting(issued(vendus)["number"], "0.5"))

    wrong = crediting(note["number"] if number == "NC" else number, "0.5")

    assert vendus.post("/documents/", json=wrong).status_code == 403


def test_line_that_breaks_leaves_an_invoice_that_the_look_up_finds(sandbox: Sandbox, vendus: httpx2.Client) -> None:
    sandbox.faults.set(Fault(provider="vendus", kind="drop", times=1))

    with pytest.raises(httpx2.HTTPError):
        vendus.post("/documents/", json=DOCUMENT)

    assert len(vendus.get("/documents/", params={"external_reference": "booking-7"}).json()) == 1


def test_closed_register_issues_nothing(sandbox: Sandbox, vendus: httpx2.Client) -> None:
    assert ask(sandbox, "POST", "/sandbox/vendus/register", {"status": "close"}).json()["status"] == "close"
    assert [one["status"] for one in vendus.get("/registers/").json()] == ["close"]

    refused = vendus.post("/documents/", json=DOCUMENT)

    assert (refused.status_code, sandbox.ledger.count("invoice")) == (403, 0)
    sandbox.vendus.register("open")
    issued(vendus)


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "XX"},
        {"type": "FR"},
        {"type": "FR", "payments": [{"id": 4, "amount": 122.99}]},
        {"type": "FR", "payments": [{"id": 9, "amount": 123}]},
        {"items": []},
        {"items": [{"title": "x"}]},
        {"items": [{"title": "x", "gross_price": "much"}]},
        {"client": {"fiscal_id": "123456780", "name": "Jo"}},
        {"client": {"id": 4711}},
        {"reference_document_id": 7},
    ],
)
def test_document_that_is_wrong_is_refused_by_its_field(
    sandbox: Sandbox, vendus: httpx2.Client, wrong: dict[str, Any]
) -> None:
    refused = vendus.post("/documents/", json=DOCUMENT | wrong)

    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "P001")
    assert (sandbox.ledger.count("invoice"), sandbox.ledger.count("vendus.client")) == (0, 0)


def test_tax_number_belongs_to_one_client(vendus: httpx2.Client) -> None:
    asked = {"fiscal_id": "123456789", "email": "jo@example.com", "name": "Jo"}
    made = vendus.post("/clients/", json=asked).json()

    assert vendus.get("/clients/", params={"fiscal_id": "123456789"}).json() == [made]
    assert vendus.get("/clients/", params={"email": "jo@example.com"}).json() == [made]
    assert vendus.post("/clients/", json=asked).status_code == 403
    whole = vendus.get(f"/documents/{issued(vendus)['id']}/").json()
    assert whole["client"]["id"] == made["id"]


def test_key_is_the_user_of_basic(sandbox: Sandbox, vendus: httpx2.Client) -> None:
    vendus.auth = lambda request: request
    answers = [vendus.get("/registers/"), vendus.get("/registers/", auth=("wrong", "")), vendus.get("/documents/1.pdf")]

    assert [answer.status_code for answer in answers] == [401, 401, 401]
    assert vendus.get("/registers/", auth=("key", "")).status_code == 200
    assert [entry.body["status"] for entry in sandbox.ledger.find("vendus.request")] == [200, 401, 401, 401]
