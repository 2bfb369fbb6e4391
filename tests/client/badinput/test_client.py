"""The client: times, numbers and ids that are none, and texts of any kind in every field of every verb."""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from tests.client.badinput.lists import ODD_BUT_FINE, UNFIT
from tests.client.conftest import Connect, client, colour, connect, count, sql
from tests.client.tasks import greet, store

from mainspring import Caller, MainspringError, NewJob, ValidationError, calling
from mainspring.text.texts import text_problem

__all__ = ["client", "colour", "connect", "sql"]  # fixtures
pytestmark = pytest.mark.anyio

NEW_YORK = ZoneInfo("America/New_York")
JOB = NewJob(task="greet", payload=msgspec.Raw(b"{}"))
NAIVE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)

BAD_INSTANTS: dict[str, Any] = {
    "naive": NAIVE,
    "a date": date(2026, 1, 1),
    "a float": 1767225600.5,
    "a text": "2026-01-01T00:00:00Z",
    "the last instant": datetime.max.replace(tzinfo=UTC),
    "the first instant, east": datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    "year 9999": datetime(9999, 12, 31, tzinfo=UTC),
    "year 2201": datetime(2201, 1, 1, tzinfo=UTC),
}
BAD_SPANS: dict[str, Any] = {
    "negative": timedelta(microseconds=-1),
    "more than ten years": timedelta(days=3654),
    "the longest": timedelta.max,
    "the shortest": timedelta.min,
    "a text": "an hour",
}


@pytest.mark.parametrize("name", BAD_INSTANTS)
async def test_an_instant_that_is_none_is_refused(client: Any, sql: Any, name: str) -> None:
    at = BAD_INSTANTS[name]
    for field in ("scheduled_for", "created_at"):
        with pytest.raises(ValidationError) as caught:
            await client.enqueue(msgspec.structs.replace(JOB, **{field: at}))
        assert caught.value.field == field
    with pytest.raises(ValidationError) as caught:
        await client.enqueue(greet.job().at(at))
    assert caught.value.field == "scheduled_for"
    with pytest.raises(ValidationError) as caught:
        await settled(client.own.timers.set(msgspec.structs.replace(JOB, scheduled_for=at, key="k")))
    assert caught.value.field == "scheduled_for"
    with pytest.raises(ValidationError) as caught:
        await client.reschedule(key="k", at=at)
    assert caught.value.field == "at"
    assert count(sql) == 0


@pytest.mark.parametrize("name", BAD_SPANS)
async def test_a_span_that_is_none_is_refused(client: Any, sql: Any, name: str) -> None:
    span = BAD_SPANS[name]
    for field, more in (("delay", {}), ("wait", {"mode": "debounce"}), ("ttl", {"mode": "window"})):
        with pytest.raises(ValidationError) as caught:
            await client.enqueue(msgspec.structs.replace(JOB, key="k", **more, **{field: span}))
        assert caught.value.field == field
    with pytest.raises(ValidationError, match=r"^delay: "):
        await settled(client.own.timers.set(msgspec.structs.replace(JOB, delay=span, key="k")))
    with pytest.raises(ValidationError, match=r"^delay: "):
        await client.reschedule(key="k", delay=span)
    with pytest.raises(ValidationError, match=r"^age: "):
        await client.prune(["dead"], span)
    assert count(sql) == 0


@pytest.mark.parametrize("seconds", [float("nan"), float("inf"), -1, 1e300, "5", None])
def test_a_delay_that_is_none_is_refused_where_it_is_said(seconds: Any) -> None:
    with pytest.raises(ValidationError, match=r"^delay: "):
        greet.job().after(seconds)


async def test_the_shortest_and_the_longest_delay_are_kept_exactly(client: Any, sql: Any) -> None:
    """Zero is now; a microsecond counts; ten years do not overflow."""
    for seconds, span in ((0, timedelta(0)), (1e-6, timedelta(microseconds=1)), (3653 * 86_400, timedelta(days=3653))):
        job = (await client.enqueue(greet.job().after(seconds))).id
        await settled(client.own.timers.set(greet.job().after(span).with_key("timer")))
        kept = "select coalesce(scheduled_for, created_at) - created_at from mainspring.job where id = %s"
        assert sql.execute(kept, [job]).fetchone() == (span,)
    assert sql.execute("select max(due_at) < '2200-01-01Z' from mainspring.waiting").fetchone() == (True,)


async def test_instants_of_odd_clocks_are_kept_exactly(client: Any) -> None:
    instants = [
        datetime(2026, 3, 8, 2, 30, tzinfo=NEW_YORK),  # does not exist there
        datetime(2026, 11, 1, 1, 30, tzinfo=NEW_YORK),  # exists twice
        datetime(2026, 11, 1, 1, 30, fold=1, tzinfo=NEW_YORK),
        datetime(2026, 4, 5, 1, 45, tzinfo=ZoneInfo("Australia/Lord_Howe")),  # half an hour of summer time
        datetime(2027, 1, 1, tzinfo=ZoneInfo("Asia/Kathmandu")),
        datetime(2027, 1, 1, tzinfo=timezone(timedelta(hours=5, minutes=30, seconds=7))),
        datetime(2200, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1970, 1, 1, tzinfo=UTC),
    ]
    answers = await client.enqueue_many([greet.job().at(at) for at in instants])
    for at, answer in zip(instants, answers, strict=True):
        assert (await client.get(answer.id)).scheduled_for == at.astimezone(UTC)


@pytest.mark.parametrize("limit", [0, -1, 1001, 10**30, True, "5", 1.5, None, float("nan")])
async def test_a_limit_that_is_none_is_refused(client: Any, limit: Any) -> None:
    with pytest.raises(ValidationError, match=r"^limit: "):
        await client.jobs(limit=limit)
    with pytest.raises(ValidationError, match=r"^limit: "):
        await settled(client.own.audit.events(limit=limit))


@pytest.mark.parametrize("priority", [-1, 4, 1.5, "1", None, True, 10**30])
async def test_a_priority_that_is_none_is_refused(client: Any, priority: Any) -> None:
    with pytest.raises(ValidationError, match=r"^priority: "):
        await client.prioritize(UUID(int=1), priority)
    with pytest.raises(ValidationError, match=r"^priority: "):
        await client.enqueue(JOB.with_priority(priority))


@pytest.mark.parametrize("id_", ["'; drop table x; --", "", "x" * 1_000_000, 7, object(), b"x", "\0", None])
async def test_an_id_that_is_none_is_refused_by_its_name(client: Any, id_: Any) -> None:
    verbs: list[tuple[str, Callable[[], Any]]] = [
        ("job", lambda: client.get(id_)), ("job", lambda: client.cancel(id_)), ("job", lambda: client.attempts(id_)),
        ("job", lambda: client.prioritize(id_, 1)), ("job", lambda: client.replay(id_, reason="r")),
        ("job", lambda: client.reschedule(id_, delay=timedelta(0))),
    ]  # fmt: skip
    if id_ is not None:
        verbs.append(("before", lambda: client.jobs(before=id_)))
        verbs.append(("id", lambda: client.enqueue(msgspec.structs.replace(JOB, id=id_))))
    for field, verb in verbs:
        with pytest.raises(ValidationError) as caught:
            await verb()
        assert caught.value.field == field
        assert len(str(caught.value)) < 200


async def test_a_hundred_megabytes_are_refused_without_a_look(connect: Connect) -> None:
    huge = msgspec.Raw(b'{"value":"' + b"x" * 100_000_000 + b'"}')
    with pytest.raises(ValidationError, match="is larger than 256 KiB"):
        await connect("host=/nowhere").enqueue(NewJob(task="store", payload=huge))


async def test_a_payload_of_exactly_the_limit_is_kept(client: Any) -> None:
    frame = len(b'{"value":""}')
    kept = await client.enqueue(store.job(value="x" * (256 * 1024 - frame)))
    assert len((await client.get(kept.id)).payload["value"]) == 256 * 1024 - frame
    with pytest.raises(ValidationError):
        await client.enqueue(store.job(value="x" * (256 * 1024 - frame + 1)))


ALPHABET = [
    *"abcXYZ019 _-.:/\\'\"`%$&|;(){}[]<>=+*?!#@~^,", "\0", "\n", "\r", "\t", "\x1b", "\x7f", "\x85", "\u00a0", "\u00e9",
    "e\u0301", "\u200b", "\u200f", "\u2028", "\u202e", "\u2066", "\u3000", "\ufeff", "\uffff", "\ud800", "\udfff", "😀",
    "\U0010ffff", "\u00df", "\u0131", "\u0130", "\ufb01",
]  # fmt: skip


def generated(seed: int, cases: int) -> list[str]:
    """Texts that are mostly strange, some of them long, and many of them fine."""
    source = random.Random(seed)
    texts = []
    for _ in range(cases):
        length = source.choice([1, 2, 3, 8, 20, 63, 64, 200, 201, 512, 513, 1000, 1001])
        kind = source.random()
        if kind < 0.3:
            texts.append("".join(source.choices(ALPHABET, k=length)))
        elif kind < 0.5:
            points = [source.choice([source.randrange(0x250), source.randrange(0x110000)]) for _ in range(length)]
            texts.append("".join(map(chr, points)))
        else:
            texts.append("".join(source.choices(ALPHABET[:42], k=min(length, 70))))
    return texts


#: Every text of every public verb: (its name in a refusal, the longest that is allowed, the call).
def verbs(client: Any) -> list[tuple[str, int, Callable[[str], Any]]]:
    job = UUID(int=1)

    async def as_caller(text: str, **fields: Any) -> Any:
        with calling(Caller(**{"actor_type": "user", "actor_id": "7"} | fields)):
            return await client.cancel(job)

    return [
        ("org", 200, lambda text: client.get(job, org=text)),
        ("org", 200, lambda text: client.jobs(org=text)),
        ("queue", 200, lambda text: client.jobs(queue=text)),
        ("task", 200, lambda text: client.jobs(task=text)),
        ("state", 0, lambda text: client.jobs(state=text)),
        ("org", 200, lambda text: client.attempts(job, org=text)),
        ("key", 512, lambda text: client.cancel(key=text)),
        ("org", 200, lambda text: client.cancel(key="k", org=text)),
        ("reason", 1000, lambda text: client.cancel(job, reason=text)),
        ("key", 512, lambda text: client.reschedule(key=text, delay=timedelta(0))),
        ("key", 512, lambda text: client.get(key=text)),
        ("key", 512, lambda text: client.own.timers.get(text)),
        ("org", 200, lambda text: client.own.timers.get("k", org=text)),
        ("key", 512, lambda text: client.own.timers.cancel(text)),
        ("reason", 1000, lambda text: client.reschedule(job, delay=timedelta(0), reason=text)),
        ("reason", 1000, lambda text: client.prioritize(job, 1, reason=text)),
        ("reason", 1000, lambda text: client.replay(job, reason=text)),
        ("queue", 63, lambda text: client.pause(text)),
        ("reason", 1000, lambda text: client.pause("q:paused", reason=text)),
        ("queue", 63, lambda text: client.resume(text)),
        ("reason", 1000, lambda text: client.resume("q:paused", reason=text)),
        ("queue", 63, lambda text: client.depth(text)),
        ("states", 0, lambda text: client.prune([text], timedelta(0))),
        ("actor_id", 200, lambda text: as_caller(text, actor_id=text)),
        ("org", 200, lambda text: as_caller(text, org_id=text)),
        ("task", 200, lambda text: client.enqueue(msgspec.structs.replace(JOB, task=text))),
        ("queue", 63, lambda text: client.enqueue(JOB.on_queue(text))),
        ("key", 512, lambda text: client.enqueue(JOB.with_key(text))),
        ("org_id", 200, lambda text: client.enqueue(JOB.for_org(text))),
        ("actor_id", 200, lambda text: client.enqueue(JOB.by(text))),
        ("actor_type", 0, lambda text: client.enqueue(JOB.by("7", text))),
        ("mode", 0, lambda text: client.enqueue(JOB.with_key("k", text))),
        ("request_id", 200, lambda text: client.enqueue(JOB.traced(request_id=text))),
        ("correlation_id", 200, lambda text: client.enqueue(JOB.traced(correlation_id=text))),
        ("event", 0, lambda text: client.own.audit.record(text)),
        ("event", 100, lambda text: client.own.audit.events(event=text)),
        ("actor", 200, lambda text: client.own.audit.events(actor=text)),
        ("org", 200, lambda text: client.own.audit.events(org=text)),
        ("org", 200, lambda text: client.own.audit.seal(org=text)),
        ("org", 200, lambda text: client.own.audit.heads(org=text)),
        ("head", 200, lambda text: client.own.audit.verify(org="acme", head=text)),
    ]


@pytest.mark.parametrize("seed", range(2))
async def test_any_text_in_any_field_of_any_verb_is_taken_or_refused_by_its_name(
    client: Any, sql: Any, seed: int
) -> None:
    """Generated: some 900 calls a seed and colour; what is refused writes nothing, what is taken is found again."""
    texts = [*generated(seed, 20), *random.Random(seed).sample([*ODD_BUT_FINE, *UNFIT.values()], 4)]
    assert len(texts) * len(verbs(client)) > 500
    for text in texts:
        for field, longest, verb in verbs(client):
            before = count(sql)
            refusal = await refusal_of(verb, text)
            assert (refusal is None) == (longest > 0 and text_problem(text, longest) is None), (field, text)
            if refusal is not None:
                assert (refusal.field, len(str(refusal)) < 300, count(sql)) == (field, True, before), text
    stored = sql.execute("select org_id, task, queue, actor_id from mainspring.job").fetchall()
    assert {text for row in stored for text in row} <= {*texts, "default", "greet", "q:default", "SYSTEM", "7"}


async def refusal_of(verb: Callable[[str], Any], text: str) -> ValidationError | None:
    """How a verb refuses a text; None if it takes it, though there may be no such job."""
    try:
        await settled(verb(text))
    except ValidationError as refusal:
        return refusal
    except MainspringError:
        pass
    return None


async def settled(answer: Any) -> Any:
    return await answer if inspect.isawaitable(answer) else answer
