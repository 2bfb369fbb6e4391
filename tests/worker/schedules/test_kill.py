"""A scheduler that is killed in the middle of a fan-out, in real processes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.databases import Database
from tests.worker.schedules import house, storm

from mainspring.virtual.clock import Clock

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)
COUNT = 10_000


def test_fan_out_that_is_killed_in_the_middle_makes_each_job_once(database: Database) -> None:
    with database.connect() as conn:
        conn.execute("create table entity (id int primary key)")
        conn.execute("insert into entity select generate_series(1, %s::int)", [COUNT])
        clock = Clock(conn)
        clock.set(MONDAY)

        def made() -> int:
            row = conn.execute("select coalesce(sum(jobs), 0)::int from mainspring.fan_out").fetchone()
            assert row is not None
            return int(row[0])

        kills = 0
        process = house.start(database.dsn, "fan-out")
        try:
            house.ready(process)
            waiting = "select from mainspring.schedule_zone where next_at > mainspring.now()"
            house.until(lambda: conn.execute(waiting).fetchone() is not None)
            clock.set(MONDAY + timedelta(hours=10))
            for share in (0.2, 0.6):
                house.until(lambda share=share: made() >= COUNT * share)  # type: ignore[misc]
                house.kill(process)
                kills += made() < COUNT
                process = house.start(database.dsn, "fan-out")
            house.until(lambda: made() >= COUNT)
        finally:
            house.kill(process)
        entities = "count(*), count(distinct payload ->> 'entity'), min((payload ->> 'entity')::int)"
        found = conn.execute(f"select {entities} from mainspring.job").fetchone()
        fires = conn.execute("select count(*) from mainspring.fire").fetchone()
    assert kills == 2
    assert found == (COUNT, COUNT, 1)
    assert fires == (1,)


@pytest.mark.rule("ENG-13.07", "STAFF-0.09")
def test_killed_schedulers_neither_repeat_nor_miss_a_tick(database: Database) -> None:
    result = storm.run(database.dsn, ticks=3000, schedulers=3, kills=4, seed=7)
    assert (result.duplicate, result.missing) == (0, 0)
    assert result.ticks == result.fires >= 3000
    assert result.kills == 4
