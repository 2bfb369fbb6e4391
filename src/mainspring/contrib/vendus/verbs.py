"""What is asked of Vendus: each verb is a generator that yields requests and receives replies.

The fields are those of Vendus' public documentation of its API 1.1 and of clients that others run against it: lines are
`title`, `qty`, `gross_price`, `tax_id`; an FR needs `payments`; a credit note names rows by `reference_document`; an
empty list is 404 with code A001, a wrong field is P001. We could not try the real service. Not verified at all: whether
it refuses a second document under one `external_reference` (so whoever may have posted before looks first), and how a
closed register refuses (so a refusal that names no field is followed by a look at the register).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

from mainspring.contrib.http import NoReply, ProviderReply
from mainspring.contrib.vendus.api import LARGEST_PDF, VendusCalls, VendusRequest
from mainspring.contrib.vendus.drafts import CreditDraft, InvoiceDraft
from mainspring.contrib.vendus.errors import (
    DocumentConflict,
    DocumentRejected,
    DocumentUnknown,
    InvoicingDenied,
    ReferenceTaken,
    RegisterClosed,
    document_of,
    nothing,
    refusal,
)
from mainspring.contrib.vendus.values import CashRegister, FiscalClient, FiscalDocument, PaymentWay
from mainspring.errors import MainspringError, ValidationError
from mainspring.outcome import Failure

Read = TypeVar("Read", CashRegister, FiscalClient, FiscalDocument, PaymentWay)
_DOCUMENTS, _CLIENTS, _REGISTERS = "/v1.1/documents/", "/v1.1/clients/", "/v1.1/registers/"


def registers() -> VendusCalls[list[CashRegister]]:
    """The registers of the account, open or closed."""
    return [_read(CashRegister, body) for body in (yield from _listed(_REGISTERS, {}))]


def open_register(id: int | None = None) -> VendusCalls[CashRegister]:
    """The register from which documents are issued, the first that is open unless one is named; or RegisterClosed."""
    if id is not None:
        found = yield from _one(f"{_REGISTERS}{id}/")
        if found is None:
            raise DocumentRejected(f"Vendus: there is no register {id}")
        known = [_read(CashRegister, found)]
    else:
        known = yield from registers()
    for register in known:
        if register.open:
            return register
    raise RegisterClosed


def payment_ways() -> VendusCalls[list[PaymentWay]]:
    """The ways to pay that the account knows; an FR names one."""
    return [_read(PaymentWay, body) for body in (yield from _listed("/v1.0/payments/", {}))]


def find_client(*, fiscal_id: str | None = None, email: str | None = None) -> VendusCalls[FiscalClient | None]:
    """The client with this tax number, or with this address and no tax number; None: there is none.

    Whoever is found by an address gave no tax number: the document must not bear that of an earlier purchase.
    """
    if (fiscal_id is None) == (email is None):
        raise ValidationError("fiscal_id: say a tax number or an address, one of them", field="fiscal_id")
    wanted = {"fiscal_id": fiscal_id} if fiscal_id is not None else {"email": str(email)}
    found = yield from _listed(_CLIENTS, {**wanted, "status": "active"})
    for client in (_read(FiscalClient, body) for body in found):
        if client.fiscal_id == fiscal_id and (email is None or (client.email or "").casefold() == email.casefold()):
            return client
    return None


def create_client(
    *,
    name: str,
    fiscal_id: str | None = None,
    email: str | None = None,
    address: str | None = None,
    postcode: str | None = None,
    city: str | None = None,
    country: str = "PT",
    reference: str | None = None,
) -> VendusCalls[FiscalClient]:
    """Enter a client. A repeat after a lost answer makes a second one, or is rejected: look again before."""
    body = {"name": name, "fiscal_id": fiscal_id, "email": email, "address": address, "postalcode": postcode}
    body |= {"city": city, "country": country, "external_reference": reference}
    reply = yield VendusRequest("POST", _CLIENTS, body={key: value for key, value in body.items() if value is not None})
    return _read(FiscalClient, _fine(reply))


def find_document(reference: str) -> VendusCalls[FiscalDocument | None]:
    """The document that was issued under a reference of ours; None: there is none."""
    found = yield from _listed(_DOCUMENTS, {"external_reference": reference})
    fits = [body for body in found if body.get("external_reference", reference) == reference]
    return _read(FiscalDocument, fits[0]) if fits else None


def document(id: int) -> VendusCalls[FiscalDocument | None]:
    """A document by its id, with its lines; None: there is none."""
    body = yield from _one(f"{_DOCUMENTS}{id}/")
    return None if body is None else _read(FiscalDocument, body)


def pdf(id: int) -> VendusCalls[bytes | None]:
    """A document on paper; None: there is none."""
    reply = yield VendusRequest("GET", f"{_DOCUMENTS}{id}.pdf")
    if nothing(reply):
        return None
    if not reply.fine:
        raise refusal(reply)
    if not reply.raw.startswith(b"%PDF-") or len(reply.raw) > LARGEST_PDF:
        raise Failure("Vendus: what came is no PDF, or larger than 10 MiB", code="HttpException")
    return reply.raw


def issue(draft: InvoiceDraft, *, again: bool = False) -> VendusCalls[FiscalDocument]:
    """Issue an invoice: once for its reference.

    ::

        invoice = await vendus.issue(draft, again=reserved_before)

    `again`: it may have been posted before, because a row of yours was reserved and never stamped. Then the reference
    is looked up first, and nothing is posted unless Vendus says that it has none: else DocumentUnknown.
    """
    if again and (found := (yield from _adopted(draft.reference, draft.type, draft.gross))) is not None:
        return found
    return (yield from _posted(draft.body(), draft.gross))


def credit(draft: CreditDraft, *, again: bool = False) -> VendusCalls[FiscalDocument]:
    """Issue a credit note on an invoice, over all that is left of it or over parts: once for its reference."""
    wanted = draft.gross
    if again and (found := (yield from _adopted(draft.reference, "NC", wanted))) is not None:
        return found
    invoice = yield from document(draft.document)
    if invoice is None:
        raise DocumentRejected(f"Vendus: there is no document {draft.document} to be credited")
    body, gross = draft.body(invoice)
    return (yield from _posted(body, gross))


# -- parts


def _posted(body: Mapping[str, Any], gross: int) -> VendusCalls[FiscalDocument]:
    try:
        reply = yield VendusRequest("POST", _DOCUMENTS, body=body)
        if not reply.fine:
            raise refusal(reply)
    except ReferenceTaken:
        found = yield from _adopted(body["external_reference"], body["type"], gross)
        if found is None:
            raise
        return found
    except InvoicingDenied as denied:
        yield from _said_by_the_register(body.get("register_id"), denied)
        raise
    except NoReply as none:
        if not none.sent:
            raise
        raise DocumentUnknown(f"{none}: whether the document was issued is unknown", why=none.code) from None
    try:
        return _read(FiscalDocument, document_of(reply))
    except Failure:
        raise DocumentUnknown("Vendus: the answer to a document that was posted cannot be read") from None


def _adopted(reference: str, type: str, gross: int | None) -> VendusCalls[FiscalDocument | None]:
    """What was issued under the reference, if it is what is asked for; None: Vendus says that there is nothing."""
    try:
        found = yield from find_document(reference)
    except Failure as failed:
        raise DocumentUnknown(f"{failed}: whether the document was issued is unknown", why=failed.code) from None
    if found is not None and (found.type != type or (gross is not None and found.gross != gross)):
        raise DocumentConflict(f"Vendus: {found.number} has this reference, and is another type or amount")
    return found


def _said_by_the_register(id: int | None, denied: InvoicingDenied) -> VendusCalls[None]:
    """A register that is closed refuses without a word that one could know it by: look at it."""
    try:
        yield from open_register(id)
    except RegisterClosed:
        raise
    except Failure:
        raise denied from None


def _listed(path: str, params: Mapping[str, str]) -> VendusCalls[list[dict[str, Any]]]:
    reply = yield VendusRequest("GET", path, params)
    if nothing(reply):
        return []
    found = _fine(reply)
    if not isinstance(found, list) or not all(isinstance(body, dict) for body in found):
        raise Failure("Vendus: what came is no list", code="HttpException")
    return found


def _one(path: str) -> VendusCalls[dict[str, Any] | None]:
    reply = yield VendusRequest("GET", path)
    return None if nothing(reply) else _fine(reply)


def _read(kind: type[Read], body: Any) -> Read:
    """What Vendus says as a value; what lacks something is no answer."""
    try:
        return kind.read(body)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, MainspringError):
        raise Failure(f"Vendus: what came is no {kind.__name__}", code="HttpException") from None


def _fine(reply: ProviderReply) -> Any:
    if not reply.fine:
        raise refusal(reply)
    return document_of(reply)
