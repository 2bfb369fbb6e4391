"""What an exception of a handler means: a code, a class, and a text that is safe to keep."""

from __future__ import annotations

import random
import traceback
from datetime import timedelta

from mainspring.codes import CODES, ErrorClass
from mainspring.db.translate import first_words, is_refusal, is_transient
from mainspring.errors import MainspringError
from mainspring.outcome import (
    BreakerOpen,
    Cancelled,
    Error,
    Failed,
    Failure,
    Outcome,
    PutOff,
    RetryAfter,
    Snooze,
    Snoozed,
    Stopped,
)
from mainspring.sanitize import sanitize

MESSAGE = 2048
STACK = 6000  # with the message, an error stays within 8 KiB


def classify(error: BaseException) -> Outcome:
    """The outcome of an attempt that raised."""
    try:
        return _classify(error)
    except Exception:  # an exception that cannot even be printed
        text = f"{type(error).__name__}, whose text could not be read"
        return Failed(Error("INTERNAL_ERROR", CODES["INTERNAL_ERROR"].error_class, text))


def _classify(error: BaseException) -> Outcome:
    match error:
        case Snooze():
            return Snoozed(error.after)
        case Cancelled():
            return Stopped()
        case BreakerOpen():
            return PutOff(error.after, f"breaker:{error.need}", started=True)
        case RetryAfter():
            return Failed(_describe(error, error.code, "retryable"), error.after, error.longest)
        case Failure():
            return Failed(_describe(error, error.code, error.error_class))
        case _ if is_refusal(error):  # an attempt that could not be made
            return Snoozed(timedelta(seconds=random.uniform(1.0, 5.0)))  # noqa: S311 (spreads returns, no secret)
        case MainspringError():
            code = error.code if error.code in CODES else "INTERNAL_ERROR"
        case TimeoutError():
            code = "TIMEOUT"
        case _ if is_transient(error):
            code = "DB_UNAVAILABLE"
        case _:
            code = "INTERNAL_ERROR"
    return Failed(_describe(error, code, CODES[code].error_class))


def _describe(error: BaseException, code: str, error_class: ErrorClass) -> Error:
    stack = "".join(traceback.format_tb(error.__traceback__)[-12:])  # frames without values
    text = first_words(error)  # rows and parameters are nothing for whoever may read the error
    text = f"{type(error).__name__}: {text}" if code == "INTERNAL_ERROR" else text
    return Error(sanitize(code, 100), error_class, sanitize(text, MESSAGE), sanitize(stack, STACK) or None)
