"""What Stripe's refusals mean for the job that met them: try again, give up, or ask the customer.

Judged by status and code alone, so that every class of the SDK's errors is covered, today's and tomorrow's. Messages
are made of names and codes: what Stripe says in words may repeat what was sent.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from mainspring.contrib.codes import PROVIDER_CONFIGURATION
from mainspring.contrib.stripe.movement import ACTION, Charge
from mainspring.outcome import Failure, Permanent, RetryAfter

#: Seconds; Stripe says no time in most cases.
STRIPE_RETRY_S: Final = 1.0
_UNTIL_BALANCE: Final = timedelta(hours=1)  # until payments become available
#: 4xx that say nothing about the request itself.
_PASSING: Final = frozenset({408, 424, 425})
_WORD: Final = re.compile(r"[\w.\[\]-]{1,100}", re.ASCII)


class Declined(Permanent):
    """The card was refused: trying the same one again cannot help."""

    decline_code: str | None = None
    intent: str | None = None

    def __init__(self, message: str = "", *, decline_code: str | None = None, intent: str | None = None) -> None:
        super().__init__(message or f"Stripe: declined ({decline_code or 'no reason given'})", code="CARD_DECLINED")
        self.decline_code, self.intent = decline_code, intent


class ActionRequired(Permanent):
    """The customer's bank wants a confirmation: bring the customer back and confirm `intent` with them."""

    intent: str | None = None

    def __init__(self, message: str = "", *, intent: str | None = None) -> None:
        words = f"Stripe: the bank wants the customer to confirm {intent or 'the payment'}: ask them back, on session"
        super().__init__(message or words, code="PAYMENT_ACTION_REQUIRED")
        self.intent = intent


class RequestRefused(Permanent):
    """Stripe refused the request as it is: `param` and `reason` say why."""

    param: str | None = None
    reason: str | None = None
    status: int | None = None


class OutcomeUnknown(Failure):
    """No answer, or none that says what happened: try again with the same key, never with another.

    `replayed`: Stripe remembers that it failed, and says so again for a day.
    """

    replayed: bool = False


def failure(error: Exception) -> Failure:
    """What a failed call means.

    >>> failure(TimeoutError()).code
    'HttpException'
    """
    status = getattr(error, "http_status", None)
    said = _error(error)
    type_, code, decline = said.get("type"), said.get("code"), said.get("decline_code")
    intent = _word((said.get("payment_intent") or {}).get("id"))
    about = _about(error, said, status)
    if status == 429 or code in {"rate_limit", "lock_timeout"}:
        return RetryAfter(_after(error), f"Stripe: {about}", counts=False)  # it is well, and busy with us
    if status == 409:  # the same key, under way
        return RetryAfter(_after(error), f"Stripe: {about}", code="HttpException", counts=False)
    if not isinstance(status, int) or not 400 <= status < 500 or status in _PASSING:
        return _unknown(error, about)
    if {code, decline} & ACTION:
        return ActionRequired(intent=intent)
    if type_ == "card_error" or type(error).__name__ == "CardError":
        return Declined(decline_code=_word(decline or code), intent=intent)
    if type_ == "idempotency_error":
        return Permanent(f"Stripe: {about}", code="IDEMPOTENCY_KEY_REUSED", counts=False)
    if status in {401, 403}:
        return Permanent(f"Stripe: {about}", code=PROVIDER_CONFIGURATION, counts=True)  # nobody's job will do better
    if code == "balance_insufficient":
        return RetryAfter(_UNTIL_BALANCE, f"Stripe: {about}", code="PROVIDER_BALANCE", counts=False)
    refused = RequestRefused(f"Stripe: {about}", code="VALIDATION_ERROR", counts=False)
    refused.param, refused.reason, refused.status = _word(said.get("param")), _word(code), status
    return refused


def settled(charge: Charge) -> Charge:
    """The charge, unless its customer has to do something; as Stripe itself raises when it is made."""
    if charge.status == "failed":
        raise Declined(decline_code=charge.decline_code, intent=charge.id)
    if charge.status == "action_required":
        raise ActionRequired(intent=charge.id)
    return charge


def _unknown(error: Exception, about: str) -> OutcomeUnknown:
    replayed = _header(error, "idempotent-replayed") == "true"  # it tells of then, not of how Stripe is now
    unknown = OutcomeUnknown(f"Stripe: no clear answer ({about})", code="HttpException", counts=not replayed)
    unknown.replayed = replayed
    return unknown


def _error(error: Exception) -> Mapping[str, Any]:
    body = getattr(error, "json_body", None)
    said = body.get("error") if isinstance(body, Mapping) else None
    return said if isinstance(said, Mapping) else {}


def _about(error: Exception, said: Mapping[str, Any], status: object) -> str:
    """What may be told: `400 resource_missing at payment_method, request req_1`; of a broken line, its error's name."""
    words = [str(status) if isinstance(status, int) else type(error.__cause__ or error).__name__]
    words += [word for word in (_word(said.get("code") or said.get("type")),) if word]
    if param := _word(said.get("param")):
        words.append(f"at {param}")
    request = _word(_header(error, "request-id"))
    return " ".join(words) + (f", request {request}" if request else "")


def _word(value: object) -> str | None:
    """A name or a code, if it looks like one."""
    return value if isinstance(value, str) and _WORD.fullmatch(value) else None


def _header(error: Exception, name: str) -> str | None:
    headers = getattr(error, "headers", None)
    if not isinstance(headers, Mapping):
        return None
    return next((str(value) for key, value in headers.items() if str(key).lower() == name), None)


def _after(error: Exception) -> float:
    said = _header(error, "retry-after") or ""
    return float(said) if re.fullmatch(r"\d{1,6}", said) else STRIPE_RETRY_S
