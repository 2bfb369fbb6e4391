"""On a secured schema the API connects as the api and the operator role, each request bound to one organisation."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest
from tests.db.engine import Engine
from tests.secured import Secured
from tests.together.stage import enqueue_batch, job
from tests.web.api.dead import killed
from tests.web.api.visit import ApiVisitor, greeted, problem, visiting_api

import mainspring as ms
from mainspring.errors import ConfigurationError, DatabaseUnavailable, NotPermitted
from mainspring.web.api.connections import Connections

pytestmark = pytest.mark.anyio


@pytest.fixture
async def shop(secured: Secured, tasks: ms.Registry, monkeypatch: pytest.MonkeyPatch) -> ms.App:
    monkeypatch.setenv("MAINSPRING_API_DSN", secured.dsn("api"))
    monkeypatch.setenv("MAINSPRING_OPERATOR_DSN", secured.dsn("operator"))
    return ms.App(tasks, dsn=secured.dsn("worker"), secured=True, maintenance=False)


@pytest.fixture
async def secured_api(shop: ms.App) -> AsyncIterator[ApiVisitor]:
    async with visiting_api(shop) as visitor:
        yield visitor


async def test_every_request_is_bound_and_its_writes_are_kept_there(secured: Secured, secured_api: ApiVisitor) -> None:
    api = secured_api
    async with ms.AsyncClient(secured.dsn("operator"), secured=True) as client:
        ours, theirs = await greeted(client, "acme"), await greeted(client, "globex")
    key = {"idempotency-key": "once"}

    assert (await api.get("viewer.acme", f"/jobs/{ours}")).status_code == 200
    missing = await api.get("viewer.acme", f"/jobs/{theirs}")
    assert problem(missing) == (404, "NOT_FOUND")
    assert (await api.get("vic", f"/jobs/{theirs}")).text == missing.text  # without ?org= it is about `default`
    assert (await api.get("vic", f"/jobs/{theirs}?org=globex")).status_code == 200
    assert problem(await api.post("operator.acme", f"/jobs/{theirs}/cancel"))[0] == 404
    for _ in range(2):
        done = await api.post("operator.acme", f"/jobs/{ours}/cancel", {}, headers=key)
        assert done.json()["outcome"] == "cancelled"
    seen = (await api.get("operator.acme", "/queues/q:default")).headers["etag"]
    assert (await api.post("ana", "/queues/q:default/pause", {}, headers=key | {"if-match": seen})).status_code == 200
    revealed = await api.post("root", f"/jobs/{theirs}/reveal?org=globex")
    assert revealed.json()["payload"] == {"name": "Ada"}
    kept = secured.do("select org_id, status from mainspring.request order by 1")
    assert kept == [("acme", 200), ("default", 200)]


async def test_all_of_a_job_is_seen_and_done_by_the_roles_of_the_database(secured_api: ApiVisitor) -> None:
    api, why = secured_api, {"reason": "a try"}
    order = {"task": "elsewhere", "payload": {"a": 1}, "delay": "1h"}
    theirs = (await api.post("operator.globex", "/jobs", order)).json()["id"]
    ours = [(await api.post("operator.acme", "/jobs", order)).json()["id"] for _ in range(2)]

    found = (await api.get("viewer.acme", "/jobs?state=scheduled")).json()["items"]
    assert {job["id"] for job in found} == set(ours)
    assert len((await api.get("vic", "/jobs?task=elsewhere&org=globex")).json()["items"]) == 1
    for part in ("attempts", "steps", "events", "related", "children", "explain"):
        assert (await api.get("viewer.acme", f"/jobs/{ours[0]}/{part}")).status_code == 200
        assert problem(await api.get("viewer.acme", f"/jobs/{theirs}/{part}")) == (404, "NOT_FOUND")
    acts: list[tuple[str, dict[str, Any]]] = [
        ("prioritize", {"priority": 0}),
        ("reschedule", {"delay": 60}),
        ("run", why),
    ]
    for act, body in acts:
        assert (await api.post("operator.acme", f"/jobs/{ours[0]}/{act}", body)).status_code == 200
        assert problem(await api.post("operator.acme", f"/jobs/{theirs}/{act}", body)) == (404, "NOT_FOUND")
    many = why | {"ids": [*ours, theirs]}
    moved = (await api.post("operator.acme", "/bulk/jobs/reschedule", many | {"delay": "2h"})).json()
    stopped = (await api.post("operator.acme", "/bulk/jobs/cancel", many)).json()
    assert moved["left_alone"] == stopped["left_alone"] == [{"id": theirs, "outcome": "not_found"}]
    later = {}
    for org in ("globex", "acme"):
        seen = (await api.get(f"operator.{org}", "/stats")).json()
        later[org] = sum(queue["later"] for queue in seen["queues"])
    assert later == {"globex": 1, "acme": 0}


async def test_what_people_see_and_decide_needs_no_more_than_their_logins(
    secured: Secured, secured_api: ApiVisitor
) -> None:
    api, any_version = secured_api, {"if-match": "*"}
    jobs = {}
    for org in ("globex", "acme"):
        with secured.connect("worker", org) as conn:
            jobs[org] = [killed(Engine(conn), org_id=org) for _ in range(5)]
            batch = enqueue_batch(Engine(conn), [job(org_id=org)], org_id=org, on_finish=None)
    async with ms.AsyncClient(secured.dsn("operator"), secured=True) as client:
        await client.alerts.open("needs-a-person", org="acme")

    assert len((await api.get("viewer.acme", "/dead-letters")).json()["items"]) == 5
    assert (await api.get("viewer.acme", "/dead-letters/groups")).json()["items"][0]["count"] == 5
    first, second, third, *_ = jobs["acme"]
    assert problem(await api.get("viewer.acme", f"/dead-letters/{jobs['globex'][0]}")) == (404, "NOT_FOUND")
    said = {"reason": "it is back"}
    fixed = said | {"set": {"n": 1}}
    for act, id_, body in (("replay", first, said), ("discard", second, said), ("fix", third, fixed)):
        answer = await api.post("operator.acme", f"/dead-letters/{id_}/{act}", body, headers=any_version)
        assert answer.status_code == 200, answer.text
    many = {"filter": {}, "limit": 1, "reason": "it is back"}
    assert (await api.post("operator.acme", "/bulk/dead-letters/replay", many)).json()["rest"] == 1
    assert (await api.post("operator.acme", "/bulk/dead-letters/discard", many)).json()["done"] == 1
    assert len((await api.get("vic", "/dead-letters?org=globex")).json()["items"]) == 5

    assert (await api.get("viewer.acme", f"/batches/{batch}/jobs")).json()["items"]
    assert (await api.get("viewer.acme", f"/flows/{first}")).json()["complete"]
    for act in ("retry-failed", "cancel"):
        assert (await api.post("operator.acme", f"/batches/{batch}/{act}", said)).status_code == 200
    assert (await api.get("vic", "/alerts/engine")).status_code == 200
    (alert,) = (await api.get("viewer.acme", "/alerts")).json()["items"]
    assert (await api.post("operator.acme", f"/alerts/{alert['id']}/close", said)).status_code == 200

    assert {one["org_id"] for one in (await api.get("viewer.acme", "/audit")).json()["items"]} == {"acme"}
    async with ms.AsyncClient(secured.dsn("worker"), secured=True) as client:
        for org in ("acme", "globex"):
            await client.audit.seal(org=org)
    (seal,) = (await api.get("viewer.acme", "/audit/seals")).json()["items"]
    whole = (await api.get("operator.acme", "/audit/verification", params={"head": seal["hash"]})).json()
    assert (whole["org_id"], whole["ok"], whole["last_seal"]) == ("acme", True, 1)


async def test_without_logins_of_its_own_nothing_starts(
    secured: Secured, shop: ms.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINSPRING_OPERATOR_DSN")

    with pytest.raises(ConfigurationError, match="MAINSPRING_OPERATOR_DSN"):
        Connections(shop)


async def test_what_only_reads_cannot_write_and_the_api_role_cannot_operate(secured: Secured, shop: ms.App) -> None:
    connections = Connections(shop)
    client = connections.client("operator")
    try:
        for role, writes, refused in (("operator", False, DatabaseUnavailable), ("api", True, NotPermitted)):
            with pytest.raises(refused):
                async with connections.transaction(role, "acme", writes=writes) as conn:  # type: ignore[arg-type]
                    await client.pause("q:default", conn=conn)
        async with connections.transaction("operator", "acme", writes=True) as conn:
            await client.pause("q:default", conn=conn)
        async with connections.transaction("operator", None, writes=True) as conn:
            found = await conn.execute(
                "select current_setting('mainspring.org'), count(*) from mainspring.job group by 1"
            )
            assert await found.fetchall() == []
    finally:
        await connections.close()
