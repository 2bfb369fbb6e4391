"""Enqueue: what is written, what is refused."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from tests.db.conftest import NOON
from tests.db.engine import Engine

from mainspring.checks import check_job
from mainspring.errors import ValidationError
from mainspring.job import NewJob
from mainspring.text.document import MAX_BYTES
from mainspring.uuid7 import uuid7


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth - 1):
        value = {"a": value}
    return value


@pytest.mark.rule("ENG-3.01", "ENG-13.01")
@pytest.mark.parametrize(
    ("fields", "state", "due_at"),
    [
        ({}, "ready", NOON),
        ({"scheduled_for": NOON - timedelta(hours=1)}, "ready", NOON),
        ({"scheduled_for": NOON}, "ready", NOON),
        ({"scheduled_for": NOON + timedelta(hours=1)}, "scheduled", NOON + timedelta(hours=1)),
        ({"delay": timedelta(seconds=60)}, "scheduled", NOON + timedelta(seconds=60)),
        ({"delay": timedelta(0)}, "ready", NOON),
    ],
)
def test_a_job_is_ready_unless_its_time_is_to_come(
    engine: Engine, fields: dict[str, Any], state: str, due_at: object
) -> None:
    answer = engine.enqueue(**fields)

    job = engine.job(answer.id)
    assert (answer.answer, answer.state, job.state, job.due_at) == ("created", state, state, due_at)


@pytest.mark.rule("ENG-2.03", "ENG-2.16")
def test_what_is_given_survives_and_what_is_missing_is_filled(engine: Engine) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    at = NOON + timedelta(hours=2)
    full = engine.job(engine.enqueue(traceparent=trace, scheduled_for=at, payload={"a": None, "b": [1.5]}).id)
    bare = engine.job(engine.enqueue().id)

    assert (full.traceparent, full.scheduled_for, full.payload) == (trace, at, {"a": None, "b": [1.5]})
    assert (bare.org_id, bare.actor_type, bare.actor_id) == ("default", "system", "SYSTEM")
    assert (bare.request_id, bare.correlation_id, bare.idempotency_key) == (str(bare.id),) * 3
    assert bare.created_at == NOON


@pytest.mark.rule("ENG-2.15")
def test_a_job_id_is_taken_once(engine: Engine) -> None:
    id_ = uuid7()
    engine.enqueue(id=id_, key="a", payload={"n": 1})

    with pytest.raises(psycopg.errors.UniqueViolation):
        engine.enqueue(id=id_, key="b", payload={"n": 2})
    with pytest.raises(psycopg.errors.UniqueViolation):
        engine.enqueue_many([{"id": (other := uuid7())}, {"id": other}])

    assert engine.job(id_).payload == {"n": 1}
    assert engine.rows("select key from mainspring.idempotency") == [("a",)]


@pytest.mark.rule("ENG-13.04")
def test_a_producer_may_be_a_minute_ahead_and_no_more(engine: Engine) -> None:
    engine.enqueue(created_at=NOON + timedelta(seconds=60))
    with pytest.raises(psycopg.Error) as caught:
        engine.enqueue(created_at=NOON + timedelta(minutes=5))

    assert (caught.value.sqlstate, caught.value.diag.message_detail) == ("MS001", "created_at")
    assert engine.rows("select count(*) from mainspring.job") == [(1,)]


@pytest.mark.rule("ENG-4.10")
@pytest.mark.parametrize("bad", [{"priority": 7}, {"payload": {"n": 2}, "key": "taken"}])
def test_a_batch_is_written_whole_or_not_at_all(engine: Engine, bad: dict[str, Any]) -> None:
    engine.enqueue(key="taken", payload={"n": 1})
    before = engine.everything()

    with pytest.raises(psycopg.Error):
        engine.enqueue_many([{}, {"key": "new"}, bad])

    assert engine.everything() == before


def test_nothing_is_enqueued_by_an_empty_batch(engine: Engine) -> None:
    assert engine.enqueue_many([]) == []


BAD: list[tuple[str, dict[str, Any]]] = [
    ("task", {"task": ""}),
    ("task", {"task": "x" * 201}),
    ("payload", {"payload": [1]}),
    ("payload", {"payload": {"a": "x" * MAX_BYTES}}),
    ("payload", {"payload": nested(65)}),
    ("queue", {"queue": ""}),
    ("queue", {"queue": "q" * 64}),
    ("queue", {"queue": "q:deadletter"}),
    ("priority", {"priority": 7}),
    ("priority", {"priority": -1}),
    ("max_attempts", {"max_attempts": 0}),
    ("max_attempts", {"max_attempts": 1001}),
    ("org_id", {"org_id": "x" * 201}),
    ("actor_type", {"actor_type": "robot", "actor_id": "x"}),
    ("actor_id", {"actor_type": "user", "actor_id": ""}),
    ("request_id", {"request_id": ""}),
    ("correlation_id", {"correlation_id": "x" * 201}),
    ("key", {"key": ""}),
    ("key", {"key": "x" * 513}),
    ("key", {"mode": "keep"}),
    ("key", {"reset": True}),
    ("mode", {"key": "k", "mode": "sometimes"}),
    ("wait", {"key": "k", "mode": "debounce"}),
    ("wait", {"key": "k", "mode": "debounce", "wait": timedelta(seconds=-1)}),
    ("ttl", {"key": "k", "mode": "window", "ttl": timedelta(days=-1)}),
    ("delay", {"delay": timedelta(seconds=-1)}),
    ("delay", {"delay": timedelta(days=4000)}),
    ("delay", {"delay": timedelta(1), "scheduled_for": NOON}),
    ("scheduled_for", {"scheduled_for": NOON.replace(year=2300)}),
]


@pytest.mark.rule("ENG-2.04", "ENG-2.11", "ENG-11.03")
def test_sql_refuses_what_python_refuses_and_names_the_same_field(engine: Engine) -> None:
    before = engine.everything()
    for field, fields in BAD:
        raw = msgspec.Raw(msgspec.json.encode(fields.get("payload", {})))
        with pytest.raises(ValidationError) as ours:
            check_job(NewJob(**{"task": "t"} | fields | {"payload": raw}))

        with pytest.raises(psycopg.Error) as caught:
            enqueue_in_sql(engine, **fields)

        assert (ours.value.field, caught.value.diag.message_detail) == (field, field), f"{fields.keys()}"
        assert caught.value.sqlstate == "MS001"
        assert str(caught.value).startswith(f"{field}: ")
    assert engine.everything() == before


def enqueue_in_sql(engine: Engine, **fields: Any) -> Any:
    values = {"task": "t"} | fields
    values |= {"payload": msgspec.json.encode(fields.get("payload", {})).decode()}
    names = ", ".join(f"{name} => %s" for name in values)
    return engine.rows(
        f"select * from mainspring.enqueue({names})".replace("payload => %s", "payload => %s::jsonb"), *values.values()
    )[0]


def test_sql_takes_everything_that_python_takes(engine: Engine) -> None:
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    parent, project = uuid7(), uuid7()
    id_, answer, state = enqueue_in_sql(
        engine,
        payload={"a": None, "deep": nested(63)},
        queue="q:other",
        priority=1,
        org_id="acme",
        key="k",
        mode="window",
        delay=timedelta(minutes=5),
        project_id=project,
        actor_type="user",
        actor_id="ada",
        request_id="r",
        correlation_id="c",
        parent_id=parent,
        traceparent=trace,
        max_attempts=7,
        cancellable=False,
        ttl=timedelta(days=2),
    )

    job = engine.job(id_)
    assert (answer, state, job.due_at) == ("created", "scheduled", NOON + timedelta(minutes=5))
    assert job.payload == {"a": None, "deep": nested(63)}
    assert (job.queue, job.priority, job.org_id, job.idempotency_key) == ("q:other", 1, "acme", "k")
    assert (job.project_id, job.actor_type, job.actor_id, job.parent_id) == (project, "user", "ada", parent)
    assert (job.request_id, job.correlation_id, job.traceparent) == ("r", "c", trace)
    assert (job.max_attempts, job.cancellable) == (7, False)
    assert engine.rows("select ttl from mainspring.idempotency") == [(timedelta(days=2),)]


def test_sql_makes_an_id_that_sorts_by_time(engine: Engine) -> None:
    ids = [enqueue_in_sql(engine)[0] for _ in range(3)]

    assert all(id_.version == 7 for id_ in ids)
    assert [id_.int >> 80 for id_ in ids] == sorted(id_.int >> 80 for id_ in ids)


def test_a_broken_trace_does_not_cost_a_job(engine: Engine) -> None:
    id_, *_ = enqueue_in_sql(engine, traceparent="nonsense")
    assert engine.job(id_).traceparent is None
