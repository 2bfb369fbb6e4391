"""Keys: sent as they are or by what stands for them, and judged by the database's time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from mainspring import ValidationError
from mainspring.contrib.stripe.keys import LONGEST_STRIPE_KEY, fit, recall
from mainspring.job import Claim

NOW = datetime(2026, 6, 3, 14, tzinfo=UTC)
ID = UUID(int=7)


def job(age: timedelta) -> Claim:
    made: dict[str, Any] = dict.fromkeys(Claim.__struct_fields__)
    return Claim(**made | {"id": ID, "created_at": NOW - age, "claimed_at": NOW})


@pytest.mark.rule("STAFF-19.01", "STAFF-19.02")
@pytest.mark.parametrize("key", ["charge:7:2026-06-08:1", "transfer:9", "refund:9:Penalty", "x" * LONGEST_STRIPE_KEY])
def test_a_key_that_fits_is_sent_as_it_is(key: str) -> None:
    assert fit(key) == key


@pytest.mark.parametrize(
    "key", ["x" * (LONGEST_STRIPE_KEY + 1), "y" * (LONGEST_STRIPE_KEY + 1), "bücher:1", "a\nb", "a\x00", "\ud800"]
)
def test_another_key_has_one_that_stands_for_it(key: str) -> None:
    assert fit(key) == fit(key)
    assert fit(key).startswith("sha256:")
    assert len(fit(key)) <= LONGEST_STRIPE_KEY
    assert fit(key) != fit(key + "z")


@pytest.mark.parametrize("key", ["", None, 7])
def test_a_key_must_be_there(key: Any) -> None:
    with pytest.raises(ValidationError, match="key: is missing"):
        fit(key)


HOURS = timedelta(hours=1)


@pytest.mark.parametrize(
    ("key", "since", "age", "look"),
    [
        (str(ID), None, 22 * HOURS, False),  # the job's own: not sent before the job was made
        (f"{ID}:pay", None, 22 * HOURS, False),
        (f"{ID}:pay", None, 24 * HOURS, True),
        ("charge:7", None, 0 * HOURS, True),  # perhaps another job's, long ago
        ("charge:7", NOW - 22 * HOURS, 90 * HOURS, False),
        ("charge:7", NOW - 24 * HOURS, 0 * HOURS, True),
        (str(ID), NOW - 24 * HOURS, 0 * HOURS, True),
    ],
)
def test_stripe_is_asked_first_when_it_may_have_forgotten(
    key: str, since: datetime | None, age: timedelta, look: bool
) -> None:
    assert recall(key, since, job(age)).look is look


def test_without_a_job_nobody_knows_the_time_and_stripe_is_asked() -> None:
    assert recall("charge:7", NOW, None) == (True, NOW)
    assert recall("charge:7", None, None) == (True, None)


def test_a_time_without_a_zone_is_refused() -> None:
    with pytest.raises(ValidationError, match="since: has no time zone"):
        recall("charge:7", NOW.replace(tzinfo=None), None)
