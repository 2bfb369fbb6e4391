"""Schedules over HTTP: seen with what comes next, said, paused, fired by hand, and what they did."""

from __future__ import annotations

import asyncio
import base64
import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.databases import Database
from tests.web.api.test_inputs import forged
from tests.web.api.visit import SOME_ID, ApiVisitor, problem, visiting_api
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.db.cipher import Keyring
from mainspring.db.wire.connect import AsyncConnection, options
from mainspring.db.wire.sql import Sql
from mainspring.worker.schedules.firing import Firing

pytestmark = pytest.mark.anyio

MONDAY = datetime(2026, 3, 23, tzinfo=UTC)  # clocks of London go forward on the Sunday after
DIGEST = {"task": "greet", "cron": "0 10 * * *", "zone": "Europe/London", "payload": {"name": "Ada"}}


async def fire(stage: Stage, tasks: ms.Registry) -> None:
    """What workers do when something is due."""
    sql = Sql()
    firing = Firing(sql, tasks, Keyring(None, stage.dsn, sql))
    async with await AsyncConnection.connect(stage.dsn, **options(stage.dsn, "scheduler")) as conn:
        await firing.fire(conn)


async def seen(api: ApiVisitor, name: str, query: str = "") -> dict[str, str]:
    return {"if-match": (await api.get("vic", f"/schedules/{name}{query}")).headers["etag"]}


async def every_page(api: ApiVisitor, path: str, limit: int) -> list[Any]:
    """What a list has, page by page; cursors that nobody was given are refused."""
    page = (await api.get("vic", path, params={"limit": limit})).json()
    found, given = page["items"], page["next"]
    for wrong in forged(given):
        assert problem(await api.get("vic", path, params={"limit": limit, "cursor": wrong}))[0] == 400, wrong
    while page["next"] is not None:
        page = (await api.get("vic", path, params={"limit": limit, "cursor": page["next"]})).json()
        found += page["items"]
    return list(found)


async def test_a_cursor_with_a_place_that_nothing_can_have_is_refused(api: ApiVisitor, stage: Stage) -> None:
    stage.clock.set(MONDAY)
    await stage.client.schedules.create("s", ms.daily("10:00"), "greet", payload={"name": "Ada"})
    for _ in range(2):
        await api.post("ana", "/schedules/s/run")
    async with stage.work(ms.Registry("a")), stage.work(ms.Registry("b")):
        at, naive = "2026-03-23T10:00:00Z", "2026-03-23T10:00:00"
        for path, places in (
            (
                "/fires",
                [[at, at, "\0", SOME_ID], [naive, at, "", SOME_ID], [at, at, "", "x"], [at, at, "\ud800", SOME_ID]],
            ),
            ("/workers", [[naive, "x"], [at, 7]]),
        ):
            page = (await api.get("vic", path, params={"limit": 1})).json()
            digest, _ = json.loads(base64.urlsafe_b64decode(page["next"] + "=="))
            for place in places:
                cursor = base64.urlsafe_b64encode(json.dumps([digest, place]).encode()).decode().rstrip("=")
                answer = await api.get("vic", path, params={"limit": 1, "cursor": cursor})
                assert problem(answer) == (400, "VALIDATION_ERROR"), (path, place)


async def test_a_rule_is_previewed_before_it_is_saved_in_utc_and_local_time(api: ApiVisitor, stage: Stage) -> None:
    stage.clock.set(MONDAY + timedelta(days=5))
    found = (await api.get("vic", "/schedule-preview?cron=30 1 * * *&zone=Europe/London&count=2")).json()
    assert found["words"] == "every day at 01:30 (Europe/London)"
    assert [(one["at"], one["local"]) for one in found["instants"]] == [
        ("2026-03-28T01:30:00Z", "2026-03-28T01:30:00Z"),
        ("2026-03-29T01:00:00Z", "2026-03-29T02:00:00+01:00"),  # jumped over: after the jump
    ]
    skipped = await api.get(
        "vic", "/schedule-preview?cron=30 1 * * *&zone=Europe/London&gap=skip&count=1&after=2026-03-28T02:00:00Z"
    )
    assert skipped.json()["instants"][0]["at"] == "2026-03-30T00:30:00Z"
    for query, said in (
        ("", "cron: give either cron or every"),
        ("cron=* * *", "cron: has 3 fields"),
        ("cron=0 0 30 2 *", "cron: "),
        ("every=0s", "every: is not a time span"),
        ("every=soon", "every: is not a time span"),
        ("cron=0 10 * * *&zone=europe/london", "zone: "),
        ("cron=0 10 * * *&anchor=2026-01-01T00:00:00Z", "anchor: belongs to every"),
        ("cron=0 10 * * *&count=201", "count: "),
        ("every=1h&after=0001-01-01T00:00:00Z", "after: lies before the year 1900"),
        ("every=1h&after=9999-12-31T23:59:59Z", "after: lies after the year"),
    ):
        answer = await api.get("vic", f"/schedule-preview?{query}")
        assert problem(answer) == (400, "VALIDATION_ERROR"), query
        assert answer.json()["detail"].startswith(said), answer.text


async def test_a_schedule_is_created_changed_paused_and_deleted_and_nobody_overwrites_another(
    api: ApiVisitor, stage: Stage
) -> None:
    stage.clock.set(MONDAY)
    assert problem(await api.post("ana", "/schedules", {"name": "digest"} | DIGEST)) == (403, "FORBIDDEN")
    made = await api.post("admin.acme", "/schedules", {"name": "digest", "reason": "they asked"} | DIGEST)
    assert made.status_code == 201
    assert (made.json()["org_id"], made.json()["status"], made.json()["payload"]) == ("acme", "active", {"name": "Ada"})
    assert made.json()["next"]["local"] == "2026-03-23T10:00:00Z"
    assert problem(await api.post("admin.acme", "/schedules", {"name": "digest"} | DIGEST)) == (409, "NAME_TAKEN")
    for body, said in (
        ({"task": "gret", "every": "1h"}, "task: is none of this application (did you mean 'greet'?)"),
        ({"task": "greet", "every": "1h"}, "name: is missing"),
        ({"task": "greet", "every": "1h", "payload": {"name": "A", "nmae": 1}}, "nmae: is not a field"),
        ({"task": "greet", "every": "1h", "cron": "* * * * *"}, "cron: give either"),
        (DIGEST | {"most": 3}, "most: needs catch_up all"),
        (DIGEST | {"within": "soon"}, "within: is not a time span"),
        (DIGEST | {"queue": ""}, "queue: "),
    ):
        answer = await api.post("root", "/schedules", {"name": "wrong"} | body)
        assert problem(answer) == (400, "VALIDATION_ERROR"), answer.text
        assert answer.json()["detail"].startswith(said), answer.text

    old = {"if-match": made.headers["etag"]}
    assert old == await seen(api, "digest", "?org=acme")
    later = {"task": "greet", "every": "1h"}
    changed = await api.ask("admin.acme", "PUT", "/schedules/digest", json=later, headers=old)
    assert (changed.json()["words"], changed.json()["payload"]) == ("every hour", {"name": "Ada"})
    assert problem(await api.ask("admin.acme", "PUT", "/schedules/digest", json=DIGEST, headers=old))[0] == 412
    assert problem(await api.post("operator.acme", "/schedules/digest/pause", {}, headers=old))[0] == 412
    assert problem(await api.post("operator.acme", "/schedules/digest/pause"))[0] == 428
    now = {"if-match": changed.headers["etag"]}
    paused = await api.post("operator.acme", "/schedules/digest/pause", {"reason": "quiet"}, headers=now)
    assert (paused.json()["status"], paused.json()["pause_reason"], paused.json()["next"]) == ("paused", "quiet", None)
    assert (await api.get("viewer.acme", "/schedules/digest/next")).json() == []
    now = {"if-match": paused.headers["etag"]}
    resumed = await api.post("operator.acme", "/schedules/digest/resume", {"catch_up": True}, headers=now)
    assert resumed.json()["status"] == "active"
    assert len((await api.get("viewer.acme", "/schedules/digest/next?count=3")).json()) == 3
    now = {"if-match": resumed.headers["etag"]}
    for method, path in (("GET", ""), ("GET", "/next"), ("POST", "/pause"), ("POST", "/run"), ("POST", "/delete")):
        who = "operator.globex" if path != "/delete" else "root"
        answer = await api.ask(who, method, f"/schedules/digest{path}", headers=now)
        assert problem(answer) == (404, "NOT_FOUND"), path  # another organisation's
    body = {"since": "2026-03-22T00:00:00Z", "reason": "x"}
    assert problem(await api.post("operator.globex", "/schedules/digest/backfill", body)) == (404, "NOT_FOUND")
    assert (await api.post("admin.acme", "/schedules/digest/delete", {}, headers=now)).status_code == 204
    acts = "select event, actor_id from mainspring.audit where org_id = 'acme' and starts_with(event, %s) order by id"
    assert stage.rows(acts, "schedule.") == [
        ("schedule.created", "admin.acme"), ("schedule.changed", "admin.acme"), ("schedule.paused", "operator.acme"),
        ("schedule.resumed", "operator.acme"), ("schedule.deleted", "admin.acme"),
    ]  # fmt: skip


async def test_one_that_code_declares_is_changed_there(api: ApiVisitor, stage: Stage, tasks: ms.Registry) -> None:
    tasks.schedule("declared", ms.daily("08:00"), "greet", payload={"name": "jane@example.com"})
    await stage.client.schedules.sync(tasks)

    shown = await api.get("vic", "/schedules/declared")
    assert shown.json()["payload"] == {"name": "j***@example.com"}
    now = {"if-match": shown.headers["etag"]}
    assert problem(await api.ask("root", "PUT", "/schedules/declared", json=DIGEST, headers=now)) == (409, "DECLARED")
    assert problem(await api.post("root", "/schedules/declared/delete", {}, headers=now)) == (400, "VALIDATION_ERROR")


async def test_schedules_and_their_fires_are_shown_page_by_page(
    api: ApiVisitor, stage: Stage, tasks: ms.Registry
) -> None:
    stage.clock.set(MONDAY)
    for name, org in (("a", "acme"), ("a", "globex"), ("b", "acme"), ("c", "default")):
        await stage.client.schedules.create(name, ms.daily("10:00"), "greet", org=org, payload={"name": org})
    found = await every_page(api, "/schedules", 1)
    assert [(one["name"], one["org_id"]) for one in found] == [
        ("a", "acme"), ("a", "globex"), ("b", "acme"), ("c", "default")
    ]  # fmt: skip

    for day in (0, 1, 4):  # two days were missed, the latest of which is caught up
        stage.clock.set(MONDAY + timedelta(days=day, hours=10))
        await fire(stage, tasks)
    stage.clock.advance("1s")
    ran = await api.post("operator.acme", "/schedules/a/run", {"reason": "once more"})
    (job,) = ran.json()["jobs"]
    whole = (await api.get("vic", "/fires")).json()["items"]
    assert len(whole) == 4 * 4 + 1
    assert await every_page(api, "/fires", 3) == whole

    ours = (await api.get("viewer.acme", "/fires?schedule=a")).json()["items"]
    assert [(one["how"], one["state"], one["instants"]) for one in ours] == [
        ("run_now", "ready", 1), ("fired", "ready", 1), ("missed", None, 2), ("fired", "ready", 1),
        ("fired", "ready", 1),
    ]  # fmt: skip
    assert (ours[0]["job_id"], ours[0]["org_id"], ours[0]["reason"]) == (job, "acme", "once more")
    await stage.client.cancel(job)
    hows = (await api.get("viewer.acme", "/fires?schedule=a&how=missed&how=run_now")).json()["items"]
    assert [one["how"] for one in hows] == ["run_now", "missed"]
    states = (await api.get("viewer.acme", "/fires?schedule=a&state=cancelled")).json()["items"]
    assert [one["job_id"] for one in states] == [job]
    early = (await api.get("viewer.acme", "/fires?until=2026-03-24T00:00:00Z")).json()["items"]
    assert sorted((one["schedule"], one["instant"]) for one in early) == [
        (name, "2026-03-23T10:00:00Z") for name in "ab"
    ]
    assert problem(await api.get("viewer.acme", "/fires?state=ready")) == (400, "VALIDATION_ERROR")
    assert (await api.get("viewer.acme", "/fires?state=ready&since=2026-03-27T00:00:00Z")).json()["items"]
    assert (await api.get("viewer.acme", "/fires?schedule=c")).json()["items"] == []
    assert (await api.get("viewer.acme", "/fires?org=globex")).json()["items"] == []


async def test_what_was_missed_is_made_up_for_once_and_shown_before(
    api: ApiVisitor, stage: Stage, tasks: ms.Registry
) -> None:
    stage.clock.set(MONDAY)
    await stage.client.schedules.create("s", ms.daily("10:00"), "greet", payload={"name": "Ada"}, catch_up="skip")
    path = "/schedules/s/backfill"
    body: dict[str, Any] = {"since": "2026-03-21T10:00:00Z", "reason": "nobody was there"}
    for day in (0, 3):
        stage.clock.set(MONDAY + timedelta(days=day, hours=10))
        await fire(stage, tasks)
    stage.clock.set(MONDAY + timedelta(days=4, hours=10, seconds=5))  # one is due, and nobody has looked yet

    shown = (await api.post("ana", path, body | {"dry_run": True})).json()
    outcomes = ["to_fire", "to_fire", "fired_before", "to_fire", "to_fire", "fired_before", "still_due"]
    assert [one["outcome"] for one in shown["instants"]] == outcomes
    assert shown["instants"][0]["local"] == "2026-03-21T10:00:00Z"
    assert stage.one("select count(*) from mainspring.fire where how = 'run_now'") == 0
    done, again = await asyncio.gather(api.post("ana", path, body), api.post("root", path, body))
    assert sorted((done.json()["fired"], again.json()["fired"])) == [0, 4]
    jobs = [one["job_id"] for one in (done if done.json()["fired"] else again).json()["instants"]]
    assert [job is not None for job in jobs] == [True, True, False, True, True, False, False]
    first = await stage.client.get(jobs[0])
    assert (first.state, first.scheduled_for, first.payload) == ("ready", MONDAY - timedelta(hours=38), {"name": "Ada"})
    third = (await api.post("ana", path, body)).json()
    assert (third["fired"], third["instants"][0]["outcome"]) == (0, "fired_before")
    await fire(stage, tasks)
    (event,) = stage.rows("select detail from mainspring.audit where event = 'schedule.backfilled'")
    assert (event[0]["after"]["fires"], event[0]["reason"]) == (4, "nobody was there")
    instants = "select count(*), count(distinct instant) from mainspring.fire where how in ('fired', 'run_now')"
    assert stage.rows(instants) == [(7, 7)]

    for wrong, said in (
        ({"since": "2026-03-21T10:00:00Z"}, "reason: is missing"),
        (body | {"since": "2026-03-28T10:00:00Z"}, "since: is not up to 10 years before until"),
        (body | {"since": "0001-01-01T00:00:00Z"}, "since: is not up to 10 years before until"),
        (body | {"until": "2026-03-28T10:00:00Z"}, "until: lies in the future"),
        (body | {"limit": 3}, "since: more than 3 instants lie there"),
        (body | {"limit": 1001}, "limit: "),
        (body | {"zone": "Europe/Oslo"}, "zone: is none of the schedule's"),
        (body | {"since": "2026-03-21T10:00:00"}, "since: "),
    ):
        answer = await api.post("ana", path, wrong)
        assert problem(answer) == (400, "VALIDATION_ERROR"), answer.text
        assert answer.json()["detail"].startswith(said), answer.text


async def test_what_is_fired_by_hand_is_encrypted_where_the_application_encrypts(
    database: Database, tasks: ms.Registry, stage: Stage
) -> None:
    stage.clock.set(MONDAY)
    tasks.task(name="greet")(_greet)
    await stage.client.schedules.create("s", ms.daily("10:00"), "greet", payload={"name": "Ada"}, org="acme")
    stage.rows("update mainspring.schedule_zone set after = mainspring.now()")
    app = ms.App(tasks, dsn=database.dsn, maintenance=False, cipher=ms.Cipher(b"m" * 32))
    async with visiting_api(app) as api:
        assert (await api.post("operator.acme", "/schedules/s/run")).status_code == 200
        body = {"since": "2026-03-22T00:00:00Z", "reason": "x"}
        assert (await api.post("operator.acme", "/schedules/s/backfill", body)).json()["fired"] == 1
    payloads = stage.rows("select payload::text from mainspring.job where org_id = 'acme'")
    assert len(payloads) == 2
    assert not any("Ada" in payload for (payload,) in payloads)


async def _greet(*, name: str) -> None: ...
