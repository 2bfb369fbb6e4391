from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace
from tests.worker.claims import CLAIM

from mainspring.job import Claim
from mainspring.worker.bounds import BEGINNING, DUTY, MARGIN, RESCAN, Bounds

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


def claims(*due: datetime, queue: str = "a", priority: int = 2) -> list[Claim]:
    return [replace(CLAIM, queue=queue, priority=priority, due_at=at) for at in due]


def low(bounds: Bounds, now: float, queue: str = "a", priority: int = 2) -> datetime:
    return bounds.of([queue], now)[0][priority][0]


def test_the_first_claim_starts_at_the_beginning() -> None:
    assert Bounds().of(["a", "b"], now=1.0) == ([[BEGINNING, BEGINNING]] * 4, False)


def test_after_a_full_claim_the_next_starts_a_little_below_the_last_due_time_of_each_lane() -> None:
    bounds = Bounds()
    later = NOON + timedelta(seconds=5)
    found = [*claims(NOON, later), *claims(NOON, queue="b", priority=0)]
    bounds.learn(found, bounded=False, full=True, now=later, started=10.0, ended=10.01)

    assert low(bounds, 10.02) == later - MARGIN
    assert low(bounds, 10.02, "b", 0) == NOON - MARGIN
    assert low(bounds, 10.02, "b", 2) == BEGINNING, "nothing is known of that lane"
    assert bounds.of(["a"], 10.02)[1], "something may be hidden"


def test_a_short_claim_is_repeated_at_once_from_the_beginning() -> None:
    bounds = Bounds()
    bounds.learn(claims(NOON), bounded=False, full=True, now=NOON, started=10.0, ended=10.01)
    bounds.learn([], bounded=True, full=False, now=NOON, started=10.02, ended=10.03)

    assert bounds.of(["a"], 10.03) == ([[BEGINNING]] * 4, False)


def test_a_short_claim_after_a_short_scan_does_not_bring_the_next_scan_forward() -> None:
    bounds = Bounds()
    bounds.learn([], bounded=False, full=False, now=NOON, started=10.0, ended=10.1)
    due = bounds.scan_at
    bounds.learn([], bounded=True, full=False, now=NOON, started=10.2, ended=10.21)
    assert (bounds.scan_at, bounds.hiding) == (due, False)

    bounds.learn(claims(NOON), bounded=True, full=True, now=NOON, started=10.3, ended=10.31)
    bounds.learn([], bounded=True, full=False, now=NOON, started=10.4, ended=10.41)
    assert (bounds.scan_at, bounds.hiding) == (due, True), "wanted at once, but not affordable before"


def test_even_under_full_claims_every_few_seconds_one_starts_at_the_beginning() -> None:
    bounds = Bounds()
    bounds.learn(claims(NOON), bounded=False, full=True, now=NOON, started=10.0, ended=10.0)

    assert bounds.of(["a"], 10.0 + RESCAN - 0.01)[1]
    assert not bounds.of(["a"], 10.0 + RESCAN)[1]


def test_a_slow_scan_from_the_beginning_takes_a_small_part_of_the_time() -> None:
    bounds = Bounds()
    bounds.learn([], bounded=False, full=False, now=NOON, started=10.0, ended=10.1)

    assert low(bounds, 10.1) == NOON - MARGIN, "until then only what has come since"
    assert bounds.of(["a"], 10.1 + 0.1 * DUTY - 0.01)[1]
    assert not bounds.of(["a"], 10.1 + 0.1 * DUTY)[1]


def test_without_the_time_of_the_database_nothing_is_hidden() -> None:
    bounds = Bounds()
    bounds.learn([], bounded=False, full=False, now=None, started=10.0, ended=10.1)

    assert low(bounds, 10.1) == BEGINNING
