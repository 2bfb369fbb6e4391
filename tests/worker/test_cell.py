"""The process for jobs that run alone, seen from the worker that starts it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any, TypeVar

import psycopg
import pytest
from tests.worker.stage import Stage

from mainspring.db.wire.sql import Sql
from mainspring.worker.cell import Cell
from mainspring.worker.connection import SharedConnection

pytestmark = pytest.mark.anyio

T = TypeVar("T")


class Cut(SharedConnection):
    """A connection whose database is away at first."""

    away = 1

    async def use(self, do: Callable[[psycopg.AsyncConnection[Any]], Awaitable[T]]) -> T:
        if self.away:
            self.away -= 1
            raise psycopg.OperationalError("the database is away")
        return await super().use(do)


def claim_as(stage: Stage, worker: str) -> None:
    """A job that a process for jobs that run alone has claimed."""
    sql, low = Sql("mainspring"), ["-infinity"]
    about = {"id": worker, "host": "h", "pid": 1, "version": "1", "queues": [], "tasks": [], "concurrency": 1}
    stage.conn.execute(sql["beat"], about | {"running": 1, "stopping": False, "watched": True})
    stage.conn.execute("select mainspring.enqueue('t')")
    stage.conn.execute(
        sql["claim"],
        [worker, timedelta(minutes=1), 1, ["q:default"], [1], low, low, low, low, ["t"], False, 0, False, None],
    )
    stage.conn.commit()


@pytest.mark.rule("ENG-3.08")
async def test_a_lease_that_a_process_leaves_behind_ends_at_once_and_is_no_crash_if_it_ended_in_good_order(
    stage: Stage,
) -> None:
    claim_as(stage, "w:1")
    connection, died = SharedConnection(stage.dsn, "test", prepare=False), list[str]()
    cell = Cell(["--help"], "w", connection, Sql("mainspring"), 1.0, lambda: died.append("w:1"))  # which ends with 0
    cell.want()
    await cell.tick()
    await connection.close()

    assert died == ["w:1"]
    ended = stage.conn.execute("select lease_expires_at < mainspring.now() from mainspring.running").fetchall()
    assert ended == [(True,)]
    stage.rows("update mainspring.running set crashes = 2")
    stage.rows("select mainspring.rescue(10, 3)")
    assert stage.rows("select crashes from mainspring.waiting") == [(2,)]


@pytest.mark.rule("ENG-3.08")
async def test_a_death_that_was_seen_while_the_database_was_away_is_told_when_it_is_back(stage: Stage) -> None:
    """Else it would look like a death that nobody saw, and a killer would be let in once more."""
    sql, died = Sql("mainspring"), list[str]()
    claim_as(stage, "w:1")
    connection = Cut(stage.dsn, "test", prepare=False)
    cell = Cell(["no-such-command"], "w", connection, sql, 1.0, lambda: died.append("w:1"))
    cell.want()

    with pytest.raises(psycopg.OperationalError):
        await cell.tick()
    assert not died
    await cell.tick()
    await connection.close()

    assert died == ["w:1"]
    assert stage.conn.execute("select count(*) from mainspring.worker").fetchall() == [(0,)]
    ended = stage.conn.execute("select lease_expires_at < mainspring.now() from mainspring.running").fetchall()
    assert ended == [(True,)]


@pytest.mark.rule("ENG-3.08")
async def test_a_job_whose_process_was_stopped_before_it_could_be_given_back_has_crashed_nothing(stage: Stage) -> None:
    """The database was away while the worker stopped: it counts as little as a death that nobody saw."""
    claim_as(stage, "w:1")
    stage.rows("update mainspring.running set crashes = 2")
    connection, died = SharedConnection(stage.dsn, "test", prepare=False), list[str]()
    cell = Cell(["no-such-command"], "w", connection, Sql("mainspring"), 1.0, lambda: died.append("w:1"))
    cell.want()
    running = asyncio.create_task(cell.tick())
    await asyncio.sleep(0)
    cell.terminate()
    await running
    await connection.close()

    stage.rows("select mainspring.rescue(10, 3)")  # nobody waits for its lease
    assert (died, stage.rows("select crashes, attempt from mainspring.waiting")) == (["w:1"], [(2, 0)])
