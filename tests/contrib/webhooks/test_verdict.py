"""What an answer means."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from mainspring.contrib.webhooks.response import Response
from mainspring.contrib.webhooks.verdict import failure, kept, retry_after
from mainspring.outcome import Failed, RetryAfter, decide
from mainspring.retry import listed
from mainspring.worker.classify import classify

NOW = datetime(2026, 3, 4, 10, tzinfo=UTC)
DAY = timedelta(days=1)

SAID = {
    "120": timedelta(seconds=120),
    " 7 ": timedelta(seconds=7),
    "0": timedelta(0),
    "99999999999999999999": DAY,
    "Wed, 04 Mar 2026 10:01:00 GMT": timedelta(minutes=1),
    "Wed, 04 Mar 2026 09:00:00 GMT": timedelta(0),
    "Wed, 04 Mar 2099 09:00:00 GMT": DAY,
    "": None,
    "soon": None,
    "-5": None,
    "1.5": None,
    "١٢": None,
    "Wed, 99 Mar 2026 10:01:00 GMT": None,
    "x" * 10_000: None,
}


@pytest.mark.parametrize(("said", "after"), SAID.items(), ids=[said[:30] for said in SAID])
def test_how_long_a_receiver_wants_to_be_left_alone(said: str, after: timedelta | None) -> None:
    assert retry_after(said, NOW) == after


@pytest.mark.rule("PASS-7.11")
def test_only_2xx_is_delivered_and_only_410_is_permanent() -> None:
    found = {status: failure(Response(status, {}, b"", False), NOW) for status in range(100, 600)}
    assert [status for status, error in found.items() if error is None] == list(range(200, 300))
    assert [status for status, error in found.items() if error and error.error_class == "permanent"] == [410]
    assert {error.code for status, error in found.items() if error and status != 410} == {"WebhookNon2xx"}


def test_a_hint_is_followed_for_longer_than_other_providers() -> None:
    class Job:
        attempt, max_attempts, suspect, waited = 1, 10, False, timedelta(0)

    hint = failure(Response(429, {"retry-after": "80000"}, b"", False), NOW)
    assert isinstance(hint, RetryAfter)
    outcome = classify(hint)
    assert isinstance(outcome, Failed)
    assert decide(Job(), outcome, listed(5)).delay == timedelta(seconds=80000)  # type: ignore[union-attr] # it fails
    assert hint.counts is False  # it is alive


def test_what_is_kept_masks_what_names_itself_a_secret() -> None:
    found = kept(Response(200, {"x-api-token": "abc", "x-note": "password=hunter2"}, b"\xff", True), None)
    assert found.headers == '{"x-api-token":"***","x-note":"password=***"}'
    assert (found.body, found.cut, found.error) == ("/w==", True, None)
