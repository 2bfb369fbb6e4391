"""The same on a secured schema: each request sees and touches its organisation, and what is everybody's."""

from __future__ import annotations

import pytest
from tests.secured import Secured
from tests.web.api.test_secured import secured_api, shop
from tests.web.api.visit import ApiVisitor, problem

import mainspring as ms

__all__ = ["secured_api", "shop"]

pytestmark = pytest.mark.anyio


@pytest.fixture
def tasks() -> ms.Registry:
    found = ms.Registry("shop")

    @found.task(name="greet")
    async def greet(*, name: str) -> None: ...

    return found


async def test_schedules_limits_and_breakers_are_worked_with_as_the_roles_may(
    secured: Secured, secured_api: ApiVisitor
) -> None:
    api = secured_api
    digest = {"name": "digest", "task": "greet", "cron": "0 10 * * *", "payload": {"name": "Ada"}}
    made = await api.post("admin.acme", "/schedules", digest)
    assert made.status_code == 201, made.text
    now = {"if-match": made.headers["etag"]}
    assert problem(await api.get("operator.globex", "/schedules/digest")) == (404, "NOT_FOUND")
    assert (await api.post("operator.acme", "/schedules/digest/run", {"reason": "now"})).json()["jobs"]
    body = {"since": "2020-01-01T00:00:00Z", "until": "2020-01-02T12:00:00Z", "reason": "x"}
    filled = await api.post("operator.acme", "/schedules/digest/backfill", body)
    assert filled.json()["fired"] == 2, filled.text
    assert len((await api.get("viewer.acme", "/fires")).json()["items"]) == 3
    assert (await api.get("operator.globex", "/fires?schedule=digest")).json()["items"] == []
    assert (await api.post("operator.acme", "/schedules/digest/pause", {}, headers=now)).status_code == 200

    limit = {"name": "two", "queue": "q:default", "concurrency": 2, "by": "org"}
    assert (await api.post("ana", "/limits", limit)).status_code == 201
    for who in ("vic", "viewer.acme"):
        assert (await api.get(who, "/limits")).json()["items"][0]["name"] == "two"
        assert (await api.get(who, "/limits/two/use")).status_code == 200
    fair = await api.ask("ana", "PUT", "/queues/q:default/fair", json={"weights": {}}, headers={"if-match": "*"})
    assert fair.json()["fair"] is True, fair.text
    secured.do(
        "insert into mainspring.breaker (name, failures, within, pause, longest, probes, used_at)"
        " values ('stripe', 5, '30 s', '60 s', '60 s', 1, now()) returning 1"
    )
    key = {"reason": "x", "key": "k"}
    opened = await api.post("operator.acme", "/breakers/stripe/open", key, headers={"if-match": "*"})
    assert opened.json()["forced"] == "open", opened.text
    assert (await api.get("operator.globex", "/breakers/stripe?key=k")).json()["forced"] is None
    assert [one["key"] for one in (await api.get("operator.globex", "/breakers")).json()["items"]] == [None]
    assert (await api.get("viewer.acme", "/workers")).json()["items"] == []
    assert (await api.post("ana", "/quarantine/greet/release", {"reason": "x"})).json()["released"] is False
