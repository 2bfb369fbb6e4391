"""What Vendus' refusals mean for the job that met them: try again, look first, or correct the document.

| what happened | error | code | tried again |
| --- | --- | --- | --- |
| no connection, 5xx, 408, a 404 that is not Vendus' | Failure | HttpException | yes |
| no answer in time | Failure | TIMEOUT | yes |
| 429 | RetryAfter | RATE_LIMITED | yes |
| 401, 403 that names no field | InvoicingDenied | INVOICING_DENIED | yes: a person allows it |
| the register is closed | RegisterClosed | REGISTER_CLOSED | yes: a person opens it |
| a document was posted, and no answer came | DocumentUnknown | INVOICE_OUTCOME_UNKNOWN | yes, after a look |
| 4xx, or 403 with code P001 | DocumentRejected | INVOICE_REJECTED | no |
| the reference is taken by another document | DocumentConflict | INVOICE_CONFLICT | no |

Messages are made of statuses and of Vendus' codes: what it says in words may repeat tax numbers and names.
"""

from __future__ import annotations

import re
from typing import Any, Final

import msgspec

from mainspring.contrib.http import ProviderReply
from mainspring.outcome import Failure, Permanent, RetryAfter

#: Seconds, where Vendus does not say how long.
VENDUS_RETRY_S: Final = 5.0
FIELD_WRONG: Final = "P001"  # a field that Vendus does not know or take; it says so with 400 or 403
NOTHING_FOUND: Final = "A001"  # an empty list; it says so with 404
_CODE: Final = re.compile(r"[A-Z]{1,3}[0-9]{1,5}", re.ASCII)


class RegisterClosed(Failure):
    """The register is closed: nothing is issued until somebody opens it."""

    def __init__(self, message: str = "Vendus: the register is closed") -> None:
        super().__init__(message, code="REGISTER_CLOSED")


class InvoicingDenied(Failure):
    """Vendus does not take the key, or does not allow this with it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message, code="INVOICING_DENIED")


class DocumentUnknown(Failure):
    """A document was asked for, and nobody knows whether it was issued: look for its reference, post it only after."""

    why: str | None = None  # the code of what came in between, such as TIMEOUT

    def __init__(self, message: str = "", *, why: str | None = None) -> None:
        super().__init__(message, code="INVOICE_OUTCOME_UNKNOWN")
        self.why = why


class DocumentRejected(Permanent):
    """Vendus does not take the document as it is; `reason` is its own code."""

    reason: str | None = None

    def __init__(self, message: str = "", *, reason: str | None = None) -> None:
        super().__init__(message, code="INVOICE_REJECTED", counts=False)
        self.reason = reason


class DocumentConflict(Permanent):
    """Another document has the reference, of another type or over another amount."""

    def __init__(self, message: str = "") -> None:
        super().__init__(message, code="INVOICE_CONFLICT", counts=False)


class ReferenceTaken(DocumentConflict):
    """A document with this reference exists; `issue` and `credit` look at it, and adopt it if it is the same."""


def refusal(reply: ProviderReply) -> Failure:
    """What an answer means that is not fine.

    >>> refusal(ProviderReply(503, {})).code, refusal(ProviderReply(401, {})).code, refusal(ProviderReply(422, {})).code
    ('HttpException', 'INVOICING_DENIED', 'INVOICE_REJECTED')
    """
    status, code = reply.status, reason(reply)
    said = f"Vendus: answered {status}{f' ({code})' if code else ''}"
    if status == 429:
        return RetryAfter(VENDUS_RETRY_S if reply.retry_after is None else reply.retry_after, said, counts=False)
    if status == 409:
        return ReferenceTaken(said)
    if status in (404, 408) or not 400 <= status < 500:
        return Failure(said, code="HttpException")
    if status in (401, 403) and code != FIELD_WRONG:
        return InvoicingDenied(said)
    return DocumentRejected(said, reason=code)


def nothing(reply: ProviderReply) -> bool:
    """Whether Vendus says that there is no such thing; any other 404 is somebody else's, and proves nothing."""
    return reply.status == 404 and reason(reply) == NOTHING_FOUND


def reason(reply: ProviderReply) -> str | None:
    """Vendus' own code: the first of `{"errors": [{"code", "message"}]}`."""
    errors: Any = reply.body.get("errors")
    first = errors[0] if isinstance(errors, list) and errors else errors
    code = first.get("code") if isinstance(first, dict) else None
    return code if isinstance(code, str) and _CODE.fullmatch(code) else None


def document_of(reply: ProviderReply) -> Any:
    """What stands in an answer that is fine; what cannot be read is no answer."""
    try:
        return msgspec.json.decode(reply.raw)
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise Failure("Vendus: the answer cannot be read", code="HttpException") from None
