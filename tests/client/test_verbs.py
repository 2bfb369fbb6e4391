from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.client.conftest import Connect, claim, complete, settle
from tests.client.tasks import greet, store

from mainspring import Caller, ValidationError, calling
from mainspring.errors import ConfigurationError, JobNotFound, ResultUnavailable, SchemaError, TransitionRefused
from mainspring.virtual.clock import Clock

pytestmark = pytest.mark.anyio
Sql = psycopg.Connection[TupleRow]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def test_get_finds_one_job_or_says_that_there_is_none(client: Any) -> None:
    answer = await client.enqueue(greet.job())
    assert (await client.get(answer.id)).id == answer.id

    missing = uuid4()
    with pytest.raises(JobNotFound, match=str(missing)) as caught:
        await client.get(missing)
    assert caught.value.job_id == missing


async def test_jobs_are_listed_newest_first_by_filter_and_page(client: Any, sql: Sql) -> None:
    ids = [(await client.enqueue(greet.job())).id for _ in range(4)]
    other = (await client.enqueue(store.job(value=1).on_queue("q:exports").for_org("acme").after(60))).id

    async def listed(**filters: Any) -> list[Any]:
        return [job.id for job in await client.jobs(**filters)]

    assert await listed() == [other, *ids[::-1]]
    assert await listed(task="store") == await listed(queue="q:exports") == await listed(state="scheduled") == [other]
    assert await listed(org="acme") == [other]
    assert await listed(org="default", limit=2) == ids[:1:-1]
    assert await listed(before=ids[2]) == ids[1::-1]
    settle(sql, claim(sql, "greet"), "bury")
    assert await listed(queue="q:deadletter") == ids[::-1] == await listed(state="dead")


@pytest.mark.parametrize(
    ("filters", "field"),
    [({"limit": 0}, "limit"), ({"limit": 1001}, "limit"), ({"state": "done"}, "state"), ({"before": "x"}, "before")],
)
async def test_a_wrong_filter_is_refused_by_name(client: Any, filters: dict[str, Any], field: str) -> None:
    with pytest.raises(ValidationError) as caught:
        await client.jobs(**filters)
    assert caught.value.field == field


async def test_attempts_are_the_history_of_a_job(client: Any, sql: Sql) -> None:
    job = (await client.enqueue(greet.job())).id
    assert await client.attempts(job) == []
    settle(sql, claim(sql, "greet"), "fail")
    complete(sql, claim(sql, "greet"))

    first, second = await client.attempts(job)

    assert (first.attempt, first.outcome, first.worker, first.error["code"]) == (1, "retried", "w", "BUSINESS_RULE")
    assert (second.attempt, second.outcome, second.error) == (2, "succeeded", None)
    assert first.epoch < second.epoch
    assert first.ended_at <= second.started_at <= second.ended_at
    with pytest.raises(JobNotFound):
        await client.attempts(uuid4())


@pytest.mark.rule("ENG-18.05", "ENG-14.07")
async def test_cancel_answers_what_became_of_the_job(client: Any, sql: Sql) -> None:
    by_id = (await client.enqueue(greet.job())).id
    await client.enqueue(greet.job(name="b").with_key("k"))
    running = (await client.enqueue(store.job(value=1))).id

    assert await client.cancel(by_id, reason="not needed") == "cancelled"
    assert await client.cancel(by_id) == "cancelled"
    assert (await client.get(by_id)).error["message"] == "not needed"
    assert await client.cancel(key="k") == "cancelled"
    claimed = claim(sql, "store")
    assert await client.cancel(running) == "cancel_requested"
    assert await client.cancel(running) == "cancel_requested"
    complete(sql, claimed)
    assert await client.cancel(running) == "already_finished"
    assert await client.cancel(uuid4()) == "not_found"
    assert await client.cancel(key="never seen") == "not_found"


async def test_a_job_is_named_by_its_id_or_its_key(client: Any) -> None:
    for verb, given in ((client.cancel, {}), (client.reschedule, {"delay": timedelta(0)})):
        for names in ({}, {"job": uuid4(), "key": "k"}):
            with pytest.raises(ValidationError) as caught:
                await verb(**names, **given)
            assert caught.value.field == "job"


@pytest.mark.rule("ENG-14.10")
async def test_another_organisation_s_job_is_not_found(connect: Connect) -> None:
    acme, other = (connect(caller=Caller(org_id=org)) for org in ("acme", "other"))
    job = (await acme.enqueue(greet.job().with_key("k"))).id

    assert await other.cancel(key="k") == "not_found"
    assert await other.cancel(job) == "not_found"
    assert await acme.cancel(job, org="other") == "not_found"
    for verb, names in (
        (other.get, {"job": job}),
        (other.attempts, {"job": job}),
        (other.reschedule, {"job": job, "delay": timedelta(hours=1)}),
        (other.reschedule, {"key": "k", "delay": timedelta(hours=1)}),
        (other.prioritize, {"job": job, "priority": 0}),
        (other.replay, {"job": job, "reason": "again"}),
        (other.result, {"job": job, "timeout": 0}),
    ):
        with pytest.raises(JobNotFound):
            await verb(**names)
    assert await other.jobs() == []
    with calling(Caller(org_id="other")):
        assert await acme.cancel(key="k") == "not_found"
    unchanged = await acme.get(job)
    assert (unchanged.state, unchanged.priority) == ("ready", 2)
    assert await acme.cancel(key="k") == "cancelled"


async def test_reschedule_moves_a_job_that_waits(client: Any, sql: Sql) -> None:
    Clock(sql).set(NOON)
    job = (await client.enqueue(greet.job().with_key("k"))).id

    assert await client.reschedule(job, at=NOON + timedelta(hours=2)) == "scheduled"
    assert (await client.get(job)).due_at == NOON + timedelta(hours=2)
    assert await client.reschedule(key="k", delay=timedelta(minutes=5)) == "scheduled"
    assert (await client.get(job)).due_at == NOON + timedelta(minutes=5)
    assert await client.reschedule(key="k", at=NOON - timedelta(days=1)) == "ready"
    assert (await client.get(job)).due_at == NOON

    claim(sql, "greet")
    with pytest.raises(TransitionRefused) as caught:
        await client.reschedule(job, delay=timedelta(0))
    assert (caught.value.verb, caught.value.state, caught.value.job_id) == ("reschedule", "running", job)
    for unknown in ({"job": uuid4()}, {"key": "unknown"}):
        with pytest.raises(JobNotFound):
            await client.reschedule(**unknown, delay=timedelta(0))


@pytest.mark.parametrize(
    ("when", "field"),
    [
        ({}, "at"),
        ({"at": NOON, "delay": timedelta(0)}, "at"),
        ({"at": NOON.replace(tzinfo=None)}, "at"),
        ({"at": datetime.max.replace(tzinfo=UTC)}, "at"),
        ({"delay": timedelta(seconds=-1)}, "delay"),
        ({"delay": timedelta.max}, "delay"),
    ],
)
async def test_a_wrong_time_to_move_to_is_refused_by_name(client: Any, when: dict[str, Any], field: str) -> None:
    job = (await client.enqueue(greet.job())).id

    with pytest.raises(ValidationError) as caught:
        await client.reschedule(job, **when)

    assert caught.value.field == field
    assert (await client.get(job)).state == "ready"


async def test_prioritize_moves_a_waiting_job_within_its_queue(client: Any, sql: Sql) -> None:
    job = (await client.enqueue(greet.job())).id

    assert await client.prioritize(job, 0) == 2
    assert await client.prioritize(job, 3) == 0
    assert (await client.get(job)).priority == 3
    with pytest.raises(ValidationError) as caught:
        await client.prioritize(job, 4)
    assert caught.value.field == "priority"
    complete(sql, claim(sql, "greet"))
    with pytest.raises(TransitionRefused, match=r"prioritize: job .* is succeeded"):
        await client.prioritize(job, 0)


async def test_replay_makes_a_dead_job_ready_again(client: Any, sql: Sql) -> None:
    job = (await client.enqueue(greet.job().with_key("k"))).id
    with pytest.raises(TransitionRefused, match=r"replay: job .* is ready"):
        await client.replay(job, reason="again")
    settle(sql, claim(sql, "greet"), "bury")

    await client.replay(job, reason="fixed")

    replayed = await client.get(job)
    assert (replayed.state, replayed.attempt) == ("ready", 0)
    settle(sql, claim(sql, "greet"), "bury")
    newer = (await client.enqueue(greet.job().with_key("k"))).id
    with pytest.raises(TransitionRefused, match=str(newer)):
        await client.replay(job, reason="again")


async def test_prune_removes_what_finished_long_ago_in_bounded_batches(client: Any, sql: Sql) -> None:
    clock = Clock(sql)
    clock.set(NOON)
    old = [answer.id for answer in await client.enqueue_many([greet.job() for _ in range(3)])]
    complete(sql, claim(sql, "greet"))
    clock.advance(days=2)
    kept = (await client.enqueue(greet.job())).id
    complete(sql, claim(sql, "greet"))

    assert await client.prune(["dead", "failed"], timedelta(days=1)) == 0
    assert await client.prune(["succeeded"], timedelta(days=1), limit=2) == 2
    assert await client.prune(["succeeded", "cancelled"], timedelta(days=1)) == 1
    assert [job.id for job in await client.jobs()] == [kept]
    with pytest.raises(JobNotFound):
        await client.get(old[0])


@pytest.mark.parametrize(
    ("states", "age", "limit", "field"),
    [
        (["ready"], timedelta(0), 1, "states"),
        (['succeeded","dead'], timedelta(0), 1, "states"),
        ([], timedelta(0), 1, "states"),
        (["succeeded"], timedelta(seconds=-1), 1, "age"),
        (["succeeded"], timedelta(0), 0, "limit"),
    ],
)
async def test_prune_refuses_what_it_must_not_remove(
    client: Any, states: list[str], age: timedelta, limit: int, field: str
) -> None:
    with pytest.raises(ValidationError) as caught:
        await client.prune(states, age, limit=limit)
    assert caught.value.field == field


async def test_pause_stops_claims_and_resume_starts_them(client: Any, sql: Sql) -> None:
    await client.enqueue(greet.job())

    with calling(Caller(actor_type="user", actor_id="olga")):
        await client.pause("q:default", reason="provider is down")
    paused = {queue.name: queue for queue in await client.queues()}["q:default"]
    assert (paused.paused_by, paused.pause_reason) == ("olga", "provider is down")
    assert paused.paused_at is not None
    assert claim(sql, "greet") == []

    assert await client.resume("q:default") is True
    assert await client.resume("q:default") is False
    assert len(claim(sql, "greet")) == 1


async def test_queues_show_their_lateness_and_depth(client: Any, sql: Sql) -> None:
    clock = Clock(sql)
    clock.set(NOON)
    await client.enqueue_many([greet.job().on_queue("mine") for _ in range(3)])
    await client.enqueue(greet.job().on_queue("mine").after(3600))
    clock.advance(seconds=90)

    queues = {queue.name: queue for queue in await client.queues()}

    assert (queues["mine"].oldest_age_s, queues["mine"].late) == (90, False)  # it has no target
    assert (queues["q:critical"].oldest_age_s, queues["q:critical"].start_target_s) == (None, 5)
    assert await client.depth("mine") == 3
    assert await client.depth("mine", limit=2) == 2
    await client.enqueue(greet.job().on_queue("q:critical"))
    clock.advance(seconds=6)
    assert {queue.name for queue in await client.queues() if queue.late} == {"q:critical"}


async def test_workers_are_known_by_their_heartbeat(client: Any, sql: Sql) -> None:
    clock = Clock(sql)
    clock.set(NOON)
    sql.execute(
        "insert into mainspring.worker (id, host, pid, version, queues, concurrency, started_at, seen_at)"
        " values ('w', 'h', 7, '1', '{q:default,extra}', 100, mainspring.now(), mainspring.now())"
    )

    (worker,) = await client.workers()
    assert (worker.id, worker.pid, worker.queues, worker.gone) == ("w", 7, ["q:default", "extra"], False)
    assert "extra" in {queue.name for queue in await client.queues()}
    clock.advance(seconds=31)
    assert [worker.gone for worker in await client.workers()] == [True]


async def test_a_result_is_what_the_handler_returned(client: Any, sql: Sql) -> None:
    job = (await client.enqueue(greet.job())).id
    complete(sql, claim(sql, "greet"), '{"total": [1, 2.5, null, "ü"]}')

    assert await client.result(job) == {"total": [1, 2.5, None, "ü"]}


async def test_a_job_that_failed_has_no_result_but_an_error(client: Any, sql: Sql) -> None:
    job = (await client.enqueue(greet.job())).id
    settle(sql, claim(sql, "greet"), "reject")

    with pytest.raises(ResultUnavailable, match="ended as failed") as caught:
        await client.result(job)

    assert (caught.value.job_id, caught.value.state) == (job, "failed")
    assert caught.value.error is not None
    assert caught.value.error["code"] == "BUSINESS_RULE"


async def test_waiting_for_a_result_ends_with_the_time_out(client: Any) -> None:
    job = (await client.enqueue(greet.job())).id

    with pytest.raises(ResultUnavailable, match="has not ended, it is ready") as caught:
        await client.result(job, timeout=0.02)

    assert (caught.value.state, caught.value.error) == ("ready", None)


@pytest.mark.rule("ENG-1.07")
async def test_every_change_names_its_request_actor_and_job(client: Any, sql: Sql) -> None:
    with calling(Caller(org_id="acme", actor_type="user", actor_id="7", request_id="r-1")):
        job = (await client.enqueue(greet.job())).id
    with calling(Caller(org_id="acme", actor_type="user", actor_id="olga")):
        await client.prioritize(job, 1)
        await client.reschedule(job, delay=timedelta(hours=1))
        await client.cancel(job, reason="double")

    trail = sql.execute(
        "select event, request_id, actor_id, detail ->> 'by' from mainspring.trail where job_id = %s"
        " order by at, event",
        [job],
    ).fetchall()

    assert [(event, by) for event, _, _, by in trail] == [
        ("job.enqueued", None),
        ("job.prioritized", "olga"),
        ("job.rescheduled", "olga"),
        ("job.cancel_requested", "olga"),
        ("job.cancelled", "olga"),
    ]
    assert {(request, actor) for _, request, actor, _ in trail} == {("r-1", "7")}


async def test_a_closed_client_says_so(client: Any) -> None:
    await client.now()
    await client.close()

    with pytest.raises(ConfigurationError, match="the client is closed"):
        await client.now()


async def test_a_missing_schema_says_what_to_do(connect: Connect) -> None:
    client = connect(schema="elsewhere")

    with pytest.raises(SchemaError, match="mainspring schema migrate"):
        await client.enqueue(greet.job())
