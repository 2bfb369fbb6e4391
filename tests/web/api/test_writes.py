"""What is written over HTTP: each request once, none over what somebody else has changed, and in somebody's name."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

import psycopg
import pytest
from tests.databases import Database
from tests.web.api.visit import ApiVisitor, greeted, problem, visiting_api
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.db.maintenance import prune_requests
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.events import Event, QueuePaused, QueueResumed

pytestmark = pytest.mark.anyio

WAITING = """
    select count(*) from pg_stat_activity
    where application_name = 'mainspring api' and datname = current_database() and wait_event_type = 'Lock'
"""


async def seen(api: ApiVisitor, path: str) -> dict[str, str]:
    """The header for a write that is decided on what is there now."""
    return {"if-match": (await api.get("vic", path)).headers["etag"]}


@pytest.mark.rule("ENG-20.06")
async def test_a_queue_is_paused_and_resumed_in_the_name_of_who_asks(app: ms.App, stage: Stage) -> None:
    told: list[Event] = []

    def listen(events: Sequence[Event]) -> None:
        told.extend(events)

    app.observers = (listen,)
    async with visiting_api(app) as api:
        paused = await api.post(
            "ana", "/queues/q:default/pause", {"reason": "token=abc"}, headers=await seen(api, "/queues/q:default")
        )
        assert paused.status_code == 200
        assert (paused.json()["paused_by"], paused.json()["pause_reason"]) == ("ana", "token=***")
        headers = {"if-match": paused.headers["etag"]}
        resumed = await api.post("ana", "/queues/q:default/resume", headers=headers)
        assert (resumed.status_code, resumed.json()["paused_at"]) == (200, None)
        again = await api.post("ana", "/queues/q:default/resume", headers={"if-match": resumed.headers["etag"]})
        assert again.headers["etag"] == resumed.headers["etag"]
    acts = "select event, actor_type, actor_id from mainspring.audit where event like 'queue.%' order by id"
    assert stage.conn.execute(acts).fetchall() == [("queue.paused", "user", "ana"), ("queue.resumed", "user", "ana")]
    assert [type(event) for event in told] == [QueuePaused, QueueResumed]


async def test_a_queue_that_nobody_knows_is_not_paused(api: ApiVisitor, stage: Stage) -> None:
    assert problem(await api.post("ana", "/queues/nobody's/pause", headers={"if-match": "*"})) == (404, "NOT_FOUND")
    assert _acts(stage) == 0


async def test_two_operators_do_not_overwrite_each_other(api: ApiVisitor, stage: Stage) -> None:
    path, headers = "/queues/q:default/pause", await seen(api, "/queues/q:default")

    people = ("ana", "root", "ana", "root")
    with stage.conn.transaction():  # all have read what there is before the first may write
        stage.conn.execute("select mainspring.lock_for_change('queue', null, 'q:default')")
        acting = [
            asyncio.create_task(api.post(who, path, {"reason": f"{who} said so"}, headers=headers)) for who in people
        ]
        with psycopg.connect(stage.dsn, autocommit=True) as looking:
            await stage.until(lambda: looking.execute(WAITING).fetchone() == (len(people),))
    answers = await asyncio.gather(*acting)

    assert Counter(answer.status_code for answer in answers) == {200: 1, 412: 3}
    (winner,) = [answer.json() for answer in answers if answer.status_code == 200]
    assert (await api.get("vic", "/queues/q:default")).json()["pause_reason"] == winner["pause_reason"]
    assert problem(await api.post("ana", path, {})) == (428, "PRECONDITION_REQUIRED")
    assert problem(await api.post("ana", path, {}, headers={"if-match": "nonsense"})) == (400, "VALIDATION_ERROR")
    weak = {"if-match": f"W/{(await seen(api, '/queues/q:default'))['if-match']}"}
    assert problem(await api.post("ana", path, {}, headers=weak)) == (412, "CHANGED_MEANWHILE")
    assert (await api.post("ana", path, {}, headers={"if-match": "*"})).status_code == 200


async def test_a_job_is_cancelled_unless_it_has_changed_since_it_was_seen(api: ApiVisitor, stage: Stage) -> None:
    job = await greeted(stage.client)
    old = await seen(api, f"/jobs/{job}")
    await stage.client.prioritize(job, 0)

    refused = await api.post("operator.acme", f"/jobs/{job}/cancel", {}, headers=old)
    assert problem(refused) == (412, "CHANGED_MEANWHILE")
    assert (await stage.client.get(job)).state == "ready"

    now = await seen(api, f"/jobs/{job}")
    done = await api.post("operator.acme", f"/jobs/{job}/cancel", {"reason": "a mistake"}, headers=now)
    assert (done.json()["outcome"], done.json()["job"]["state"]) == ("cancelled", "cancelled")
    assert done.headers["etag"] == (await seen(api, f"/jobs/{job}"))["if-match"]
    assert (await api.post("operator.acme", f"/jobs/{job}/cancel")).json()["outcome"] == "cancelled"
    (event,) = await stage.client.audit.trail(job, event="job.cancelled")
    assert (event.by, event.detail["reason"]) == ("operator.acme", "a mistake")


async def test_what_is_compared_stays_as_it_is_until_it_is_changed(api: ApiVisitor, stage: Stage) -> None:
    """A worker that claims the job between the comparison and the act would make a lie of the comparison."""
    job = await greeted(stage.client)
    claimable = "select id from mainspring.waiting where id = %s for update skip locked"
    with psycopg.connect(stage.dsn, autocommit=True) as worker, stage.conn.transaction():
        assert worker.execute(claimable, [job]).fetchall() == [(job,)]
        stage.conn.execute("select mainspring.lock_for_change('job', 'acme', %s)", [str(job)])
        assert worker.execute(claimable, [job]).fetchall() == []
        acting = asyncio.create_task(api.post("ana", f"/jobs/{job}/cancel", {}, headers={"if-match": "*"}))
        assert (await api.get("vic", f"/jobs/{job}")).json()["state"] == "ready"  # who reads does not wait
        assert not acting.done()
    assert (await acting).json()["outcome"] == "cancelled"


async def test_a_job_that_has_ended_is_not_cancelled(api: ApiVisitor, stage: Stage) -> None:
    tasks = ms.Registry("shop")

    @tasks.task(name="greet")
    async def greet(*, name: str) -> None: ...

    job = (await stage.client.enqueue(greet.job(name="Ada"))).id
    await stage.drain(tasks)

    assert problem(await api.post("ana", f"/jobs/{job}/cancel")) == (409, "ALREADY_FINISHED")


async def test_a_request_that_comes_twice_has_one_effect_and_one_answer(api: ApiVisitor, stage: Stage) -> None:
    path, key = "/queues/q:default/pause", {"idempotency-key": "press-1", "if-match": "*"}

    answers = await asyncio.gather(*(api.post("ana", path, {"reason": "bank"}, headers=key) for _ in range(4)))

    assert {(answer.status_code, answer.text, answer.headers["etag"]) for answer in answers} == {
        (200, answers[0].text, answers[0].headers["etag"])
    }
    assert Counter(answer.headers.get("idempotent-replayed") for answer in answers) == {"true": 3, None: 1}
    assert _acts(stage) == 1
    for other in ({"reason": "bnak"}, None):
        assert problem(await api.post("ana", path, other, headers=key)) == (422, "IDEMPOTENCY_KEY_REUSED")
    assert (await api.post("root", path, {"reason": "bank"}, headers=key)).status_code == 200  # a key of her own
    assert _acts(stage) == 2


async def test_what_was_refused_is_tried_again_under_its_key(api: ApiVisitor, stage: Stage) -> None:
    key, headers = {"idempotency-key": "press-2"}, await seen(api, "/queues/q:default")
    stale = {"if-match": '"0"'}

    assert (await api.post("ana", "/queues/q:default/pause", {}, headers=key | stale)).status_code == 412
    assert (await api.post("ana", "/queues/q:default/pause", {}, headers=key | headers)).status_code == 200


@pytest.mark.parametrize("key", ["", " ", "é", "a b", "x" * 201, "\x7f"])
async def test_a_key_that_is_none_is_refused(api: ApiVisitor, key: str) -> None:
    headers = [("idempotency-key", key.encode()), ("if-match", b"*"), ("authorization", b"Bearer ana")]
    answer = await api.http.post("/api/v1/queues/q:default/pause", headers=headers)  # type: ignore[arg-type]  # raw

    assert problem(answer) == (400, "VALIDATION_ERROR")


async def test_a_key_is_good_for_a_day_and_then_goes(api: ApiVisitor, stage: Stage) -> None:
    key = {"idempotency-key": "press-3", "if-match": "*"}
    keep, sql = ms.Retention(), Sql()
    for _ in range(2):
        await api.post("ana", "/queues/q:default/pause", {}, headers=key)
    assert _acts(stage) == 1
    stage.clock.advance(timedelta(hours=23))
    assert run(psycopg_door(stage.conn), prune_requests(sql, keep)) == 0
    stage.clock.advance(timedelta(hours=2))
    await api.post("ana", "/queues/q:default/pause", {}, headers=key)
    assert _acts(stage) == 2
    stage.clock.advance(timedelta(hours=25))
    assert run(psycopg_door(stage.conn), prune_requests(sql, keep)) == 1
    assert stage.conn.execute("select count(*) from mainspring.request").fetchone() == (0,)


async def test_what_a_job_carries_is_masked_until_somebody_may_look_and_that_is_on_the_trail(
    api: ApiVisitor, stage: Stage
) -> None:
    job = await greeted(stage.client, name="write to jane@example.com, xoxb-0123456789-abc")

    shown = (await api.get("root", f"/jobs/{job}")).json()["payload"]
    assert shown == {"name": "write to j***@example.com, ***"}
    assert problem(await api.post("ana", f"/jobs/{job}/reveal")) == (403, "FORBIDDEN")
    events = "select event, org_id, actor_id, subject from mainspring.audit where event = 'payload.revealed'"
    assert stage.conn.execute(events).fetchall() == []
    revealed = await api.post("root", f"/jobs/{job}/reveal")
    assert revealed.json()["payload"]["name"].endswith("jane@example.com, xoxb-0123456789-abc")
    assert revealed.headers["cache-control"] == "no-store"
    assert stage.conn.execute(events).fetchall() == [("payload.revealed", "acme", "root", f"job {job}")]
    kept = await api.post("root", f"/jobs/{job}/reveal", headers={"idempotency-key": "x"})
    assert problem(kept) == (400, "VALIDATION_ERROR")


async def test_what_is_encrypted_is_decrypted_for_who_may_reveal_it_and_for_nobody_else(
    database: Database, tasks: ms.Registry, stage: Stage
) -> None:
    cipher = ms.Cipher(b"m" * 32)
    async with ms.AsyncClient(database.dsn, cipher=cipher) as client:
        job = await greeted(client)
    async with visiting_api(ms.App(tasks, dsn=database.dsn, maintenance=False, cipher=cipher)) as api:
        shown = await api.get("root", f"/jobs/{job}")
        assert "Ada" not in shown.text
        assert "encrypted" in shown.text
        assert (await api.post("root", f"/jobs/{job}/reveal")).json()["payload"] == {"name": "Ada"}


def _acts(stage: Stage) -> int:
    found = stage.conn.execute("select count(*) from mainspring.audit where event = 'queue.paused'").fetchone()
    assert found is not None
    return int(found[0])
