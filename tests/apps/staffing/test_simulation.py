"""A simulation of the marketplace is right to the minute; `make timeline` does the same for weeks and every zone."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.apps.staffing.timeline import DAY, check, record

from mainspring.embedded import Cluster

#: London changes its clocks on March 29, and Lord Howe goes back half an hour on April 5 (there).
BEGIN = datetime(2026, 3, 28, tzinfo=UTC)


@pytest.mark.rule("STAFF-0.07", "STAFF-1.05", "STAFF-9.06", "STAFF-19.16")
def test_every_instant_and_every_cent_of_a_week_is_as_the_clocks_and_the_books_say(volatile_cluster: Cluster) -> None:
    server = volatile_cluster.dsn("postgres")

    made = record(server, BEGIN, 9 * DAY, zones=("Europe/London", "Australia/Lord_Howe"))
    assert check(made) == []
    assert len(made.entries) > 1000

    short = [record(server, BEGIN, timedelta(hours=20), seed=seed, zones=("Asia/Kathmandu",)) for seed in (5, 5, 6)]
    assert short[0].digest == short[1].digest != short[2].digest
