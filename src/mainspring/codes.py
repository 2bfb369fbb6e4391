"""Error codes: stable names, each retryable or permanent, with a text and an action plan for operators."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from mainspring.errors import DeclarationError
from mainspring.plans import DEFAULT_PLANS, PLANS, Plan

ErrorClass = Literal["retryable", "permanent"]


@dataclass(frozen=True, slots=True)
class Code:
    """A stable error code."""

    name: str
    error_class: ErrorClass
    text: str
    plan: Plan


CODES: Final[dict[str, Code]] = {}


def register(name: str, error_class: ErrorClass, text: str, plan: Plan | None = None) -> Code:
    """Declare an error code of an application; the same name cannot mean two things.

    Without a plan of its own it has that of its class.

    >>> register("CARD_EXPIRED", "permanent", "The card has expired: ask the customer for another one.").plan.advised
    'fix-forward'
    """
    code = Code(name, error_class, text, plan or PLANS.get(name) or DEFAULT_PLANS[error_class])
    if CODES.setdefault(name, code) != code:
        raise DeclarationError(f"error code {name} is already registered with another class, text or plan")
    return code


def explained(error: Mapping[str, Any]) -> Code:
    """What the code of a stored error means, and what to do; one that nobody registered has the plan of its class.

    >>> explained({"code": "ODD", "class": "retryable"}).plan.advised
    'replay'
    """
    name = str(error.get("code"))
    error_class: ErrorClass = "permanent" if error.get("class") == "permanent" else "retryable"
    return CODES.get(name) or Code(name, error_class, "Nobody registered this code.", DEFAULT_PLANS[error_class])


for _name, _text in {
    "DB_UNAVAILABLE": "The database could not be reached, or a transient database error occurred.",
    "QUEUE_UNAVAILABLE": "The message broker could not be reached.",
    "HttpException": "A call to another system failed.",
    "WebhookTimeout": "The receiver of a webhook did not answer in time.",
    "WebhookNon2xx": "The receiver of a webhook did not answer with a 2xx status.",
    "LEASE_EXPIRED": "The worker stopped renewing its lease: it crashed, froze or lost the database.",
    "TIMEOUT": "The attempt, or something that it waited for, took too long.",
    "QUEUE_FULL": "The queue is full: best-effort jobs are refused until it is shorter.",
    "RATE_LIMITED": "A provider refused the call because of its rate limit.",
    "COMPLETION_NOT_COMMITTED": "The transaction that was to complete the job did not commit.",
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
    "SIGNATURE_REFUSED": "A webhook that came is not from whom it says, or too old.",
    "WebhookGone": "The receiver of a webhook said that it is gone: its endpoint is disabled.",
    "WebhookDisabled": "The endpoint of a webhook is disabled, or was removed.",
    "WEBHOOK_TARGET_REFUSED": "A webhook may not be sent to this address: it is not public, or not allowed here.",
    "OWNERSHIP_VIOLATION": "The actor may not do this in this organisation or project.",
    "BUSINESS_RULE": "A business rule forbids this.",
    "UNKNOWN_JOB_TYPE": "No task has this name.",
    "SNOOZED_TOO_LONG": "The job was deferred for longer than its task allows.",
    "CANCELLED": "The job was cancelled.",
    "AFTER_COMPLETION": "The handler went on after it had completed its job: what it wrote or returned then is lost.",
    "HANDLER_MISTAKE": "The handler does what cannot work: its code, or the connection that it uses, must change.",
    "PAYLOAD_UNREADABLE": "What the job carries was changed, or belongs to another job or organisation.",
    "PAYLOAD_ERASED": "The organisation was erased: nobody can read what the job carries.",
}.items():
    register(_name, "permanent", _text)
