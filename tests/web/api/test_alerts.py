"""Alerts over HTTP: what is open, and that somebody has looked at it."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.web.api.visit import SOME_ID, ApiVisitor, greeted, problem
from tests.worker.stage import Stage

pytestmark = pytest.mark.anyio


async def test_what_the_state_of_the_database_says_is_shown_to_who_sees_all(api: ApiVisitor, stage: Stage) -> None:
    await greeted(stage.client)
    stage.clock.advance(hours=1)

    found = (await api.get("vic", "/alerts/engine")).json()["items"]

    assert ("queue-late", "q:default") in [(one["name"], one["queue"]) for one in found]
    assert problem(await api.get("viewer.acme", "/alerts/engine")) == (403, "FORBIDDEN")


async def test_open_alerts_are_listed_and_closed_once_with_a_reason(api: ApiVisitor, stage: Stage) -> None:
    alerts = stage.client.alerts
    for subject in ("booking 1", "booking 2"):
        await alerts.open("needs-a-person", subject, text="declined for jane@example.com", org="acme")
    await alerts.open("needs-a-person", "booking 1", org="acme")
    await alerts.open("failed-late", "booking 1", org="globex", severity="critical")

    page = (await api.get("viewer.acme", "/alerts?limit=1")).json()
    rest = (await api.get("viewer.acme", "/alerts", params={"limit": 1, "cursor": page["next"]})).json()
    newest, oldest = page["items"] + rest["items"]
    assert ([one["subject"] for one in (newest, oldest)], rest["next"]) == (["booking 2", "booking 1"], None)
    assert (oldest["count"], oldest["text"], oldest["runbook"]) == (2, "declined for j***@example.com", None)
    (theirs,) = (await api.get("operator.globex", "/alerts")).json()["items"]
    assert theirs["runbook"] == "docs/operations/alerts.md#failed-late"
    assert len((await api.get("vic", "/alerts?name=needs-a-person")).json()["items"]) == 2

    path = f"/alerts/{oldest['id']}"
    seen = {"if-match": (await api.get("viewer.acme", path)).headers["etag"]}
    await alerts.open("needs-a-person", "booking 1", org="acme")  # that it is seen again is no change
    for body in ({}, {"reason": ""}, {"reason": " "}):
        assert problem(await api.post("operator.acme", f"{path}/close", body, headers=seen))[0] == 400
    answers = await asyncio.gather(
        *(api.post(who, f"{path}/close", {"reason": "a new card"}, headers=seen) for who in ("root", "operator.acme"))
    )

    assert Counter(answer.status_code for answer in answers) == {200: 1, 412: 1}
    (done,) = [answer.json() for answer in answers if answer.status_code == 200]
    assert problem(await api.post("ana", f"{path}/close", {"reason": "x"})) == (409, "ALREADY_CLOSED")
    assert [one["id"] for one in (await api.get("viewer.acme", "/alerts?state=over")).json()["items"]] == [done["id"]]
    assert len((await api.get("viewer.acme", "/alerts?state=all")).json()["items"]) == 2
    events = "select actor_id, subject, detail->>'reason' from mainspring.audit where event = 'alert.closed'"
    assert stage.rows(events) == [(done["closed_by"], "booking 1", "a new card")]
    for missing in (theirs["id"], SOME_ID):
        assert problem(await api.get("viewer.acme", f"/alerts/{missing}")) == (404, "NOT_FOUND")
        answer = await api.post("operator.acme", f"/alerts/{missing}/close", {"reason": "x"})
        assert problem(answer) == (404, "NOT_FOUND")
