from __future__ import annotations

import pickle
from dataclasses import dataclass
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.documents import ALL_CATEGORIES

from mainspring.codes import CODES, ErrorClass
from mainspring.errors import ValidationError
from mainspring.outcome import (
    Complete,
    Deferred,
    Error,
    Failed,
    Failure,
    Interrupted,
    Move,
    Permanent,
    RetryAfter,
    Snooze,
    Snoozed,
    Stopped,
    Succeeded,
    decide,
)
from mainspring.retry import exponential, fixed

MINUTE = fixed(60, attempts=3)


@dataclass(frozen=True)
class Attempt:
    attempt: int = 1
    max_attempts: int = 5
    suspect: bool = False
    waited: timedelta = timedelta(0)


def failed(error_class: ErrorClass = "retryable", after: float | None = None) -> Failed:
    return Failed(Error("X", error_class, "it failed"), None if after is None else timedelta(seconds=after))


def test_a_handler_that_returns_completes_its_job() -> None:
    assert decide(Attempt(), Succeeded({"id": 7}), MINUTE) == Complete({"id": 7})


def test_a_retryable_failure_is_tried_again_after_the_delay_of_the_policy() -> None:
    outcome = failed()

    assert decide(Attempt(), outcome, MINUTE) == Move("fail", timedelta(minutes=1), outcome.error)


@pytest.mark.rule("ENG-7.01")
@given(limit=st.integers(1, 1000), attempts_of_the_policy=st.integers(1, 1000))
def test_a_job_is_tried_exactly_as_often_as_its_own_row_says(limit: int, attempts_of_the_policy: int) -> None:
    policy = fixed(1, attempts=attempts_of_the_policy)
    verbs = [decide(Attempt(n, limit), failed(), policy).verb for n in range(max(1, limit - 2), limit + 1)]  # type: ignore[union-attr]

    assert verbs[:-1] == ["fail"] * (len(verbs) - 1)
    assert verbs[-1] == "bury"


@pytest.mark.rule("ENG-7.04", "ENG-7.05")
@pytest.mark.parametrize(
    ("category", "limit"), [("notifications", 10), ("planning", 3), ("exports", 5), ("passport", 5)]
)
def test_the_last_attempt_of_a_category_buries_the_job(category: str, limit: int) -> None:
    policy = ALL_CATEGORIES[category].retry
    moves = [decide(Attempt(n, policy.attempts), failed(), policy) for n in (limit - 1, limit)]

    assert [move.verb for move in moves if isinstance(move, Move)] == ["fail", "bury"]


@pytest.mark.rule("ENG-8.04", "ENG-8.08")
@pytest.mark.parametrize("attempt", [1, 4, 5])
def test_a_permanent_failure_is_judged_before_the_number_of_attempts(attempt: int) -> None:
    outcome = failed("permanent")

    assert decide(Attempt(attempt), outcome, MINUTE) == Move("reject", error=outcome.error)


def test_a_permanent_failure_after_a_replay_is_poison() -> None:
    outcome = failed("permanent")

    assert decide(Attempt(suspect=True), outcome, MINUTE) == Move("bury", error=outcome.error)


@pytest.mark.rule("ENG-7.08")
@given(hint=st.floats(0, 1e6), base=st.floats(0, 7200))
def test_a_hint_is_followed_up_to_an_hour(hint: float, base: float) -> None:
    own = timedelta(seconds=base)
    move = decide(Attempt(), failed(after=hint), exponential(base=base, cap=7200, jitter="none"))

    assert isinstance(move, Move)
    assert move.delay is not None
    assert move.delay >= min(timedelta(seconds=hint), timedelta(hours=1))
    assert own <= move.delay <= max(own, timedelta(hours=1))


def test_snoozing_is_free_until_its_limit() -> None:
    day = timedelta(days=1)

    assert decide(Attempt(5, 5), Snoozed(day), MINUTE) == Move("snooze", day)
    assert decide(Attempt(waited=6 * day), Snoozed(day), MINUTE, snooze_limit=7 * day) == Move("snooze", day)
    move = decide(Attempt(waited=6.5 * day), Snoozed(day), MINUTE, snooze_limit=7 * day)
    assert isinstance(move, Move)
    assert move.verb == "bury"
    assert move.error is not None
    assert move.error.code == "SNOOZED_TOO_LONG"


def test_a_stopped_job_is_cancelled_and_an_interrupted_one_given_back() -> None:
    assert decide(Attempt(5, 5), Stopped(), MINUTE) == Move("stop")
    assert decide(Attempt(5, 5), Interrupted(), MINUTE) == Move("release")


def test_a_job_that_a_gate_stops_is_deferred_and_not_attempted() -> None:
    stopped = Deferred(timedelta(minutes=1), "breaker:stripe", started=True)

    move = Move("defer", timedelta(minutes=1), started=True, gate="breaker:stripe")
    assert decide(Attempt(5, 5), stopped, MINUTE) == move


@pytest.mark.rule("ENG-8.01", "ENG-8.02", "ENG-8.03", "ENG-8.04", "ENG-8.05")
@pytest.mark.parametrize("code", CODES)
def test_the_code_that_a_handler_raises_decides_whether_it_is_tried_again(code: str) -> None:
    raised = Failure(code=code)
    move = decide(Attempt(), Failed(Error(raised.code, raised.error_class, str(raised))), MINUTE)

    assert isinstance(move, Move)
    assert move.verb == {"retryable": "fail", "permanent": "reject"}[CODES[code].error_class]
    assert str(raised) == CODES[code].text


def test_a_failure_that_nobody_classified_is_an_internal_error_and_retryable() -> None:
    assert Failure("boom").code == "INTERNAL_ERROR"
    assert Failure("boom").error_class == "retryable"
    assert Failure("boom", code="NEVER_HEARD_OF").error_class == "retryable"


@pytest.mark.rule("ENG-8.02", "ENG-8.04")
def test_a_rate_limit_is_retryable_and_a_broken_rule_permanent() -> None:
    assert (RetryAfter(120).code, RetryAfter(120).error_class) == ("RATE_LIMITED", "retryable")
    assert (Permanent("closed").code, Permanent("closed").error_class) == ("BUSINESS_RULE", "permanent")
    assert Permanent("odd", code="TIMEOUT").error_class == "permanent"
    with pytest.raises(ValidationError, match=r"^after: is negative"):
        RetryAfter(-1)


def test_a_job_cannot_be_snoozed_into_the_past() -> None:
    with pytest.raises(ValueError, match="past"):
        Snooze(-1)


@pytest.mark.parametrize(
    "raised",
    [Failure("x", code="TIMEOUT"), Permanent("no"), RetryAfter(5, "busy"), Snooze(timedelta(hours=1))],
    ids=lambda raised: type(raised).__name__,
)
def test_what_a_handler_raises_survives_the_border_of_its_process(raised: Exception) -> None:
    copy = pickle.loads(pickle.dumps(raised))

    assert (type(copy), copy.args, vars(copy)) == (type(raised), raised.args, vars(raised))
