"""Limits, fair queues and depths over HTTP: what holds, what it holds, and how people change it."""

from __future__ import annotations

import pytest
from tests.web.api.visit import ApiVisitor, greeted, problem
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.app import App

pytestmark = pytest.mark.anyio


async def version(api: ApiVisitor, path: str) -> dict[str, str]:
    return {"if-match": (await api.get("vic", path)).headers["etag"]}


async def test_a_limit_is_set_changed_reset_and_dropped_over_nobodys_word(api: ApiVisitor, stage: Stage) -> None:
    rule = {"queue": "q:default", "rate": 20, "per": "1s"}
    assert problem(await api.post("admin.acme", "/limits", {"name": "r"} | rule)) == (403, "FORBIDDEN")
    made = await api.post("ana", "/limits", {"name": "r", "reason": "the bank asked"} | rule)
    assert (made.status_code, made.json()["words"], made.json()["set_by"]) == (201, "20 per 1 s", "ana")
    assert made.json()["per_s"] == 1.0
    assert problem(await api.post("ana", "/limits", {"name": "r"} | rule)) == (409, "NAME_TAKEN")
    for body, said in (
        ({"name": "a/b"} | rule, "name: has a slash"),
        ({"name": "x", "rate": 3, "per": "1s"}, "queue: give either a queue or a task"),
        ({"name": "x", "queue": "q:deadletter", "concurrency": 3}, "queue: q:deadletter holds dead jobs"),
        ({"name": "x", "queue": "a", "rate": 3}, "per: is missing"),
        ({"name": "x", "queue": "a", "rate": 3, "per": "2d"}, "per: is not a time span from 100 ms to 1 day"),
        ({"name": "x", "queue": "a", "rate": 3, "per": "soon"}, "per: is not a time span"),
        ({"name": "x", "queue": "a", "concurrency": 0}, "concurrency: expected int >= 1"),
        ({"name": "x", "queue": "a", "in_order": True, "rate": 1, "per": "1s"}, "rate: give either"),
        ({"queue": "a", "concurrency": 1}, "name: is missing"),
    ):
        answer = await api.post("ana", "/limits", body)
        assert problem(answer) == (400, "VALIDATION_ERROR"), answer.text
        assert answer.json()["detail"].startswith(said), answer.text

    old = {"if-match": made.headers["etag"]}
    assert old == await version(api, "/limits/r")
    changed = await api.ask("ana", "PUT", "/limits/r", json=rule | {"rate": 50}, headers=old)
    assert changed.json()["rate"] == 50
    for answer in (
        await api.ask("root", "PUT", "/limits/r", json=rule, headers=old),
        await api.post("root", "/limits/r/drop", {}, headers=old),
        await api.post("root", "/limits/r/reset", {}, headers=old),
    ):
        assert problem(answer) == (412, "CHANGED_MEANWHILE")
    now = {"if-match": changed.headers["etag"]}
    reset = await api.post("ana", "/limits/r/reset", {}, headers=now)
    assert (
        reset.headers["etag"] == changed.headers["etag"]
    )  # nobody had said otherwise than code, of which there is none
    assert (await api.post("ana", "/limits/r/drop", {"reason": "gone"}, headers=now)).status_code == 204
    for answer in (
        await api.get("vic", "/limits/r"),
        await api.get("vic", "/limits/r/use"),
        await api.ask("ana", "PUT", "/limits/r", json=rule, headers=now),
    ):
        assert problem(answer) == (404, "NOT_FOUND")
    acts = "select event, actor_id, detail ->> 'reason' from mainspring.audit where starts_with(event, %s) order by id"
    wanted = [("limit.set", "the bank asked"), ("limit.set", None), ("limit.dropped", "gone")]
    assert stage.rows(acts, "limit.") == [(event, "ana", reason) for event, reason in wanted]


async def test_the_command_line_does_not_change_what_is_being_compared(api: ApiVisitor, stage: Stage) -> None:
    """Both take one lock, in one order: neither is overwritten, and neither waits for the other in a circle."""
    for kind in ("limit", "fair"):
        with stage.conn.transaction():
            stage.rows("select mainspring.lock_for_change(%s, null, 'r')", kind)
            held = "select count(*) from pg_locks where locktype = 'advisory' and granted and pid = pg_backend_pid()"
            assert stage.one(held) == 2
            assert stage.one("select pg_try_advisory_xact_lock(hashtextextended('mainspring limits', 0))")


async def test_what_a_limit_holds_is_shown_to_everybody_for_their_own(api: ApiVisitor, stage: Stage) -> None:
    await stage.client.limits.set(ms.concurrency("q:default", 2, by="org", name="two"))
    jobs = [(org, await greeted(stage.client, org)) for org in ("acme", "acme", "acme", "globex", "a/b%")]
    assert len(stage.claim("w1", "greet")) == 4

    limit = (await api.get("vic", "/limits/two")).json()
    assert (limit["used"], limit["keys"], limit["waiting"]) == (2, 3, 1)
    use = (await api.get("vic", "/limits/two/use")).json()
    assert [(one["org"], one["used"], one["waiting"]) for one in use["keys"]] == [
        ("acme", 2, 1), ("a/b%", 1, 0), ("globex", 1, 0)
    ]  # fmt: skip
    assert len(use["jobs"]) == 4
    ours = (await api.get("viewer.acme", "/limits/two/use")).json()
    assert [(one["org"], one["used"]) for one in ours["keys"]] == [("acme", 2)]
    assert {one["job_id"] for one in ours["jobs"]} <= {str(job) for org, job in jobs if org == "acme"}
    assert {(one["worker"], one["state"], one["task"]) for one in ours["jobs"]} == {("w1", "running", "greet")}
    odd = (await api.get("vic", "/limits/two/use", params={"org": "a/b%"})).json()
    assert [one["org"] for one in odd["keys"]] == ["a/b%"]
    names = [one["name"] for one in (await api.get("viewer.acme", "/limits")).json()["items"]]
    assert names == ["two"]

    await stage.client.limits.set(ms.rate("q:default", 100, per="1h", name="hourly"))
    await greeted(stage.client, "globex")
    assert len(stage.claim("w1", "greet")) == 1
    whole = (await api.get("viewer.acme", "/limits/hourly/use")).json()
    assert whole == {"keys": [{"org": None, "strand": None, "used": 1, "waiting": 0}], "jobs": []}


async def test_the_organisations_of_a_queue_take_turns_and_a_queue_is_bounded(
    api: ApiVisitor, app: App, stage: Stage
) -> None:
    path = "/queues/q:default/fair"
    none = await api.get("vic", path)
    assert none.json()["fair"] is False
    headers = {"if-match": none.headers["etag"]}
    said = await api.ask("ana", "PUT", path, json={"weights": {"acme": 3, "globex": 2}}, headers=headers)
    assert said.json()["weights"] == {"acme": 3, "globex": 2}
    assert (await api.get("viewer.acme", path)).json()["weights"] == {"acme": 3}
    assert (await api.get("viewer.acme", "/fair-queues")).json()["items"][0]["weights"] == {"acme": 3}
    stale = await api.ask("root", "PUT", path, json={"weights": {}}, headers=headers)
    assert problem(stale) == (412, "CHANGED_MEANWHILE")
    for weights in ({"acme": 0}, {"acme": 1001}, {"": 2}, {"acme": "3"}, 3):
        answer = await api.ask("ana", "PUT", path, json={"weights": weights}, headers={"if-match": "*"})
        assert problem(answer) == (400, "VALIDATION_ERROR"), answer.text
    now = {"if-match": said.headers["etag"]}
    off = await api.post("ana", "/queues/q:default/unfair", {"reason": "no longer"}, headers=now)
    assert off.json()["fair"] is False
    assert (await api.get("vic", "/fair-queues")).json()["items"] == []
    assert (
        problem(await api.ask("ana", "PUT", "/queues/q:deadletter/fair", json={}, headers={"if-match": "*"}))[0] == 400
    )

    seen = await version(api, "/queues/q:default")
    bounded = await api.ask("ana", "PUT", "/queues/q:default/depth", json={"most": 5}, headers=seen)
    assert bounded.json()["max_depth"] == 5
    again = await api.ask("root", "PUT", "/queues/q:default/depth", json={"most": None}, headers=seen)
    assert problem(again) == (412, "CHANGED_MEANWHILE")
    now = {"if-match": bounded.headers["etag"]}
    assert (await api.ask("root", "PUT", "/queues/q:default/depth", json={"most": None}, headers=now)).json()[
        "max_depth"
    ] is None
    for body in ({}, {"most": 0}, {"most": 1_000_001}, {"most": 1.5}):
        answer = await api.ask("ana", "PUT", "/queues/q:default/depth", json=body, headers={"if-match": "*"})
        assert problem(answer) == (400, "VALIDATION_ERROR")
