"""Measures: numbers of an application, as SQL, which Prometheus reads beside the engine's own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import inf
from typing import Any, Final, Literal, TypeAlias, get_args

from mainspring.errors import DeclarationError, ValidationError
from mainspring.text.params import QueryParams, check_params

MeasureKind: TypeAlias = Literal["gauge", "counter", "histogram"]
#: So many series may one measure have: more would be a label without bounds.
MOST_SERIES: Final = 1000
MOST_BUCKETS: Final = 50
#: The engine's names that do not begin with `mainspring_`: shown where MAINSPRING_METRICS_ALIASES asks for them.
ENGINES: Final = frozenset({
    "jobs_enqueued", "jobs_started", "jobs_succeeded", "jobs_failed", "deadletter", "jobs_duration_seconds",
    "jobs_attempts_histogram",
})  # fmt: skip
_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
#: What Prometheus makes of counters and histograms.
_SUFFIX: Final = re.compile(r"_(total|created|bucket|count|sum|info)$")


@dataclass(frozen=True, slots=True)
class Measure:
    """A name, what it means, and the SQL that answers its labels and values; made by `measure`."""

    name: str
    help: str
    sql: str
    kind: MeasureKind
    buckets: tuple[float, ...] = ()  # of a histogram: the upper bounds; +Inf is understood
    params: QueryParams | None = None

    @property
    def most_rows(self) -> int:
        """So many sets of labels it may have: a histogram shows for each its buckets, +Inf, its count and its sum."""
        return MOST_SERIES // (len(self.buckets) + 3) if self.buckets else MOST_SERIES


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measure's SQL answered; `error` says why it could not be asked, and `errors` how often since the start."""

    measure: Measure
    labels: tuple[str, ...] = ()
    series: tuple[tuple[tuple[str, ...], float], ...] = ()  # the labels' values, and the number
    #: Of a histogram: the labels' values, how many are at most each bound, and the sum of all.
    histograms: tuple[tuple[tuple[str, ...], tuple[tuple[str, float], ...], float], ...] = ()
    error: str | None = None
    errors: int = 0

    def samples(self) -> Iterator[tuple[str, dict[str, str], float]]:
        """(name, labels, value) of each number; those of a histogram have the names that Prometheus knows."""
        name = self.measure.name
        for values, value in self.series:
            yield name, dict(zip(self.labels, values, strict=True)), value
        for values, buckets, total in self.histograms:
            labels = dict(zip(self.labels, values, strict=True))
            for bound, count in buckets:
                yield f"{name}_bucket", labels | {"le": bound}, count
            yield f"{name}_count", labels, buckets[-1][1]
            yield f"{name}_sum", labels, total


def measure(
    name: str,
    help: str,
    sql: str,
    *,
    params: QueryParams | None = None,
    kind: MeasureKind = "gauge",
    buckets: Sequence[float] = (),
) -> Measure:
    """Declare a number of your application: SQL whose last column is the value, and whose others are labels.

    ::

        ms.measure("policies_near_expiry", "Policies that expire within 30 days",
                   "select kind, count(*) from policies where expires_on < {schema}.now() + '30 days' group by kind")

    It reads only, has two seconds, and is asked at most every 15 seconds. Labels must have few values: never an id.
    `params` are values for its `%(name)s`, or a function that is asked for them each time.

    Of a histogram each row is one observation, and the database counts them into `buckets`, which are upper bounds::

        ms.measure("orders_shipping_seconds", "From an order to its shipping",
                   "select carrier, extract(epoch from shipped_at - created_at) from orders where status = 'shipped'",
                   kind="histogram", buckets=(3600, 21_600, 86_400))

    Prometheus takes a counter or a histogram that goes down for one that began again, and `rate` counts all of it
    anew. So ask for everything that ever happened, of rows that stay: a number of the last hour is a gauge.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(f"measure {name}: is not a name of Prometheus: letters, digits and underscores")
    if name.startswith(("mainspring_", "__")) or _base(name) in ENGINES or name in ENGINES:
        raise DeclarationError(f"measure {name}: is a name of the engine")
    if kind not in get_args(MeasureKind):
        raise DeclarationError(f"measure {name}: kind: is not gauge, counter or histogram")
    if kind != "counter" and _SUFFIX.search(name):
        raise DeclarationError(
            f"measure {name}: {kind}: its name does not end like a counter's or a histogram's series"
        )
    if (kind == "histogram") != bool(buckets):
        raise DeclarationError(f"measure {name}: buckets: are what a histogram has, and nothing else")
    if not _rising(buckets):
        raise DeclarationError(f"measure {name}: buckets: are not up to {MOST_BUCKETS} rising numbers from 0")
    if not isinstance(help, str) or not help.strip():
        raise DeclarationError(f"measure {name}: help: says nothing")
    if not isinstance(sql, str) or not sql.strip():
        raise DeclarationError(f"measure {name}: sql: is not a query")
    try:
        if params is not None:
            check_params(sql, params)
    except ValidationError as error:
        raise DeclarationError(f"measure {name}: {error}") from None
    return Measure(name, help.strip(), sql, kind, tuple(map(float, buckets)), params)


def _rising(bounds: Sequence[object]) -> bool:
    """Whether they can be a histogram's: with values below 0 its sum would go down."""
    numbers = [bound for bound in bounds if isinstance(bound, int | float) and 0 <= bound < inf]
    return len(numbers) == len(bounds) <= MOST_BUCKETS and all(low < high for low, high in pairwise(numbers))


def declared(measures: Sequence[Measure]) -> tuple[Measure, ...]:
    """Measures that may stand beside each other: one scrape shows a name once."""
    names: set[str] = set()
    for one in measures:
        if not isinstance(one, Measure):
            raise DeclarationError(f"measures: {one!r} is not made by measure")
        if _base(one.name) in names:
            raise DeclarationError(f"measure {one.name}: is declared twice")
        names.add(_base(one.name))
    return tuple(measures)


def series(measure: Measure, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> Measured:
    """Read rows of (labels…, value), or raise ValueError: what Prometheus would refuse harms its whole scrape.

    Of a histogram the value is [the sum, how many are at most each bound …, how many there are].

    >>> series(measure("open_cases", "Open cases", "…"), ["kind", "count"], [("late", 2), ("lost", None)]).series
    ((('late',), 2.0),)
    """
    labels = tuple(columns[:-1])
    for label in labels:
        if not _NAME.fullmatch(label) or label.startswith("__"):
            raise ValueError(f"column {label}: is not the name of a label: letters, digits and underscores")
    if len(set(labels)) < len(labels):
        raise ValueError("two labels have the same name")
    if measure.kind == "histogram" and "le" in labels:
        raise ValueError("column le: is the label of a histogram's buckets")
    if len(rows) > measure.most_rows:
        raise ValueError(f"has more than {MOST_SERIES} series: its labels have too many values")
    found: dict[tuple[str, ...], Any] = {}
    for *values, value in rows:
        if value is None:
            continue
        at = tuple("" if one is None else str(one) for one in values)
        if at in found:
            raise ValueError("two rows have the same labels")
        found[at] = value
    if measure.kind != "histogram":  # a number of any kind, or a text of one; else it raises
        return Measured(measure, labels, tuple((at, float(value)) for at, value in found.items()))
    bounds = (*map(str, measure.buckets), "+Inf")
    histograms = ((at, tuple(zip(bounds, counts, strict=True)), total) for at, (total, *counts) in found.items())
    return Measured(measure, labels, histograms=tuple(histograms))


def _base(name: str) -> str:
    return _SUFFIX.sub("", name)
