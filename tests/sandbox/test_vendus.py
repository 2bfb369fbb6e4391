"""The invoicing service's stand-in, from the outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.contrib.senders.kit import NOBODY

from mainspring_sandbox import Sandbox
from mainspring_sandbox.faults import Fault

DOCUMENT = {
    "type": "FR",
    "external_reference": "booking-7",
    "client": {"fiscal_id": "123456789", "name": "Jo"},
    "items": [{"title": "Digger", "gross_price": "123.00", "qty": 1}],
}


@pytest.fixture
def invoicing(sandbox: Sandbox) -> Iterator[httpx2.Client]:
    with httpx2.Client(base_url=f"{sandbox.url}/invoicing", auth=("key", ""), verify=NOBODY, trust_env=False) as client:
        yield client


def test_document_is_issued_found_by_its_reference_and_printed(sandbox: Sandbox, invoicing: httpx2.Client) -> None:
    issued = invoicing.post("/documents/", json=DOCUMENT)

    document = issued.json()
    assert issued.status_code == 201
    assert (document["amount_gross"], document["amount_net"], document["amount_tax"]) == ("123.00", "100.00", "23.00")
    assert invoicing.get("/documents/", params={"external_reference": "booking-7"}).json() == [document]
    assert invoicing.get("/documents/", params={"external_reference": "booking-8"}).json() == []
    assert invoicing.get(f"/documents/{document['id']}/").json() == document
    printed = invoicing.get(document["pdf"])
    assert (printed.headers["content-type"], printed.content[:5], printed.content[-6:]) == (
        "application/pdf", b"%PDF-", b"%%EOF\n",
    )  # fmt: skip
    assert document["number"].encode() in printed.content
    assert [entry.id for entry in sandbox.ledger.find("invoice")] == [str(document["id"])]


def test_numbers_run_without_a_gap_for_each_type(invoicing: httpx2.Client) -> None:
    asked = ["FR", "FT", "FR", "FR"]

    numbers = [invoicing.post("/documents/", json=DOCUMENT | {"type": type}).json()["number"] for type in asked]

    assert [number.partition("/")[2] for number in numbers] == ["1", "1", "2", "3"]


@pytest.mark.parametrize(("deduplicate", "invoices"), [(False, 2), (True, 1)])
def test_repeat_is_a_second_invoice_unless_it_is_told_to_look(
    sandbox: Sandbox, invoicing: httpx2.Client, deduplicate: bool, invoices: int
) -> None:
    invoicing.put("/settings", json={"deduplicate": deduplicate})

    for _ in range(2):
        invoicing.post("/documents/", json=DOCUMENT)

    assert sandbox.ledger.count("invoice") == invoices


def test_line_that_breaks_leaves_an_invoice_that_the_look_up_finds(sandbox: Sandbox, invoicing: httpx2.Client) -> None:
    sandbox.faults.set(Fault(provider="invoicing", kind="drop", times=1))

    with pytest.raises(httpx2.HTTPError):
        invoicing.post("/documents/", json=DOCUMENT)

    assert len(invoicing.get("/documents/", params={"external_reference": "booking-7"}).json()) == 1


def test_closed_register_issues_nothing(sandbox: Sandbox, invoicing: httpx2.Client) -> None:
    assert [one["status"] for one in invoicing.get("/registers/").json()] == ["open"]
    invoicing.put("/settings", json={"register": "close"})

    refused = invoicing.post("/documents/", json=DOCUMENT)

    assert (refused.status_code, refused.json()["errors"][0]["code"]) == (403, "A001")
    assert [one["status"] for one in invoicing.get("/registers/").json()] == ["close"]
    invoicing.put("/settings", json={"register": "open"})
    assert invoicing.post("/documents/", json=DOCUMENT).status_code == 201
    assert sandbox.ledger.count("invoice") == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "XX"},
        {"items": []},
        {"items": [{"title": "x"}]},
        {"items": [{"title": "x", "gross_price": "much"}]},
        {"client": {"fiscal_id": "123456780"}},
        {"client": {"fiscal_id": "12345678"}},
    ],
)
def test_document_that_is_wrong_is_refused(sandbox: Sandbox, invoicing: httpx2.Client, wrong: dict[str, Any]) -> None:
    assert invoicing.post("/documents/", json=DOCUMENT | wrong).status_code == 422
    assert sandbox.ledger.count("invoice") == 0


def test_clients_are_found_by_tax_number_or_address(invoicing: httpx2.Client) -> None:
    made = invoicing.post("/clients/", json={"fiscal_id": "123456789", "email": "jo@example.com", "name": "Jo"}).json()

    assert invoicing.get("/clients/", params={"fiscal_id": "123456789"}).json() == [made]
    assert invoicing.get("/clients/", params={"email": "jo@example.com"}).json() == [made]
    assert invoicing.get("/clients/", params={"email": "no@example.com"}).json() == []
    assert invoicing.post("/clients/", json={"fiscal_id": "1"}).status_code == 422


def test_key_may_stand_in_three_places_and_must_stand_in_one(invoicing: httpx2.Client) -> None:
    invoicing.auth = lambda request: request
    bearer, wrong = {"authorization": "Bearer key"}, {"authorization": "Bearer wrong"}

    answers = [
        invoicing.get("/registers/", headers=bearer),
        invoicing.get("/registers/", params={"api_key": "key"}),
        invoicing.get("/registers/", headers=wrong),
        invoicing.get("/registers/"),
        invoicing.get("/documents/1.pdf"),
    ]

    assert [answer.status_code for answer in answers] == [200, 200, 401, 401, 401]
