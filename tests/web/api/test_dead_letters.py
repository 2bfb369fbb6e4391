"""Dead letters over HTTP: found, explained and decided about, by nobody over the head of somebody else."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from typing import Any
from uuid import UUID

import httpx2
import pytest
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import Engine
from tests.web.api.dead import killed
from tests.web.api.visit import SOME_ID, ApiVisitor, problem, visiting_api
from tests.worker.stage import Stage

import mainspring as ms

pytestmark = pytest.mark.anyio


@pytest.fixture
def engine(stage: Stage) -> Engine:
    engine = Engine(stage.conn)
    engine.clock.set(NOON)
    return engine


async def found(api: ApiVisitor, who: str = "viewer.acme", **only: Any) -> list[UUID]:
    answer = await api.get(who, "/dead-letters", params=only)
    assert answer.status_code == 200, answer.text
    return [UUID(one["id"]) for one in answer.json()["items"]]


async def test_the_list_is_filtered_paged_and_masked_and_shows_nobody_elses(api: ApiVisitor, engine: Engine) -> None:
    old = killed(engine, message="could not write to jane@example.com", queue="q:mail")
    middle = engine.clock.advance(hours=1)
    new = killed(engine, "reject", code="VALIDATION_ERROR")
    theirs = killed(engine, org_id="globex")
    first = (await api.get("viewer.acme", "/dead-letters?code=TIMEOUT")).json()["items"][0]
    assert first["message"] == "could not write to j***@example.com"

    assert await found(api) == [new, old]
    assert await found(api, "vic") == [theirs, new, old]
    assert await found(api, "vic", org="globex") == [theirs]
    assert await found(api, org="globex") == []
    for only, expected in (
        ({"task": "greet"}, [new, old]),
        ({"task": "other"}, []),
        ({"queue": "q:mail"}, [old]),
        ({"code": "VALIDATION_ERROR"}, [new]),
        ({"fingerprint": first["fingerprint"]}, [old]),
        ({"state": "failed"}, [new]),
        ({"since": middle.isoformat()}, [new]),
        ({"until": first["finished_at"]}, [old]),
    ):
        assert await found(api, **only) == expected, only

    page = (await api.get("viewer.acme", "/dead-letters?limit=1")).json()
    await engine_decides(api, new)  # who is seen already may be decided about: the next page goes on all the same
    rest = (await api.get("viewer.acme", "/dead-letters", params={"limit": 1, "cursor": page["next"]})).json()
    assert ([one["id"] for one in page["items"] + rest["items"]], rest["next"]) == ([str(new), str(old)], None)
    for wrong in ({"state": "ready"}, {"since": "2026-01-01"}, {"fingerprint": "x"}, {"task": ""}, {"cursor": "x"}):
        assert problem(await api.get("vic", "/dead-letters", params=wrong))[0] == 400


async def engine_decides(api: ApiVisitor, job: UUID) -> None:
    answer = await api.post("operator.acme", f"/dead-letters/{job}/replay", {"reason": "it is back"})
    assert (answer.status_code, answer.json()["state"]) == (200, "ready")


async def test_errors_that_look_alike_are_one_group_with_what_to_do(api: ApiVisitor, engine: Engine) -> None:
    for number in range(3):
        newest = killed(engine, message=f"no answer within {number} s", org_id=("acme", "globex")[number % 2])
    killed(engine, code="ODD", message="what?")

    alike, odd = (await api.get("vic", "/dead-letters/groups")).json()["items"]

    assert (alike["count"], alike["orgs"], alike["example"]) == (3, 2, str(newest))
    assert (alike["advised"], alike["message"]) == ("replay", "no answer within 2 s")
    assert (odd["count"], odd["advised"], odd["meaning"]) == (1, None, None)
    ours = (await api.get("viewer.acme", "/dead-letters/groups?code=TIMEOUT")).json()["items"]
    assert [one["count"] for one in ours] == [2]


async def test_a_case_says_what_happened_what_it_means_and_what_was_decided(api: ApiVisitor, engine: Engine) -> None:
    job = killed(engine, payload={"name": "Ada", "to": "jane@example.com"}, message="password=hunter2 of 7")

    case = (await api.get("viewer.acme", f"/dead-letters/{job}")).json()

    assert case["job"]["payload"] == {"name": "Ada", "to": "j***@example.com"}
    assert "hunter2" not in str(case)
    assert (case["meaning"][:11], case["advised"], case["decision"]) == ("The attempt", "replay", None)
    assert [(one["outcome"], one["error"]["code"]) for one in case["attempts"]] == [("dead", "TIMEOUT")]
    done = await api.post("operator.acme", f"/dead-letters/{job}/discard", {"reason": "too late"})
    decision = done.json()["decision"]
    assert (decision["resolution"], decision["by"], decision["reason"]) == ("discarded", "operator.acme", "too late")
    assert (await api.get("viewer.acme", f"/dead-letters/{job}")).headers["etag"] == done.headers["etag"]
    assert await found(api) == []
    waits = engine.enqueue(task="greet", org_id="acme").id
    for missing in (waits, SOME_ID):  # no dead letter, and none at all
        assert problem(await api.get("viewer.acme", f"/dead-letters/{missing}")) == (404, "NOT_FOUND")
    refused = await api.post("operator.acme", f"/dead-letters/{waits}/discard", {"reason": "x"})
    assert problem(refused) == (409, "NOT_POSSIBLE_NOW")
    for act in ("replay", "discard", "fix"):
        path = f"/dead-letters/{job}/{act}"
        said = {"reason": "x"} | ({"set": {"name": "Bob"}} if act == "fix" else {})
        assert problem(await api.post("operator.globex", path, said, headers={"if-match": "*"})) == (404, "NOT_FOUND")
        for reason in (None, "", " ", "x" * 1001):
            answer = await api.post("ana", path, said | {"reason": reason}, headers={"if-match": "*"})
            assert (problem(answer)[0], answer.json()["field"]) == (400, "reason")


async def test_of_two_who_decide_on_the_same_sight_one_is_told(api: ApiVisitor, engine: Engine) -> None:
    job = killed(engine)
    seen = {"if-match": (await api.get("vic", f"/dead-letters/{job}")).headers["etag"]}
    fixing = {"set": {"name": "Bob"}, "reason": "a wrong name"}

    answers = await asyncio.gather(
        api.post("ana", f"/dead-letters/{job}/fix", fixing, headers=seen),
        api.post("root", f"/dead-letters/{job}/fix", fixing | {"set": {"name": "Eve"}}, headers=seen),
        api.post("operator.acme", f"/dead-letters/{job}/discard", {"reason": "too late"}, headers=seen),
    )

    assert Counter(answer.status_code for answer in answers) == {200: 1, 412: 2}
    assert problem(await api.post("ana", f"/dead-letters/{job}/fix", fixing)) == (428, "PRECONDITION_REQUIRED")


async def test_a_correction_is_checked_tried_and_shown_before_it_is_done(api: ApiVisitor, engine: Engine) -> None:
    job = killed(engine, payload={"name": 7})
    path = f"/dead-letters/{job}/fix"
    seen = {"if-match": (await api.get("vic", f"/dead-letters/{job}")).headers["etag"]}

    async def fix(**body: Any) -> Any:
        return await api.post("operator.acme", path, {"reason": "the till sent a number"} | body, headers=seen)

    for wrong, field in (
        ({"set": {"name": 8}}, "name"),
        ({"set": {"nmae": "Ada"}}, "nmae"),
        ({"payload": {}}, "name"),
        ({"unset": ["nmae"]}, "nmae"),
        ({"set": {"name": 7}}, "name"),
        ({}, "payload"),
        ({"set": {"name": "Ada"}, "payload": {"name": "Ada"}}, "payload"),
    ):
        answer = await fix(**wrong)
        assert (problem(answer)[0], answer.json()["field"]) == (400, field), wrong
    deep = b'{"reason": "x", "set": {"name": ' + b"[" * 900 + b"]" * 900 + b"}}"
    headers = seen | {"content-type": "application/json"}
    assert problem(await api.ask("operator.acme", "POST", path, content=deep, headers=headers))[0] == 400
    for odd in ({"set": {"name": "a\u0000b"}}, {"set": {"name": 1e400}}, {"set": {"\ud800": 1}}, {"set": {"": 1}}):
        raw = json.dumps({"reason": "x"} | odd).encode()
        assert problem(await api.ask("operator.acme", "POST", path, content=raw, headers=headers))[0] == 400, odd
    tried = (await fix(set={"name": "Ada"}, dry_run=True)).json()
    assert (tried["successor"], tried["checked"], tried["dry_run"]) == (None, True, True)
    assert tried["diff"] == [{"op": "replace", "path": "/name", "value": "Ada", "old": 7}]
    assert await found(api) == [job]

    done = (await fix(set={"name": "Ada"})).json()
    successor = (await api.get("vic", f"/jobs/{done['successor']}")).json()
    assert (successor["payload"], successor["state"], successor["fixes"]) == ({"name": "Ada"}, "ready", str(job))
    case = (await api.get("vic", f"/dead-letters/{job}")).json()
    assert (case["decision"]["resolution"], case["decision"]["by"]) == ("fixed_forward", "operator.acme")
    assert problem(await fix(set={"name": "Bob"})) == (412, "CHANGED_MEANWHILE")


async def test_what_was_shown_masked_stays_what_it_is_and_is_written_nowhere_else(
    api: ApiVisitor, engine: Engine
) -> None:
    real = {"to": "jane@example.com", "note": "x", "parts": [{"to": "joe@example.com"}, "ok"]}
    job = killed(engine, task="unknown_here", payload=real)
    path, any_version = f"/dead-letters/{job}/fix", {"if-match": "*"}
    shown = (await api.get("ana", f"/dead-letters/{job}")).json()["job"]["payload"]

    moved = shown | {"note": shown["to"]}
    refused = await api.post("ana", path, {"reason": "x", "payload": moved}, headers=any_version)
    assert (problem(refused)[0], refused.json()["field"]) == (400, "note")
    body = {"reason": "jane@example.com asked", "payload": shown | {"note": "y"}}
    done = (await api.post("ana", path, body, headers=any_version)).json()

    assert done["payload"] == shown | {"note": "y"}
    assert (done["checked"], [one["path"] for one in done["diff"]]) == (False, ["/note"])
    stored = engine.rows("select payload from mainspring.job where id = %s", done["successor"])
    assert stored == [(real | {"note": "y"},)]


async def test_what_is_masked_cannot_be_guessed_by_who_may_not_reveal_it(api: ApiVisitor, engine: Engine) -> None:
    real = {"password": "7391", "note": "ask jane@example.com", "jane@example.com": 1, "parts": [{"pin_token": 5}]}
    job = killed(engine, task="unknown_here", payload=real)
    other = killed(engine, task="unknown_here", payload={"to": "jane@example.com"})
    shown = (await api.get("ana", f"/dead-letters/{job}")).json()["job"]["payload"]

    async def fix(who: str, id: UUID = job, **body: Any) -> tuple[int, str]:
        said = {"reason": "x", "dry_run": True} | body
        tried = await api.post(who, f"/dead-letters/{id}/fix", said, headers={"if-match": "*"})
        return (200, "") if tried.status_code == 200 else problem(tried)

    for right, wrong in (
        ({"set": {"password": "7391"}}, {"set": {"password": "0000"}}),
        ({"set": {"note": "ask jane@example.com"}}, {"set": {"note": "ask joe@example.com"}}),
        ({"set": {"jane@example.com": 1}}, {"set": {"joe@example.com": 1}}),
        ({"unset": ["jane@example.com"]}, {"unset": ["joe@example.com"]}),
        ({"set": {"parts": [{"pin_token": 5}]}}, {"set": {"parts": [{"pin_token": 6}]}}),
        ({"payload": shown | {"password": "7391"}}, {"payload": shown | {"password": 7391}}),
    ):
        assert [await fix("ana", **right), await fix("ana", **wrong)] == [(403, "FORBIDDEN")] * 2, right
    assert await fix("ana", other, unset=["to"]) == (200, "")
    assert await fix("ana", other, payload={"to": "j***@example.com", "more": 1}) == (200, "")
    assert await fix("root", other, set={"to": "joe@example.com"}) == (200, "")
    looked = "select actor_id, subject from mainspring.audit where event = 'payload.revealed'"
    assert engine.rows(looked) == [("root", f"job {other}")]


async def test_a_key_does_not_tell_what_the_masked_job_that_has_it_carries(api: ApiVisitor, engine: Engine) -> None:
    async def order(who: str, key: str, **payload: Any) -> httpx2.Response:
        said = {"task": "unknown_here", "key": key, "payload": payload}
        return await api.post(who, "/jobs?org=acme", said)

    assert (await order("root", "masked", to="jane@example.com")).json()["answer"] == "created"
    assert (await order("root", "plain", n=1)).json()["answer"] == "created"
    right, wrong = [await order("ana", "masked", to=guess) for guess in ("jane@example.com", "joe@example.com")]
    assert (problem(right), right.text) == ((409, "IDEMPOTENCY_KEY_REUSED"), wrong.text)
    assert (await order("root", "masked", to="jane@example.com")).json()["answer"] == "existing"
    assert (await order("ana", "plain", n=1)).json()["answer"] == "existing"  # there is nothing to guess
    assert problem(await order("ana", "plain", n=2)) == (409, "IDEMPOTENCY_KEY_REUSED")


async def test_what_is_encrypted_is_corrected_by_who_may_see_it(
    database: Database, tasks: ms.Registry, engine: Engine
) -> None:
    cipher = ms.Cipher(b"m" * 32)

    @tasks.task(name="greet")
    async def greet(*, name: str) -> None: ...

    async with ms.AsyncClient(database.dsn, cipher=cipher) as client:
        job = (await client.enqueue(greet.job(name="Ada").for_org("acme"))).id
        (claim,) = engine.claim(tasks=["greet"])
        assert engine.end(claim, "bury")
        app = ms.App(tasks, dsn=database.dsn, maintenance=False, cipher=cipher)
        async with visiting_api(app) as api:
            path, any_version = f"/dead-letters/{job}/fix", {"if-match": "*"}
            body = {"reason": "a wrong name", "set": {"name": "Bob"}}
            assert problem(await api.post("ana", path, body, headers=any_version)) == (403, "FORBIDDEN")
            done = (await api.post("root", path, body, headers=any_version)).json()
            assert (await client.get(done["successor"])).payload == {"name": "Bob"}
    stored = engine.rows("select payload::text from mainspring.job where id = %s", done["successor"])[0][0]
    assert "Bob" not in stored
    looked = "select actor_id from mainspring.audit where event = 'payload.revealed'"
    assert engine.rows(looked) == [("root",)]


async def test_many_are_counted_then_replayed_at_a_rate_that_goes_on_in_the_next_call(
    api: ApiVisitor, engine: Engine
) -> None:
    jobs = [killed(engine) for _ in range(5)]
    others = [killed(engine, code="ODD"), killed(engine, org_id="globex")]
    path, meant = "/bulk/dead-letters/replay", {"filter": {"code": "TIMEOUT"}, "rate": 0.5}

    counted = (await api.post("operator.acme", path, meant | {"dry_run": True})).json()
    assert (counted["meant"], counted["done"], counted["rest"], counted["dry_run"]) == (5, 0, 5, True)
    some = {"reason": "it is back", "limit": 3}
    first = (await api.post("operator.acme", path, meant | some)).json()
    assert (first["meant"], first["done"], first["rest"]) == (5, 3, 2)
    second = (await api.post("operator.acme", path, meant | some | {"first_due_at": first["next_due_at"]})).json()
    assert (second["done"], second["rest"], second["next_due_at"]) == (2, 0, None)

    due = [row[0] for row in engine.rows("select due_at from mainspring.waiting order by due_at")]
    assert [(at - due[0]).total_seconds() for at in due] == [0, 2, 4, 6, 8]
    assert {row[0] for row in engine.rows("select id from mainspring.waiting")} == set(jobs)
    acts = "select actor_id, detail->>'reason', org_id from mainspring.audit where event = 'dead_letters.replay'"
    assert engine.rows(acts) == [("operator.acme", "it is back", "acme")] * 2
    assert set(await found(api, "vic")) == set(others)


async def test_many_are_named_or_filtered_and_who_is_left_is_said(api: ApiVisitor, engine: Engine) -> None:
    jobs, theirs = [killed(engine) for _ in range(2)], killed(engine, org_id="globex")
    waits = engine.enqueue(task="greet", org_id="acme").id
    path, named = "/bulk/dead-letters/discard", {"ids": [str(id_) for id_ in (*jobs, theirs, waits, SOME_ID)]}

    async def left(**body: Any) -> tuple[int, dict[str, str]]:
        answer = (await api.post("operator.acme", path, named | body)).json()
        return answer["done"], {one["id"]: one["outcome"] for one in answer["left_alone"]}

    undecided = {str(theirs): "not_found", SOME_ID: "not_found", str(waits): "not_possible_now"}
    assert await left(dry_run=True) == (0, undecided)
    assert await left(reason="too late") == (2, undecided)
    assert await found(api, "vic") == [theirs]

    for wrong, field in (
        ({}, "filter"),
        ({"ids": [SOME_ID], "filter": {}}, "ids"),
        ({"ids": []}, "ids"),
        ({"ids": [SOME_ID] * 1001}, "ids"),
        ({"filter": {}, "limit": 1001}, "limit"),
        ({"filter": {"taks": "x"}}, "filter.taks"),
        ({"filter": {}}, "reason"),
        ({"ids": [SOME_ID]}, "reason"),
        ({"filter": {}, "rate": 0, "reason": "x"}, "rate"),
        ({"filter": {}, "rate": 1, "reason": "x", "first_due_at": "2126-01-01T00:00:00Z"}, "first_due_at"),
        ({"ids": [SOME_ID], "rate": 1, "reason": "x"}, "rate"),
    ):
        answer = await api.post("ana", "/bulk/dead-letters/replay", wrong)
        assert problem(answer)[0] == 400, wrong
        assert answer.json()["field"] == field, (wrong, answer.text)
