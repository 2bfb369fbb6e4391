"""What is declared of breakers, and what needs no database."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

import mainspring as ms
from mainspring.circuit import Need, Window, breaker, counts, fit
from mainspring.errors import ConfigurationError, DatabaseUnavailable, DeclarationError
from mainspring.outcome import BreakerOpen, Cancelled, Failure, Permanent, RetryAfter, Snooze
from mainspring.worker.classify import classify

SECOND = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("options", "problem"),
    [
        ({"name": ""}, "name is empty"),
        ({"name": None}, "name is missing"),
        ({"name": "x" * 101}, "name is longer than 100 characters"),
        ({"name": "a\nb"}, "name has a control character"),
        ({"name": "webhook:7"}, "no colon"),
        ({"name": "{x}"}, "no braces"),
        ({"failures": 0}, "failures is not a whole number from 1 to 100000"),
        ({"failures": 1.5}, "failures is not a whole number"),
        ({"failures": True}, "failures is not a whole number"),
        ({"failures": 100_001}, "failures is not a whole number"),
        ({"failures": 3, "rate": 0.5, "calls": 3}, "exclude each other"),
        ({"failures": 3, "calls": 3}, "exclude each other"),
        ({"rate": 0.5}, "rate and calls belong together"),
        ({"calls": 5}, "rate and calls belong together"),
        ({"rate": 0, "calls": 5}, "rate is not a part above 0 and up to 1"),
        ({"rate": 1.1, "calls": 5}, "rate is not a part"),
        ({"rate": float("nan"), "calls": 5}, "rate is not a part"),
        ({"rate": "half", "calls": 5}, "rate is not a part"),
        ({"rate": 0.5, "calls": 0}, "calls is not a whole number"),
        ({"within": timedelta(0)}, "within is not a time span from 1 ms to a day"),
        ({"within": "30"}, "within is not a time span"),
        ({"within": timedelta(days=2)}, "within is not a time span"),
        ({"pause": timedelta(seconds=-1)}, "pause is not a time span"),
        ({"pause": None}, "pause is not a time span"),
        ({"longest": timedelta(days=2)}, "longest is not a time span"),
        ({"longest": SECOND}, "longest is shorter than pause"),
        ({"failing_for": timedelta(0)}, "failing_for is not a time span from 1 ms to a day"),
        ({"probes": 0}, "probes is not a whole number from 1 to 1000"),
        ({"probes": "1"}, "probes is not a whole number"),
    ],
)
def test_a_wrong_declaration_is_refused_by_the_name_of_what_is_wrong(options: dict[str, Any], problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        breaker(**({"name": "stripe"} | options))


def test_a_rule_says_when_it_trips() -> None:
    count, rate = breaker("a", failures=3), breaker("b", rate=0.25, calls=8)

    assert [count.trips(failed, 100) for failed in (2, 3, 4)] == [False, True, True]
    assert [rate.trips(*calls) for calls in ((7, 0), (2, 6), (1, 7), (0, 100))] == [False, True, False, False]


def test_a_rule_trips_when_calls_have_done_nothing_but_fail_for_too_long() -> None:
    count, rate = breaker("a", failing_for="1m"), breaker("b", rate=0.5, calls=8, failing_for="1m")

    for rule in (count, rate):
        assert [rule.trips(1, 0, row=row * SECOND) for row in (0, 59, 60, 600)] == [False, False, True, True]
    assert not breaker("a").trips(1, 0, row=timedelta(days=1))
    assert count.describe() == (
        "5 failures within 30 s, or nothing but failures for 1 min, open it for 1 min; then 1 probe at once"
    )


def test_a_rule_is_told_in_words() -> None:
    rule = breaker("a", rate=0.5, calls=20, pause=SECOND, longest=timedelta(minutes=5), probes=2)

    assert (
        rule.describe()
        == "50% of at least 20 calls within 30 s open it for 1 s, doubling to 5 min; then 2 probes at once"
    )


@pytest.mark.parametrize(
    ("needs", "problem"),
    [
        (("webhook:{endpoint}",), r"no field 'endpoint' \(did you mean 'endpoint_id'\?\)"),
        (("",), "the name of a breaker is empty"),
        (("{endpoint_id}",), "say it as"),
        (("webhook:",), "say it as"),
        (("webhook:{",), "needs"),
        (("x" * 101,), "longer than 100"),
        ((7,), "needs"),
        ("stripe", "needs"),
    ],
)
def test_a_task_says_what_it_needs_or_is_refused(needs: Any, problem: str) -> None:
    tasks = ms.Registry("test")

    with pytest.raises(DeclarationError, match=problem):

        @tasks.task(needs=needs)
        async def deliver(*, endpoint_id: int) -> None: ...


def test_a_task_shows_what_it_needs() -> None:
    tasks = ms.Registry("test")

    @tasks.task(needs=("stripe", "webhook:{endpoint_id}"))
    async def deliver(*, endpoint_id: int) -> None: ...

    assert deliver.describe()["needs"] == ["stripe", "webhook:{endpoint_id}"]


def test_what_nobody_declares_is_refused_when_the_app_is_built() -> None:
    tasks = ms.Registry("test")

    @tasks.task(needs=("strpe",))
    async def charge() -> None: ...

    with pytest.raises(ConfigurationError, match=r"task charge needs 'strpe', .* \(did you mean 'stripe'\?\)"):
        ms.App(tasks, dsn="postgresql://nowhere", breakers=[ms.breaker("stripe")])
    with pytest.raises(ConfigurationError, match=r"declare it, App\(breakers=\[ms.breaker\('strpe'\)\]\)"):
        ms.App(tasks, dsn="postgresql://nowhere")


@pytest.mark.anyio
async def test_what_is_declared_later_is_refused_when_the_worker_is_made() -> None:
    tasks = ms.Registry("test")
    app = ms.App(tasks, dsn="postgresql://nowhere")

    @tasks.task(needs=("stripe",))
    async def charge() -> None: ...

    with pytest.raises(ConfigurationError, match="task charge needs 'stripe'"):
        app.worker()


def test_a_name_is_declared_once() -> None:
    stripe = ms.breaker("stripe")

    assert ms.App(dsn="postgresql://nowhere", breakers=[stripe, stripe]).breakers == (stripe,)
    with pytest.raises(ConfigurationError, match="stripe is declared twice"):
        ms.App(dsn="postgresql://nowhere", breakers=[stripe, ms.breaker("stripe", failures=2)])
    with pytest.raises(ConfigurationError, match="a str is no breaker"):
        ms.App(dsn="postgresql://nowhere", breakers=["stripe"])  # type: ignore[list-item] # the point


@pytest.mark.parametrize(
    ("template", "payload", "key"),
    [
        ("{a}", {"a": 7}, "7"),
        ("{a}/{b}", {"a": "x", "b": None}, "x/None"),
        ("{a}", {}, "None"),
        ("{a[b]}", {"a": {"b": 3}}, "3"),
        ("{a[b]}", {"a": 3}, "None"),
        ("{a:d}", {"a": "text"}, "None"),
        ("{a}", {"a": ""}, fit("")),
    ],
)
def test_a_key_is_made_from_the_payload_whatever_is_in_it(template: str, payload: dict[str, Any], key: str) -> None:
    assert Need.read(f"webhook:{template}").key(payload) == key


@pytest.mark.parametrize("key", ["x" * 201, "a\x00b", "\ud800", " ", ""])
def test_a_key_that_cannot_be_stored_has_a_stand_in(key: str) -> None:
    assert fit(key).startswith("sha256:")
    assert fit(key) != fit(key + "y")


@pytest.mark.parametrize(
    ("error", "counted"),
    [
        (ConnectionError("down"), True),
        (TimeoutError(), True),
        (Failure("503", code="HttpException"), True),
        (RetryAfter(5), True),
        (RetryAfter(5, counts=False), False),
        (Failure("our own mistake", counts=False), False),
        (Permanent("the card has expired"), False),
        (Permanent("the key of the provider is void", counts=True), True),
        (Snooze(5), False),
        (Cancelled(), False),
        (BreakerOpen("sms", SECOND), False),
        (DatabaseUnavailable(), False),
        (ms.ValidationError("a: is wrong", field="a"), False),
    ],
)
def test_what_counts_as_a_failure_of_what_was_called(error: Exception, counted: bool) -> None:
    assert counts(classify(error), error) is counted


def test_a_window_rolls() -> None:
    window = Window(timedelta(seconds=10))
    for second in range(5):
        window.add(float(second), failed=1)
    window.add(5.0, succeeded=3)

    assert window.counts(9.9) == (5, 3)
    assert window.counts(12.5) == (2, 3)
    assert window.counts(15.1) == (0, 0)


def test_a_window_stays_small_however_many_calls_there_are() -> None:
    window = Window(timedelta(seconds=10))
    for call in range(20_000):
        window.add(call / 1000, failed=1)

    assert 9_700 <= window.counts(20.0)[0] <= 10_000
    assert len(window._calls) <= 60
