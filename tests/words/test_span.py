"""A time span is given in one way everywhere: a timedelta, seconds, or a text."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest

import mainspring as ms
from mainspring import dedupe
from mainspring.client.sync import SyncClientSeam
from mainspring.config import Retention
from mainspring.contrib.http import Http
from mainspring.contrib.notify import Notify, Spam
from mainspring.contrib.notify.smtp import Smtp
from mainspring.contrib.stripe import Stripe
from mainspring.contrib.webhooks import Receiver, Webhooks
from mainspring.declare.task import Task
from mainspring.errors import DeclarationError
from mainspring.retry import Retry
from mainspring.text.span import Span
from mainspring.web.runs import Run
from mainspring.web.server import Server

MINUTE = timedelta(minutes=1)


async def work() -> None: ...


def task(**options: Any) -> Task[..., None, Any]:
    return Task(work, app="shop", **options)


def seconds(found: float | None) -> timedelta:
    assert found is not None
    return timedelta(seconds=found)


def patience_of(client: ms.Client) -> float:
    assert isinstance(client.seam, SyncClientSeam)
    return client.seam._pool.timeout


#: Everything that takes one, as a function that makes it and says what it was understood as.
BORDERS: dict[str, Callable[[Any], object]] = {
    "delay": lambda given: task().job().after(given).delay,
    "timeout": lambda given: task(timeout=given).timeout,
    "key_ttl": lambda given: task(key_ttl=given).key_ttl,
    "snooze_limit": lambda given: task(snooze_limit=given).snooze_limit,
    "after": lambda given: ms.Snooze(given).after,
    "longest": lambda given: ms.RetryAfter(5, longest=given).longest,
    "base": lambda given: ms.exponential(base=given).base,
    "cap": lambda given: ms.exponential(cap=given).cap,
    "delays": lambda given: ms.listed(given).delays[0],
    "per": lambda given: ms.rate("q", 1, per=given).per,
    "pause": lambda given: ms.breaker("stripe", pause=given).pause,
    "within": lambda given: ms.breaker("stripe", within=given).within,
    "every": lambda given: ms.watch("w", "select", every=given).every,
    "ttl": lambda given: dedupe.window(ttl=given).ttl,
    "wait": lambda given: dedupe.debounce(wait=given).wait,
    "interval": lambda given: ms.every(given).interval,
    "budget": lambda given: Run(budget=given).budget,
    "lease": lambda given: ms.WorkerConfig(lease=given).lease,
    "succeeded": lambda given: Retention(succeeded=given).succeeded,
    "answered_within": lambda given: seconds(ms.Client("", answered_within=given).seam.answered_within),
    "App.answered_within": lambda given: seconds(ms.App(dsn="", answered_within=given).answered_within),
    "Client.timeout": lambda given: seconds(patience_of(ms.Client("", timeout=given))),
    "grace": lambda given: Server(ms.App(dsn="dbname=x"), grace=given)._grace,
    "Http.timeout": lambda given: seconds(Http("x", "https://example.com", timeout=given).timeout),
    "Smtp.timeout": lambda given: seconds(Smtp("localhost", 25, sender="a@example.com", timeout=given)._timeout),
    "Notify.timeout": lambda given: seconds(Notify(timeout=given)._setup.timeout),
    "Spam.within": lambda given: Spam(within=given).within,
    "Stripe.timeout": lambda given: seconds(Stripe("sk_test_1", timeout=given).api.timeout),
    "Webhooks.timeout": lambda given: seconds(Webhooks(timeout=given).timeout),
    "tolerance": lambda given: Receiver(["whsec_" + "c2VjcmV0" * 4], tolerance=given)._tolerance,
}


@pytest.mark.parametrize("given", [MINUTE, 60, 60.0, "60s", "1m", "1 min", "60000ms", "59s 1000ms"], ids=str)
@pytest.mark.parametrize("field", BORDERS)
def test_a_minute_is_a_minute_everywhere(field: str, given: Span) -> None:
    assert BORDERS[field](given) == MINUTE


@pytest.mark.parametrize(
    "given", ["soon", "", "1 fortnight", True, float("nan"), float("inf"), 1e300, [], b"1s"], ids=repr
)
@pytest.mark.parametrize("field", BORDERS)
def test_what_is_no_time_span_is_refused_by_its_field(field: str, given: Any) -> None:
    with pytest.raises(ms.MainspringError, match=field.rpartition(".")[2]):
        BORDERS[field](given)


def test_fixed_takes_one_too() -> None:
    assert ms.fixed("1m", attempts=3) == ms.fixed(60, attempts=3) == ms.fixed(MINUTE, attempts=3)


def test_attempts_alone_keep_the_delays_of_the_category() -> None:
    policy = task().retry

    assert task(retry=3).retry == Retry(3, policy.base, policy.shape, policy.factor, policy.cap, policy.jitter)
    with pytest.raises(DeclarationError, match=r"^task work: retry: attempts: 0 is not between 1 and 1000$"):
        task(retry=0)
