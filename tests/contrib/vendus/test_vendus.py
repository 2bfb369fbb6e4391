"""Invoices and credit notes against the stand-in over HTTP: each issued once, whatever is lost on the way."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import pytest
from tests.contrib.senders.kit import answering

from mainspring import Failure, Permanent, RetryAfter
from mainspring.contrib.vendus import (
    CreditDraft,
    CreditedLine,
    DocumentConflict,
    DocumentRejected,
    DocumentUnknown,
    FiscalDocument,
    InvoiceDraft,
    InvoiceLine,
    InvoicingDenied,
    RegisterClosed,
    Vendus,
    vat_of,
)
from mainspring.errors import ConfigurationError, ValidationError
from mainspring_sandbox import Fault, Sandbox
from mainspring_sandbox.vendus import VendusSettings

pytestmark = pytest.mark.anyio

CARD = 4


def draft(reference: str = "booking-7", price: int = 12_300, **changes: Any) -> InvoiceDraft:
    lines = [InvoiceLine(title="Digger, 3 days", price=price)]
    fields: dict[str, Any] = {"type": "FR", "reference": reference, "lines": lines, "paid_by": CARD, **changes}
    return InvoiceDraft(**fields)


def posts(sandbox: Sandbox) -> int:
    """How many documents Vendus was asked for."""
    return len(sandbox.ledger.find("vendus.request", method="POST", path="/v1.1/documents/"))


def fault(sandbox: Sandbox, kind: Any, **more: Any) -> None:
    fields: dict[str, Any] = {"times": 1, "method": "POST", **more}
    sandbox.faults.set(Fault(provider="vendus", kind=kind, **fields))


async def test_invoice_is_issued_and_found_by_our_reference(sandbox: Sandbox, vendus: Vendus) -> None:
    client = await vendus.create_client(name="Jo", fiscal_id="123456789", email="jo@example.com")
    register = await vendus.open_register()

    issued = await vendus.issue(draft(client=client.id, register=register.id, notes="Paid with Stripe: pi_1"))

    assert (issued.type, issued.gross, issued.net, issued.vat) == ("FR", 12_300, 10_000, 2_300)
    found = await vendus.find_document("booking-7")
    assert found is not None
    assert (found.id, found.number, found.gross, found.reference) == (issued.id, issued.number, 12_300, "booking-7")
    assert await vendus.find_document("booking-8") is None
    paper = await vendus.pdf(issued.id)
    assert paper is not None
    assert issued.number.encode() in paper
    assert vendus.pdf_address(issued.id) == f"{sandbox.url}/vendus/v1.1/documents/{issued.id}.pdf"
    (entry,) = sandbox.ledger.find("invoice")
    assert (entry.body["client"]["fiscal_id"], entry.body["to"]) == ("123456789", "jo@example.com")


async def test_client_is_found_by_tax_number_or_by_address(sandbox: Sandbox, vendus: Vendus) -> None:
    company = await vendus.create_client(name="Jo Lda", fiscal_id="123456789", email="jo@example.com")

    assert await vendus.find_client(fiscal_id="123456789") == company
    assert await vendus.find_client(fiscal_id="501442600") is None
    assert await vendus.find_client(email="jo@example.com") is None  # who gives no tax number gets none of before
    person = await vendus.create_client(name="Jo", email="Jo@example.com")
    assert await vendus.find_client(email="Jo@example.com") == person
    assert "Jo" not in repr(person)
    with pytest.raises(ValidationError):
        await vendus.find_client(fiscal_id="123456789", email="jo@example.com")


async def test_plain_verb_in_async_code_says_what_to_do(vendus: Vendus) -> None:
    with pytest.raises(ConfigurationError, match="await"):
        vendus.sync.registers()


def test_plain_functions_have_the_same_verbs(sandbox: Sandbox) -> None:
    vendus = Vendus("key", base=f"{sandbox.url}/vendus").sync

    issued = vendus.issue(draft())

    assert vendus.document(issued.id) is not None
    assert [way.id for way in vendus.payment_ways() if way.type == "CC"] == [CARD]


@pytest.mark.parametrize("kind", ["drop", "timeout"])
async def test_lost_answer_leaves_one_document_which_the_next_attempt_adopts(
    sandbox: Sandbox, vendus: Vendus, kind: str
) -> None:
    vendus.api._http.timeout = 0.4
    fault(sandbox, kind, accepted=True)

    with pytest.raises(DocumentUnknown) as lost:
        await vendus.issue(draft())
    adopted = await vendus.issue(draft(), again=True)

    assert (lost.value.code, lost.value.error_class) == ("INVOICE_OUTCOME_UNKNOWN", "retryable")
    assert lost.value.why == ("TIMEOUT" if kind == "timeout" else "HttpException")
    assert (posts(sandbox), [entry.id for entry in sandbox.ledger.find("invoice")]) == (1, [str(adopted.id)])


@pytest.mark.parametrize("kind", ["error", "drop"])
async def test_document_is_not_posted_again_while_vendus_cannot_be_asked(
    sandbox: Sandbox, vendus: Vendus, kind: str
) -> None:
    sandbox.faults.set(Fault(provider="vendus", kind=kind, method="GET"))  # type: ignore[arg-type] # a kind

    with pytest.raises(DocumentUnknown):
        await vendus.issue(draft(), again=True)

    assert posts(sandbox) == 0


async def test_taken_reference_is_adopted_if_type_and_amount_agree(sandbox: Sandbox, vendus: Vendus) -> None:
    first = await vendus.issue(draft())

    assert (await vendus.issue(draft())).id == first.id
    for other in (draft(price=12_301), draft(type="FT")):
        with pytest.raises(DocumentConflict) as conflict:
            await vendus.issue(other)
        assert (conflict.value.code, conflict.value.error_class) == ("INVOICE_CONFLICT", "permanent")
    assert sandbox.ledger.count("invoice") == 1


async def test_closed_register_is_tried_again_and_posts_nothing(sandbox: Sandbox, vendus: Vendus) -> None:
    sandbox.vendus.register("close")

    for ask in (vendus.open_register(), vendus.open_register(1), vendus.issue(draft())):
        with pytest.raises(RegisterClosed) as closed:
            await ask
        assert (closed.value.code, closed.value.error_class) == ("REGISTER_CLOSED", "retryable")
    sandbox.vendus.register("open")
    await vendus.issue(draft(), again=True)

    assert sandbox.ledger.count("invoice") == 1


@pytest.mark.parametrize(
    ("status", "code", "kind"),
    [
        (500, "HttpException", Failure),
        (503, "HttpException", Failure),
        (429, "RATE_LIMITED", RetryAfter),
        (401, "INVOICING_DENIED", InvoicingDenied),
        (403, "INVOICING_DENIED", InvoicingDenied),
    ],
)
async def test_what_may_pass_is_tried_again(
    sandbox: Sandbox, vendus: Vendus, status: int, code: str, kind: type[Failure]
) -> None:
    fault(sandbox, "error", status=status)

    with pytest.raises(kind) as refused:
        await vendus.issue(draft())
    await vendus.issue(draft(), again=True)

    assert (refused.value.code, refused.value.error_class) == (code, "retryable")
    assert sandbox.ledger.count("invoice") == 1


async def test_what_is_wrong_with_the_document_is_for_a_person(sandbox: Sandbox, vendus: Vendus) -> None:
    fault(sandbox, "error", status=422)
    wrong = [draft(), draft(paid_by=9), draft(client=4711)]

    for one in wrong:
        with pytest.raises(DocumentRejected) as rejected:
            await vendus.issue(one)
        assert (rejected.value.code, rejected.value.error_class) == ("INVOICE_REJECTED", "permanent")
    assert rejected.value.reason == "P001"
    assert sandbox.ledger.count("invoice") == 0


async def test_vendus_that_was_never_reached_has_issued_nothing() -> None:
    async with answering(_hang_up) as address:
        pass
    with pytest.raises(Failure) as away:
        await Vendus("key", base=address).issue(draft())

    assert away.value.code == "HttpException"


async def _hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.close()


async def test_vendus_says_when_it_takes_calls_again(sandbox: Sandbox, vendus: Vendus) -> None:
    sandbox.vendus.settings.per_second = 2

    for _ in range(2):
        await vendus.registers()
    with pytest.raises(RetryAfter) as busy:
        await vendus.registers()

    assert (busy.value.code, busy.value.after.total_seconds()) == ("RATE_LIMITED", 1)
    statuses = [entry.body["status"] for entry in sandbox.ledger.find("vendus.request")]
    assert statuses == [429, 200, 200]


@pytest.mark.parametrize(
    "body", [b"[7]", b"{}", b'[{"id": "x"}]', b'[{"id": 1, "type": "FR", "number": "1", "date": "2026-01-01"}]']
)
async def test_list_that_cannot_be_read_is_no_answer(body: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    async with answering(answer) as address:
        with pytest.raises(Failure) as unreadable:
            await Vendus("key", base=address).find_document("booking-7")

    assert (unreadable.value.code, unreadable.value.error_class) == ("HttpException", "retryable")


@pytest.mark.parametrize("body", [b"{}", b"[]", b"<html>", b'{"id": 1, "type": "FR"}'])
async def test_answer_to_a_post_that_cannot_be_read_is_no_answer(body: bytes) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 201 Created\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))

    async with answering(answer) as address:
        with pytest.raises(DocumentUnknown):
            await Vendus("key", base=address).issue(draft())


async def test_somebody_elses_404_does_not_say_that_there_is_no_document() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n")

    async with answering(answer) as address:
        with pytest.raises(DocumentUnknown, match="answered 404"):
            await Vendus("key", base=address, timeout=2).issue(draft(), again=True)


@pytest.mark.parametrize("parts", [[3_333, 3_333, 3_334], [1, 9_998, 1], [1_000] * 10, [10_000], [None]])
async def test_credit_notes_take_an_invoice_back_to_the_cent(
    sandbox: Sandbox, vendus: Vendus, parts: Sequence[int | None]
) -> None:
    invoice = await vendus.issue(draft(price=10_000))

    notes = [await vendus.credit(_credit(invoice, cents, n)) for n, cents in enumerate(parts)]

    assert (sum(note.gross for note in notes), sum(note.net for note in notes)) == (10_000, invoice.net)
    assert [note.gross for note in notes] == [cents or 10_000 for cents in parts]
    with pytest.raises(DocumentRejected):
        await vendus.credit(_credit(invoice, 1, 99))
    with pytest.raises(DocumentRejected):
        await vendus.credit(_credit(invoice, None, 100))


def _credit(invoice: FiscalDocument, cents: int | None, n: int = 1) -> CreditDraft:
    lines = () if cents is None else (CreditedLine(cents=cents),)
    return CreditDraft(document=invoice.id, reference=f"refund-{n}", reason="Cancelled", lines=lines)


async def test_credit_note_after_a_lost_answer_is_adopted(sandbox: Sandbox, vendus: Vendus) -> None:
    invoice = await vendus.issue(draft())
    fault(sandbox, "drop")

    for cents in (4_000, None):
        with pytest.raises(DocumentUnknown):
            await vendus.credit(_credit(invoice, cents, n=cents or 0))
        await vendus.credit(_credit(invoice, cents, n=cents or 0), again=True)
        fault(sandbox, "drop")

    assert [entry.body["type"] for entry in sandbox.ledger.find("invoice")] == ["NC", "NC", "FR"]


@pytest.mark.rule("RENT-4.07")
def test_net_and_vat_make_the_price_again() -> None:
    for gross in range(1, 100_001):
        net, vat = vat_of(gross)
        assert net + vat == gross
        assert abs(net * 123 - gross * 100) * 2 <= 123


async def test_the_modes_of_documents_are_kept_apart(sandbox: Sandbox) -> None:
    trying = Vendus("key", base=f"{sandbox.url}/vendus", mode="tests")
    issued = await trying.issue(draft())

    assert "T01P" in issued.number
    assert await trying.pdf(issued.id) is not None
    assert await Vendus("key", base=f"{sandbox.url}/vendus").document(issued.id) is None


async def test_calls_of_a_process_keep_their_distance(sandbox: Sandbox) -> None:
    vendus = Vendus("key", base=f"{sandbox.url}/vendus", per_second=20)
    began = time.monotonic()

    await asyncio.gather(*(vendus.registers() for _ in range(4)))

    assert time.monotonic() - began >= 0.15


async def test_secrets_and_names_stay_out_of_errors(sandbox: Sandbox, vendus: Vendus) -> None:
    with pytest.raises(Permanent) as refused:
        await vendus.create_client(name="Canary Jane", fiscal_id="123456788")
    with pytest.raises(ConfigurationError) as misread:
        Vendus("ca nary")

    assert "anary" not in f"{refused.value!r} {vendus!r} {misread.value!r}".replace("Vendus", "")
    assert Vendus.from_env(sandbox.environment()).api.base == f"{sandbox.url}/vendus"
    with pytest.raises(ConfigurationError, match="VENDUS_API_KEY"):
        Vendus.from_env({})


async def test_vat_of_another_arithmetic_is_shown_as_it_came(sandbox: Sandbox, vendus: Vendus) -> None:
    sandbox.vendus.settings = VendusSettings(vat_off_by=1)

    issued = await vendus.issue(draft())

    assert (issued.gross, issued.net, issued.vat) == (12_300, 9_999, 2_301)
