from __future__ import annotations

from datetime import UTC, datetime, timedelta

from msgspec.structs import replace
from tests.worker.claims import CLAIM

from mainspring.job import Claim
from mainspring.worker.bounds import BEGINNING, BOUND_MARGIN, RESCAN_AFTER_S, SCAN_DUTY, Bounds

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
NONE: set[str] = set()


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
    bounds.learn(found, NONE, bounded=False, now=later, started=10.0, ended=10.01)

    assert low(bounds, 10.02) == later - BOUND_MARGIN
    assert low(bounds, 10.02, "b", 0) == NOON - BOUND_MARGIN
    assert low(bounds, 10.02, "b", 2) == BEGINNING, "nothing is known of that lane"
    assert bounds.of(["a"], 10.02)[1], "something may be hidden"


def test_a_short_claim_is_repeated_at_once_from_the_beginning() -> None:
    bounds = Bounds()
    bounds.learn(claims(NOON), NONE, bounded=False, now=NOON, started=10.0, ended=10.01)
    bounds.learn([], {"a"}, bounded=True, now=NOON, started=10.02, ended=10.03)

    assert bounds.of(["a"], 10.03) == ([[BEGINNING]] * 4, False)


def test_a_short_claim_after_a_short_scan_does_not_bring_the_next_scan_forward() -> None:
    bounds = Bounds()
    bounds.learn([], {"a"}, bounded=False, now=NOON, started=10.0, ended=10.1)
    due = bounds.scan_at
    bounds.learn([], {"a"}, bounded=True, now=NOON, started=10.2, ended=10.21)
    assert (bounds.scan_at, bounds.hiding) == (due, False)

    bounds.learn(claims(NOON), NONE, bounded=True, now=NOON, started=10.3, ended=10.31)
    bounds.learn([], {"a"}, bounded=True, now=NOON, started=10.4, ended=10.41)
    assert (bounds.scan_at, bounds.hiding) == (due, True), "wanted at once, but not affordable before"


def test_even_under_full_claims_every_few_seconds_one_starts_at_the_beginning() -> None:
    bounds = Bounds()
    bounds.learn(claims(NOON), NONE, bounded=False, now=NOON, started=10.0, ended=10.0)

    assert bounds.of(["a"], 10.0 + RESCAN_AFTER_S - 0.01)[1]
    assert not bounds.of(["a"], 10.0 + RESCAN_AFTER_S)[1]


def test_a_slow_scan_from_the_beginning_takes_a_small_part_of_the_time() -> None:
    bounds = Bounds()
    bounds.learn([], {"a"}, bounded=False, now=NOON, started=10.0, ended=10.1)

    assert low(bounds, 10.1) == NOON - BOUND_MARGIN, "until then only what has come since"
    assert bounds.of(["a"], 10.1 + 0.1 * SCAN_DUTY - 0.01)[1]
    assert not bounds.of(["a"], 10.1 + 0.1 * SCAN_DUTY)[1]


def test_without_the_time_of_the_database_nothing_is_hidden() -> None:
    bounds = Bounds()
    bounds.learn([], {"a"}, bounded=False, now=None, started=10.0, ended=10.1)

    assert low(bounds, 10.1) == BEGINNING


def test_a_queue_that_gave_its_whole_share_hides_nothing_though_the_others_are_dry() -> None:
    bounds = Bounds()
    bounds.learn(claims(NOON), {"b"}, bounded=False, now=NOON + timedelta(hours=1), started=10.0, ended=10.1)

    assert low(bounds, 10.1) == NOON - BOUND_MARGIN, "the rest of the backlog is seen"
    assert low(bounds, 10.1, priority=3) == BEGINNING, "nothing is known of that lane"
    assert low(bounds, 10.1, "b") == NOON + timedelta(hours=1) - BOUND_MARGIN
    assert not bounds.of(["a"], 10.1 + 0.1 * SCAN_DUTY)[1], (
        "the dry one is looked at again as often as that is affordable"
    )


def test_only_a_queue_that_had_more_and_is_dry_now_brings_the_next_scan_forward() -> None:
    bounds = Bounds()
    bounds.learn(claims(NOON), NONE, bounded=False, now=NOON, started=10.0, ended=10.01)
    due = bounds.scan_at
    bounds.learn(claims(NOON), {"b"}, bounded=True, now=NOON, started=10.02, ended=10.03)
    assert bounds.scan_at == due

    bounds.learn(claims(NOON, queue="b"), {"a"}, bounded=True, now=NOON, started=10.04, ended=10.05)
    assert bounds.scan_at == 10.05


def test_a_rescued_job_says_nothing_about_the_others_of_its_lane() -> None:
    bounds = Bounds()
    (job,) = claims(NOON)
    bounds.learn([replace(job, crashes=1)], NONE, bounded=False, now=NOON, started=10.0, ended=10.01)

    assert low(bounds, 10.02) == BEGINNING
