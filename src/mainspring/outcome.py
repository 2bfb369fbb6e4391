"""How an attempt ended, and what happens to the job then.

A handler steers its job by raising: `Permanent`, `RetryAfter`, `Snooze`. The executor turns what happened into an
`Outcome` value at once, and one pure function, `decide`, chooses the move. No clock, no database.
"""

from __future__ import annotations

import copyreg
import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol, assert_never

from mainspring.codes import CODES, ErrorClass
from mainspring.errors import ValidationError
from mainspring.retry import LONGEST_HINT, Retry
from mainspring.text.span import Span, span_of

#: So many crashes make a job dead, whatever attempts remain.
CRASH_BUDGET = 3


class Failure(Exception):
    """A classified failure of an attempt: its code decides whether it is tried again.

    >>> Failure("no answer", code="HttpException").error_class
    'retryable'

    `counts` says whether breakers count it; else those count that are tried again.
    """

    counts: bool | None = None

    def __init__(self, message: str = "", *, code: str = "INTERNAL_ERROR", counts: bool | None = None) -> None:
        super().__init__(message or (CODES[code].text if code in CODES else code))
        self.code = code
        if counts is not None:
            self.counts = counts

    def __reduce__(self) -> tuple[Any, ...]:
        # Raised in a process of its own, it is made anew in the worker's: from its state, not from the message alone.
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined] # not in typeshed

    @property
    def error_class(self) -> ErrorClass:
        """Whether the job is tried again."""
        return CODES[self.code].error_class if self.code in CODES else "retryable"


class Permanent(Failure):
    """Trying again cannot help: the job ends as `failed`.

    >>> raise Permanent("the booking is closed")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    Permanent: the booking is closed
    """

    def __init__(self, message: str = "", *, code: str = "BUSINESS_RULE", counts: bool | None = None) -> None:
        super().__init__(message, code=code, counts=counts)

    @property
    def error_class(self) -> ErrorClass:
        """Always permanent."""
        return "permanent"


class RetryAfter(Failure):
    """A provider said when to come back: try again no sooner, at most an hour later, or `longest`.

    >>> RetryAfter(120).after
    datetime.timedelta(seconds=120)
    """

    def __init__(
        self,
        after: Span,
        message: str = "",
        *,
        code: str = "RATE_LIMITED",
        counts: bool | None = None,
        longest: Span = LONGEST_HINT,
    ) -> None:
        super().__init__(message, code=code, counts=counts)
        wait = span_of("after", after)
        if wait < timedelta(0):
            raise ValidationError("after: is negative", field="after")
        self.after, self.longest = wait, span_of("longest", longest)

    @property
    def error_class(self) -> ErrorClass:
        """Always retryable."""
        return "retryable"


class Snooze(Exception):
    """Run the job again later; the attempt is given back.

    >>> Snooze(30).after
    datetime.timedelta(seconds=30)
    """

    def __init__(self, after: Span) -> None:
        self.after = span_of("after", after)
        if self.after < timedelta(0):
            raise ValueError("a job cannot be snoozed into the past")
        super().__init__(f"snoozed for {self.after}")

    def __reduce__(self) -> tuple[Any, ...]:
        return Snooze, (self.after,)


class BreakerOpen(Exception):
    """What the job needs is not called now: it waits until then, and its attempt is given back.

    Raised by `ctx.breaker(...)`; a handler that can do without may catch it.

    >>> BreakerOpen("stripe", timedelta(seconds=42)).need
    'stripe'
    """

    def __init__(self, need: str, after: timedelta) -> None:
        super().__init__(f"the breaker of {need} is open")
        self.need, self.after = need, after

    def __reduce__(self) -> tuple[Any, ...]:
        return BreakerOpen, (self.need, self.after)


class Withheld(Exception):
    """Somebody holds back what the job is for: it waits at this gate until they let it go, and was not attempted."""

    def __init__(self, gate: str) -> None:
        super().__init__(f"withheld at {gate}")
        self.gate = gate

    def __reduce__(self) -> tuple[Any, ...]:
        return Withheld, (self.gate,)


class Cancelled(Exception):
    """The job was cancelled while it ran; raised by `ctx.check()` between steps."""


@dataclass(frozen=True, slots=True)
class Error:
    """What is kept of a failed attempt: sanitised and bounded before it gets here."""

    code: str
    error_class: ErrorClass
    message: str
    stack: str | None = None
    sealed: str | None = None  # message and stack, encrypted, where the message itself says nothing


@dataclass(frozen=True, slots=True)
class Succeeded:
    """The handler returned."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The handler raised, timed out or was refused."""

    error: Error
    after: timedelta | None = None  # the provider's hint
    longest: timedelta = LONGEST_HINT  # followed up to here


@dataclass(frozen=True, slots=True)
class Snoozed:
    """The handler asked to run later."""

    after: timedelta


@dataclass(frozen=True, slots=True)
class Stopped:
    """The handler saw the cancellation token and stopped."""


@dataclass(frozen=True, slots=True)
class Interrupted:
    """The worker stops before the handler ended, or before it was entered."""

    started: bool = False


@dataclass(frozen=True, slots=True)
class Deferred:
    """What the job needs is not available: it waits at this gate until that opens, and was not attempted."""

    after: timedelta  # as far as is known now
    gate: str
    started: bool = False  # the handler was entered before it asked


Outcome = Succeeded | Failed | Snoozed | Stopped | Interrupted | Deferred


@dataclass(frozen=True, slots=True)
class Complete:
    """running → succeeded."""

    result: Any = None


@dataclass(frozen=True, slots=True)
class Move:
    """running → anything else: the verb, the delay where it has one, the error where there was one."""

    verb: str
    delay: timedelta | None = None
    error: Error | None = None
    started: bool = False  # of a release or a deferral: the handler was entered, so the trail shows it
    gate: str | None = None  # of a deferral: what the job waits for


class Attempted(Protocol):
    """What `decide` needs to know of a job."""

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""

    @property
    def max_attempts(self) -> int:
        """The limit stored with the job."""

    @property
    def suspect(self) -> bool:
        """Whether the job failed permanently before and was replayed."""

    @property
    def waited(self) -> timedelta:
        """How long ago the job was first due."""


def decide(
    job: Attempted,
    outcome: Outcome,
    policy: Retry,
    *,
    snooze_limit: timedelta | None = None,
    rand: Callable[[], float] = random.random,
) -> Complete | Move:
    """Choose what happens to a job after an attempt; permanence is judged before the number of attempts."""
    match outcome:
        case Succeeded(result):
            return Complete(result)
        case Snoozed(after):
            if snooze_limit is not None and after > snooze_limit - job.waited:
                text = CODES["SNOOZED_TOO_LONG"].text
                return Move("bury", error=Error("SNOOZED_TOO_LONG", "permanent", text))
            return Move("snooze", after)
        case Stopped():
            return Move("stop")
        case Interrupted(started):
            return Move("release", started=started)
        case Deferred(after, gate, started):
            return Move("defer", after, started=started, gate=gate)
        case Failed(error) if error.error_class == "permanent":
            return Move("bury" if job.suspect else "reject", error=error)
        case Failed(error) if job.attempt >= job.max_attempts:
            return Move("bury", error=error)
        case Failed(error, after, longest):
            delay = policy.delay(job.attempt, rand)
            if after is not None:
                delay = min(max(delay, after), max(longest, delay))
            return Move("fail", delay, error)
        case _:
            assert_never(outcome)
