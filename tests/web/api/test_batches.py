"""Batches and flows over HTTP: how far they are, and what is done to them once."""

from __future__ import annotations

import asyncio
from collections import Counter
from uuid import UUID

import pytest
from tests.db.engine import ERROR, Engine
from tests.together.stage import enqueue_batch, enqueue_flow, job
from tests.web.api.visit import SOME_ID, ApiVisitor, problem
from tests.worker.stage import Stage

import mainspring.db.flows
from mainspring.uuid7 import uuid7

pytestmark = pytest.mark.anyio
ACTS = ("retry-failed", "cancel")


@pytest.fixture
def engine(stage: Stage) -> Engine:
    return Engine(stage.conn)


def half_failed(engine: Engine) -> UUID:
    """A batch of four jobs, of which one has succeeded and one failed."""
    last = job("tell", max_attempts=1, key=f"batch:{uuid7()}", mode="reset_failed", org_id="acme")
    jobs = [job("greet", org_id="acme") for _ in range(4)]
    made = enqueue_batch(engine, jobs, org_id="acme", on_finish=last)
    for claim, verb in zip(engine.claim(tasks=["greet"], n=2), ("complete", "reject"), strict=True):
        error = None if verb == "complete" else ERROR | {"message": "jane@example.com does not answer"}
        assert engine.end(claim, verb, error=error)
    return made


async def test_a_batch_shows_how_far_it_is_and_its_jobs_and_nobody_elses(api: ApiVisitor, engine: Engine) -> None:
    ours, theirs = half_failed(engine), enqueue_batch(engine, [job(org_id="globex")], org_id="globex", on_finish=None)
    newer = enqueue_batch(engine, [], org_id="acme", on_finish=None)

    shown = (await api.get("viewer.acme", f"/batches/{ours}")).json()
    counts = ("state", "total", "ended", "percent", "succeeded", "failed", "waiting")
    assert [shown[name] for name in counts] == ["running", 4, 2, 50.0, 1, 1, 2]
    page = (await api.get("viewer.acme", "/batches?limit=1")).json()
    rest = (await api.get("viewer.acme", "/batches", params={"limit": 1, "cursor": page["next"]})).json()
    assert ([one["id"] for one in page["items"] + rest["items"]], rest["next"]) == ([str(newer), str(ours)], None)
    finished = (await api.get("viewer.acme", "/batches?state=finished")).json()["items"]
    assert [one["id"] for one in finished] == [str(newer)]

    failed = (await api.get("viewer.acme", f"/batches/{ours}/jobs?state=failed")).json()["items"]
    assert [(one["task"], one["state"], one["code"], one["message"]) for one in failed] == [
        ("greet", "failed", "INTERNAL_ERROR", "j***@example.com does not answer")
    ]
    first = (await api.get("viewer.acme", f"/batches/{ours}/jobs?limit=3")).json()
    last = (await api.get("viewer.acme", f"/batches/{ours}/jobs?limit=3&cursor={first['next']}")).json()
    assert len({one["id"] for one in first["items"] + last["items"]}) == 4
    for missing in (theirs, SOME_ID):
        for path in (f"/batches/{missing}", f"/batches/{missing}/jobs"):
            assert problem(await api.get("viewer.acme", path)) == (404, "NOT_FOUND")
        for act in ACTS:
            answer = await api.post("operator.acme", f"/batches/{missing}/{act}", {"reason": "x"})
            assert problem(answer) == (404, "NOT_FOUND")
    assert problem(await api.get("vic", "/batches?state=done"))[0] == 400


async def test_failed_jobs_are_retried_and_the_rest_cancelled_unless_somebody_was_quicker(
    api: ApiVisitor, engine: Engine
) -> None:
    batch = half_failed(engine)
    seen = {"if-match": (await api.get("vic", f"/batches/{batch}")).headers["etag"]}

    retried = await api.post("operator.acme", f"/batches/{batch}/retry-failed", {"reason": "it is back"}, headers=seen)
    assert (retried.json()["replayed"], retried.json()["batch"]["failed"]) == (1, 0)
    assert problem(await api.post("ana", f"/batches/{batch}/retry-failed", {}))[0] == 400
    answers = await asyncio.gather(
        *(api.post(who, f"/batches/{batch}/cancel", {"reason": who}, headers=seen) for who in ("ana", "operator.acme"))
    )

    assert Counter(answer.status_code for answer in answers) == {200: 1, 412: 1}
    (done,) = [answer.json() for answer in answers if answer.status_code == 200]
    assert (done["state"], done["cancelled"], done["stop_reason"] in ("ana", "operator.acme")) == ("finished", 3, True)
    assert problem(await api.post("ana", f"/batches/{batch}/cancel")) == (409, "NOT_POSSIBLE_NOW")
    events = (
        "select event, actor_id from mainspring.audit where event in ('batch.retried', 'batch.cancelled') order by id"
    )
    assert engine.rows(events) == [("batch.retried", "operator.acme"), ("batch.cancelled", done["stop_reason"])]


async def test_a_flow_is_its_jobs_and_who_waits_for_whom(
    api: ApiVisitor, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = [job(task, org_id="acme") for task in ("load", "check", "publish")]
    links = [{"child": 2, "parents": [0, 1], "anyway": False}]
    first, second, last = enqueue_flow(engine, jobs, links)
    (claim,) = engine.claim(tasks=["load"])
    assert engine.end(claim, "complete")

    for start in (first, second, last):
        flow = (await api.get("viewer.acme", f"/flows/{start}")).json()
        assert {(one["task"], one["state"]) for one in flow["jobs"]} == {
            ("load", "succeeded"), ("check", "ready"), ("publish", "scheduled")
        }  # fmt: skip
        assert [(one["child"], one["parent"], one["state"], one["met"]) for one in flow["links"]] == [
            (str(last), str(first), "succeeded", True), (str(last), str(second), None, False)
        ]  # fmt: skip
        assert flow["complete"]
    assert problem(await api.get("operator.globex", f"/flows/{first}")) == (404, "NOT_FOUND")
    monkeypatch.setattr(mainspring.db.flows, "MOST_LINKED", 2)
    part = (await api.get("viewer.acme", f"/flows/{first}")).json()
    assert (len(part["jobs"]), part["complete"]) == (2, False)
    alone = engine.enqueue(org_id="acme").id
    assert (await api.get("viewer.acme", f"/flows/{alone}")).json()["links"] == []
