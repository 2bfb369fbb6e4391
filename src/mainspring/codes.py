"""Error codes: stable names, each retryable or permanent, with a text for operators."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from mainspring.errors import DeclarationError

ErrorClass = Literal["retryable", "permanent"]


@dataclass(frozen=True, slots=True)
class Code:
    """A stable error code."""

    name: str
    error_class: ErrorClass
    text: str


CODES: Final[dict[str, Code]] = {}


def register(name: str, error_class: ErrorClass, text: str) -> Code:
    """Declare an error code of an application; the same name cannot mean two things.

    >>> register("CARD_EXPIRED", "permanent", "The card has expired: ask the customer for another one.").error_class
    'permanent'
    """
    code = Code(name, error_class, text)
    if CODES.setdefault(name, code) != code:
        raise DeclarationError(f"error code {name} is already registered with another class or text")
    return code


for _name, _text in {
    "DB_UNAVAILABLE": "The database could not be reached, or a transient database error occurred.",
    "QUEUE_UNAVAILABLE": "The message broker could not be reached.",
    "HttpException": "A call to another system failed.",
    "WebhookTimeout": "The receiver of a webhook did not answer in time.",
    "WebhookNon2xx": "The receiver of a webhook did not answer with a 2xx status.",
    "LEASE_EXPIRED": "The worker stopped renewing its lease: it crashed, froze or lost the database.",
    "TIMEOUT": "The attempt took longer than the task's time limit.",
    "RATE_LIMITED": "A provider refused the call because of its rate limit.",
    "INTERNAL_ERROR": "The handler raised an exception that nobody classified.",
}.items():
    register(_name, "retryable", _text)

for _name, _text in {
    "SNAPSHOT_NOT_READY": "The snapshot that the work needs does not exist yet.",
    "RULE_PKG_NOT_PUBLISHED": "The rule package is not published.",
    "VALIDATION_ERROR": "The job's input is malformed.",
    "RULE_TYPE_ERROR": "A rule has the wrong type.",
    "PAYLOAD_TOO_LARGE": "The payload is larger than the limit.",
    "SIGNING_KEY_MISSING": "No signing key is configured.",
    "IDEMPOTENCY_KEY_REUSED": "The idempotency key was used with another payload.",
    "OWNERSHIP_VIOLATION": "The actor may not do this in this organisation or project.",
    "BUSINESS_RULE": "A business rule forbids this.",
    "UNKNOWN_JOB_TYPE": "No task has this name.",
    "SNOOZED_TOO_LONG": "The job was put off for longer than its task allows.",
    "CANCELLED": "The job was cancelled.",
}.items():
    register(_name, "permanent", _text)
