from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import msgspec
import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.client.conftest import Connect, claim, count, settle
from tests.client.tasks import at_once, bill, greet, plan

from mainspring import Caller, Enqueued, NewJob, ValidationError, calling
from mainspring.errors import JobExists, KeyReused, PayloadTooLarge
from mainspring.uuid7 import uuid7
from mainspring.virtual.clock import Clock

pytestmark = pytest.mark.anyio
Sql = psycopg.Connection[TupleRow]
NAIVE = datetime(2026, 1, 1, tzinfo=UTC).replace(tzinfo=None)
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.rule("ENG-2.03", "ENG-2.15", "ENG-18.01")
async def test_every_field_of_the_envelope_survives(client: Any, sql: Sql) -> None:
    Clock(sql).set(datetime(2026, 3, 1, 12, tzinfo=UTC))
    project, due = uuid4(), datetime(2026, 3, 2, 8, 30, 0, 123456, tzinfo=timezone(timedelta(hours=-3, minutes=-30)))
    job = (
        greet.job(name="Zoë", times=3)
        .with_id(uuid4())
        .with_key("greeting:7")
        .at(due)
        .with_priority(1)
        .on_queue("q:exports")
        .by("u-7", "api_key")
        .for_org("acme")
        .in_project(project)
        .traced(request_id="r-1", correlation_id="c-1", traceparent=TRACE)
    )

    answer = await client.enqueue(job)
    stored = await client.get(answer.id)

    assert (answer.id, answer.answer, answer.state) == (job.id, "created", "scheduled")
    assert (stored.task, stored.payload, stored.state) == ("greet", {"name": "Zoë", "times": 3}, "scheduled")
    assert (stored.org_id, stored.project_id, stored.actor_type, stored.actor_id) == ("acme", project, "api_key", "u-7")
    assert (stored.request_id, stored.correlation_id, stored.traceparent) == ("r-1", "c-1", TRACE)
    assert (stored.idempotency_key, stored.queue, stored.priority) == ("greeting:7", "q:exports", 1)
    assert (stored.scheduled_for, stored.due_at) == (due, due)
    assert (stored.attempt, stored.max_attempts, stored.cancellable) == (0, greet.retry.attempts, True)


@pytest.mark.rule("ENG-2.16", "ENG-2.04")
async def test_a_bare_enqueue_is_completed_by_the_system_with_fresh_ids(client: Any) -> None:
    first, second = [await client.get((await client.enqueue(greet.job())).id) for _ in range(2)]

    assert (first.org_id, first.actor_type, first.actor_id) == ("default", "system", "SYSTEM")
    assert first.request_id == first.correlation_id == first.idempotency_key == str(first.id)
    assert first.id.version == 7
    assert second.request_id != first.request_id


@pytest.mark.rule("ENG-2.16")
async def test_the_calling_context_completes_a_job_and_the_client_s_defaults_come_after_it(connect: Connect) -> None:
    client = connect(caller=Caller(org_id="ours", actor_type="api_key", actor_id="cron", correlation_id="c-default"))
    context = Caller(org_id="acme", actor_type="user", actor_id="7", request_id="r-9", traceparent=TRACE)

    with calling(context):
        inside = await client.get((await client.enqueue(greet.job())).id)
        own = await client.get((await client.enqueue(greet.job().by(8).traced(request_id="mine"))).id)
    outside = await client.get((await client.enqueue(greet.job())).id)

    assert (inside.org_id, inside.actor_type, inside.actor_id) == ("acme", "user", "7")
    assert (inside.request_id, inside.correlation_id, inside.traceparent) == ("r-9", "c-default", TRACE)
    assert (own.actor_id, own.request_id) == ("8", "mine")
    assert (outside.org_id, outside.actor_id, outside.request_id) == ("ours", "cron", str(outside.id))


async def test_a_broken_trace_is_dropped_and_costs_no_job(client: Any) -> None:
    answer = await client.enqueue(greet.job().traced(traceparent="00-nonsense"))

    assert (await client.get(answer.id)).traceparent is None


WRONG: list[tuple[str, dict[str, Any]]] = [
    ("task", {"task": ""}),
    ("task", {"task": None}),
    ("payload", {"payload": None}),
    ("payload", {"payload": msgspec.Raw(b"[]")}),
    ("id", {"id": "7"}),
    ("org_id", {"org_id": ""}),
    ("actor_id", {"actor_id": "", "actor_type": "user"}),
    ("actor_id", {"actor_type": "user"}),
    ("actor_type", {"actor_id": "7"}),
    ("actor_type", {"actor_id": "7", "actor_type": "robot"}),
    ("request_id", {"request_id": ""}),
    ("correlation_id", {"correlation_id": " "}),
    ("key", {"key": ""}),
    ("key", {"mode": "keep"}),
    ("mode", {"key": "k", "mode": "kepe"}),
    ("queue", {"queue": ""}),
    ("queue", {"queue": "q:deadletter"}),
    ("priority", {"priority": 7}),
    ("priority", {"priority": -1}),
    ("max_attempts", {"max_attempts": 0}),
    ("created_at", {"created_at": NAIVE}),
    ("scheduled_for", {"scheduled_for": NAIVE}),
    ("scheduled_for", {"scheduled_for": datetime(9999, 12, 31, tzinfo=UTC)}),
    ("scheduled_for", {"scheduled_for": datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=14)))}),
    ("delay", {"delay": timedelta(seconds=-1)}),
    ("delay", {"delay": timedelta.max}),
]


@pytest.mark.rule("ENG-2.01", "ENG-2.04", "ENG-11.03")
async def test_a_wrong_field_is_refused_by_name_and_nothing_is_written(client: Any, sql: Sql) -> None:
    for field, changes in WRONG:
        job = NewJob(**{"task": "greet", "payload": msgspec.Raw(b"{}")} | changes)
        with pytest.raises(ValidationError, match=f"^{field}: ") as caught:
            await client.enqueue(job)
        assert (caught.value.field, caught.value.code) == (field, "VALIDATION_ERROR"), changes
    assert count(sql) == 0


@pytest.mark.rule("ENG-2.02")
async def test_a_job_of_a_project_needs_its_project(client: Any, sql: Sql) -> None:
    with pytest.raises(ValidationError, match=r"^project_id: is missing"):
        await client.enqueue(plan.job(day=1))
    assert count(sql) == 0

    answer = await client.enqueue(plan.job(day=1).in_project(uuid4()))
    assert answer.answer == "created"
    assert (await client.get((await client.enqueue(greet.job())).id)).project_id is None


@pytest.mark.rule("ENG-2.08", "ENG-2.10")
def test_a_payload_that_does_not_fit_its_task_makes_no_job() -> None:
    with pytest.raises(ValidationError, match=r"^name: is not a field"):
        bill.job(tenant_id=1, name="ACME Ltd")  # type: ignore[call-arg]  # the point
    with pytest.raises(ValidationError, match=r"^times: expected int"):
        greet.job(times="three")  # type: ignore[arg-type]  # the point


@pytest.mark.rule("ENG-2.11")
async def test_a_payload_may_have_256_kib_and_not_a_byte_more(client: Any, sql: Sql) -> None:
    def sized(size: int) -> NewJob:
        return NewJob(task="store", payload=msgspec.Raw(b'{"value":"' + b"x" * (size - 12) + b'"}'))

    with pytest.raises(PayloadTooLarge) as caught:
        await client.enqueue(sized(256 * 1024 + 1))
    assert (caught.value.code, caught.value.field) == ("PAYLOAD_TOO_LARGE", "payload")
    assert count(sql) == 0

    answer = await client.enqueue(sized(256 * 1024))
    assert len((await client.get(answer.id)).payload["value"]) == 256 * 1024 - 12


@pytest.mark.rule("ENG-2.15")
async def test_an_id_is_never_taken_twice(client: Any) -> None:
    job_id = uuid7()
    await client.enqueue(greet.job(name="first").with_id(job_id).with_key("a"))

    with pytest.raises(JobExists) as caught:
        await client.enqueue(greet.job(name="second").with_id(job_id).with_key("b"))

    assert caught.value.job_id == job_id
    assert (await client.get(job_id)).payload["name"] == "first"


@pytest.mark.rule("ENG-13.01")
async def test_a_delay_becomes_a_time_by_the_database_s_clock(client: Any, sql: Sql) -> None:
    now = Clock(sql).set(datetime(2031, 5, 6, 7, tzinfo=UTC))

    job = await client.get((await client.enqueue(greet.job().after(60))).id)

    assert (job.scheduled_for, job.due_at, job.state) == (now + timedelta(seconds=60),) * 2 + ("scheduled",)
    assert job.created_at == now == await client.now()


async def test_a_task_that_cannot_be_scheduled_is_not(client: Any, sql: Sql) -> None:
    with pytest.raises(ValidationError, match=r"^scheduled_for: is not allowed"):
        await client.enqueue(at_once.job().after(1))
    assert count(sql) == 0


@pytest.mark.rule("ENG-13.04")
async def test_a_producer_s_clock_may_be_off_by_a_minute(client: Any, sql: Sql) -> None:
    now = Clock(sql).set(datetime(2026, 3, 1, tzinfo=UTC))
    job = greet.job()

    with pytest.raises(ValidationError, match=r"^created_at: ") as caught:
        await client.enqueue(msgspec.structs.replace(job, created_at=now + timedelta(minutes=5)))
    assert caught.value.field == "created_at"
    assert count(sql) == 0

    for seconds in (60, -3600):
        answer = await client.enqueue(msgspec.structs.replace(job, created_at=now + timedelta(seconds=seconds)))
        assert (await client.get(answer.id)).created_at == now + timedelta(seconds=seconds)


async def test_answers_come_in_the_order_of_the_jobs(client: Any) -> None:
    await client.enqueue(greet.job(name="taken").with_key("taken"))
    ids = [uuid7() for _ in range(30)]
    jobs = [greet.job(name=str(n)).with_id(job_id) for n, job_id in enumerate(ids)]
    jobs[7] = greet.job(name="taken").with_key("taken")
    jobs[20] = jobs[20].after(60)

    answers = await client.enqueue_many(jobs)

    assert [answer.id for answer in answers[:7] + answers[8:]] == ids[:7] + ids[8:]
    assert [answer.answer for answer in answers] == ["created"] * 7 + ["existing"] + ["created"] * 22
    assert [answer.state for answer in answers] == ["ready"] * 20 + ["scheduled"] + ["ready"] * 9


async def test_no_jobs_are_enqueued_without_a_word_to_the_database(connect: Connect) -> None:
    nowhere = connect("host=/nowhere", timeout=0.1)

    assert await nowhere.enqueue_many([]) == []


@pytest.mark.rule("ENG-4.10")
@pytest.mark.parametrize("number", [3, 2500])
async def test_jobs_are_enqueued_all_or_none(client: Any, sql: Sql, number: int) -> None:
    await client.enqueue(greet.job(name="other").with_key("taken"))
    jobs = [greet.job(name=str(n)) for n in range(number)]

    with pytest.raises(KeyReused):  # found by the database, in the last statement of several
        await client.enqueue_many([*jobs, greet.job(name="mine").with_key("taken")])
    assert count(sql) == 1
    with pytest.raises(ValidationError):  # found before anything is sent
        await client.enqueue_many([*jobs, greet.job().with_priority(7)])
    assert count(sql) == 1

    answers = await client.enqueue_many(jobs)
    assert len({answer.id for answer in answers}) == number == count(sql) - 1


@pytest.mark.rule("ENG-4.08")
async def test_the_answer_says_what_happened_and_where_the_job_stands(client: Any, sql: Sql) -> None:
    job = greet.job().with_key("k", "keep")
    first = await client.enqueue(job)
    assert (first.answer, first.state) == ("created", "ready")
    assert await client.enqueue(job) == Enqueued(first.id, "existing", "ready")

    settle(sql, claim(sql, "greet"), "reject")
    assert await client.enqueue(job) == Enqueued(first.id, "existing", "failed")

    again = await client.enqueue(greet.job().with_key("k", "reset_failed").after(60))
    assert again == Enqueued(first.id, "reset", "scheduled")
    assert await client.enqueue(greet.job(times=2).with_key("k", "replace")) == Enqueued(first.id, "replaced", "ready")


async def test_a_reused_key_names_the_job_that_has_it(client: Any) -> None:
    first = await client.enqueue(greet.job(name="a").with_key("k"))

    with pytest.raises(KeyReused) as caught:
        await client.enqueue(greet.job(name="b").with_key("k"))

    assert (caught.value.job_id, caught.value.code) == (first.id, "IDEMPOTENCY_KEY_REUSED")
    assert isinstance(caught.value.job_id, UUID)


async def test_a_single_enqueue_writes_what_a_batch_writes(client: Any, sql: Sql) -> None:
    Clock(sql).set(datetime(2026, 3, 1, 12, tzinfo=UTC))
    full = greet.job(name="Zoë", times=3).with_priority(1).on_queue("q:exports").by("u-7", "api_key").for_org("acme")
    full = full.in_project(uuid4()).traced(request_id="r-1", correlation_id="c-1", traceparent=TRACE)
    for job in (greet.job(), full):
        single = await client.enqueue(job)
        first, _ = await client.enqueue_many([job, greet.job()])
        assert (single.answer, single.state) == (first.answer, first.state)
        for table in ("job", "waiting"):
            query = "select replace(to_jsonb(t)::text, t.id::text, 'its id') from mainspring.{} t where id = %s"
            rows = [sql.execute(query.format(table), [answer.id]).fetchone() for answer in (single, first)]
            assert rows[0] == rows[1] != (None,)
