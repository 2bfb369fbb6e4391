"""Breakers, workers and quarantine over HTTP."""

from __future__ import annotations

from collections.abc import Sequence

import psycopg
import pytest
from tests.web.api.visit import ApiVisitor, greeted, problem, visiting_api
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.events import BreakerForced, Event, TaskReleased

pytestmark = pytest.mark.anyio

RULE = '[{"name": "stripe", "failures": 2, "within": "30 s", "pause": "60 s", "longest": "60 s", "probes": 1}]'
CALL = '[{"org_id": "%s", "name": "stripe", "key": "%s", "ages": [0, 0]}]'


async def seen(api: ApiVisitor, path: str, who: str = "vic") -> dict[str, str]:
    return {"if-match": (await api.get(who, path)).headers["etag"]}


async def test_breakers_are_seen_and_forced_each_by_whose_they_are(app: ms.App, stage: Stage) -> None:
    told: list[Event] = []

    def listen(events: Sequence[Event]) -> None:
        told.extend(events)

    app.observers = (listen,)
    stage.rows("select mainspring.declare_breakers(%s)", RULE)
    for org in ("acme", "globex"):
        stage.rows("select * from mainspring.report_calls(%s)", CALL % (org, f"of-{org}"))
    async with visiting_api(app) as api:
        found = (await api.get("vic", "/breakers")).json()["items"]
        assert [(one["key"], one["org_id"], one["state"]) for one in found] == [
            (None, "SYSTEM", "closed"), ("of-acme", "acme", "open"), ("of-globex", "globex", "open")
        ]  # fmt: skip
        pages = [(await api.get("vic", "/breakers?limit=2")).json()]
        pages.append((await api.get("vic", "/breakers", params={"limit": 2, "cursor": pages[0]["next"]})).json())
        assert [one for page in pages for one in page["items"]] == found
        ours = (await api.get("viewer.acme", "/breakers?name=stripe")).json()["items"]
        assert [one["key"] for one in ours] == [None, "of-acme"]
        theirs = (await api.get("viewer.acme", "/breakers/stripe?key=of-globex")).json()
        assert (theirs["state"], theirs["org_id"], theirs["failed"]) == (
            "closed",
            "acme",
            0,
        )  # a key of ours, unheard of
        for answer in (await api.get("vic", "/breakers/strip"), await api.get("vic", "/breakers?name=strip")):
            assert problem(answer) == (404, "NOT_FOUND")

        path, body = "/breakers/stripe/open", {"reason": "maintenance"}
        refused = await api.post("operator.acme", path, body, headers={"if-match": "*"})
        assert problem(refused) == (403, "FORBIDDEN")
        headers = await seen(api, "/breakers/stripe")
        done = await api.post("ana", path, body, headers=headers)
        assert (done.json()["forced"], done.json()["forced_by"], done.json()["state"]) == ("open", "ana", "open")
        assert problem(await api.post("root", "/breakers/stripe/close", body, headers=headers))[0] == 412
        assert problem(await api.post("root", path, {"reason": ""}, headers={"if-match": "*"}))[0] == 400
        assert problem(await api.post("root", path, {}, headers={"if-match": "*"}))[0] == 400
        headers = {"if-match": done.headers["etag"]}
        assert (await api.post("root", "/breakers/stripe/auto", body, headers=headers)).json()["forced"] is None

        for key in ("of-acme", "new:one"):
            headers = await seen(api, f"/breakers/stripe?key={key}", "operator.acme")
            closed = await api.post("operator.acme", "/breakers/stripe/close", body | {"key": key}, headers=headers)
            assert (closed.json()["forced"], closed.json()["org_id"], closed.json()["key"]) == ("closed", "acme", key)
            late = await api.post("ana", "/breakers/stripe/open?org=acme", body | {"key": key}, headers=headers)
            assert problem(late) == (412, "CHANGED_MEANWHILE")
    assert [(type(event), event.to, event.key) for event in told if isinstance(event, BreakerForced)] == [
        (BreakerForced, "open", None), (BreakerForced, "automatic", None), (BreakerForced, "closed", "of-acme"),
        (BreakerForced, "closed", "new:one"),
    ]  # fmt: skip


@pytest.mark.parametrize(("kind", "name"), [("breaker", "stripe"), ("breaker", "stripe:k"), ("schedule", "s")])
async def test_what_is_compared_is_held_against_workers_and_the_command_line(
    stage: Stage, kind: str, name: str
) -> None:
    stage.rows("select mainspring.declare_breakers(%s)", RULE)
    stage.rows("select * from mainspring.report_calls(%s)", CALL % ("default", "k"))
    await stage.client.schedules.create("s", ms.daily("10:00"), "greet", payload={"name": "Ada"})
    where = {"stripe": "key = ''", "stripe:k": "key = 'k'", "s": "name = 's'"}[name]
    free = f"select count(*) from (select from mainspring.{kind} where {where} for update skip locked) x"
    with psycopg.connect(stage.dsn, autocommit=True) as other:
        assert other.execute(free.encode()).fetchone() == (1,)
        with stage.conn.transaction():
            stage.rows("select mainspring.lock_for_change(%s, null, %s)", kind, name)
            assert other.execute(free.encode()).fetchone() == (0,)


async def test_workers_are_shown_with_what_they_hold_of_ones_own(api: ApiVisitor, stage: Stage) -> None:
    tasks = ms.Registry("shop")
    for org in ("acme", "acme", "globex"):
        await greeted(stage.client, org)
    async with stage.work(tasks) as worker:
        await stage.until(lambda: stage.rows("select id from mainspring.worker"))  # it registers by its first beat
        stage.claim(worker.id, "greet")
        (one,) = (await api.get("viewer.acme", "/workers")).json()["items"]
        assert (one["id"], one["gone"], one["leases"], one["running"]) == (worker.id, False, 2, 2)
        assert (await api.get("vic", "/workers")).json()["items"][0]["leases"] == 3
        assert (await api.get("vic", f"/workers/{worker.id}")).json()["host"] == one["host"]
        assert problem(await api.get("vic", "/workers/nobody")) == (404, "NOT_FOUND")
        path = f"/workers/{worker.id}/jobs"
        assert len((await api.get("vic", path)).json()["items"]) == 3
        ours = (await api.get("viewer.acme", path)).json()["items"]
        assert [(job["org_id"], job["task"], job["state"]) for job in ours] == [("acme", "greet", "running")] * 2
        pages = [(await api.get("vic", f"{path}?limit=2")).json()]
        pages.append((await api.get("vic", path, params={"limit": 2, "cursor": pages[0]["next"]})).json())
        assert len({job["job_id"] for page in pages for job in page["items"]}) == 3
        assert (await api.get("vic", "/workers/nobody/jobs")).json()["items"] == []


async def test_a_task_is_let_go_from_quarantine_and_observers_hear_of_it(app: ms.App, stage: Stage) -> None:
    told: list[Event] = []

    def listen(events: Sequence[Event]) -> None:
        told.extend(events)

    app.observers = (listen,)
    for worker in ("a", "b", "c"):
        stage.rows("select mainspring.has_killed('greet', %s)", worker)
    async with visiting_api(app) as api:
        (held,) = (await api.get("viewer.acme", "/quarantine")).json()["items"]
        assert (held["task"], held["workers"]) == ("greet", ["a", "b", "c"])
        path = "/quarantine/greet/release"
        assert problem(await api.post("admin.acme", path, {"reason": "fixed"})) == (403, "FORBIDDEN")
        assert problem(await api.post("ana", path, {})) == (400, "VALIDATION_ERROR")
        for released in (True, False):
            done = await api.post("ana", path, {"reason": "fixed in 4.2, token=abc"})
            assert done.json() == {"task": "greet", "released": released}
        assert (await api.get("vic", "/quarantine")).json()["items"] == []
    assert told == [TaskReleased("greet", "ana", "fixed in 4.2, token=***")]
