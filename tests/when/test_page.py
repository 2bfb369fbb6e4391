"""The table of the page about clock changes, row by row."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import get_args

import pytest
from tests.docs.pages import ROOT, table

import mainspring as ms
from mainspring.when.occurrences import Gap, Overlap

ROWS = table(ROOT / "docs" / "guides" / "dst.md", "## What happens where")


@pytest.mark.rule("STAFF-0.07")
@pytest.mark.parametrize(("expression", "zone", "day", "policy", "runs"), ROWS, ids=lambda cell: cell)
def test_the_page_says_what_happens(expression: str, zone: str, day: str, policy: str, runs: str) -> None:
    rule = ms.cron(
        expression.strip("`"),
        zone=zone,
        gap="skip" if policy == "skip" else "shift",
        overlap="last" if policy == "last" else "both" if policy == "both" else "first",
    )
    noon = datetime.fromisoformat(f"{day}T12:00+00:00")
    ticks = rule.ticks(noon - timedelta(days=2), noon + timedelta(days=2))
    found = [f"{tick.local:%H:%M%z}" for tick in ticks if f"{tick.local:%F}" == day]

    assert policy in {*get_args(Gap), *get_args(Overlap)}
    assert found == ([] if runs == "never" else runs.split(", "))


def test_the_table_is_read_whole() -> None:
    assert len(ROWS) == 23
