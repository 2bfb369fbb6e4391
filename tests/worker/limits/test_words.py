from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.worker.limits.windows import largest

import mainspring as ms
from mainspring.errors import DeclarationError
from mainspring.limit import Limit, check_declared, owner


def test_limits_have_stable_names_and_say_what_they_are() -> None:
    found = [
        ms.rate("weekly-payments", 50, per="1s"),
        ms.rate(task="send_sms", most=10, per=timedelta(minutes=1), by="org"),
        ms.concurrency("q:exports", 2),
        ms.concurrency(task="export", most=1, by="strand", name="one-export"),
        ms.in_order(task="close_booking"),
        ms.in_order("a/b"),
    ]
    assert [(limit.name, limit.target, limit.words) for limit in found] == [
        ("rate:weekly-payments", "queue weekly-payments", "50 per 1 s"),
        ("rate:send_sms:org", "task send_sms", "10 per 1 min for each organisation"),
        ("concurrency:q:exports", "queue q:exports", "2 at once"),
        ("one-export", "task export", "1 at once for each strand"),
        ("order:close_booking", "task close_booking", "one after another for each strand"),
        ("order:a-b", "queue a/b", "one after another for each strand"),
    ]


@pytest.mark.parametrize(
    ("make", "said", "field"),
    [
        (ms.rate, {"queue": "q", "most": 5, "per": "1 fortnight"}, "per"),
        (ms.rate, {"queue": "q", "most": 5, "per": "1.5s"}, "per"),
        (ms.rate, {"queue": "q", "most": 5, "per": "-1s"}, "per"),
        (ms.rate, {"queue": "q", "most": 5, "per": "s"}, "per"),
        (ms.rate, {"queue": "q", "most": 5, "per": "99ms"}, "per"),
        (ms.rate, {"queue": "q", "most": 5, "per": "25h"}, "per"),
        (ms.rate, {"queue": "q", "most": 5, "per": "٣s"}, "per"),
        (ms.rate, {"queue": "q", "most": 5, "per": True}, "per"),
        (ms.rate, {"queue": "q", "most": 5, "per": None}, "per"),
        (ms.rate, {"queue": "q", "most": 0, "per": "1s"}, "most"),
        (ms.rate, {"queue": "q", "most": True, "per": "1s"}, "most"),
        (ms.rate, {"queue": "q", "most": 10**7, "per": "1s"}, "most"),
        (ms.rate, {"queue": "q", "per": "1s"}, "most"),
        (ms.rate, {"most": 5, "per": "1s"}, "queue"),
        (ms.rate, {"queue": "q", "task": "t", "most": 5, "per": "1s"}, "queue"),
        (ms.rate, {"queue": "", "most": 5, "per": "1s"}, "queue"),
        (ms.rate, {"queue": "q:deadletter", "most": 5, "per": "1s"}, "queue"),
        (ms.rate, {"queue": "x" * 64, "most": 5, "per": "1s"}, "queue"),
        (ms.rate, {"queue": "q\x00", "most": 5, "per": "1s"}, "name"),
        (ms.rate, {"task": "x" * 201, "most": 5, "per": "1s"}, "task"),
        (ms.rate, {"queue": "q", "most": 5, "per": "1s", "by": "orgs"}, "by"),
        (ms.rate, {"queue": "q", "most": 5, "per": "1s", "name": "a/b"}, "name"),
        (ms.rate, {"queue": "q", "most": 5, "per": "1s", "name": ""}, "name"),
        (ms.concurrency, {"queue": "q", "most": "two"}, "most"),
        (ms.concurrency, {"queue": "q"}, "most"),
        (ms.in_order, {}, "queue"),
        (Limit, {"name": "n", "queue": "q", "concurrency": 2, "in_order": True, "by": "strand"}, "in_order"),
        (Limit, {"name": "n", "queue": "q", "concurrency": 2, "per": timedelta(1)}, "per"),
        (Limit, {"name": "n", "queue": "q", "rate": 2, "concurrency": 2}, "rate"),
        (ms.fair, {"queue": "q:deadletter"}, "queue"),
        (ms.fair, {"queue": "q", "weights": {"acme": 0}}, "weights"),
        (ms.fair, {"queue": "q", "weights": {"": 2}}, "weights"),
        (ms.fair, {"queue": "q", "weights": ["acme"]}, "weights"),
    ],
)
def test_wrong_limits_are_refused_by_the_field(make: Any, said: dict[str, Any], field: str) -> None:
    with pytest.raises(ms.ValidationError) as caught:
        make(**said)
    assert caught.value.field == field
    assert str(caught.value).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("limits", "problem"),
    [
        ([ms.rate(task="sned", most=5, per="1s")], r"no task is called 'sned' \(did you mean 'send'\?\)"),
        ([ms.rate("mial", 5, per="1s")], r"no task runs on queue 'mial' \(did you mean 'mail'\?\)"),
        ([ms.fair("mial")], "no task runs on queue 'mial'"),
        ([ms.rate("mail", 5, per="1s"), ms.rate("mail", 6, per="1s")], "rate:mail is declared twice"),
        (["mail"], "a str is no limit"),
    ],
)
def test_an_application_names_what_it_has(limits: Any, problem: str) -> None:
    with pytest.raises(DeclarationError, match=problem):
        check_declared(limits, ["send"], ["mail"])


def test_a_worker_of_an_application_with_a_wrong_limit_is_not_made() -> None:
    tasks = ms.Registry("shop")
    app = ms.App(tasks, dsn="postgresql://nowhere/x", limits=[ms.rate("mail", 5, per="1s")], maintenance=False)
    with pytest.raises(DeclarationError, match="no task runs on queue 'mail'"):
        app.worker()


def test_an_application_is_known_by_its_registries() -> None:
    first, second = ms.Registry("b"), ms.Registry("a")
    assert owner(ms.App(first, second, dsn="").registry.origins()) == "a, b"
    assert owner(ms.App(dsn="").registry.origins()) == "app"


def test_the_checker_sees_twice_the_rate_at_the_border_of_fixed_windows() -> None:
    """A limiter that counts by the clock's seconds lets N in at the end of one and N at the beginning of the next."""

    def fixed_window(arrivals: list[float], rate: int, per: float) -> list[float]:
        counts: dict[int, int] = {}
        entered = []
        for at in arrivals:
            now = at
            while counts.get(int(now // per), 0) >= rate:
                now = (now // per + 1) * per
            counts[int(now // per)] = counts.get(int(now // per), 0) + 1
            entered.append(now)
        return entered

    planted = fixed_window([0.9 + n / 1000 for n in range(100)], 50, 1.0)
    assert largest(planted, 1.0) == 100
    assert largest([n * 20 for n in range(200)], 1000) == 50
    assert largest([], 1.0) == 0
