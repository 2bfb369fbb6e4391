"""The sealer: seals for everybody, soon, and leaves those alone who only drain a queue."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.client.audit.conftest import note
from tests.databases import Database
from tests.db.engine import Engine

from mainspring.config import WorkerConfig
from mainspring.db.wire.sql import Sql
from mainspring.worker.connection import SharedConnection
from mainspring.worker.sealer import LOOKS_OF_A_ROUND, Sealer

pytestmark = pytest.mark.anyio


@pytest.fixture
async def sealer(database: Database) -> AsyncIterator[Sealer]:
    line = SharedConnection(database.dsn, "sealer", prepare=True)
    yield Sealer(line, Sql(), WorkerConfig())
    await line.close()


def sealed(engine: Engine) -> dict[str, int]:
    return dict(engine.rows("select org_id, sum(cardinality(ids))::int from mainspring.seal group by 1"))


async def test_new_events_of_every_organisation_are_sealed_from_the_second_tick_on(
    engine: Engine, sealer: Sealer
) -> None:
    note(engine, "a")
    note(engine, "b")
    await sealer.tick()
    assert sealed(engine) == {}

    await sealer.tick()
    assert sealed(engine) == {"a": 1, "b": 1}
    note(engine, "b")
    await sealer.tick()
    assert sealed(engine) == {"a": 1, "b": 2}


async def test_nothing_new_costs_one_question(engine: Engine, sealer: Sealer, monkeypatch: pytest.MonkeyPatch) -> None:
    note(engine)
    await sealer.tick()
    await sealer.tick()
    asked: Counter[str] = Counter()
    do = sealer._do

    async def counting(flow: Any) -> Any:
        asked[flow.__name__] += 1
        return await do(flow)

    monkeypatch.setattr(sealer, "_do", counting)
    await sealer.tick()
    assert asked == {"top": 1}


async def test_what_commits_late_is_sealed_by_the_next_look_at_everything(
    database: Database, engine: Engine, sealer: Sealer
) -> None:
    await sealer.tick()
    await sealer.tick()
    with database.connect() as slow, slow.transaction():
        slow.execute("select mainspring.record_business('a.b', '{}', 'acme')")
        note(engine, "other")
        await sealer.tick()
    assert sealed(engine) == {}
    for _ in range(LOOKS_OF_A_ROUND):
        await sealer.tick()
    assert sealed(engine) == {"acme": 1, "other": 1}


async def test_a_backlog_is_sealed_in_one_tick(engine: Engine, sealer: Sealer) -> None:
    engine.rows("select mainspring.record_business('a.b', '{}', 'acme') from generate_series(1, 2500)")
    await sealer.tick()
    await sealer.tick()
    assert engine.rows("select cardinality(ids) from mainspring.seal order by number") == [(1000,), (1000,), (500,)]
