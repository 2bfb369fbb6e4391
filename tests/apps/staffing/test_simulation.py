"""A simulation of the marketplace is right to the minute; `make timeline` does the same for weeks and every zone."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pytest
from tests.apps.staffing.timeline import DAY, HOUR, check, record

from mainspring.embedded import Cluster

#: Wednesdays before a change of clocks: London's on March 29, and Lord Howe's, by half an hour, on April 5 (there).
CHANGES = (
    ("Europe/London", datetime(2026, 3, 25, tzinfo=UTC)),
    ("Australia/Lord_Howe", datetime(2026, 4, 1, tzinfo=UTC)),
)


@pytest.mark.rule("STAFF-0.07", "STAFF-1.05", "STAFF-9.06", "STAFF-19.16")
def test_every_instant_and_every_cent_is_as_the_clocks_and_the_books_say(volatile_cluster: Cluster) -> None:
    """One of the two changes, by the seed of the run, which pytest prints; `make timeline` has both."""
    server, (zone, begin) = volatile_cluster.dsn("postgres"), random.choice(CHANGES)

    made = record(server, begin, 4 * DAY + 6 * HOUR, zones=(zone,))
    assert check(made) == []
    assert len(made.entries) > 700

    short = [record(server, begin, timedelta(hours=4), seed=seed, zones=("Asia/Kathmandu",)) for seed in (5, 5, 6)]
    assert short[0].digest == short[1].digest != short[2].digest
