"""A sample of `make oracle` with a new seed each time, and mistakes that it must see."""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any
from zoneinfo import available_timezones

import pytest
from tests.when.oracle import brute
from tests.when.oracle.brute import minute
from tests.when.oracle.compare import compare, compare_plainly

from mainspring.when.expression import Cron
from mainspring.when.occurrences import Gap, Overlap, occurrences
from mainspring.when.zones import stretch_at

SEED = random.SystemRandom().randrange(10**6)
ZONES = 4
#: Always looked at: jumps at midnight, of half an hour and of two hours.
ODD = ["America/Havana", "Australia/Lord_Howe", "Antarctica/Troll"]

Occurrences = Callable[[Cron, str, Gap, Overlap, int], Iterator[int]]


@pytest.mark.rule("STAFF-0.07")
def test_rules_agree_with_walked_minutes() -> None:
    rng = random.Random(SEED)
    zones = [*rng.sample(sorted(available_timezones() - {"localtime"}), ZONES), rng.choice(ODD)]
    for zone in zones:
        year = rng.randrange(2020, 2036)

        verdict = compare(zone, minute(year), minute(year + 1), rng, weeks=1)

        assert verdict.wrong == [], f"seed {SEED}"
        assert verdict.ticks > 1000


@pytest.mark.rule("STAFF-0.07")
def test_a_date_left_out_and_a_fold_over_midnight_agree_too() -> None:
    rng = random.Random(SEED)
    for zone, first in [
        ("Pacific/Apia", minute(2011, 12, 20)),
        ("Pacific/Kwajalein", minute(1993, 8, 10)),
        ("America/St_Johns", minute(2010, 11, 1)),
        ("Antarctica/Casey", minute(2023, 3, 1)),
    ]:
        verdict = compare(zone, first, first + 20 * brute.DAY, rng, weeks=1)

        assert verdict.wrong == [], f"seed {SEED}"


def both_halves(cron: Cron, zone: str, gap: Gap, overlap: Overlap, instant: int) -> Iterator[int]:
    return occurrences(cron, zone, gap, "both", instant)


def gap_skipped(cron: Cron, zone: str, gap: Gap, overlap: Overlap, instant: int) -> Iterator[int]:
    return occurrences(cron, zone, "skip", overlap, instant)


def an_hour_off(cron: Cron, zone: str, gap: Gap, overlap: Overlap, instant: int) -> Iterator[int]:
    """The offset of the day before: right but around changes."""
    for found in occurrences(cron, zone, gap, overlap, instant):
        yield found + stretch_at(zone, found).offset - stretch_at(zone, found - 86_400).offset


def a_minute_late(cron: Cron, zone: str, gap: Gap, overlap: Overlap, instant: int) -> Iterator[int]:
    return (found + 60 for found in occurrences(cron, zone, gap, overlap, instant))


def one_lost(cron: Cron, zone: str, gap: Gap, overlap: Overlap, instant: int) -> Iterator[int]:
    return islice(occurrences(cron, zone, gap, overlap, instant), 1, None)


def twice(cron: Cron, zone: str, gap: Gap, overlap: Overlap, instant: int) -> Iterator[int]:
    return (found for found in occurrences(cron, zone, gap, overlap, instant) for _ in range(2))


@pytest.mark.parametrize("mistake", [both_halves, gap_skipped, an_hour_off, a_minute_late, one_lost, twice])
def test_the_oracle_sees_a_planted_mistake(mistake: Occurrences, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.when.rule.occurrences", mistake)

    verdict = compare("America/New_York", minute(2026), minute(2027), random.Random(0), weeks=1)

    assert verdict.wrong


def test_the_plain_walk_sees_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    month = minute(2026, 9, 20), minute(2026, 10, 20)
    assert compare_plainly("Australia/Lord_Howe", *month).wrong == []

    monkeypatch.setattr("mainspring.when.rule.occurrences", gap_skipped)
    wrong = compare_plainly("Australia/Lord_Howe", *month).wrong

    assert "Australia/Lord_Howe 15 2 * * * shift first: missing 2026-10-03 15:30Z" in wrong


def test_the_oracle_shares_nothing_with_what_it_judges() -> None:
    source = Path(brute.__file__).read_text()

    assert not re.search(r"^\s*(?:from|import)\s+(?:mainspring|cronsim)", source, re.MULTILINE)


def test_the_command_ends_with_its_sum(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    from tests.when.oracle import __main__ as command

    def run(work: Any) -> Any:
        return work, compare("UTC", minute(2026), minute(2026, 1, 20), random.Random(0), 1)

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr("multiprocessing.Pool", Here)
    monkeypatch.setattr("sys.argv", ["oracle", "Asia/Tokyo"])

    assert command.main() == 0
    assert re.fullmatch(r"zones=1 rules=82 instants=\d+ wrong=0", capsys.readouterr().out.splitlines()[-1])

    monkeypatch.setattr("mainspring.when.rule.occurrences", a_minute_late)

    assert command.main() == 1
    assert "wrong=0" not in capsys.readouterr().out.splitlines()[-1]


class Here:
    """A pool of this process alone."""

    def __init__(self, processes: int) -> None:
        self.imap_unordered = map

    def __enter__(self) -> Here:
        return self

    def __exit__(self, *_: object) -> None: ...
