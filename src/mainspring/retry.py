"""When a failed job is tried again. Pure: the number of attempts goes in, a delay comes out.

With n attempts made so far, `fixed` waits `base`; `exponential` waits raw = min(cap, base * factor**(n - 1)); `listed`
waits the n-th of its delays.
Jitter then spreads raw: `equal` over [raw/2, raw], `full` over [0, raw], `spread` over raw ± 20 %, never above the cap.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from math import exp, inf, log
from typing import Literal, get_args

from mainspring.errors import DeclarationError
from mainspring.text.span import Span, declared_span, span

RetryShape = Literal["fixed", "exponential", "listed"]
Jitter = Literal["none", "equal", "full", "spread"]

#: A provider's hint is followed up to here.
LONGEST_HINT = timedelta(hours=1)
MAX_ATTEMPTS = 1000


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and how late a failed job is tried again."""

    attempts: int
    base: timedelta
    shape: RetryShape = "exponential"
    factor: float = 2.0
    cap: timedelta = timedelta(minutes=5)
    jitter: Jitter = "equal"
    delays: tuple[timedelta, ...] = ()  # of `listed`; after the last of them, that one again

    def __post_init__(self) -> None:
        if not 1 <= self.attempts <= MAX_ATTEMPTS:
            raise DeclarationError(f"attempts: {self.attempts} is not between 1 and {MAX_ATTEMPTS}")
        if self.base < timedelta(0) or self.cap < timedelta(0):
            raise DeclarationError("base and cap: a delay cannot be negative")
        if self.shape not in get_args(RetryShape):
            raise DeclarationError(f"shape: {self.shape!r} is not one of {', '.join(get_args(RetryShape))}")
        if self.jitter not in get_args(Jitter):
            raise DeclarationError(f"jitter: {self.jitter!r} is not one of {', '.join(get_args(Jitter))}")
        if (self.shape == "listed") != bool(self.delays) or any(delay < timedelta(0) for delay in self.delays):
            raise DeclarationError("delays: a list needs some, and none is negative")
        if not 1 <= self.factor < inf:
            raise DeclarationError(f"factor: {self.factor} is not a number from 1")

    def raw(self, attempt: int) -> timedelta:
        """The delay after this many attempts, before jitter."""
        if self.shape == "fixed":
            return self.base
        if self.shape == "listed":
            return self.delays[min(attempt, len(self.delays)) - 1]
        # Growth by e**50 takes even a microsecond past the longest cap; a larger power would only overflow.
        growth = self.factor ** (attempt - 1) if (attempt - 1) * log(self.factor) <= 50 else exp(50)
        seconds = self.base.total_seconds() * growth
        return self.cap if seconds >= self.cap.total_seconds() else timedelta(seconds=seconds)

    def delay(self, attempt: int, rand: Callable[[], float] = random.random) -> timedelta:
        """The delay after this many attempts; `rand` gives a number in [0, 1)."""
        raw = self.raw(attempt)
        match self.jitter:
            case "none":
                return raw
            case "equal":
                return raw * (0.5 + rand() / 2)
            case "full":
                return raw * rand()
            case "spread":
                limit = raw if self.shape == "fixed" else self.cap
                return min(raw * (0.8 + 0.4 * rand()), max(limit, raw))

    def describe(self) -> str:
        """The policy in words, for people.

        >>> fixed(60, attempts=3).describe()
        '3 attempts, 60 s apart'
        """
        base = f"{self.base.total_seconds():g} s"
        if self.shape == "fixed":
            return f"{self.attempts} attempts, {base} apart"
        if self.shape == "listed":
            return f"{self.attempts} attempts, after {', '.join(map(span, self.delays))}, jitter {self.jitter}"
        cap = f"{self.cap.total_seconds():g} s"
        return f"{self.attempts} attempts, {base} growing by {self.factor:g} up to {cap}, jitter {self.jitter}"


def fixed(delay: Span, *, attempts: int, jitter: Jitter = "none") -> Retry:
    """Try again after the same delay each time.

    >>> fixed("1m", attempts=3).delay(2)
    datetime.timedelta(seconds=60)
    """
    same = declared_span("delay", delay)
    return Retry(attempts, same, "fixed", 1.0, same, jitter)


def exponential(
    *, base: Span = 5, factor: float = 2, cap: Span = "5m", attempts: int = 5, jitter: Jitter = "equal"
) -> Retry:
    """Try again after a delay that grows from `base` to `cap`.

    >>> [exponential(base=2, cap=1024, jitter="none").delay(n).seconds for n in (1, 2, 3, 4)]
    [2, 4, 8, 16]
    """
    first, longest = declared_span("base", base), declared_span("cap", cap)
    return Retry(attempts, first, "exponential", factor, longest, jitter)


def listed(*given: Span, jitter: Jitter = "spread") -> Retry:
    """Try again after these delays, one after the other; so there is one attempt more than there are delays.

    >>> [listed("5s", "5m", "30m", jitter="none").delay(n).seconds for n in (1, 2, 3)]
    [5, 300, 1800]
    """
    delays = tuple(declared_span("delays", each) for each in given)
    longest = max(delays, default=timedelta(0))
    return Retry(len(delays) + 1, delays[0] if delays else longest, "listed", 1.0, longest, jitter, delays)
