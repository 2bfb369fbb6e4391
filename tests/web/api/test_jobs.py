"""Jobs over HTTP: found by what is said of them, in bounded looks; all that one job is made of; what is done to it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any
from urllib.parse import quote
from uuid import UUID

import pytest
from tests.databases import Database
from tests.web.api.visit import SOME_ID, ApiVisitor, greeted, problem, visiting_api
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.db import search
from mainspring.events import Event, JobEnqueued

pytestmark = pytest.mark.anyio

PROJECT = UUID("0199a8c3-1f00-7a52-9c11-5d2f3b6a7e01")
SHOP = ms.Registry("shop")


@SHOP.task(queue="q:mail", retry=ms.fixed("1m", attempts=2), subject="name")
async def write(ctx: ms.Context, *, name: str, fail: str = "") -> None:
    """Write a letter."""
    await ctx.step("stamped", lambda: {"token": "abc", "stamps": 3})
    if fail:
        raise RuntimeError(f"no stamps for jane@example.com: {fail}")
    async with ctx.complete():
        await ctx.enqueue(post.job(letter=1))


@SHOP.task(dedupe=ms.dedupe.live("{letter}"))
async def post(*, letter: int) -> None:
    """Bring it to the post."""


@pytest.fixture
async def shop_api(database: Database, stage: Stage) -> Any:
    async with visiting_api(ms.App(SHOP, dsn=database.dsn, maintenance=False)) as visitor:
        yield visitor


async def ids(api: ApiVisitor, query: str, who: str = "vic") -> list[str]:
    """What a search finds, page by page; each page says where it goes on."""
    found: list[str] = []
    cursor = ""
    for _ in range(50):
        answer = await api.get(who, f"/jobs?limit=2&{query}{cursor}")
        assert answer.status_code == 200, answer.text
        found += [job["id"] for job in answer.json()["items"]]
        if (place := answer.json()["next"]) is None:
            assert len(found) == len(set(found))
            return found
        cursor = f"&cursor={place}"
    raise AssertionError("the pages have no end")


async def test_jobs_are_found_by_all_that_is_said_of_them(
    shop_api: ApiVisitor, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "JOBS_A_LOOK", 3)  # so that each search goes on from look to look
    api, client = shop_api, stage.client
    began = await client.now()
    sent = str((await client.enqueue(write.job(name="Ada").for_org("acme").traced(correlation_id="story-7"))).id)
    dead = str((await client.enqueue(write.job(name="Bob", fail="now").for_org("acme"))).id)
    for _ in range(2):
        await stage.drain(SHOP)
        stage.clock.advance(minutes=5)
    retrying = str((await client.enqueue(write.job(name="Cy", fail="later"))).id)
    await stage.drain(SHOP)
    hidden = str((await client.enqueue(write.job(name="to zoe@example.com").for_org("initech").after("1d"))).id)
    assert await ids(api, "text=to%20z***@example&org=initech&task=write") == [hidden]
    assert (
        await ids(api, "text=zoe@example&org=initech&task=write", "root") == []
    )  # no mask is guessed letter by letter
    await client.cancel(hidden)
    waiting = [
        str((await client.enqueue(write.job(name=f"n{n}").after(delay).with_priority(priority))).id)
        for n, (delay, priority) in enumerate([("2h", 0), ("1h", 2), ("3h", 2), ("1h", 3)])
    ]
    ready = [str((await client.enqueue(write.job(name="Dora").with_priority(p))).id) for p in (3, 1, 2)]
    keyed = str((await client.enqueue(post.job(letter=7).in_project(PROJECT).for_org("globex"))).id)
    everything = await ids(api, "")

    (follow_up,) = await ids(api, "state=succeeded&task=post")
    assert everything == sorted(
        [sent, dead, retrying, *waiting, *ready, keyed, hidden, follow_up], reverse=True
    )  # the newest first
    assert await ids(api, "state=ready") == [ready[1], ready[2], keyed, ready[0]]
    assert await ids(api, "state=scheduled") == [waiting[0], waiting[1], waiting[2], waiting[3]]
    assert await ids(api, "state=scheduled&queue=q:mail&task=write") == waiting
    assert await ids(api, "state=retrying") == [retrying]
    assert set(await ids(api, "state=retrying&state=scheduled")) == {retrying, *waiting}
    assert set(await ids(api, "state=ready&state=dead")) == {*ready, keyed, dead}
    assert await ids(api, "state=dead") == await ids(api, "state=dead&state=failed&queue=q:deadletter") == [dead]
    assert await ids(api, "state=running") == []
    assert await ids(api, "correlation=story-7") == [follow_up, sent]
    assert await ids(api, f"project={PROJECT}") == [keyed]
    assert await ids(api, "key=post:7&org=globex") == [keyed]
    assert await ids(api, f"request={sent}") == [follow_up, sent]
    assert await ids(api, "key=post:8&org=globex") == await ids(api, "key=post:7&org=acme") == []
    assert await ids(api, f"prefix={sent[:14]}&task=write&correlation=story-7") == [sent]
    assert set(await ids(api, "", "viewer.acme")) == {sent, dead, follow_up}
    assert await ids(api, "org=globex") == [keyed] == await ids(api, "", "operator.globex")
    assert await ids(api, "org=globex", "viewer.acme") == []

    def at(**later: int) -> str:
        return quote((began + timedelta(**later)).isoformat())

    assert set(await ids(api, f"created_to={at(minutes=4)}")) == {sent, dead, follow_up}
    assert await ids(api, f"created_from={at(minutes=4)}&task=post") == [keyed]
    assert await ids(api, f"finished_to={at(minutes=4)}&state=succeeded&task=write") == [sent]
    assert await ids(api, f"finished_from={at(minutes=4)}&finished_to={at(hours=1)}&state=dead") == [dead]
    assert await ids(api, f"finished_to={at(minutes=4)}&state=dead") == []
    assert await ids(api, f"due_from={at(hours=2)}") == [waiting[0], waiting[2]]
    assert await ids(api, f"due_to={at(hours=2)}&state=scheduled") == [waiting[1], waiting[3]]

    assert await ids(api, "text=dora&queue=q:mail") == ready[::-1]
    assert await ids(api, "text=NO%20STAMPS&state=dead") == [dead]
    assert await ids(api, "text=j***@example&task=write") == [retrying, dead]
    assert problem(await api.get("vic", "/jobs?text=dora"))[0] == 400
    (line,) = (await api.get("vic", "/jobs?state=dead")).json()["items"]
    assert line["about"] == {"name": "Bob", "fail": "now"}
    assert (line["code"], line["message"]) == ("INTERNAL_ERROR", "RuntimeError: no stamps for j***@example.com: now")


async def test_a_search_that_finds_little_stops_and_says_where_to_look_on(
    shop_api: ApiVisitor, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search, "JOBS_A_LOOK", 5)
    monkeypatch.setattr(search, "MOST_LOOKED", 10)
    sought = (await stage.client.enqueue(post.job(letter=1))).id
    await stage.enqueue_many([write.job(name="n") for _ in range(23)])

    looked = []
    cursor = ""
    for _ in range(3):
        page = (await shop_api.get("vic", f"/jobs?task=post{cursor}")).json()
        looked.append(len(page["items"]))
        cursor = f"&cursor={page['next']}"
    assert looked == [0, 0, 1]
    assert page["items"][0]["id"] == str(sought)
    assert page["next"] is None


async def test_a_span_of_time_is_a_range_of_ids_where_the_clock_is_the_real_one(database: Database) -> None:
    async with ms.AsyncClient(database.dsn) as client, visiting_api(ms.App(SHOP, dsn=database.dsn)) as api:
        job = await greeted(client)
        at = (await client.get(job)).created_at
        for shift, found in ((-2, True), (2, False)):
            since = quote((at + timedelta(seconds=shift)).isoformat())
            assert await ids(api, f"created_from={since}") == ([str(job)] if found else [])
            assert await ids(api, f"created_to={since}") == ([] if found else [str(job)])
        brought = UUID(int=1)  # long ago, by its id
        await client.enqueue(post.job(letter=1).with_id(brought))
        since = quote((at - timedelta(days=1)).isoformat())
        assert await ids(api, f"created_from={since}") == [str(job)]


WRONG = {
    "state=asleep": "state[0]",
    "text=x&task=write": "text",
    "created_from=2026-11-18T20:00:00": "created_from",
    "due_to=soon": "due_to",
    "project=7": "project",
    "prefix=zzzzzzzz": "prefix",
    "prefix=0199": "prefix",
    "queue=" + "x" * 64: "queue",
    "correlation=%20": "correlation",
    "key=" + "k" * 513: "key",
    "finished_to=0001-01-01T00:00:00%2B23:00": "finished_to",
}


async def test_what_is_wrong_with_a_search_is_named(shop_api: ApiVisitor, stage: Stage) -> None:
    for query, field in WRONG.items():
        answer = await shop_api.get("vic", f"/jobs?{query}")
        assert problem(answer) == (400, "VALIDATION_ERROR"), query
        assert answer.json()["field"] == field, query
    await stage.client.enqueue(post.job(letter=1))
    for query in ("task=%25'\"\\", "text=%25_%27&task=post", "queue={a,b}", "request=%F0%9F%92%A9"):
        assert await ids(shop_api, query) == []


async def test_one_job_is_shown_with_its_history_its_relations_and_why_it_waits(
    shop_api: ApiVisitor, stage: Stage
) -> None:
    api, client = shop_api, stage.client
    job = (await client.enqueue(write.job(name="Ada", fail="").for_org("acme"))).id
    batch = await client.enqueue(ms.batch("letters", [write.job(name="Bob", fail="x").for_org("acme")]))
    letters = ms.chain(*(post.job(letter=n).for_org("acme") for n in (1, 2)))
    first, second = await client.enqueue(letters)
    explained = (await api.get("viewer.acme", f"/jobs/{job}/explain")).json()
    assert (explained["state"], explained["claimable"]) == ("ready", False)
    assert explained["verdict"].startswith("No worker is alive")
    waits = (await api.get("viewer.acme", f"/jobs/{second.id}/related")).json()
    assert [(other["id"], other["met"]) for other in waits["waits_for"]] == [(str(first.id), False)]
    awaited = (await api.get("viewer.acme", f"/jobs/{first.id}/related")).json()
    assert [other["id"] for other in awaited["awaited_by"]] == [str(second.id)]
    await stage.drain(SHOP)
    stage.clock.advance(minutes=5)
    await stage.drain(SHOP)

    shown = (await api.get("viewer.acme", f"/jobs/{job}")).json()
    assert (shown["state"], shown["attempt"]) == ("succeeded", 1)
    (step,) = (await api.get("viewer.acme", f"/jobs/{job}/steps")).json()["items"]
    assert (step["name"], step["result"]) == ("stamped", {"token": "***", "stamps": 3})
    (child,) = (await api.get("viewer.acme", f"/jobs/{job}/children")).json()["items"]
    assert child["task"] == "post"
    parent = (await api.get("viewer.acme", f"/jobs/{child['id']}/related")).json()["parent"]
    assert (parent["id"], parent["task"], parent["state"]) == (str(job), "write", "succeeded")

    failed = batch.jobs[0].id
    pages = [(await api.get("viewer.acme", f"/jobs/{failed}/attempts?limit=1")).json()]
    pages.append((await api.get("viewer.acme", f"/jobs/{failed}/attempts?limit=1&cursor={pages[0]['next']}")).json())
    assert [page["items"][0]["outcome"] for page in pages] == ["retried", "dead"]
    assert pages[1]["next"] is None
    assert "j***@example.com" in str(pages[0])
    assert "jane" not in str(pages)
    events = (await api.get("viewer.acme", f"/jobs/{failed}/events")).json()["items"]
    assert events[0]["event"] == "job.enqueued"
    assert events[-1]["event"] == "job.deadlettered"
    assert "jane" not in str(events)
    of = (await api.get("viewer.acme", f"/jobs/{failed}/related")).json()["batch"]
    assert of == {"id": str(batch.id), "name": "letters", "finishes": False}
    assert "jane" not in (await api.get("viewer.acme", f"/jobs/{failed}/explain")).text
    for part in ("attempts", "steps", "events", "related", "children", "explain"):
        missing = await api.get("vic", f"/jobs/{SOME_ID}/{part}")
        theirs = await api.get("operator.globex", f"/jobs/{job}/{part}")
        assert problem(missing) == (404, "NOT_FOUND")
        assert theirs.text == missing.text


async def test_a_job_is_enqueued_with_what_its_task_demands(stage: Stage, database: Database) -> None:
    told: list[Event] = []

    def listen(events: Sequence[Event]) -> None:
        told.extend(events)

    cipher = ms.Cipher(b"m" * 32)
    shop = ms.App(SHOP, dsn=database.dsn, maintenance=False, observers=[listen], cipher=cipher)
    async with visiting_api(shop) as api:
        body = {"task": "write", "payload": {"name": "Ada"}, "delay": "2h", "priority": 0, "queue": "q:slow"}
        made = (await api.post("operator.acme", "/jobs", body, headers={"idempotency-key": "once"})).json()
        again = (await api.post("operator.acme", "/jobs", body, headers={"idempotency-key": "once"})).json()
        assert made == again
        assert (made["answer"], made["state"], made["checked"]) == ("created", "scheduled", True)
        job = await stage.client.get(made["id"])
        assert (job.org_id, job.actor_type, job.actor_id, job.queue) == ("acme", "user", "operator.acme", "q:slow")
        assert "Ada" not in str(job.payload)  # it is encrypted like any other of the application
        assert (await api.post("root", f"/jobs/{job.id}/reveal")).json()["payload"]["name"] == "Ada"
        assert [(type(event), event.job_id) for event in told if isinstance(event, JobEnqueued)] == [
            (JobEnqueued, job.id)
        ]
        one = (await api.post("ana", "/jobs", {"task": "post", "payload": {"letter": 9_007_199_254_740_993}})).json()
        other = (await api.post("ana", "/jobs", {"task": "post", "payload": {"letter": 9_007_199_254_740_993}})).json()
        assert other["code"] == "IDEMPOTENCY_KEY_REUSED"  # whether what is encrypted is the same is not for everybody
        other = (await api.post("root", "/jobs", {"task": "post", "payload": {"letter": 9_007_199_254_740_993}})).json()
        assert (other["id"], other["answer"]) == (one["id"], "existing")
        assert (await api.get("vic", f"/jobs/{one['id']}")).json()["idempotency_key"] == "post:9007199254740993"
        unknown = await api.post("ana", "/jobs", {"task": "elsewhere", "payload": {"a": 1}, "key": "k", "mode": "keep"})
        assert unknown.json()["checked"] is False
        reused = await api.post("ana", "/jobs", {"task": "elsewhere", "payload": {"a": 2}, "key": "k", "mode": "keep"})
        assert problem(reused) == (409, "IDEMPOTENCY_KEY_REUSED")
        for wrong, field in (
            ({"task": "write", "payload": {}}, "name"),
            ({"task": "write", "payload": {"name": 7}}, "name"),
            ({"task": "write", "payload": {"nme": "Ada"}}, "nme"),
            ({"task": "write", "payload": [1]}, "payload"),
            ({"task": "elsewhere", "payload": {"api_key": "x"}}, "payload.api_key"),
            ({"task": "elsewhere", "payload": {"deep": {}}, "delay": "soon"}, "delay"),
            ({"task": "elsewhere", "delay": -1}, "delay"),
            ({"task": "elsewhere", "delay": 1e300}, "delay"),
            ({"task": "elsewhere", "at": "2026-11-18T20:00:00"}, "at"),
            ({"task": "elsewhere", "at": "2250-01-01T00:00:00Z"}, "at"),
            ({"task": "elsewhere", "at": "2030-01-01T00:00:00Z", "delay": 1}, "at"),
            ({"task": "elsewhere", "priority": 4}, "priority"),
            ({"task": "elsewhere", "queue": "q:deadletter"}, "queue"),
            ({"task": "a\u202eb"}, "task"),
            ({"payload": {}}, "task"),
        ):
            answer = await api.post("ana", "/jobs", wrong)
            assert problem(answer) == (400, "VALIDATION_ERROR"), wrong
            assert answer.json()["field"] == field, wrong


async def test_a_job_that_waits_is_moved_let_go_first_and_run_now(shop_api: ApiVisitor, stage: Stage) -> None:
    api = shop_api
    job = (await stage.client.enqueue(write.job(name="Ada").after("2h").for_org("acme"))).id
    seen = (await api.get("vic", f"/jobs/{job}")).headers["etag"]

    moved = await api.post(
        "operator.acme", f"/jobs/{job}/reschedule", {"delay": "1d", "reason": "not yet"}, headers={"if-match": seen}
    )
    assert (moved.json()["outcome"], moved.status_code) == ("scheduled", 200)
    stale = await api.post("ana", f"/jobs/{job}/run", {}, headers={"if-match": seen})
    assert problem(stale) == (412, "CHANGED_MEANWHILE")
    first = await api.post("operator.acme", f"/jobs/{job}/prioritize", {"priority": 0})
    assert first.json()["job"]["priority"] == 0
    back = {"if-match": first.headers["etag"]}
    run = await api.post("operator.acme", f"/jobs/{job}/run", {"reason": "she waits"}, headers=back)
    assert (run.json()["outcome"], run.json()["job"]["state"]) == ("ready", "ready")
    at = await api.post("ana", f"/jobs/{job}/reschedule", {"at": "2199-01-01T00:00:00Z"})
    assert at.json()["job"]["due_at"] == "2199-01-01T00:00:00Z"
    for body in ({}, {"at": "2030-01-01T00:00:00Z", "delay": 1}, {"at": "2201-01-01T00:00:00Z"}):
        assert problem(await api.post("ana", f"/jobs/{job}/reschedule", body)) == (400, "VALIDATION_ERROR")
    reasons = [(e.event, e.by, e.detail["reason"]) for e in await stage.client.audit.trail(job) if "reason" in e.detail]
    assert reasons[0] == ("job.rescheduled", "operator.acme", "not yet")
    acts: list[tuple[str, dict[str, int]]] = [
        ("run", {}),
        ("reschedule", {"delay": 1}),
        ("prioritize", {"priority": 1}),
    ]
    for act, how in acts:
        assert problem(await api.post("operator.globex", f"/jobs/{job}/{act}", how)) == (404, "NOT_FOUND")
    await api.post("ana", f"/jobs/{job}/cancel")
    for act, how in acts:
        assert problem(await api.post("ana", f"/jobs/{job}/{act}", how)) == (409, "NOT_POSSIBLE_NOW")


async def test_many_are_cancelled_or_moved_by_ids_or_by_a_filter_and_each_that_is_not_is_named(
    shop_api: ApiVisitor, stage: Stage
) -> None:
    api, why = shop_api, {"reason": "the bank asked"}
    mine = [str((await stage.client.enqueue(write.job(name="n").for_org("acme"))).id) for _ in range(5)]
    theirs = str((await stage.client.enqueue(write.job(name="n").for_org("globex"))).id)
    await stage.client.cancel(mine[0])
    some = {"ids": [mine[0], mine[1], mine[1], theirs, SOME_ID], **why}

    tried = (await api.post("operator.acme", "/bulk/jobs/reschedule", some | {"delay": "1h", "dry_run": True})).json()
    assert (tried["meant"], tried["done"], tried["dry_run"]) == (4, 1, True)
    assert await stage.state(UUID(mine[1])) == "ready"
    moved = (await api.post("operator.acme", "/bulk/jobs/reschedule", some | {"delay": "1h"})).json()
    assert moved == tried | {"dry_run": False}
    assert {left["id"]: left["outcome"] for left in moved["left_alone"]} == {
        mine[0]: "cancelled", theirs: "not_found", SOME_ID: "not_found"
    }  # fmt: skip
    assert await stage.state(UUID(mine[1])) == "scheduled"

    only = {"filter": {"task": "write", "state": ["ready"]}, "limit": 2, **why}
    for dry in (True, False):
        done = (await api.post("operator.acme", "/bulk/jobs/cancel", only | {"dry_run": dry})).json()
        assert (done["meant"], done["done"], done["left_alone"], done["more"]) == (2, 2, [], True)
    rest = await api.post("ana", "/bulk/jobs/cancel", {"filter": {"queue": "q:mail"}, **why}, params={"org": "acme"})
    assert (rest.json()["done"], rest.json()["more"]) == (2, False)
    assert [await stage.state(UUID(job)) for job in mine] == ["cancelled"] * 5
    assert await stage.state(UUID(theirs)) == "ready"
    (event,) = await stage.client.audit.trail(mine[4], event="job.cancelled")
    assert event.detail["reason"] == "the bank asked"
    for wrong, field in (
        ({"ids": [SOME_ID]}, "reason"),
        (why, "ids"),
        ({"filter": {}, **why}, "filter"),
        ({"ids": [], **why}, "ids"),
        ({"ids": [SOME_ID] * 1001, **why}, "ids"),
        ({"ids": [SOME_ID], "limit": 1001, **why}, "limit"),
        ({"filter": {"text": "abc"}, **why}, "filter"),
        ({"filter": {"stat": ["ready"]}, **why}, "filter.stat"),
        ({"ids": [SOME_ID], "dry_run": True, "delay": "soon", **why}, "delay"),
        ({"ids": [SOME_ID], "dry_run": True, "at": "2250-01-01T00:00:00Z", **why}, "at"),
        ({"ids": [SOME_ID], "dry_run": True, **why}, "at"),
    ):
        path = "/bulk/jobs/reschedule" if "dry_run" in wrong else "/bulk/jobs/cancel"
        answer = await api.post("ana", path, wrong)
        assert (problem(answer)[0], answer.json()["field"]) == (400, field), wrong


async def test_tasks_are_listed_with_the_schema_of_what_their_jobs_carry(shop_api: ApiVisitor) -> None:
    listed = (await shop_api.get("viewer.acme", "/tasks")).json()["items"]
    assert [task["name"] for task in listed] == ["post", "write"]
    shown = (await shop_api.get("vic", "/tasks/write")).json()
    assert (shown["queue"], shown["about"], shown["timeout_s"]) == ("q:mail", "Write a letter.", 300)
    (schema,) = shown["payload"]["$defs"].values()
    assert set(schema["properties"]) == {"name", "fail"}
    assert (await shop_api.get("vic", "/tasks/post")).json()["dedupe"]["template"] == "{letter}"
    assert problem(await shop_api.get("vic", "/tasks/nobody's")) == (404, "NOT_FOUND")


async def test_stats_are_numbers_by_queue_and_count_up_to_a_cap(shop_api: ApiVisitor, stage: Stage) -> None:
    await stage.enqueue_many([write.job(name="n") for _ in range(3)] + [write.job(name="n").after("1h")])
    dead = await stage.client.enqueue(write.job(name="n", fail="x").on_queue("q:other"))
    stage.conn.execute("update mainspring.waiting set attempt = 1 where id = %s", [dead.id])
    await stage.drain(SHOP, queues={"q:other": 1})
    stage.clock.advance(seconds=5)

    seen = (await shop_api.get("vic", "/stats")).json()
    mail = next(queue for queue in seen["queues"] if queue["name"] == "q:mail")
    assert (mail["ready"], mail["later"], mail["running"]) == (3, 1, 0)
    assert 5 <= mail["oldest_s"] < 60
    assert (seen["cap"], seen["dead"]["open"], seen["workers"]["alive"]) == (10_000, 1, 0)
