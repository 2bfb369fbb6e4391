"""Limits: how many jobs may start in any window, how many may run at once, in which order, and whose turn it is.

A limit holds across all workers. It is declared with the application, `App(limits=[...])`, or set at run time.

>>> rate("weekly-payments", 50, per="1s").words
'50 per 1 s'
>>> concurrency(task="export", most=2, by="org").name
'concurrency:export:org'
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import timedelta
from typing import Any, Final, Literal, NoReturn, TypeAlias, get_args

import msgspec

from mainspring.checks import check_number
from mainspring.errors import DeclarationError, ValidationError
from mainspring.queue import DEAD_LETTER
from mainspring.text.span import Span, span, span_of
from mainspring.text.texts import MAX_NAME, MAX_QUEUE, did_you_mean, text_problem

LimitBy = Literal["all", "org", "strand"]

MOST_LIMIT: Final = 1_000_000
SHORTEST_WINDOW, LONGEST_WINDOW = timedelta(milliseconds=100), timedelta(days=1)
HEAVIEST_WEIGHT: Final = 1000
MAX_LIMIT_NAME: Final = MAX_NAME + 40  # a task's, and what the limit is
EACH_WORDS: Final = {"all": "", "org": " for each organisation", "strand": " for each strand"}


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """One rule for the jobs of a queue or a task: `rate` per window, or `concurrency`; counted `by` all, org or strand.

    Made by `rate`, `concurrency` and `in_order`.
    """

    name: str
    queue: str | None = None
    task: str | None = None
    by: LimitBy = "all"
    rate: int | None = None
    per: timedelta | None = None
    concurrency: int | None = None
    in_order: bool = False

    def __post_init__(self) -> None:
        _check_text("name", self.name, MAX_LIMIT_NAME)
        if "/" in self.name:
            _refuse("name", "has a slash, which stands between a limit and the key that it counts by")
        if (self.queue is None) == (self.task is None):
            _refuse("queue", "give either a queue or a task")
        if self.queue is not None:
            check_queue(self.queue)
        else:
            _check_text("task", self.task, MAX_NAME)
        if self.by not in get_args(LimitBy):
            _refuse("by", f"is not one of {', '.join(get_args(LimitBy))}{did_you_mean(self.by, get_args(LimitBy))}")
        if (self.rate is None) == (self.concurrency is None):
            _refuse("rate", "give either a rate or a concurrency")
        if self.rate is not None:
            check_number("rate", self.rate, 1, MOST_LIMIT)
            if not isinstance(self.per, timedelta) or not SHORTEST_WINDOW <= self.per <= LONGEST_WINDOW:
                _refuse("per", "is missing" if self.per is None else "is not a time span from 100 ms to 1 day")
        else:
            check_number("concurrency", self.concurrency, 1, MOST_LIMIT)
            if self.per is not None:
                _refuse("per", "is given together with a concurrency")
        if self.in_order and (self.by != "strand" or self.concurrency != 1):
            _refuse("in_order", "is for jobs of one strand, one at a time")

    @property
    def words(self) -> str:
        """The rule as people say it."""
        return words(self.rate, self.per, self.concurrency, self.in_order) + EACH_WORDS[self.by]

    @property
    def target(self) -> str:
        """Whose jobs it holds."""
        return f"queue {self.queue}" if self.queue is not None else f"task {self.task}"


class Fair(msgspec.Struct, frozen=True, kw_only=True):
    """A queue whose organisations take turns; one with the weight 3 has three times the share of one without a weight.

    Made by `fair`.
    """

    queue: str
    weights: Mapping[str, int] = {}

    def __post_init__(self) -> None:
        check_queue(self.queue)
        if not isinstance(self.weights, Mapping):
            _refuse("weights", "is not a mapping of organisations to whole numbers")
        for org, weight in self.weights.items():
            _check_text("weights", org, MAX_NAME)
            check_number("weights", weight, 1, HEAVIEST_WEIGHT)


DeclaredLimit: TypeAlias = Limit | Fair


def rate(
    queue: str | None = None,
    most: int | None = None,
    *,
    per: Span,
    task: str | None = None,
    by: LimitBy = "all",
    name: str | None = None,
) -> Limit:
    """Let at most so many jobs of a queue or a task start in any window of this length, over all workers together.

    >>> rate(task="send_sms", most=10, per="1m", by="org").words
    '10 per 1 min for each organisation'
    """
    _given("most", most)
    return Limit(name=_name(name, "rate", queue, task, by), queue=queue, task=task, by=by, rate=most, per=read_per(per))


def concurrency(
    queue: str | None = None,
    most: int | None = None,
    *,
    task: str | None = None,
    by: LimitBy = "all",
    name: str | None = None,
) -> Limit:
    """Let at most so many jobs of a queue or a task run at once, over all workers together.

    >>> concurrency("exports", 4).words
    '4 at once'
    """
    _given("most", most)
    return Limit(name=_name(name, "concurrency", queue, task, by), queue=queue, task=task, by=by, concurrency=most)


def in_order(queue: str | None = None, *, task: str | None = None, name: str | None = None) -> Limit:
    """Run the jobs of one strand one after another: the next starts when the one before has finished, retries included.

    >>> in_order(task="close_booking").words
    'one after another for each strand'
    """
    name = _name(name, "order", queue, task, "all")
    return Limit(name=name, queue=queue, task=task, by="strand", concurrency=1, in_order=True)


def fair(queue: str, *, weights: Mapping[str, int] | None = None) -> Fair:
    """Let the organisations of a queue take turns, so that one with many jobs does not keep the others waiting.

    >>> dict(fair("q:default", weights={"acme": 3}).weights)
    {'acme': 3}
    """
    return Fair(queue=queue, weights=dict(weights) if isinstance(weights, Mapping) else weights or {})


def words(rate: int | None, per: timedelta | None, concurrency: int | None, in_order: bool) -> str:
    """A rule as people say it, whoever it counts by."""
    if in_order:
        return "one after another"
    return f"{concurrency} at once" if rate is None or per is None else f"{rate} per {span(per)}"


def read_per(per: object, field: str = "per") -> timedelta:
    """The length of a window, as people give it."""
    if per is None:
        _refuse(field, "is missing")
    return span_of(field, per)


def check_queue(queue: object) -> None:
    """Refuse what is no queue of jobs that run."""
    _check_text("queue", queue, MAX_QUEUE)
    if queue == DEAD_LETTER:
        _refuse("queue", f"{DEAD_LETTER} holds dead jobs; nothing runs there")


def check_declared(
    declared: Iterable[DeclaredLimit], tasks: Collection[str], queues: Collection[str]
) -> list[DeclaredLimit]:
    """Refuse two limits of one name, and one of a task or a queue that the application does not have.

    >>> check_declared([rate("mial", 5, per="1s")], [], ["mail"])
    Traceback (most recent call last):
    mainspring.errors.DeclarationError: limit rate:mial: no task runs on queue 'mial' (did you mean 'mail'?)
    """
    found: dict[tuple[type, str], DeclaredLimit] = {}
    for limit in declared:
        if not isinstance(limit, DeclaredLimit):
            raise DeclarationError(f"limits: a {type(limit).__name__} is no limit; see ms.rate and ms.concurrency")
        what = f"limit {limit.name}" if isinstance(limit, Limit) else f"fair {limit.queue}"
        if found.setdefault((type(limit), what), limit) is not limit:
            raise DeclarationError(f"{what} is declared twice; give one of them a name")
        if isinstance(limit, Limit) and limit.task is not None and limit.task not in tasks:
            raise DeclarationError(f"{what}: no task is called {limit.task!r}{did_you_mean(limit.task, tasks)}")
        if limit.queue is not None and limit.queue not in queues:
            raise DeclarationError(f"{what}: no task runs on queue {limit.queue!r}{did_you_mean(limit.queue, queues)}")
    return list(found.values())


def owner(origins: Iterable[str]) -> str:
    """Whose declarations these are: an application is known by its registries, so that two can share a database.

    >>> owner(["app", "shop", "mainspring", "mail"])
    'mail, shop'
    """
    return ", ".join(sorted(set(origins) - {"app", "mainspring"})) or "app"


def _name(name: str | None, kind: str, queue: str | None, task: str | None, by: object) -> str:
    """A name that stays the same as long as the limit is of the same kind, for the same jobs."""
    return name if name is not None else f"{kind}:{queue or task}{f':{by}' if by != 'all' else ''}".replace("/", "-")


def _given(field: str, value: Any) -> None:
    if value is None:
        _refuse(field, "is missing")
    check_number(field, value, 1, MOST_LIMIT)


def _check_text(field: str, value: object, limit: int) -> None:
    if problem := text_problem(value, limit):
        _refuse(field, problem)


def _refuse(field: str, problem: str) -> NoReturn:
    raise ValidationError(f"{field}: {problem}", field=field)
