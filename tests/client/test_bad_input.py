"""The bad-input lists: each is refused with an error that names the field, or comes back exactly as it was sent."""

from __future__ import annotations

import json
import re
from functools import partial
from typing import Any

import msgspec
import psycopg
import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from psycopg.rows import TupleRow
from tests.client.badinput.lists import BAD_PAYLOADS, FIELDS, ODD_BUT_FINE, UNFIT, nested
from tests.client.conftest import Connect, count
from tests.client.tasks import greet, store
from tests.databases import Database

from mainspring import Client, NewJob, ValidationError

pytestmark = pytest.mark.anyio
Sql = psycopg.Connection[TupleRow]


def job_with(**fields: str) -> NewJob:
    given: dict[str, Any] = {"task": "greet", "payload": msgspec.Raw(b"{}"), "actor_type": "user", "actor_id": "7"}
    return NewJob(**given | fields)


async def test_odd_texts_come_back_exactly_in_every_field(client: Any, sql: Sql) -> None:
    jobs = [
        msgspec.structs.replace(
            job_with(**dict.fromkeys(FIELDS, text)), payload=msgspec.Raw(msgspec.json.encode({"value": text}))
        )
        for text in ODD_BUT_FINE
    ]

    answers = await client.enqueue_many(jobs)

    for text, answer in zip(ODD_BUT_FINE, answers, strict=True):
        stored = await client.get(answer.id, org=text)
        assert answer.answer == "created"
        assert [getattr(stored, "idempotency_key" if name == "key" else name) for name in FIELDS] == [text] * 7
        assert stored.payload == {"value": text}
        assert await client.depth(text) == 1
        assert [job.id for job in await client.jobs(org=text, queue=text, task=text)] == [answer.id]
        assert await client.cancel(key=text, org=text, reason=text) == "cancelled"
        assert (await client.get(answer.id)).error["message"] == text
        await client.pause(text, reason=text)
        assert {queue.name: queue.pause_reason for queue in await client.queues()}[text] == text
        assert await client.resume(text) is True
    assert count(sql) == len(ODD_BUT_FINE)


async def test_unfit_texts_are_refused_by_the_name_of_their_field(client: Any, sql: Sql) -> None:
    for text in UNFIT.values():
        await refuses(client, text)
    assert count(sql) == 0


async def refuses(client: Any, text: str) -> None:
    for field in FIELDS:
        with pytest.raises(ValidationError, match=f"^{field}: ") as caught:
            await client.enqueue(job_with(**{field: text}))
        assert caught.value.field == field
        assert len(str(caught.value)) < 200
    for field, verb, arguments in [
        ("org", client.jobs, {"org": text}),
        ("task", client.jobs, {"task": text}),
        ("state", client.jobs, {"state": text}),
        ("queue", client.depth, {"queue": text}),
        ("queue", client.resume, {"queue": text}),
        ("key", client.cancel, {"key": text}),
        ("reason", client.cancel, {"key": "k", "reason": text}),
        ("reason", client.pause, {"queue": "q:default", "reason": text}),
    ]:
        with pytest.raises(ValidationError, match=f"^{field}: ") as caught:
            await verb(**arguments)
        assert len(str(caught.value)) < 200


async def test_a_name_one_character_too_long_is_not_cut(client: Any, sql: Sql) -> None:
    limits = {"queue": 63, "task": 200, "org_id": 200, "actor_id": 200, "key": 512}
    for name, limit in limits.items():
        with pytest.raises(ValidationError, match=f"^{name}: is longer than {limit}"):
            await client.enqueue(job_with(**{name: "x" * (limit + 1)}))
    assert count(sql) == 0

    answer = await client.enqueue(job_with(**{name: "ü" * limit for name, limit in limits.items()}))
    stored = await client.get(answer.id)
    assert (stored.queue, stored.idempotency_key) == ("ü" * 63, "ü" * 512)


async def test_a_payload_that_cannot_be_kept_is_refused(connect: Connect) -> None:
    client = connect("host=/nowhere")  # nothing is even sent

    for name, payload in BAD_PAYLOADS.items():
        with pytest.raises(ValidationError, match=r"^payload") as caught:
            await client.enqueue(NewJob(task="store", payload=msgspec.Raw(payload)))
        assert caught.value.field.startswith("payload"), name
        assert len(str(caught.value)) < 200, name


@pytest.mark.parametrize(
    "value",
    [float("nan"), float("inf"), "\ud800", {"a": "\udc00"}, object(), {1, object()}, {("a",): 1}],
    ids=["nan", "inf", "surrogate", "nested surrogate", "object", "set of objects", "tuple key"],
)
def test_a_value_that_json_does_not_have_is_refused_by_the_name_of_its_field(value: Any) -> None:
    with pytest.raises(ValidationError, match=r"^value"):
        store.job(value=value)


def same(stored: Any, sent: Any) -> bool:
    """Equal and of one type, except that PostgreSQL keeps 1e23 as the whole number that it is."""
    if isinstance(sent, float):
        return not isinstance(stored, bool) and float(stored) == sent
    if isinstance(sent, dict):
        return stored.keys() == sent.keys() and all(same(stored[key], sent[key]) for key in sent)
    if isinstance(sent, list):
        return len(stored) == len(sent) and all(map(same, stored, sent))
    return type(stored) is type(sent) and bool(stored == sent)


async def test_odd_payloads_come_back_exactly(client: Any) -> None:
    values: list[Any] = [
        *ODD_BUT_FINE, "", "\n\t\x1f", "\u202e", "\u2028", "\uffff", "😀" * 100, "24:00", "2016-12-31T23:59:60Z",
        -0, 0.1 + 0.2, 1e-400, 5e-324, 1.7976931348623157e308, 2**53 + 1, 2**63, 2**64 - 1, -(2**63),
        "123456789012345.678", True, None, [], {}, {"": 1}, {"__proto__": 1, "constructor": 2},
        {"k" * 65536: 1}, {str(n): n for n in range(10_000)}, {"e\u0301": 1, "\u00e9": 2}, json.loads(nested(62)),
    ]  # fmt: skip

    answers = await client.enqueue_many([store.job(value=value) for value in values])

    for value, answer in zip(values, answers, strict=True):
        stored = (await client.get(answer.id)).payload["value"]
        assert same(stored, value), value


LIKELY_FINE = st.text(st.characters(codec="utf-8", exclude_categories=["C", "Z"]), min_size=1, max_size=63)
ANY_TEXT = st.one_of(*[LIKELY_FINE] * 29, st.text(max_size=70))
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**70), 2**70) | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def test_any_text_and_any_value_is_kept_exactly_or_refused_by_name(database: Database) -> None:
    with Client(database.dsn) as client:

        @settings(max_examples=100, deadline=None, database=None)
        @given(texts=st.lists(ANY_TEXT, min_size=5, max_size=5), value=ANY_VALUE)
        def check(texts: list[str], value: Any) -> None:
            fields = dict(zip(["queue", "org_id", "request_id", "actor_id", "key"], texts, strict=True))
            try:
                job = msgspec.structs.replace(store.job(value=value), actor_type="user", **fields)
                answer = client.enqueue(job)
            except ValidationError as refusal:
                event("refused")
                if re.split(r"[.\[]", refusal.field)[0] not in {*fields, "value", "payload"}:
                    raise
                return
            event("kept")
            stored = client.get(answer.id)
            assert same(stored.payload["value"], value)
            assert [stored.queue, stored.org_id, stored.request_id, stored.actor_id, stored.idempotency_key] == texts
            client.cancel(answer.id)  # and its key is free again

        check()


async def test_an_id_that_is_none_is_refused(client: Any) -> None:
    for verb in (client.get, client.cancel, client.attempts, partial(client.replay, reason="x")):
        with pytest.raises(ValidationError):
            await verb("'; drop table x; --")
    assert (await client.enqueue(greet.job())).answer == "created"
