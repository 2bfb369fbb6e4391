"""On a secured schema the API connects as the api and the operator role, each request bound to one organisation."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.secured import Secured
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
    kept = secured.do("select org_id, actor_id, status from mainspring.request order by 1")
    assert kept == [("acme", "operator.acme", 200), ("default", "ana", 200)]


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
