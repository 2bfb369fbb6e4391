"""Circuit breakers: what is declared of something outside that jobs need, and what one process decides by itself.

A breaker is closed while calls succeed. Too many failures, or nothing but failures for too long, open it: jobs that
need it wait, and burn no attempt. After its pause it is half open: a few jobs are let through to see, a success closes
it, a failure opens it again. PostgreSQL holds the truth for all workers; here is what needs no database and no clock.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from mainspring.errors import ConfigurationError, DeclarationError
from mainspring.outcome import Failed, Failure, Outcome
from mainspring.text.raised import plain
from mainspring.text.span import Span, read_span, span
from mainspring.text.texts import MAX_NAME, did_you_mean, text_problem

if TYPE_CHECKING:
    from mainspring.declare.registry import Registry

MAX_BREAKER: Final = 100  # characters of a name
MOST_CALLS: Final = 100_000  # failures or calls
MOST_PROBES: Final = 1000
LONGEST_BREAKER_SPAN: Final = timedelta(days=1)
#: Failures of ours, which say nothing about what was called.
OWN_FAILURES: Final = frozenset({"DB_UNAVAILABLE", "LEASE_EXPIRED"})


@dataclass(frozen=True, slots=True)
class Breaker:
    """When calls of a dependency are stopped, and for how long; made by `breaker`."""

    name: str
    failures: int | None
    rate: float | None
    calls: int | None
    within: timedelta
    pause: timedelta
    longest: timedelta
    probes: int
    failing_for: timedelta | None = None

    def trips(self, failed: int, succeeded: int, row: timedelta = timedelta(0)) -> bool:
        """Whether so many calls in one window open it, or the latest failure, so long after the first of its row."""
        if self.failing_for is not None and row >= self.failing_for:
            return True
        if self.rate is None or self.calls is None:
            return failed >= (self.failures or 1)
        total = failed + succeeded
        return total >= self.calls and failed >= self.rate * total

    def describe(self) -> str:
        """The rule in words, for people.

        >>> breaker("stripe").describe()
        '5 failures within 30 s open it for 1 min; then 1 probe at once'
        """
        what = f"{self.failures} failures" if self.rate is None else f"{self.rate:.0%} of at least {self.calls} calls"
        pause = span(self.pause)
        if self.longest > self.pause:
            pause += f", doubling to {span(self.longest)}"
        probes = f"{self.probes} probe{'s' * (self.probes > 1)} at once"
        row = f", or nothing but failures for {span(self.failing_for)}," if self.failing_for is not None else ""
        return f"{what} within {span(self.within)}{row} open it for {pause}; then {probes}"


def breaker(
    name: str,
    *,
    failures: int | None = None,
    rate: float | None = None,
    calls: int | None = None,
    within: Span = "30s",
    pause: Span = "60s",
    longest: Span | None = None,
    probes: int = 1,
    failing_for: Span | None = None,
) -> Breaker:
    """Declare a dependency whose failures stop the jobs that need it: after `failures`, or by their part of the calls.

    >>> breaker("stripe", failures=5, within="30s", pause="1m").probes
    1
    >>> breaker("sms", rate=0.5, calls=20).trips(10, 10)
    True

    With `longest` each probe that fails doubles the pause, up to that. With `failing_for` fewer failures open it as
    well, where no call has succeeded for so long: the first that comes this much after the first of an unbroken row.

    >>> lonely = breaker("stripe", failing_for="1m")
    >>> [lonely.trips(1, 0, row=timedelta(seconds=since)) for since in (59, 60)]
    [False, True]
    """
    if problem := text_problem(name, MAX_BREAKER):
        raise DeclarationError(f"breaker: name {problem}")
    if set(name) & set(":{}"):
        raise DeclarationError(f"breaker {name}: a name has no colon and no braces; a key comes behind it in needs")
    if failures is not None and (rate is not None or calls is not None):
        raise DeclarationError(f"breaker {name}: failures and rate exclude each other")
    if (rate is None) != (calls is None):
        raise DeclarationError(f"breaker {name}: rate and calls belong together")
    if rate is None and failures is None:
        failures = 5
    if rate is not None and (isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 < rate <= 1):
        raise DeclarationError(f"breaker {name}: rate is not a part above 0 and up to 1")
    for what, number, top in (
        ("failures", failures, MOST_CALLS),
        ("calls", calls, MOST_CALLS),
        ("probes", probes, MOST_PROBES),
    ):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or not 1 <= number <= top):
            raise DeclarationError(f"breaker {name}: {what} is not a whole number from 1 to {top}")
    window, stop = _breaker_span(name, "within", within), _breaker_span(name, "pause", pause)
    most = stop if longest is None else _breaker_span(name, "longest", longest)
    if most < stop:
        raise DeclarationError(f"breaker {name}: longest is shorter than pause")
    alone = None if failing_for is None else _breaker_span(name, "failing_for", failing_for)
    return Breaker(name, failures, None if rate is None else float(rate), calls, window, stop, most, probes, alone)


def _breaker_span(name: str, what: str, given: Span) -> timedelta:
    found = read_span(given)
    if found is None or not timedelta(milliseconds=1) <= found <= LONGEST_BREAKER_SPAN:
        raise DeclarationError(f"breaker {name}: {what} is not a time span from 1 ms to a day")
    return found


@dataclass(frozen=True, slots=True)
class Need:
    """What a task needs: a dependency, or one key of it that its payload names.

    >>> Need.read("webhook:{endpoint_id}").key({"endpoint_id": 7})
    '7'
    """

    name: str
    template: str | None = None

    @classmethod
    def read(cls, text: str) -> Need:
        """`stripe`, or `webhook:{endpoint_id}`."""
        name, colon, template = text.partition(":")
        return cls(name, template if colon else None)

    def __str__(self) -> str:
        return self.name if self.template is None else f"{self.name}:{self.template}"

    def key(self, payload: Mapping[str, Any]) -> str:
        """The key for a payload; what it leaves out, or what has another type than the template thinks, is None."""
        if self.template is None:
            return ""
        try:
            return fit(self.template.format_map(_Lenient(payload)))
        except (ValueError, TypeError, LookupError, AttributeError):
            return "None"


class _Lenient(dict[str, Any]):
    def __missing__(self, field: str) -> None:
        return None


def fit(key: str) -> str:
    """A key as it is stored: itself, or what stands for one that is too long or cannot be shown.

    >>> fit("7"), len(fit("x" * 1000))
    ('7', 39)
    """
    if text_problem(key, MAX_NAME) is None:
        return key
    return "sha256:" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def gate(name: str, key: str, org: str) -> str:
    """What a job that was put off waits at, in its ticket; the gate of a key is an organisation's.

    >>> gate("stripe", "", "SYSTEM"), gate("webhook", "7", "acme")
    ('breaker:stripe', 'breaker:webhook:7@acme')
    """
    return f"breaker:{name}:{key}@{org}" if key else f"breaker:{name}"


def declared(breakers: Iterable[Breaker], tasks: Registry) -> dict[str, Breaker]:
    """The breakers by name; refused is what is declared twice, and what a task needs and nobody declares."""
    found: dict[str, Breaker] = {}
    for each in breakers:
        if not isinstance(each, Breaker):
            raise ConfigurationError(f"breakers: a {type(each).__name__} is no breaker")
        if found.setdefault(each.name, each) != each:
            raise ConfigurationError(f"breakers: {each.name} is declared twice")
    for task in tasks:
        for need in task.needs:
            if need.name not in found:
                near = did_you_mean(need.name, found) or f": declare it, App(breakers=[ms.breaker({need.name!r})])"
                raise ConfigurationError(f"breakers: task {task.name} needs {need.name!r}, which is not declared{near}")
    return found


def counts(outcome: Outcome, error: BaseException | None = None) -> bool:
    """Whether an attempt's end is a failure of what it called: if it is tried again, unless its handler says otherwise.

    Business errors, a snooze and a cancellation are none, and neither is trouble with our own database.
    """
    if error is not None and issubclass(type(error), Failure) and type(said := plain(error, "counts")) is bool:
        return said
    return (
        isinstance(outcome, Failed)
        and outcome.error.error_class == "retryable"
        and outcome.error.code not in OWN_FAILURES
    )


class Window:
    """Calls of one process in a rolling window, by its own sense of how time passes."""

    __slots__ = ("_calls", "_length")

    def __init__(self, within: timedelta) -> None:
        self._length = within.total_seconds()
        self._calls: list[list[float]] = []  # [since, failed, succeeded], in about fifty parts

    def add(self, now: float, failed: int = 0, succeeded: int = 0) -> None:
        """Calls ended."""
        if not self._calls or now - self._calls[-1][0] > self._length / 50:
            self._calls.append([now, 0, 0])
        last = self._calls[-1]
        last[1] += failed
        last[2] += succeeded

    def counts(self, now: float) -> tuple[int, int]:
        """How many failed and how many succeeded in the window that ends now."""
        while self._calls and self._calls[0][0] <= now - self._length:
            del self._calls[0]
        return int(sum(call[1] for call in self._calls)), int(sum(call[2] for call in self._calls))
