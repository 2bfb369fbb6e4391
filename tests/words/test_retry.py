from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mainspring.errors import DeclarationError
from mainspring.retry import Jitter, Retry, exponential, fixed

policies = st.builds(
    exponential,
    base=st.floats(0.001, 1e6),
    factor=st.floats(1, 1e300),
    cap=st.floats(0.001, 1e7),
    attempts=st.integers(1, 1000),
    jitter=st.sampled_from(["none", "equal", "full", "spread"]),
)
attempts = st.integers(1, 1000)
fractions = st.floats(0, 1, exclude_max=True)
TICK = timedelta(microseconds=1)


@given(policies, attempts, fractions)
def test_no_delay_is_above_the_cap(policy: Retry, attempt: int, fraction: float) -> None:
    assert timedelta(0) <= policy.delay(attempt, lambda: fraction) <= policy.cap


@pytest.mark.rule("ENG-7.07")
@given(policies, attempts)
def test_equal_jitter_stays_between_half_of_raw_and_raw(policy: Retry, attempt: int) -> None:
    policy = Retry(policy.attempts, policy.base, "exponential", policy.factor, policy.cap, "equal")
    raw = policy.raw(attempt)

    for _ in range(100):
        assert raw / 2 - TICK <= policy.delay(attempt, random.random) <= raw <= policy.cap


@pytest.mark.parametrize(
    ("jitter", "low", "high"), [("none", 8, 8), ("equal", 4, 8), ("full", 0, 8), ("spread", 6.4, 9.6)]
)
def test_each_jitter_spans_its_interval(jitter: Jitter, low: float, high: float) -> None:
    policy = exponential(base=2, cap=100, jitter=jitter)

    assert policy.delay(3, lambda: 0).total_seconds() == pytest.approx(low)
    assert policy.delay(3, lambda: 1 - 1e-12).total_seconds() == pytest.approx(high)


def test_spread_never_passes_the_cap() -> None:
    assert exponential(base=100, cap=100, jitter="spread").delay(1, lambda: 0.999) == timedelta(seconds=100)


@given(policies)
def test_raw_delays_never_shrink(policy: Retry) -> None:
    delays = [policy.raw(attempt) for attempt in (1, 2, 3, 64, 65, 66, 500, 1000)]

    assert delays == sorted(delays)


def test_a_slow_growth_still_reaches_its_cap() -> None:
    policy = exponential(base=5, factor=1.01, cap=300, attempts=1000)

    assert policy.raw(65) < policy.raw(66) < policy.raw(600) == timedelta(seconds=300)


@pytest.mark.parametrize(
    "wrong",
    [
        {"attempts": 0},
        {"attempts": 1001},
        {"base": timedelta(seconds=-1)},
        {"cap": timedelta(seconds=-1)},
        {"shape": "linear"},
        {"jitter": "some"},
        {"factor": 0.5},
        {"factor": float("nan")},
        {"factor": float("inf")},
    ],
)
def test_a_wrong_policy_is_refused_by_name(wrong: dict[str, Any]) -> None:
    with pytest.raises(DeclarationError, match=next(iter(wrong))):
        Retry(**{"attempts": 3, "base": timedelta(seconds=1), **wrong})


def test_a_policy_describes_itself() -> None:
    assert fixed(60, attempts=3).describe() == "3 attempts, 60 s apart"
    assert exponential().describe() == "5 attempts, 5 s growing by 2 up to 300 s, jitter equal"
