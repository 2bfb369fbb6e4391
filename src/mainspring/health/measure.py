"""Measures: numbers of an application, as SQL, which Prometheus reads beside the engine's own."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias, get_args

from mainspring.errors import DeclarationError

MeasureKind: TypeAlias = Literal["gauge", "counter"]
#: So many series may one measure have: more would be a label without bounds.
MOST_SERIES: Final = 1000
#: The engine's names that do not begin with `mainspring_`.
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


@dataclass(frozen=True, slots=True)
class Measured:
    """What a measure's SQL answered; `error` says why it could not be asked, and `errors` how often since the start."""

    measure: Measure
    labels: tuple[str, ...] = ()
    series: tuple[tuple[tuple[str, ...], float], ...] = ()  # the labels' values, and the number
    error: str | None = None
    errors: int = 0


def measure(name: str, help: str, sql: str, *, kind: MeasureKind = "gauge") -> Measure:
    """Declare a number of your application: SQL whose last column is the value, and whose others are labels.

    ::

        ms.measure("policies_near_expiry", "Policies that expire within 30 days",
                   "select kind, count(*) from policies where expires_on < {schema}.now() + '30 days' group by kind")

    It reads only, has two seconds, and is asked at most every 15 seconds. Labels must have few values: never an id.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise DeclarationError(f"measure {name}: is not a name of Prometheus: letters, digits and underscores")
    if name.startswith(("mainspring_", "__")) or _base(name) in ENGINES or name in ENGINES:
        raise DeclarationError(f"measure {name}: is a name of the engine")
    if kind not in get_args(MeasureKind):
        raise DeclarationError(f"measure {name}: kind: is not gauge or counter")
    if kind == "gauge" and _SUFFIX.search(name):
        raise DeclarationError(f"measure {name}: a gauge's name does not end like a counter's or a histogram's")
    if not isinstance(help, str) or not help.strip():
        raise DeclarationError(f"measure {name}: help: says nothing")
    if not isinstance(sql, str) or not sql.strip():
        raise DeclarationError(f"measure {name}: sql: is not a query")
    return Measure(name, help.strip(), sql, kind)


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

    >>> series(measure("open_cases", "Open cases", "…"), ["kind", "count"], [("late", 2), ("lost", None)]).series
    ((('late',), 2.0),)
    """
    labels = tuple(columns[:-1])
    for label in labels:
        if not _NAME.fullmatch(label) or label.startswith("__"):
            raise ValueError(f"column {label}: is not the name of a label: letters, digits and underscores")
    if len(set(labels)) < len(labels):
        raise ValueError("two labels have the same name")
    if len(rows) > MOST_SERIES:
        raise ValueError(f"has more than {MOST_SERIES} series: its labels have too many values")
    found: dict[tuple[str, ...], float] = {}
    for row in rows:
        *values, value = row
        if value is None:
            continue
        at = tuple("" if one is None else str(one) for one in values)
        if at in found:
            raise ValueError("two rows have the same labels")
        found[at] = float(value)  # type: ignore[arg-type]  # a number of any kind, or a text of one; else it raises
    return Measured(measure, labels, tuple(found.items()))


def _base(name: str) -> str:
    return _SUFFIX.sub("", name)
