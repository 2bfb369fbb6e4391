"""The audit trail over HTTP: found by what is known of an event, and checked by its seals."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.databases import await_others
from tests.db.engine import Engine
from tests.web.api.dead import killed
from tests.web.api.visit import ApiVisitor, problem
from tests.worker.stage import Stage

import mainspring.web.api.audit
from mainspring.db import audit as trail

pytestmark = pytest.mark.anyio


async def listed(api: ApiVisitor, who: str = "viewer.acme", **only: Any) -> list[str]:
    answer = await api.get(who, "/audit", params=only)
    assert answer.status_code == 200, answer.text
    return [one["event"] for one in answer.json()["items"]]


async def test_events_are_found_by_what_is_known_of_them(api: ApiVisitor, stage: Stage) -> None:
    record, engine = stage.client.audit.record, Engine(stage.conn)
    start = stage.clock.set(datetime(2026, 3, 2, 12, tzinfo=UTC))
    written = """select mainspring.record_business(
        'booking.paid', '{"to": "jane@example.com"}', 'acme', p_subject => 'booking 17')"""
    engine.conn.execute(written)  # which masks nothing, unlike our clients
    stage.clock.advance(hours=1)
    await record("booking.moved", subject="booking 17", org="acme")
    job = killed(engine)
    await api.post("operator.acme", f"/dead-letters/{job}/replay", {"reason": "x"}, headers={"x-correlation-id": "c-7"})
    await record("booking.paid", subject="booking 17", org="globex")

    (paid,) = (await api.get("viewer.acme", "/audit?event=booking.paid")).json()["items"]
    assert (paid["subject"], paid["detail"], paid["org_id"]) == ("booking 17", {"to": "j***@example.com"}, "acme")
    assert await listed(api, "vic", event="booking.paid") == ["booking.paid"] * 2
    assert await listed(api, "vic", subject="booking 17", org="globex") == ["booking.paid"]
    assert await listed(api, org="globex") == []
    of_job = await listed(api, job=job)
    assert of_job[0] == "job.replayed"
    for only, expected in (
        ({"subject": "booking 17"}, ["booking.moved", "booking.paid"]),
        ({"actor": "operator.acme"}, ["job.replayed"]),
        ({"job": job, "event": "job.replayed"}, ["job.replayed"]),
        ({"until": (start + timedelta(minutes=1)).isoformat()}, ["booking.paid"]),
        ({"since": (start + timedelta(minutes=1)).isoformat(), "subject": "booking 17"}, ["booking.moved"]),
        ({"correlation": paid["correlation_id"]}, ["booking.paid"]),
        ({"correlation": "nothing"}, []),
        ({"job": UUID(int=7)}, []),
    ):
        assert await listed(api, **only) == expected, only
    for wrong in ({"event": ""}, {"job": "7"}, {"since": "today"}, {"actor": "x" * 201}, {"cursor": "MQ"}):
        assert problem(await api.get("vic", "/audit", params=wrong))[0] == 400, wrong


async def test_a_page_looks_no_further_than_it_may_and_the_next_goes_on_there(
    api: ApiVisitor, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = stage.clock.set(datetime(2026, 3, 2, 12, tzinfo=UTC))
    for number in range(10):
        await stage.client.audit.record(f"booking.{'paid' if number in (0, 9) else 'seen'}", org="acme")
    monkeypatch.setattr(mainspring.web.api.audit, "MOST_LOOKED_AT", 4)

    async def pages(**only: Any) -> list[list[str]]:
        found: list[list[str]] = []
        cursor: dict[str, str] = {}
        while True:
            page = (await api.get("viewer.acme", "/audit", params=only | cursor)).json()
            found.append([one["event"] for one in page["items"]])
            if page["next"] is None:
                return found
            cursor = {"cursor": page["next"]}

    assert await pages(event="booking.paid") == [["booking.paid"], [], ["booking.paid"]]
    assert [len(page) for page in await pages()] == [4, 4, 2]
    assert [len(page) for page in await pages(limit=3)] == [3, 3, 3, 1]
    late = (start + timedelta(hours=2)).isoformat()
    assert await pages(since=late) == [[]]  # nothing older is as young


async def test_the_newest_seals_are_recomputed_and_what_was_changed_is_named(api: ApiVisitor, stage: Stage) -> None:
    engine, sealed = Engine(stage.conn), stage.client.audit
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trail, "SEAL_ROWS", 2)
        for number in range(8):
            await sealed.record("booking.paid", {"n": number}, org="acme")
        await sealed.record("booking.paid", org="globex")
        await_others(stage.conn)
        assert [await sealed.seal(org=org) for org in ("acme", "globex")] == [8, 1]

    (ours,) = (await api.get("viewer.acme", "/audit/seals")).json()["items"]
    assert ours["number"] == 4
    both = [(one["org_id"], one["hash"]) for one in (await api.get("vic", "/audit/seals?limit=2")).json()["items"]]
    assert (both[0], both[1][0]) == (("acme", ours["hash"]), "globex")

    async def verified(who: str = "operator.acme", **how: Any) -> dict[str, Any]:
        answer: dict[str, Any] = (await api.get(who, "/audit/verification", params=how)).json()
        return answer

    whole = await verified(head=ours["hash"])
    assert (whole["ok"], whole["first_seal"], whole["last_seal"], whole["events"]) == (True, 1, 4, 8)
    some = await verified("ana", org="acme", seals=2)
    assert (some["ok"], some["first_seal"], some["last_seal"], some["events"], some["waiting"]) == (True, 3, 4, 4, 0)
    assert not (await verified(head="0" * 64))["ok"]

    ids = [row[0] for row in engine.rows("select id from mainspring.audit where org_id = 'acme' order by id")]
    engine.conn.execute("alter table mainspring.audit disable trigger all")
    engine.conn.execute("update mainspring.audit set detail = '{}' where id = any(%s)", [[ids[0], ids[7]]])
    engine.conn.execute("alter table mainspring.audit enable trigger all")
    found = [(one["problem"], one["id"], one["number"]) for one in (await verified(seals=2))["findings"]]
    assert found == [("changed", ids[7], 4)]
    assert (await verified())["wrong"] == 2
    assert problem(await api.get("viewer.acme", "/audit/verification")) == (403, "FORBIDDEN")
    assert problem(await api.get("ana", "/audit/verification?head=x"))[0] == 400
