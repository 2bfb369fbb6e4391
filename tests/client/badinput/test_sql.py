"""The SQL functions: what psql, triggers and other languages hand over is refused by field, or kept exactly."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import msgspec
import psycopg
import pytest
from tests.client.badinput.lists import BAD_PAYLOADS, FIELDS, ODD_BUT_FINE, UNFIT, nested
from tests.db.engine import Engine

from mainspring.errors import MainspringError, ValidationError
from mainspring.text.document import check_payload
from mainspring.text.sanitize import names_secret
from mainspring.uuid7 import uuid7


def refused(engine: Engine, query: str, *params: Any) -> str:
    """The field that a statement was refused by; nothing may have changed."""
    before = engine.everything()
    with pytest.raises(psycopg.Error) as caught:
        engine.conn.execute(query.encode(), params)
    assert engine.everything() == before
    assert caught.value.sqlstate == "MS001", caught.value
    message = caught.value.diag.message_primary or ""
    field = caught.value.diag.message_detail or ""
    assert message.startswith(f"{field}: ")
    assert len(message) < 200
    return field


def enqueue(engine: Engine, **fields: Any) -> Any:
    names = ", ".join(f"{name} => %s" for name in fields)
    return engine.conn.execute(f"select * from mainspring.enqueue({names})".encode(), list(fields.values())).fetchone()


def many(*jobs: Any) -> str:
    return json.dumps(jobs)


MANY = "select * from mainspring.enqueue_many(%s::json)"
STORABLE = {name: text for name, text in UNFIT.items() if "surrogate" not in name and name != "NUL"}


@pytest.mark.parametrize("field", FIELDS)
def test_unfit_texts_are_refused_by_the_name_of_their_field(engine: Engine, field: str) -> None:
    for text in STORABLE.values():
        fields = {"task": "t", "actor_type": "user", "actor_id": "7"} | {field: text}
        names = ", ".join(f"{name} => %s" for name in fields)
        assert refused(engine, f"select mainspring.enqueue({names})", *fields.values()) == field
        assert refused(engine, MANY, many({"id": str(uuid7()), "payload": {}} | fields)) == field
    nul = many({"id": str(uuid7()), "task": "t", "payload": {}, field: "a\0b"})
    assert refused(engine, MANY, nul) == field


def test_odd_texts_come_back_exactly_from_both_functions(engine: Engine) -> None:
    for text in ODD_BUT_FINE:
        fields = dict.fromkeys(FIELDS, text) | {"actor_type": "user"}
        first = enqueue(engine, payload=json.dumps({"value": text}), **fields)[0]
        job = engine.job(first)
        assert [getattr(job, "idempotency_key" if name == "key" else name) for name in FIELDS] == [text] * 7
        assert job.payload == {"value": text}
        again = engine.rows(MANY, many({"id": str(uuid7()), "payload": {"value": text}} | fields))
        assert again == [(first, "existing", "ready")]


SQL_PAYLOADS = {name: raw for name, raw in BAD_PAYLOADS.items() if not name.startswith(("empty", "a key twice"))}


@pytest.mark.parametrize("name", SQL_PAYLOADS)
def test_a_payload_that_python_refuses_is_refused_by_both_functions(engine: Engine, name: str) -> None:
    raw = SQL_PAYLOADS[name]
    if name == "1e400":  # a number that PostgreSQL can hold: kept exactly
        assert enqueue(engine, task="t", payload=raw.decode())[1] == "created"
        assert engine.rows("select payload ->> 'value' from mainspring.job") == [(f"1{'0' * 400}",)]
        return
    before = engine.everything()
    head = json.dumps({"id": str(uuid7()), "task": "t"})[:-1]
    wire = "('[" + head + ", \"payload\": ' || convert_from(%s, 'utf8') || '}]')::json"
    for call in ("enqueue('t', convert_from(%s, 'utf8')::jsonb)", f"enqueue_many({wire})"):
        with pytest.raises(psycopg.Error) as caught:
            engine.conn.execute(f"select mainspring.{call}".encode(), [raw])
        state = caught.value.sqlstate or ""
        # Not even JSON, or too deep for the server's parser: PostgreSQL's own refusal of its own type.
        assert state == "MS001" or state[:2] == "22" or state == "54001", (name, caught.value)
        if state == "MS001":
            assert (caught.value.diag.message_detail or "").startswith("payload")
    assert engine.everything() == before


@pytest.mark.parametrize(
    "value",
    [nested(64).decode(), '{"value": 18446744073709551615}', '{"value": 0.1}', '{"": 1}', '{"value": 1e-400}',
     '{"e\u0301": 1, "\u00e9": 2}', '{"value": "123456789012345.678"}', '{"value": ' + "9" * 4000 + "}"],
)  # fmt: skip
def test_an_odd_payload_is_kept_exactly(engine: Engine, value: str) -> None:
    job = enqueue(engine, task="t", payload=value)[0]
    assert engine.rows("select payload = %s::jsonb from mainspring.job where id = %s", value, job) == [(True,)]


SECRETS = [
    {"password": "x"},
    {"a": [{"stripe_secret": 1}]},
    {"apiKey": "x"},
    {"API-KEY": "x"},
    {"accessToken": "x"},
    {"deep": {"er": {"signing_key": None}}},
    {"note": "use sk_live_0123456789"},
    {"note": ["whsec_abcdefgh12345"]},
    {"jwt": "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc"},
    {"note": "AKIAABCDEFGHIJKLMNOP"},
    {"note": "-----BEGIN RSA PRIVATE KEY-----"},
]
NO_SECRETS = [
    {"token_count": 3},
    {"monkey": 1},
    {"keys": ["a"]},
    {"note": "task_live_12345678x"},
    {"note": "eyJ.short"},
    {"secretary": "Ada"},
    {"note": "xAKIAABCDEFGHIJKLMNOP"},
]


def test_sql_and_python_know_the_same_secrets(engine: Engine) -> None:
    for payload in SECRETS:
        raw = msgspec.json.encode(payload)
        with pytest.raises(ValidationError) as ours:
            check_payload(raw)
        assert refused(engine, "select mainspring.enqueue('t', %s::jsonb)", raw.decode()) == ours.value.field
    for payload in NO_SECRETS:
        raw = msgspec.json.encode(payload)
        check_payload(raw)
        assert enqueue(engine, task="t", payload=raw.decode())[1] == "created"
    names = ["password", "passwd", "pwd", "Passphrase", "secret", "token", "credential", "credentials", "private_key"]
    assert all(map(names_secret, names))
    for name in names:
        assert refused(engine, "select mainspring.enqueue('t', %s::jsonb)", json.dumps({name: 1})) == f"payload.{name}"


def test_a_field_may_be_allowed_to_hold_a_secret(engine: Engine) -> None:
    assert enqueue(engine, task="t", payload='{"token": {"secret": 1}}', allow_secrets=["token"])[1] == "created"
    field = refused(engine, "select mainspring.enqueue('t', '{\"token\": 1, \"pwd\": 1}', allow_secrets => '{token}')")
    assert field == "payload.pwd"


BAD_TIMES = {
    "naive": "2026-01-01T00:00:00",
    "infinity": "infinity",
    "-infinity": "-infinity",
    "year 294277": "294277-01-01T00:00:00Z",
    "year 10000": "10000-01-01T00:00:00Z",
    "year 9999": "9999-12-31T00:00:00Z",
    "before Christ": "0044-03-15T00:00:00Z BC",
    "no such month": "2026-13-01T00:00:00Z",
    "25 o'clock": "2026-01-01T25:00:00Z",
    "a number": 1767225600.5,
    "empty": "",
    "words": "tomorrow",
}
BAD_SPANS = ["-1 s", "PT-1S", "infinity", "4000 days", "soon", "", 5, True, {}, "1 month 300 years"]


@pytest.mark.parametrize("field", ["scheduled_for", "created_at"])
def test_a_time_that_is_none_is_refused(engine: Engine, field: str) -> None:
    for text in BAD_TIMES.values():
        assert refused(engine, MANY, many({"id": str(uuid7()), "task": "t", "payload": {}, field: text})) == field


@pytest.mark.parametrize("field", ["delay", "wait", "ttl"])
def test_a_time_span_that_is_none_is_refused(engine: Engine, field: str) -> None:
    for text in BAD_SPANS:
        job = {"id": str(uuid7()), "task": "t", "payload": {}, "key": "k", field: text}
        assert refused(engine, MANY, many(job)) == field


@pytest.mark.parametrize("at", ["infinity", "-infinity", "294276-12-31Z", "2201-01-01Z"])
def test_a_time_that_only_postgresql_knows_is_refused(engine: Engine, at: str) -> None:
    assert refused(engine, "select mainspring.enqueue('t', scheduled_for => %s)", at) == "scheduled_for"


@pytest.mark.parametrize("span", ["-1 us", "-1 day 23:59:59", "3654 days", "100 years", "infinity", "-infinity"])
def test_a_delay_that_only_postgresql_knows_is_refused(engine: Engine, span: str) -> None:
    assert refused(engine, "select mainspring.enqueue('t', delay => %s::interval)", span) == "delay"
    fields = "key => 'k', mode => 'debounce', wait => %s::interval"
    assert refused(engine, f"select mainspring.enqueue('t', {fields})", span) == "wait"


def test_a_timer_is_asked_for_by_any_text_and_no_text_at_all(engine: Engine) -> None:
    for key in (None, "", "x" * 100_000, "%s", "'; drop table x; --"):
        assert engine.rows("select * from mainspring.timer('default', %s)", key) == []
        assert engine.rows("select * from mainspring.timer(%s, 'k')", key) == []


def test_the_shortest_delay_counts(engine: Engine) -> None:
    id_ = enqueue(engine, task="t", delay=timedelta(microseconds=1))[0]
    assert engine.job(id_).state == "scheduled"
    assert enqueue(engine, task="t", delay=timedelta(0))[2] == "ready"


@pytest.mark.parametrize(
    ("job", "field"),
    [
        (7, "jobs"), (None, "jobs"), ([], "jobs"), ({}, "id"), ({"id": 7}, "task"),
        ({"id": 7, "task": "t", "payload": {}}, "id"), ({"id": "x", "task": "t", "payload": {}}, "id"),
        ({"task": "t", "payload": {}}, "id"), ({"id": "ID", "payload": {}}, "task"),
        ({"id": "ID", "task": "t"}, "payload"), ({"id": "ID", "task": None, "payload": {}}, "task"),
        ({"id": "ID", "task": 7, "payload": {}}, "task"), ({"id": "ID", "task": "t", "payload": None}, "payload"),
        ({"id": "ID", "task": "t", "payload": []}, "payload"), ({"id": "ID", "task": "t", "payload": "{}"}, "payload"),
        ({"priority": "1"}, "priority"), ({"priority": 1.5}, "priority"), ({"priority": -1}, "priority"),
        ({"priority": None}, "priority"), ({"priority": 10**30}, "priority"), ({"max_attempts": 0}, "max_attempts"),
        ({"max_attempts": 1001}, "max_attempts"), ({"max_attempts": True}, "max_attempts"),
        ({"cancellable": "yes"}, "cancellable"), ({"cancellable": None}, "cancellable"), ({"reset": 1}, "reset"),
        ({"unless_live": 1, "key": "k"}, "unless_live"), ({"unless_live": None}, "unless_live"),
        ({"unless_live": True}, "key"),
        ({"project_id": "x"}, "project_id"), ({"parent_id": 5}, "parent_id"), ({"traceparent": "x"}, "traceparent"),
        ({"actor_id": "ada"}, "actor_type"), ({"actor_type": "user"}, "actor_id"),
        ({"actor_type": "robot", "actor_id": "r2"}, "actor_type"), ({"mode": "sometimes", "key": "k"}, "mode"),
        ({"mode": "keep"}, "key"), ({"reset": True}, "key"), ({"mode": "debounce", "key": "k"}, "wait"),
        ({"queue": "q:deadletter"}, "queue"), ({"queue": ["q"]}, "queue"), ({"prioritty": 1}, "prioritty"),
        ({"__proto__": 1}, "__proto__"), ({"a\nb": 1}, "jobs"), ({"x" * 1000: 1}, "jobs"),
        ({"delay": "1 s", "scheduled_for": "2026-01-01T00:00:00Z"}, "delay"),
    ],
)  # fmt: skip
def test_a_job_by_another_s_hand_is_refused_by_the_field_that_is_wrong(engine: Engine, job: Any, field: str) -> None:
    fine = {"id": str(uuid7()), "task": "t", "payload": {}}
    if isinstance(job, dict):
        partial = job.keys() & fine.keys() or not job
        job = {name: str(uuid7()) if value == "ID" else value for name, value in job.items()}
        job = job if partial else fine | job
    assert refused(engine, MANY, many(fine, job)) == field


@pytest.mark.parametrize("text", ["7", "null", '{"id": 1}', '"x"'])
def test_what_is_no_array_is_refused(engine: Engine, text: str) -> None:
    assert refused(engine, MANY, text) == "jobs"
    assert engine.rows(MANY, "[]") == []


def test_a_field_given_twice_is_refused(engine: Engine) -> None:
    text = f'[{{"id": "{uuid7()}", "task": "t", "task": "u", "payload": {{}}}}]'
    assert refused(engine, MANY, text) == "task"


JOB = "'018f2f6e-7d3a-7c1e-b5a1-2f1f5b6f9a10'"
OPERATOR = [
    ("cancel({id}, null, null, 'ada', 'r')", "actor_type"),
    ("cancel({id}, null, 'robot', 'ada', 'r')", "actor_type"),
    ("cancel({id}, null, 'user', null, 'r')", "actor_id"),
    ("cancel({id}, null, 'user', e'a\\nb', 'r')", "actor_id"),
    ("cancel({id}, null, 'user', 'ada', ' ')", "reason"),
    ("cancel({id}, null, 'user', 'ada', repeat('x', 1001))", "reason"),
    ("cancel({id}, null, 'user', 'ada', e'\\x1b[2J')", "reason"),
    ("reschedule({id}, null, null, 'user', 'ada')", "at"),
    ("reschedule({id}, null, 'infinity', 'user', 'ada')", "at"),
    ("reschedule({id}, null, '-infinity', 'user', 'ada')", "at"),
    ("reschedule({id}, null, '294276-01-01', 'user', 'ada')", "at"),
    ("reschedule({id}, null, now(), '', 'ada')", "actor_type"),
    ("reschedule({id}, null, now(), 'user', '')", "actor_id"),
    ("reschedule({id}, null, now(), 'user', 'ada', '')", "reason"),
    ("prioritize({id}, null, null, 'user', 'ada')", "priority"),
    ("prioritize({id}, null, 4, 'user', 'ada')", "priority"),
    ("prioritize({id}, null, -1, 'user', 'ada')", "priority"),
    ("prioritize({id}, null, 1, 'user', repeat('x', 201))", "actor_id"),
    ("replay({id}, null, 'user', 'ada', null)", "reason"),
    ("replay({id}, null, null, 'ada', 'r')", "actor_type"),
    ("replay({id}, null, 'user', '', 'r')", "actor_id"),
    ("replay({id}, null, 'user', 'ada', e'a\\nb')", "reason"),
    ("discard({id}, null, 'user', 'ada', '')", "reason"),
    ("discard({id}, null, 'nobody', 'ada', 'r')", "actor_type"),
    ("fix_forward({id}, null, gen_random_uuid(), null, '[]', 'user', 'ada', 'r', false)", "payload"),
    ("fix_forward({id}, null, gen_random_uuid(), '[]', '[]', 'user', 'ada', 'r', false)", "payload"),
    ("fix_forward({id}, null, gen_random_uuid(), '{{}}', '[]', 'user', 'ada', null, false)", "reason"),
    ("pause(null, 'user', 'ada', null)", "queue"),
    ("pause('', 'user', 'ada', null)", "queue"),
    ("pause(repeat('q', 64), 'user', 'ada', null)", "queue"),
    ("pause('q:default', null, 'ada', null)", "actor_type"),
    ("pause('q:default', 'user', null, null)", "actor_id"),
    ("pause('q:default', 'user', 'ada', '')", "reason"),
    ("resume(null, 'user', 'ada')", "queue"),
    ("resume('q:default', 'user', null)", "actor_id"),
    ("prune(null, now(), 10)", "states"),
    ("prune('{{running}}', now(), 10)", "states"),
    ("prune('{{succeeded}}', null, 10)", "before"),
    ("prune('{{succeeded}}', now(), null)", "limit"),
    ("prune('{{succeeded}}', now(), -1)", "limit"),
    ("prune('{{succeeded}}', now(), 100001)", "limit"),
]


@pytest.mark.parametrize(("call", "field"), OPERATOR)
def test_an_operator_s_function_refuses_by_the_name_of_the_field(engine: Engine, call: str, field: str) -> None:
    dead = engine.started()
    engine.end(dead, "bury")
    waiting = engine.enqueue().id
    engine.pause()
    id_ = dead.id if call.startswith(("replay", "discard", "fix")) else waiting
    named = f"'{id_}'::uuid"
    assert refused(engine, f"select mainspring.{call.format(id=named)}") == field


@pytest.mark.parametrize("verb", ["cancel", "reschedule", "prioritize", "replay", "discard"])
def test_no_job_at_all_is_nobody_s(engine: Engine, verb: str) -> None:
    more = {"reschedule": ", now()", "prioritize": ", 1"}.get(verb, "")
    reason = "" if verb in ("reschedule", "prioritize") else ", 'r'"
    for job in ("null", JOB):
        (answer,) = engine.rows(f"select mainspring.{verb}({job}::uuid, null{more}, 'user', 'ada'{reason})")[0]
        assert answer in (None, False, "not_found", ("f", None))


def test_the_client_does_not_repeat_a_value_that_the_database_could_not_read(engine: Engine) -> None:
    from mainspring.db.wire.translate import translate

    for value in ("'canary'::uuid", "'canary'::timestamptz", "'99999999999'::int", "'canary'::json"):
        with pytest.raises(psycopg.Error) as caught:
            engine.conn.execute(f"select {value}".encode())
        ours = translate(caught.value)
        assert isinstance(ours, MainspringError)
        assert "canary" not in str(ours)
