"""What people see of dead letters: the open ones, by filter, in groups, one by one, and in sum."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.client.dead.conftest import Kill
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import ERROR, Engine
from tests.db.test_statements import scans

from mainspring import Client, ValidationError
from mainspring.codes import CODES, register
from mainspring.db.dead import DeadLetter
from mainspring.plans import Plan

pytestmark = pytest.mark.anyio
STACK = '  File "/srv/{release}/shop/orders.py", line {line}, in {function}\n    raise ValueError\n'


@pytest.mark.rule("ENG-12.09", "ENG-12.02")
async def test_failed_and_dead_jobs_are_in_one_list_told_apart_by_state(dead: Any, engine: Engine, kill: Kill) -> None:
    failed, gone = kill("reject", queue="q:exports"), kill("bury", queue="q:exports")
    for end in ("complete", "stop"):
        engine.end(engine.started(), end)
    engine.enqueue()

    found = {letter.id: letter for letter in await dead.list()}

    assert {id_: letter.state for id_, letter in found.items()} == {failed: "failed", gone: "dead"}
    assert {letter.queue for letter in found.values()} == {"q:exports"}  # the one to go back to
    assert engine.rows("select id from mainspring.jobs where queue = 'q:deadletter'") == [(gone,)]


async def test_filters_are_all_met_by_what_is_listed_and_grouped(dead: Any, engine: Engine, kill: Kill) -> None:
    old = kill(task="pay", queue="q:exports", code="TIMEOUT", org_id="acme")
    engine.clock.advance(hours=2)
    new = kill("reject", task="mail", code="VALIDATION_ERROR", org_id="other")
    prints = {letter.id: letter.fingerprint for letter in await dead.list()}
    for only, expected in (
        ({}, [new, old]),
        ({"task": "pay"}, [old]),
        ({"queue": "q:exports"}, [old]),
        ({"code": "VALIDATION_ERROR"}, [new]),
        ({"fingerprint": prints[old]}, [old]),
        ({"state": "failed"}, [new]),
        ({"org": "acme"}, [old]),
        ({"older_than": timedelta(hours=1)}, [old]),
        ({"newer_than": timedelta(hours=1)}, [new]),
        ({"since": NOON + timedelta(hours=1)}, [new]),
        ({"until": NOON + timedelta(hours=1)}, [old]),
        ({"since": NOON, "newer_than": timedelta(hours=1)}, [new]),
        ({"task": "pay", "state": "failed"}, []),
    ):
        assert [letter.id for letter in await dead.list(**only)] == expected, only
        assert sum(group.count for group in await dead.groups(**only)) == len(expected), only
        assert (await dead.replay_many(**only, dry_run=True)).matched == len(expected), only


@pytest.mark.parametrize(
    ("only", "field"),
    [
        ({"task": ""}, "task"),
        ({"queue": "q" * 64}, "queue"),
        ({"code": "\x1b"}, "code"),
        ({"fingerprint": " "}, "fingerprint"),
        ({"state": "succeeded"}, "state"),
        ({"org": ""}, "org"),
        ({"older_than": timedelta(seconds=-1)}, "older_than"),
        ({"newer_than": "2h"}, "newer_than"),
        ({"since": NOON.replace(tzinfo=None)}, "since"),
    ],
)
async def test_a_filter_that_is_none_is_refused_by_name(dead: Any, only: dict[str, Any], field: str) -> None:
    for verb in (dead.list, dead.groups, dead.replay_many, dead.discard_many):
        with pytest.raises(ValidationError) as caught:
            await verb(**only, **({"reason": "x"} if verb in (dead.replay_many, dead.discard_many) else {}))
        assert caught.value.field == field
    for verb in (dead.list, dead.groups):
        with pytest.raises(ValidationError, match=r"^limit"):
            await verb(limit=0)


async def test_the_newest_death_comes_first_and_a_cursor_continues(dead: Any, engine: Engine, kill: Kill) -> None:
    early = engine.started()  # enqueued first, died last
    ids = []
    for _ in range(4):
        ids.append(kill())
        engine.clock.advance(seconds=1)
    engine.end(early, "bury")
    expected = [early.id, *reversed(ids)]

    assert [letter.id for letter in await dead.list()] == expected
    first = await dead.list(limit=2)
    await dead.discard(first[-1].id, reason="a cursor outlives a decision")
    assert [letter.id for letter in await dead.list(limit=2, before=first[-1].id)] == expected[2:4]
    await dead.replay(ids[0], reason="again")
    with pytest.raises(ValidationError, match="before: this job is no dead letter any more"):
        await dead.list(before=ids[0])


async def test_errors_that_look_alike_are_one_group_with_its_size_age_and_an_example(
    dead: Any, engine: Engine, kill: Kill
) -> None:
    for n in range(3):
        last = kill(message=f"order {n} not found", code="HttpException")
        engine.clock.advance(minutes=1)
    other = kill(message="no such shop", code="HttpException")

    many, one = await dead.groups()

    assert (many.count, many.task, many.code, many.message) == (3, "t", "HttpException", "order 2 not found")
    assert (many.oldest, many.newest, many.example) == (NOON, NOON + timedelta(minutes=2), last)
    assert (one.count, one.example) == (1, other)
    assert len(await dead.list(fingerprint=many.fingerprint)) == 3
    assert len(await dead.groups(limit=1)) == 1


def fingerprint(
    engine: Engine, message: str | None, *, task: str = "t", code: str = "C", stack: str | None = None
) -> str:
    error = json.dumps({"code": code, "message": message, "stack": stack})
    found: str = engine.rows("select mainspring.error_fingerprint(%s, %s::jsonb)", task, error)[0][0]
    return found


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("order 7 not found", "order 123456 not found"),
        ("took 1.5 s", "took 27.25 s"),
        ("no row 0198c0de-5a5a-7abc-8def-000000000001", "no row 0198C0DE-5A5A-7abc-8def-abcdefabcdef"),
        ("object at 0x7f3a2b", "object at 0xdeadbeef00"),
        ("commit 9fceb02d0ae598e95dc970b74767f19372d61af8 is gone", "commit deadbeefdeadbeef is gone"),
        ("user 'ada' is unknown", "user 'bob' is unknown"),
        ('column "a" does not exist', 'column "bb" does not exist'),
        ("task `a` is gone", "task `b` is gone"),
    ],
)
def test_ids_numbers_and_quoted_parts_do_not_tell_errors_apart(engine: Engine, one: str, other: str) -> None:
    assert fingerprint(engine, one) == fingerprint(engine, other)


def test_task_code_words_and_place_in_the_code_tell_errors_apart(engine: Engine) -> None:
    here = STACK.format(release="v1", line=10, function="pay")
    prints = [
        fingerprint(engine, "no answer"),
        fingerprint(engine, "no answer", task="u"),
        fingerprint(engine, "no answer", code="D"),
        fingerprint(engine, "no question"),
        fingerprint(engine, None),
        fingerprint(engine, "no answer", stack=here),
        fingerprint(engine, "no answer", stack=here + STACK.format(release="v1", line=10, function="charge")),
    ]
    assert len(set(prints)) == len(prints)
    assert all(len(text) == 12 and int(text, 16) >= 0 for text in prints)


def test_line_numbers_folders_and_the_frames_above_do_not_tell_errors_apart(engine: Engine) -> None:
    one = STACK.format(release="v1", line=10, function="main") + STACK.format(release="v1", line=20, function="pay")
    other = STACK.format(release="v2", line=99, function="retry") + STACK.format(release="v2", line=21, function="pay")
    assert fingerprint(engine, "no answer", stack=one) == fingerprint(engine, "no answer", stack=other)


@pytest.mark.rule("ENG-12.03", "ENG-12.12")
async def test_a_case_tells_every_attempt_the_payload_s_hash_and_what_to_do(dead: Any, engine: Engine) -> None:
    claim = engine.started(payload={"n": 1}, max_attempts=2)
    engine.end(claim, "fail", error=ERROR | {"message": "first", "stack": "one"})
    (claim,) = engine.claim()
    engine.end(claim, "bury", error=ERROR | {"code": "TIMEOUT", "message": "second", "stack": "two"})

    case = await dead.show(claim.id)

    told = [(a.attempt, a.outcome, a.error["message"], a.error["stack"]) for a in case.attempts]
    assert told == [(1, "retried", "first", "one"), (2, "dead", "second", "two")]
    assert case.about.payload_hash == engine.rows("select encode(sha256(%s), 'hex')", b'{"n": 1}')[0][0]
    (listed,) = await dead.list()
    assert (case.about.fingerprint, case.about.payload_hash) == (listed.fingerprint, listed.payload_hash)
    assert (case.meaning, case.plan) == (CODES["TIMEOUT"].text, CODES["TIMEOUT"].plan)
    assert case.about.decision is None
    await dead.discard(claim.id, reason="a test")
    decision = (await dead.show(claim.id)).about.decision
    assert (decision.resolution, decision.by, decision.reason, decision.at) == ("discarded", "ada", "a test", NOON)


@pytest.mark.rule("ENG-12.12")
def test_every_code_has_an_action_plan() -> None:
    for code in CODES.values():
        assert code.plan.advised in ("replay", "discard", "fix-forward")
        assert code.plan.check.endswith((".", "?")), code.name


@pytest.mark.rule("ENG-12.12")
async def test_an_application_s_code_brings_its_plan_and_an_unknown_one_has_that_of_its_class(
    dead: Any, kill: Kill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.codes.CODES", dict(CODES))
    plan = Plan("discard", "Is there another card on file?")
    register("CARD_BLOCKED", "permanent", "The card is blocked.", plan)
    case = await dead.show(kill(code="CARD_BLOCKED"))
    assert (case.meaning, case.plan) == ("The card is blocked.", plan)
    assert (await dead.show(kill(code="ODD"))).plan.advised == "replay"


@pytest.mark.rule("ENG-12.11")
async def test_the_sum_says_how_many_are_open_and_how_old_the_oldest_is(dead: Any, engine: Engine, kill: Kill) -> None:
    kill(task="pay", queue="q:critical")
    discarded = kill(task="pay", queue="q:critical")
    engine.clock.advance(hours=1)
    kill("reject", task="pay", queue="q:critical", org_id="acme")
    kill(task="mail")
    await dead.discard(discarded, reason="not needed")
    engine.clock.advance(hours=24)

    pay, mail = await dead.summary()

    assert (pay.task, pay.queue, pay.size, pay.oldest, pay.oldest_age_s) == ("pay", "q:critical", 2, NOON, 25 * 3600)
    assert (mail.task, mail.queue, mail.size, mail.oldest_age_s) == ("mail", "q:default", 1, 24 * 3600)
    assert [(size.task, size.size) for size in await dead.summary(org="acme")] == [("pay", 1)]


async def test_another_organisation_s_dead_letters_are_not_seen(dead: Any, kill: Kill) -> None:
    kill(org_id="acme")
    for verb in (dead.list, dead.groups, dead.summary):
        assert await verb(org="other") == []
    assert (await dead.discard_many(org="other", reason="x")).matched == 0


@pytest.mark.mainspring_new
def test_a_list_is_read_by_the_index_of_unsuccessful_jobs_and_fast(
    client: Client, engine: Engine, database: Database
) -> None:
    """1,000 dead letters among 10,000 finished jobs."""
    engine.enqueue_many([{} for _ in range(10_000)])
    claims = engine.claim(n=10_000)
    ended = [claim.epoch for claim in claims[1000:]]
    engine.complete("w1", *ended)
    error = ERROR | {"stack": STACK.format(release="v1", line=1, function="pay") * 40}
    engine.settle("w1", *[
        {"epoch": claim.epoch, "verb": "bury", "error": error | {"message": f"order {n} " + "abc"[n % 3]}}
        for n, claim in enumerate(claims[:1000])
    ])  # fmt: skip
    engine.conn.execute("analyze mainspring.finished, mainspring.job, mainspring.resolution")

    for name in ("list_dead", "group_dead", "count_dead", "batch_dead", "sum_dead"):
        params: dict[str, Any] = dict.fromkeys(["org", "task", "queue", "code", "fingerprint", "state"])
        params |= dict.fromkeys(["newer_than", "older_than", "since", "until", "before_at", "before_id", "newest"])
        params |= {"limit": 50, "start": "infinity", "last_at": "-infinity", "last_id": str(claims[0].id)}
        if name == "batch_dead":
            params["state"] = "dead"
        ((plan,),) = engine.conn.execute(b"explain (format json) " + engine.sql[name].encode(), params).fetchall()
        assert '"Index Name": "finished_open"' in json.dumps(plan), name
        assert ("finished", "Seq Scan") not in scans(plan[0]["Plan"]), name

    engine.conn.execute("set statement_timeout = '1s'")
    assert [group.count for group in client.dead.groups()] == [334, 333, 333]
    assert len(client.dead.list(limit=1000)) == 1000


def test_the_view_has_the_fields_that_python_reads(engine: Engine) -> None:
    cursor = engine.conn.execute("select * from mainspring.dead_letters limit 0")
    assert cursor.description is not None
    assert tuple(column.name for column in cursor.description) == DeadLetter.__struct_fields__
