"""The zone table of the staffing ledger, row by row, and the lengths of its local weeks."""

from __future__ import annotations

from datetime import datetime, timedelta
from itertools import pairwise

import pytest
from tests.docs.pages import ROOT, table

import mainspring as ms

LEDGER = ROOT / "docs" / "rules" / "staffing.md"
ROWS = table(LEDGER, "### Zone instants to test")
WEEKS = table(LEDGER, "Lengths of the local week (Monday 00:00 to Monday 00:00):")


@pytest.mark.rule("STAFF-0.07")
@pytest.mark.parametrize(("zone", "local", "expected"), [row[:3] for row in ROWS], ids=lambda cell: cell)
def test_a_local_time_is_one_exact_instant(zone: str, local: str, expected: str) -> None:
    day, time = local.split()
    rule = ms.daily(time, zone=zone)
    asked = datetime.fromisoformat(f"{day}T{time}+00:00")
    around = list(rule.ticks(asked - timedelta(days=3), asked + timedelta(days=3)))

    if expected == "none":
        assert [tick for tick in around if f"{tick.local:%F}" == day] == []
        assert {later.at - earlier.at for earlier, later in pairwise(around)} == {timedelta(days=1)}
    else:
        instant = datetime.fromisoformat(expected)
        near = [tick.at for tick in around if abs(tick.at - instant) < timedelta(hours=12)]
        assert near == [instant]


@pytest.mark.rule("STAFF-0.07")
@pytest.mark.parametrize(("zone", "monday", "hours"), WEEKS, ids=lambda cell: cell)
def test_a_local_week_is_as_long_as_the_clocks_make_it(zone: str, monday: str, hours: str) -> None:
    start = datetime.fromisoformat(f"{monday}T00:00+00:00")
    first, second = list(
        ms.weekly("mon", "00:00", zone=zone).ticks(start - timedelta(days=1), start + timedelta(days=8))
    )

    assert (second.at - first.at) / timedelta(hours=1) == float(hours)


def test_the_tables_are_read_whole() -> None:
    assert len(ROWS) == 31
    assert len(WEEKS) == 7
