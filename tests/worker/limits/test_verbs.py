"""Who says what about limits: the code, people at run time, and what is written down about it."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from tests.databases import Database
from tests.db.engine import Engine

import mainspring as ms
from mainspring.db.gauges import gauges
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.errors import DatabaseUnavailable
from mainspring.worker import Worker

INDEX = "select to_regclass('mainspring.waiting_fair') is not null"


def shop(*limits: Any, name: str = "shop") -> ms.App:
    tasks = ms.Registry(name)

    @tasks.task(queue="mail", name=f"send_{name}")
    async def send() -> None:
        """Send."""

    return ms.App(tasks, limits=limits, maintenance=False)


def start(database: Database, app: ms.App) -> None:
    """Let a worker of the application start, and stop."""

    async def go() -> None:
        worker = Worker(database.dsn, app.registry, config=ms.WorkerConfig(wakeups=False), limits=app.limits)
        await worker.start()
        await worker.stop()

    asyncio.run(go())


def words(client: ms.Client) -> dict[str, str]:
    return {row.name: row.words for row in client.limits.list()}


def trail(engine: Engine, event: str = "limit.%") -> list[tuple[Any, ...]]:
    query = """
        select event, actor_id, detail ->> 'reason', detail -> 'before', detail -> 'after'
        from mainspring.audit where event like %s and org_id = 'SYSTEM' order by id
    """
    return [tuple(row) for row in engine.rows(query, event)]


def test_who_and_why_and_what_it_was_before_stand_in_the_trail(engine: Engine, database: Database) -> None:
    ada = ms.Caller(actor_type="user", actor_id="ada")
    with ms.Client(database.dsn, caller=ada) as client:
        client.limits.set(ms.rate("mail", 50, per="1s"), reason="the provider asked")
        client.limits.set(ms.rate("mail", 20, per="1s"), reason="and again")
        client.limits.drop("rate:mail", reason="they are well")
        client.limits.fair("mail", weights={"acme": 3}, reason="a flood")
        client.limits.unfair("mail", reason="it is over")
        client.limits.depth("mail", 100, reason="too much")
    rule: dict[str, Any] = {"queue": "mail", "by": "all", "rate": 50, "per": "00:00:01", "in_order": False}
    assert trail(engine) == [
        ("limit.set", "ada", "the provider asked", None, rule),
        ("limit.set", "ada", "and again", rule, rule | {"rate": 20}),
        ("limit.dropped", "ada", "they are well", rule | {"rate": 20}, None),
    ]
    assert trail(engine, "queue.%") == [
        ("queue.fair", "ada", "a flood", {"weights": None}, {"weights": {"acme": 3}}),
        ("queue.unfair", "ada", "it is over", {"weights": {"acme": 3}}, None),
        ("queue.depth", "ada", "too much", {"max_depth": None}, {"max_depth": 100}),
    ]


def test_the_code_is_followed(database: Database, client: ms.Client) -> None:
    start(database, shop(ms.rate("mail", 50, per="1s"), ms.concurrency(task="send_shop", most=2, by="org")))
    assert words(client) == {"rate:mail": "50 per 1 s", "concurrency:send_shop:org": "2 at once for each organisation"}
    start(database, shop(ms.rate("mail", 20, per="1s")))
    assert words(client) == {"rate:mail": "20 per 1 s"}
    start(database, shop())
    assert words(client) == {}


def test_starting_again_changes_and_records_nothing(engine: Engine, database: Database) -> None:
    for _ in range(3):
        start(database, shop(ms.rate("mail", 50, per="1s"), ms.fair("mail", weights={"acme": 2})))
    assert len(trail(engine)) == 1
    assert len(trail(engine, "queue.fair")) == 1


def test_somebody_at_run_time_wins_until_the_limit_is_reset(database: Database, client: ms.Client) -> None:
    app = shop(ms.rate("mail", 50, per="1s"))
    start(database, app)
    client.limits.set(ms.rate("mail", 5, per="1s"))
    start(database, app)
    row = client.limits.get("rate:mail")
    assert (row.rate, row.declared, row.overrides, row.app) == (5, False, True, "shop")

    start(database, shop(ms.rate("mail", 30, per="1s")))  # the code changes meanwhile
    assert client.limits.get("rate:mail").rate == 5
    assert client.limits.reset("rate:mail", reason="well again") is True
    row = client.limits.get("rate:mail")
    assert (row.rate, row.declared, row.overrides) == (30, True, False)
    assert client.limits.reset("rate:mail") is False


def test_what_somebody_set_stays_when_the_code_no_longer_declares_it(database: Database, client: ms.Client) -> None:
    start(database, shop(ms.rate("mail", 50, per="1s")))
    client.limits.set(ms.rate("mail", 5, per="1s"))
    client.limits.set(ms.concurrency("mail", 9))
    start(database, shop())
    assert words(client) == {"rate:mail": "5 per 1 s", "concurrency:mail": "9 at once"}
    assert client.limits.reset("rate:mail") is False


def test_two_applications_in_one_database_leave_each_other_alone(database: Database, client: ms.Client) -> None:
    start(database, shop(ms.rate("mail", 50, per="1s"), ms.fair("mail")))
    start(database, shop(ms.concurrency(task="send_bank", most=1), name="bank"))
    assert len(words(client)) == 2
    start(database, shop(name="bank"))
    assert words(client) == {"rate:mail": "50 per 1 s"}
    assert [turn.queue for turn in client.limits.turns()] == ["mail"]


def test_a_worker_without_an_application_declares_nothing(database: Database, client: ms.Client) -> None:
    app = shop(ms.rate("mail", 50, per="1s"))
    start(database, app)

    async def go() -> None:
        worker = Worker(database.dsn, app.registry, config=ms.WorkerConfig(wakeups=False))
        await worker.start()
        await worker.stop()

    asyncio.run(go())
    assert words(client) == {"rate:mail": "50 per 1 s"}


def test_the_index_of_fair_queues_is_there_while_there_is_one(engine: Engine, client: ms.Client) -> None:
    assert engine.rows(INDEX) == [(False,)]
    client.limits.fair("a")
    client.limits.fair("b", weights={"acme": 3})
    assert engine.rows(INDEX) == [(True,)]
    assert client.limits.unfair("a") is True
    assert engine.rows(INDEX) == [(True,)]
    assert client.limits.unfair("b") is True
    assert client.limits.unfair("b") is False
    assert engine.rows(INDEX) == [(False,)]


def test_a_table_that_somebody_holds_makes_fair_fail_rather_than_wait(
    engine: Engine, database: Database, client: ms.Client
) -> None:
    with database.connect() as other, other.transaction():
        other.execute("lock table mainspring.waiting in row exclusive mode")
        with pytest.raises(DatabaseUnavailable, match="nothing was changed, try again"):
            client.limits.fair("mail")
    assert engine.rows("select count(*) from mainspring.fair") == [(0,)]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        ("set_limit('', 'q', null, 'all', 1, '1 s', null, false, 'user', 'ada')", "name"),
        ("set_limit('a/b', 'q', null, 'all', 1, '1 s', null, false, 'user', 'ada')", "name"),
        ("set_limit('n', null, null, 'all', 1, '1 s', null, false, 'user', 'ada')", "queue"),
        ("set_limit('n', 'q', 't', 'all', 1, '1 s', null, false, 'user', 'ada')", "queue"),
        ("set_limit('n', 'q:deadletter', null, 'all', 1, '1 s', null, false, 'user', 'ada')", "queue"),
        ("set_limit('n', 'q', null, 'orgs', 1, '1 s', null, false, 'user', 'ada')", "by"),
        ("set_limit('n', 'q', null, 'all', 0, '1 s', null, false, 'user', 'ada')", "rate"),
        ("set_limit('n', 'q', null, 'all', 1, '1 s', 1, false, 'user', 'ada')", "rate"),
        ("set_limit('n', 'q', null, 'all', 1, null, null, false, 'user', 'ada')", "per"),
        ("set_limit('n', 'q', null, 'all', 1, '1 ms', null, false, 'user', 'ada')", "per"),
        ("set_limit('n', 'q', null, 'all', null, '1 s', 1, false, 'user', 'ada')", "per"),
        ("set_limit('n', 'q', null, 'all', null, null, 0, false, 'user', 'ada')", "concurrency"),
        ("set_limit('n', 'q', null, 'org', null, null, 1, true, 'user', 'ada')", "in_order"),
        ("set_limit('n', 'q', null, 'all', 1, '1 s', null, false, 'nobody', 'ada')", "actor_type"),
        ("set_fair('q', '{\"acme\": 0}', 'user', 'ada')", "weights"),
        ("set_fair('q', '[]', 'user', 'ada')", "weights"),
        ("set_fair('q:deadletter', '{}', 'user', 'ada')", "queue"),
        ("set_depth('q', 0, 'user', 'ada')", "most"),
    ],
)
def test_sql_refuses_what_python_refuses(engine: Engine, call: str, field: str) -> None:
    with pytest.raises(psycopg.Error) as caught:
        engine.conn.execute(f"select mainspring.{call}".encode())
    assert (caught.value.sqlstate, caught.value.diag.message_detail) == ("MS001", field)


def test_an_unknown_name_is_answered_by_the_nearest(client: ms.Client) -> None:
    client.limits.set(ms.rate("mail", 50, per="1s"))
    acts: list[Any] = [client.limits.get, client.limits.drop, client.limits.reset]
    for act in acts:
        with pytest.raises(ms.ValidationError, match=r"no limit is called 'rate:mial' \(did you mean 'rate:mail'\?\)"):
            act("rate:mial")


def test_the_list_says_what_is_used_and_what_waits(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate("q:default", 3, per="1s"))
    client.limits.set(ms.concurrency(task="u", most=1, by="org"))
    engine.enqueue_many([{}] * 5 + [{"task": "u", "queue": "q:exports"}] * 4)
    engine.claim()
    engine.claim(queues=["q:exports"], tasks=["u"])
    rows = {row.name: (row.used, row.keys, row.waiting) for row in client.limits.list()}
    assert rows == {"rate:q:default": (3, 1, 2), "concurrency:u:org": (1, 1, 3)}


@pytest.mark.anyio
async def test_both_colours_do_the_same(database: Database, client: ms.Client) -> None:
    async with ms.AsyncClient(database.dsn) as other:
        await other.limits.set(ms.rate("mail", 50, per="1s"))
        assert await other.limits.list() == client.limits.list()
        assert await other.limits.get("rate:mail") == client.limits.get("rate:mail")
        assert await other.limits.reset("rate:mail") is False
        await other.limits.drop("rate:mail")
        await other.limits.fair("mail", weights={"a": 2})
        assert await other.limits.turns() == client.limits.turns()
        assert await other.limits.unfair("mail") is True
        await other.limits.depth("mail", 7)
        assert [queue.max_depth for queue in client.queues() if queue.name == "mail"] == [7]


def test_the_gauge_counts_what_each_limit_has_put_off(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.concurrency(task="t", most=1))
    client.limits.set(ms.rate("mail", 5, per="1s"))
    engine.enqueue_many([{}] * 4)
    engine.claim()
    found = run(psycopg_door(engine.conn), gauges(Sql())).limits
    assert {row.name: row.waiting for row in found} == {"concurrency:t": 3, "rate:mail": 0}
