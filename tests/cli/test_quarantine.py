from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.conftest import Cli
from tests.databases import Database
from tests.db.engine import Engine

from mainspring import Client
from mainspring.db.gauges import gauges
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.events import Event, TaskReleased
from mainspring.observe.alerts import wrong


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.connect() as conn:
        yield Engine(conn)


def kill(engine: Engine) -> None:
    for worker in ("w1", "w2", "w3"):
        engine.rows("select mainspring.has_killed('t', %s)", worker)


def test_a_person_sees_what_is_held_back_and_lets_it_go(cli: Cli, engine: Engine) -> None:
    assert cli("quarantine", "list").out == "No task is in quarantine.\n"
    kill(engine)
    engine.enqueue()
    (found,) = cli("quarantine", "list", "--json").json
    assert (found["task"], found["workers"], found["waiting"]) == ("t", ["w1", "w2", "w3"], 1)
    assert engine.claim() == []

    assert cli("quarantine", "release", "t", "--reason", "fixed").out == "t is no longer in quarantine\n"
    assert cli("quarantine", "release", "t", "--reason", "fixed").out == "t was not in quarantine\n"
    assert len(engine.claim()) == 1
    trail = engine.rows("select event, detail ->> 'reason' from mainspring.audit where task = 't' and job_id is null")
    assert trail == [("quarantine.began", None), ("quarantine.ended", "fixed")]


def test_who_lets_a_task_go_must_say_why(engine: Engine, cli: Cli) -> None:
    kill(engine)
    answer = cli("quarantine", "release", "t", "--reason", " ")
    assert answer.code == 2
    assert "reason" in answer.err
    assert engine.claim() == []


def test_observers_hear_that_a_person_let_a_task_go(engine: Engine, database: Database) -> None:
    heard: list[Event] = []
    kill(engine)
    with Client(database.dsn, observers=[heard.extend]) as client:
        assert client.quarantine.release("t", reason="fixed")
        assert not client.quarantine.release("t", reason="fixed")
    assert [(type(event), event.task) for event in heard if isinstance(event, TaskReleased)] == [(TaskReleased, "t")]


def test_somebody_is_told_while_a_task_is_held_back(engine: Engine) -> None:
    def fires() -> list[str]:
        with engine.conn.transaction():
            found = run(psycopg_door(engine.conn), gauges(Sql()))
        return [text for (name, _), text in wrong(found) if name == "task-quarantined"]

    assert fires() == []
    kill(engine)
    assert fires() == ["t"]
