"""Many notifications under faults: none is lost, none is told as sent that was not, and few come twice."""

from __future__ import annotations

from tests.contrib.senders.flood import run
from tests.databases import Database


def test_every_notification_is_delivered_or_dead_and_repeats_are_no_more_than_broken_lines(database: Database) -> None:
    result = run(database.dsn, count=300, seed=11, concurrency=20, patience=2)

    assert result.wrong == []
    assert (result.notifications, result.delivered, result.dead) == (300, 297, 3)
    assert result.duplicates <= result.drops + result.late
    assert {name.split()[1] for name in result.faults} == {"error", "slow", "timeout", "drop"}
