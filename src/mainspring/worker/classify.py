"""What an exception of a handler means: a code, a class, and a text that is safe to keep."""

from __future__ import annotations

import random
from datetime import timedelta

from mainspring.codes import CODES, ErrorClass
from mainspring.db.wire.translate import first_words, is_refusal, is_transient
from mainspring.errors import MainspringError
from mainspring.outcome import (
    BreakerOpen,
    Cancelled,
    Deferred,
    Error,
    Failed,
    Failure,
    Outcome,
    Permanent,
    RetryAfter,
    Snooze,
    Snoozed,
    Stopped,
    Withheld,
)
from mainspring.retry import LONGEST_HINT
from mainspring.text.raised import UNSAID_TEXT, Ask, Enough, name_of, quiet, read, text
from mainspring.text.sanitize import sanitize
from mainspring.text.stack import stack_of

_MESSAGE = 2048
ERROR_STACK = 6000  # with the message, an error stays within 8 KiB


def classify(error: BaseException) -> Outcome:
    """The outcome of an attempt that raised. In the event loop it is `judge` that is asked: see worker/aside.py."""
    try:
        return _classify(error, read)
    except Enough:
        raise
    except BaseException:  # an exception that raises when it is looked at, whatever it raises
        return unreadable(error)


def unreadable(error: BaseException) -> Outcome:
    """The same without running any code of the exception's own: its text may be missing, what it means is not."""
    return _classify(error, quiet)


def _classify(error: BaseException, ask: Ask) -> Outcome:
    kind = type(error)  # isinstance would ask the exception for its class
    after = _span(error, "after", ask) if issubclass(kind, Snooze | BreakerOpen | RetryAfter) else None
    if issubclass(kind, Snooze) and after is not None:
        return Snoozed(after)
    if issubclass(kind, Cancelled):
        return Stopped()
    if issubclass(kind, BreakerOpen) and after is not None and (need := text(ask(error, "need"))):
        return Deferred(after, f"breaker:{need}", started=True)
    if issubclass(kind, Withheld) and (gate := text(ask(error, "gate"))):
        return Deferred(timedelta(0), gate, started=True)
    if issubclass(kind, RetryAfter) and after is not None:
        known = _describe(error, _code(error, ask), "retryable", ask)
        return Failed(known, after, _span(error, "longest", ask) or LONGEST_HINT)
    if issubclass(kind, Failure):
        return Failed(_describe(error, _code(error, ask), _class(error, ask), ask))
    if is_refusal(error, ask):  # an attempt that could not be made
        return Snoozed(timedelta(seconds=random.uniform(1.0, 5.0)))  # noqa: S311 (spreads returns, no secret)
    code = "INTERNAL_ERROR"
    if issubclass(kind, MainspringError):
        code = _code(error, ask)
        code = code if code in CODES else "INTERNAL_ERROR"
    elif issubclass(kind, TimeoutError):
        code = "TIMEOUT"
    elif is_transient(error, ask):
        code = "DB_UNAVAILABLE"
    return Failed(_describe(error, code, CODES[code].error_class, ask))


def _span(error: BaseException, name: str, ask: Ask) -> timedelta | None:
    found = ask(error, name)
    return found if issubclass(type(found), timedelta) else None


def _code(error: BaseException, ask: Ask) -> str:
    return text(ask(error, "code")) or "INTERNAL_ERROR"


def _class(error: BaseException, ask: Ask) -> ErrorClass:
    given = text(ask(error, "error_class"))
    if given is None:  # it is code, which may ask other code
        code = _code(error, ask)
        given = "permanent" if issubclass(type(error), Permanent) else CODES[code].error_class if code in CODES else ""
    return "permanent" if given == "permanent" else "retryable"


def _describe(error: BaseException, code: str, error_class: ErrorClass, ask: Ask) -> Error:
    stack = stack_of(error, reading=ask is read)
    words = first_words(error, ask)  # rows and parameters are nothing for whoever may read the error
    words = f"{name_of(error)}: {words}" if code == "INTERNAL_ERROR" or words == UNSAID_TEXT else words
    return Error(sanitize(code, 100), error_class, sanitize(words, _MESSAGE), sanitize(stack, ERROR_STACK) or None)
