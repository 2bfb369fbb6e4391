"""A poisonous row put in by hand fails alone: its neighbours run, the worker lives, and readers still read."""

from __future__ import annotations

import asyncio
from typing import Any

import psycopg
import pytest
from tests.cli.conftest import Cli
from tests.databases import Database
from tests.db.engine import Engine

import mainspring as ms
from mainspring import Client
from mainspring.events import Event, JobFailed, JobSucceeded
from mainspring.uuid7 import uuid7
from mainspring.worker import Worker

tasks = ms.Registry("poison")


@tasks.task(retry=ms.fixed(60, attempts=2))
async def add(*, a: int, b: float = 0.0, note: str = "") -> None: ...


@tasks.task(retry=ms.fixed(60, attempts=2))
def add_in_thread(*, a: int) -> None: ...


DEEP = '{"a": 1, "note": ' + "[" * 6000 + "]" * 6000 + "}"
POISON: dict[str, str] = {
    "deep": DEEP,
    "deep in a field that nobody reads": '{"a": 1, "x": ' + "[" * 6000 + "]" * 6000 + "}",
    "no field": "{}",
    "wrong kind": '{"a": "one"}',
    "a number beyond all": '{"a": 1, "b": ' + "9" * 5000 + "}",
    "beyond a float": '{"a": 1, "b": 1e400}',
    "huge": '{"a": 1, "note": ["' + "x" * 600_000 + '"]}',
    "null": '{"a": null}',
}
ODD_ENVELOPES: dict[str, tuple[Any, ...]] = {
    "terminal code": ("\x1b[2J", "\n", "x" * 10_000),
    "blank": (" ", " ", " "),
    "format": ("%s%n{0}", "{}", "$1"),
}


def put(engine: Engine, payload: str, *, task: str = "add", envelope: tuple[Any, ...] = ("a", "r", "c")) -> Any:
    """A job as no verb would write it."""
    job = uuid7()
    engine.conn.execute(
        """insert into mainspring.job (id, org_id, task, queue, priority, max_attempts, cancellable, payload,
                                       actor_type, actor_id, request_id, correlation_id, traceparent, key, created_at)
           values (%s, 'default', %s, 'q:default', 2, 5, true, %s::jsonb, 'user', %s, %s, %s, 'nonsense', %s, now())""",
        [job, task, payload, *envelope, envelope[0]],
    )
    engine.conn.execute(
        """insert into mainspring.waiting (id, org_id, task, queue, priority, due_at)
           values (%s, 'default', %s, 'q:default', 2, mainspring.now() - interval '1 s')""",
        [job, task],
    )
    return job


@pytest.mark.anyio
async def test_poison_fails_alone_and_is_not_tried_again(database: Database, engine: Engine) -> None:
    innocent = [engine.enqueue("add", payload={"a": n}).id for n in range(20)]
    poisonous = {name: put(engine, payload) for name, payload in POISON.items()}
    in_thread = put(engine, '{"a": "one"}', task="add_in_thread")
    innocent += [put(engine, '{"a": 1}', envelope=envelope) for envelope in ODD_ENVELOPES.values()]
    innocent += [engine.enqueue("add", payload={"a": n}).id for n in range(20)]

    async with asyncio.timeout(30):
        await Worker(database.dsn, tasks).drain()

    states = dict(engine.rows("select id, state from mainspring.finished"))
    assert {states.pop(job) for job in innocent} == {"succeeded"}
    harmless = states.pop(poisonous.pop("deep in a field that nobody reads"))
    assert harmless in ("succeeded", "failed")
    assert {job: states.pop(job) for job in (*poisonous.values(), in_thread)} == dict.fromkeys(
        (*poisonous.values(), in_thread), "failed"
    )
    codes = engine.rows("select distinct error ->> 'code', attempt from mainspring.finished where state = 'failed'")
    assert codes == [("VALIDATION_ERROR", 1)]


@pytest.mark.anyio
async def test_observers_hear_of_poison_and_of_its_neighbours(
    database: Database, engine: Engine, caplog: pytest.LogCaptureFixture
) -> None:
    """Though an event names a field of the payload, which here cannot be read."""
    watched, told = ms.Registry("watched"), list[Event]()

    @watched.task(name="add", subject="a")
    async def add(*, a: int, b: float = 0.0, note: str = "") -> None: ...

    poisonous = {put(engine, POISON[name]) for name in ("deep", "a number beyond all", "beyond a float")}
    innocent = {engine.enqueue("add", payload={"a": n}).id for n in range(20)}

    async with asyncio.timeout(30):
        await Worker(database.dsn, watched, observers=[told.extend]).drain()

    assert {event.job_id: event.code for event in told if isinstance(event, JobFailed)} == dict.fromkeys(
        poisonous, "VALIDATION_ERROR"
    )
    assert {event.job_id for event in told if isinstance(event, JobSucceeded)} == innocent
    assert "exchange failed" not in caplog.text


def test_readers_read_on(database: Database, engine: Engine, cli: Cli) -> None:
    for payload in POISON.values():
        put(engine, payload)
    with Client(database.dsn) as client:
        jobs = client.jobs()
        assert len(jobs) == len(POISON)
        assert [client.get(job.id).id for job in jobs] == [job.id for job in jobs]
    assert len(cli("job", "list", "--json").json) == len(POISON)
    for job in jobs:
        assert cli("job", "show", job.id).code == 0
        assert cli("job", "show", job.id, "--json").json["id"] == str(job.id)


@pytest.mark.parametrize(
    "change",
    ["created_at = 'infinity'", "created_at = '-infinity'", "created_at = '20000-01-01'",
     "created_at = '0044-03-15 BC'", "scheduled_for = 'infinity'", "scheduled_for = '10000-01-01'",
     "scheduled_for = '-infinity'"],
)  # fmt: skip
def test_times_that_would_break_every_claim_cannot_be_put_in(engine: Engine, change: str) -> None:
    engine.enqueue()
    engine.conn.execute("alter table mainspring.job disable trigger user")
    with pytest.raises(psycopg.errors.CheckViolation):
        engine.conn.execute(f"update mainspring.job set {change}".encode())
    with pytest.raises(psycopg.errors.CheckViolation):
        engine.conn.execute("update mainspring.waiting set due_at = '-infinity'")


@pytest.mark.anyio
async def test_a_result_that_cannot_be_stored_fails_the_job_for_good(database: Database, engine: Engine) -> None:
    large = ms.Registry("large")

    @large.task
    async def shout() -> str:
        return "x" * (256 * 1024)

    @large.task
    def thing() -> object:
        return object()

    jobs = [engine.enqueue(name).id for name in ("shout", "thing")]
    await Worker(database.dsn, large).drain()

    said = [(job.state, job.attempt, str((job.error or {})["message"])) for job in map(engine.job, jobs)]
    assert said == [
        ("failed", 1, "result: is larger than 256 KiB: keep a reference to it"),
        ("failed", 1, "result: cannot be written as JSON: object is no type that JSON has"),
    ]
