"""What people see of breakers and do with them: by the client, the command line and SQL, on the record."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.cli.conftest import Cli, cli  # noqa: F401 (a fixture)
from tests.databases import Database
from tests.observe.conftest import Heard
from tests.worker.breakers.conftest import PAUSE, Dependency, state

import mainspring as ms
from mainspring.db.breakers import declare
from mainspring.db.gauges import gauges
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.errors import ValidationError
from mainspring.events import BreakerForced
from mainspring.observe.alerts import wrong
from mainspring.testing import Harness

Charge = ms.Task[..., Any]
ADA = ms.Caller(actor_type="user", actor_id="ada")


@pytest.fixture
def database(mainspring: Harness) -> Database:
    """The harness's own, for the command line."""
    return Database(mainspring.dsn)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def client(mainspring: Harness, mainspring_app: ms.App, heard: Heard) -> Iterator[ms.Client]:
    run(psycopg_door(mainspring.conn), declare(Sql(), mainspring_app.breakers))
    with ms.Client(mainspring.dsn, caller=ADA, observers=[heard]) as client:
        yield client


@pytest.fixture
def charge(tasks: ms.Registry, dependency: Dependency) -> Charge:
    @tasks.task(needs=("stripe",))
    async def charge() -> None:
        dependency.call()

    return charge


def test_a_breaker_that_is_held_open_holds_its_jobs_until_it_is_automatic_again(
    mainspring: Harness, client: ms.Client, charge: Charge, dependency: Dependency
) -> None:
    assert client.breakers.open("stripe", reason="maintenance") is True
    assert client.breakers.open("stripe", reason="maintenance") is False
    job = client.enqueue(charge.job()).id
    mainspring.advance(hours=1)
    assert (dependency.taken(), client.get(job).attempt) == ([], 0)
    assert "It needs stripe, whose breaker is held open by ada: maintenance" in client.explain(job).verdict

    assert client.breakers.auto("stripe", reason="it is over") is True
    assert client.breakers.auto("stripe", reason="it is over") is False
    mainspring.drain()
    mainspring.advance(PAUSE * 2)
    assert len(dependency.taken()) == 1


def test_a_breaker_that_is_held_closed_lets_everything_through(
    mainspring: Harness, client: ms.Client, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(needs=("sms",), retry=ms.fixed(3600, attempts=2))
    async def text() -> None:
        dependency.call()

    dependency.up = False
    client.breakers.close("sms", reason="I know better")
    client.enqueue_many([text.job()] * 10)
    mainspring.drain(raise_errors=False)

    assert len(dependency.taken()) == 10
    assert state(mainspring, "sms") == "closed"
    client.breakers.auto("sms", reason="or do I")
    mainspring.run_one(text.job(), raise_errors=False)
    assert state(mainspring, "sms") == "open"


def test_the_whole_holds_every_key_and_a_key_only_itself(
    mainspring: Harness, client: ms.Client, tasks: ms.Registry, dependency: Dependency
) -> None:
    @tasks.task(needs=("webhook:{endpoint}",))
    async def deliver(*, endpoint: int) -> None:
        dependency.call(endpoint)

    client.breakers.open("webhook", key="1", reason="the customer asked")
    client.enqueue_many([deliver.job(endpoint=1), deliver.job(endpoint=2)])
    mainspring.drain()
    assert dependency.taken() == [2]

    client.breakers.open("webhook", reason="all of them")
    client.enqueue(deliver.job(endpoint=3))
    mainspring.drain()
    assert dependency.taken() == []
    client.breakers.auto("webhook", reason="again")
    mainspring.advance(PAUSE * 3)
    assert dependency.taken() == [3]


@pytest.mark.parametrize(("verb", "event", "forced"), [
    ("open", "breaker.forced_open", "open"), ("close", "breaker.forced_closed", "closed"),
])  # fmt: skip
def test_what_a_person_does_is_on_the_record_with_before_and_after(
    client: ms.Client, heard: Heard, verb: str, event: str, forced: str
) -> None:
    getattr(client.breakers, verb)("stripe", reason="because")
    client.breakers.auto("stripe", reason="it is over")

    back, done = client.audit.events(org="SYSTEM")
    assert (done.event, done.actor_id, done.detail["reason"], done.detail["breaker"]) == (
        event, "ada", "because", "stripe",
    )  # fmt: skip
    assert (done.detail["before"]["forced"], done.detail["after"]["forced"]) == (None, forced)
    assert done.detail["after"]["forced_by"] == "ada"
    assert (back.event, back.detail["before"]["forced"], back.detail["after"]["forced"]) == (
        "breaker.automatic", forced, None,
    )  # fmt: skip
    assert heard.events == [
        BreakerForced("stripe", None, "SYSTEM", forced, "ada", "because"),
        BreakerForced("stripe", None, "SYSTEM", "automatic", "ada", "it is over"),
    ]


def test_a_key_is_on_the_record_of_its_organisation(client: ms.Client) -> None:
    client.breakers.open("webhook", key="7", org="acme", reason="because")

    (event,) = client.audit.events(org="acme")
    assert (event.event, event.detail["key"]) == ("breaker.forced_open", "7")
    assert client.audit.events(org="SYSTEM") == []


@pytest.mark.parametrize(
    ("arguments", "field"),
    [
        ({"name": "strip"}, "name"),
        ({"name": ""}, "name"),
        ({"name": "x" * 101}, "name"),
        ({"key": ""}, "key"),
        ({"key": "x" * 201}, "key"),
        ({"key": "a\x00"}, "key"),
        ({"org": ""}, "org"),
        ({"reason": ""}, "reason"),
        ({"reason": None}, "reason"),
        ({"reason": "x" * 1001}, "reason"),
    ],
)
def test_bad_input_is_refused_by_its_field_and_nothing_is_written(
    client: ms.Client, arguments: dict[str, Any], field: str
) -> None:
    said: dict[str, Any] = {"name": "stripe", "reason": "because"} | arguments
    for verb in (client.breakers.open, client.breakers.close, client.breakers.auto):
        with pytest.raises(ValidationError) as caught:
            verb(**said)
        assert caught.value.field == field
    assert {row.forced for row in client.breakers.list()} == {None}


def test_an_unknown_name_is_said_with_the_nearest(client: ms.Client) -> None:
    with pytest.raises(ValidationError, match=r"no breaker is called 'strip' \(did you mean 'stripe'\?\)"):
        client.breakers.show("strip")
    with pytest.raises(ValidationError, match="key: webhook has no key '7'"):
        client.breakers.show("webhook", key="7")


@pytest.mark.anyio
async def test_async_code_does_the_same(mainspring: Harness, client: ms.Client) -> None:
    async with ms.AsyncClient(mainspring.dsn, caller=ADA) as other:
        assert [row.name for row in await other.breakers.list()] == ["mail", "sms", "stripe", "webhook"]
        assert await other.breakers.open("stripe", reason="because")
        assert (await other.breakers.show("stripe"))[0].forced_by == "ada"
        assert await other.breakers.close("stripe", reason="because")
        assert await other.breakers.auto("stripe", reason="because")
    assert client.breakers.show("stripe")[0].forced is None


def test_the_command_line_shows_and_forces(client: ms.Client, cli: Cli) -> None:  # noqa: F811 (a fixture)
    assert cli("breaker", "open", "stripe", "--reason", "maintenance", "--as", "eve").out == "stripe is held open\n"
    assert cli("breaker", "open", "stripe", "--reason", "maintenance").out == "stripe was held open already\n"
    assert "--reason" in cli("breaker", "open", "stripe").err
    assert cli("breaker", "close", "webhook", "--key", "7", "--reason", "x").out == "webhook:7 is held closed\n"
    listed = {row[0]: row for row in (line.split() for line in cli("breaker", "list").out.splitlines()[3:]) if row}
    assert list(listed) == ["mail", "sms", "stripe", "webhook", "webhook:7"]
    assert listed["stripe"] == ["stripe", "forced", "open", "now", "0", "0", "eve", "maintenance"]
    shown = cli("breaker", "show", "sms").out
    assert shown.startswith("sms: 2 failures within 30 s open it for 1 min, doubling to 3 min; then 1 probe at once\n")
    (document,) = cli("breaker", "show", "stripe", "--json").json
    assert (document["state"], document["forced_by"], document["pause_s"]) == ("open", "eve", 60)
    answer = cli("breaker", "auto", "stripe", "--reason", "x", "--json").json
    assert answer == {"breaker": "stripe", "key": None, "forced": None, "changed": True}
    assert cli("breaker", "auto", "stripe", "--reason", "x").out == "stripe was not forced\n"
    wrong_name = cli("breaker", "close", "strip", "--reason", "x")
    assert (wrong_name.code, "did you mean 'stripe'?" in wrong_name.err) == (3, True)


def test_the_gauges_and_an_alert_show_what_is_open(mainspring: Harness, client: ms.Client) -> None:
    client.breakers.open("stripe", reason="because")
    client.breakers.open("webhook", key="1", reason="because")
    client.breakers.open("webhook", key="2", org="acme", reason="because")

    def look() -> Any:
        with mainspring.conn.transaction():
            return run(psycopg_door(mainspring.conn), gauges(Sql()))

    found = {fuse.name: (fuse.open, fuse.keys) for fuse in look().breakers}
    assert found == {"mail": (False, 0), "sms": (False, 0), "stripe": (True, 0), "webhook": (False, 2)}
    assert "breaker-open" not in {name for (name, _), _ in wrong(look())}
    mainspring.clock.advance(timedelta(minutes=11))
    assert [text for (name, _), text in wrong(look()) if name == "breaker-open"] == ["stripe for 11 min"]
