from __future__ import annotations

from datetime import timedelta

import pytest
from tests.documents import ALL_CATEGORIES, BILLING, PASSPORT, PLANNING_QUEUES, RENTAL

import mainspring as ms
from mainspring.category import CATEGORIES
from mainspring.errors import DeclarationError
from mainspring.queue import QUEUES
from mainspring.retry import exponential


def raw_seconds(category: str, attempt: int) -> float:
    return ALL_CATEGORIES[category].retry.raw(attempt).total_seconds()


@pytest.mark.rule("ENG-7.02")
def test_the_default_policy_is_five_attempts_from_five_seconds_to_five_minutes() -> None:
    for name in ("default", "critical", "audit", "maintenance"):
        assert CATEGORIES[name].retry == exponential(base=5, factor=2, cap=300, attempts=5, jitter="equal")


@pytest.mark.rule("ENG-7.03")
def test_rental_tries_three_times_a_minute_apart() -> None:
    policy = RENTAL.retry

    assert (policy.attempts, policy.shape) == (3, "fixed")
    assert [policy.delay(attempt) for attempt in (1, 2)] == [timedelta(minutes=1)] * 2


@pytest.mark.rule("ENG-7.04")
def test_notifications_planning_and_exports_have_their_own_limits() -> None:
    policies = {name: ALL_CATEGORIES[name].retry for name in ("notifications", "planning", "exports")}

    assert {name: policy.attempts for name, policy in policies.items()} == {
        "notifications": 10,
        "planning": 3,
        "exports": 5,
    }
    assert {name: policy.cap for name, policy in policies.items()} == {
        "notifications": timedelta(minutes=30),
        "planning": timedelta(minutes=2),
        "exports": timedelta(minutes=10),
    }
    assert raw_seconds("notifications", 9) == 1280


@pytest.mark.rule("ENG-7.05")
def test_passport_waits_two_to_the_power_of_the_attempt() -> None:
    policy = PASSPORT.retry

    assert [policy.delay(attempt).total_seconds() for attempt in (1, 2, 3, 4)] == [2, 4, 8, 16]
    assert policy.delay(11).total_seconds() == 1024
    assert policy.attempts == 5


def test_billing_backs_off_up_to_half_an_hour() -> None:
    assert BILLING.retry == exponential(base=30, cap=1800, attempts=10)


@pytest.mark.rule("ENG-10.02", "ENG-10.03", "ENG-10.04", "ENG-10.05")
@pytest.mark.parametrize(
    ("category", "queue"),
    [
        ("default", "q:default"),
        ("critical", "q:critical"),
        ("notifications", "q:notifications"),
        ("planning", "q:planning"),
        ("exports", "q:exports"),
        ("maintenance", "q:maintenance"),
    ],
)
def test_each_category_has_its_queue(category: str, queue: str) -> None:
    assert ALL_CATEGORIES[category].queue == queue
    assert queue in (*QUEUES, *(queue.name for queue in PLANNING_QUEUES))


def test_the_engine_has_no_category_of_an_application() -> None:
    assert list(CATEGORIES) == ["default", "critical", "audit", "maintenance", "notifications"]
    assert {category.queue for category in CATEGORIES.values()} < set(QUEUES)


def test_a_category_has_the_defaults_of_the_default_one() -> None:
    default, own = CATEGORIES["default"], ms.Category("own")

    assert (own.queue, own.retry, own.key_ttl) == (default.queue, default.retry, default.key_ttl)


@pytest.mark.parametrize(
    ("said", "complaint"),
    [
        ({"name": ""}, "category: its name"),
        ({"queue": ""}, "category own: queue"),
        ({"queue": "q:deadletter"}, "category own: queue q:deadletter holds dead jobs"),
        ({"retry": 3}, "category own: retry is not a policy"),
        ({"key_ttl": "soon"}, "category own: key_ttl is not a time span"),
        ({"key_ttl": -1}, "category own: key_ttl is negative"),
    ],
)
def test_a_category_that_cannot_work_is_refused_where_it_is_declared(said: dict[str, object], complaint: str) -> None:
    with pytest.raises(DeclarationError, match=complaint):
        ms.Category(**{"name": "own"} | said)  # type: ignore[arg-type]  # wrong on purpose


def test_keys_are_remembered_as_long_as_their_category_says() -> None:
    days = {name: category.key_ttl.days if category.key_ttl else None for name, category in ALL_CATEGORIES.items()}

    assert days == {
        "default": 30,
        "critical": 30,
        "audit": 30,
        "maintenance": 7,
        "notifications": 7,
        "planning": 30,
        "exports": 30,
        "rental": None,
        "billing": None,
        "passport": 30,
    }
