"""The three decisions about one dead letter: what each does, what it refuses, and what is kept of it."""

from __future__ import annotations

import inspect
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.client.dead.conftest import Kill, events
from tests.databases import Database
from tests.db.engine import Engine

import mainspring as ms
from mainspring import Client, ValidationError
from mainspring.client import AsyncDeadLetters, DeadLetters
from mainspring.errors import JobNotFound, TransitionRefused
from mainspring.uuid7 import uuid7

pytestmark = pytest.mark.anyio
tasks = ms.Registry("dead")


@tasks.task(name="t")
async def pay(*, cents: int, currency: str = "EUR") -> None:
    """Pay."""


def test_both_colours_have_the_same_verbs_parameters_and_words() -> None:
    sync, colourful = (
        {name: verb for name, verb in vars(kind).items() if inspect.isfunction(verb) and name[0] != "_"}
        for kind in (DeadLetters, AsyncDeadLetters)
    )
    assert list(sync) == list(colourful)
    for name, verb in sync.items():
        assert inspect.signature(verb) == inspect.signature(colourful[name]), name
        assert verb.__doc__ == colourful[name].__doc__, name
        assert inspect.iscoroutinefunction(colourful[name]), name


@pytest.mark.rule("ENG-3.12", "ENG-7.11", "ENG-12.06", "ENG-12.05")
async def test_a_replayed_job_starts_anew_with_its_id_key_payload_and_queue(
    dead: Any, engine: Engine, kill: Kill
) -> None:
    one, other = (kill(key=f"k{n}", payload={"n": n}, queue="q:exports") for n in (1, 2))
    untouched = engine.job(other)

    await dead.replay(one, reason="the supplier is back")

    job = engine.job(one)
    assert (job.state, job.attempt, job.queue, job.payload) == ("ready", 0, "q:exports", {"n": 1})
    assert (job.idempotency_key, job.finished_at, job.result) == ("k1", None, None)
    assert [a.outcome for a in engine.attempts(one)] == ["dead"]
    assert engine.job(other) == untouched
    assert [d.id for d in await dead.list()] == [other]
    (event,) = events(engine, "job.replayed")
    assert (event["by"], event["by_type"], event["reason"]) == ("ada", "user", "the supplier is back")
    assert (event["before"]["state"], event["before"]["attempt"], event["before"]["error"]["code"]) == (
        "dead",
        1,
        "INTERNAL_ERROR",
    )
    assert (event["after"]["state"], event["after"]["attempt"]) == ("ready", 0)


@pytest.mark.rule("ENG-12.07", "ENG-12.05")
@pytest.mark.parametrize("verb", ["bury", "reject"])
async def test_a_discarded_job_stays_as_it_ended_and_leaves_the_list(
    dead: Any, engine: Engine, kill: Kill, verb: str
) -> None:
    one, other = kill(verb), kill(verb)
    before, history = engine.job(one), engine.attempts(one)

    await dead.discard(one, reason="a test order")

    after = engine.job(one)
    assert after.resolution == "discarded"
    assert engine.attempts(one) == history
    assert (after.state, after.error, after.finished_at) == (before.state, before.error, before.finished_at)
    assert [d.id for d in await dead.list()] == [other]
    assert [size.size for size in await dead.summary()] == [1]
    (event,) = events(engine, "job.discarded")
    assert (event["by"], event["reason"], event["after"]["resolution"]) == ("ada", "a test order", "discarded")
    with pytest.raises(TransitionRefused, match="is discarded already"):
        await dead.discard(one, reason="again")


@pytest.mark.rule("ENG-12.08", "ENG-12.05")
async def test_fix_forward_makes_a_new_job_and_the_two_point_at_each_other(
    dead: Any, engine: Engine, kill: Kill
) -> None:
    envelope = {"org_id": "acme", "actor_type": "user", "actor_id": "7", "correlation_id": "c", "max_attempts": 3}
    old = kill("reject", payload={"cents": 12.5, "note": "x"}, queue="q:critical", priority=0, **envelope)
    before, history = engine.job(old), engine.attempts(old)

    made = await dead.fix(old, set={"cents": 1250}, unset=["note"], reason="the till sent euros")

    ended, new = engine.job(old), engine.job(made.successor)
    assert (ended.resolution, ended.fixed_by, ended.state) == ("fixed_forward", new.id, "failed")
    assert (ended.payload, engine.attempts(old)) == (before.payload, history)
    assert (new.fixes, new.payload, new.state, new.attempt) == (old, {"cents": 1250}, "ready", 0)
    same = ("task", "org_id", "actor_type", "actor_id", "correlation_id", "max_attempts", "priority")
    assert [getattr(new, name) for name in same] == [getattr(before, name) for name in same]
    assert new.queue == "q:critical"
    assert await dead.list() == []
    (event,) = events(engine, "job.fixed_forward")
    assert (
        event["diff"]
        == made.diff
        == [
            {"op": "replace", "path": "/cents", "value": 1250, "old": 12.5},
            {"op": "remove", "path": "/note", "old": "x"},
        ]
    )
    assert (event["by"], event["reason"], event["successor"]) == ("ada", "the till sent euros", str(new.id))
    assert event["before"]["payload_hash"] != event["after"]["payload_hash"]
    for verb, arguments in (("replay", {}), ("discard", {}), ("fix", {"set": {"cents": 1}})):
        with pytest.raises(TransitionRefused, match=f"{verb}: .* was fixed forward by job {new.id}"):
            await getattr(dead, verb)(old, reason="again", **arguments)


async def test_a_dry_run_shows_the_difference_and_writes_nothing(dead: Any, engine: Engine, kill: Kill) -> None:
    old = kill(payload={"cents": "12"}, key="k")
    before = engine.everything()

    made = await dead.fix(old, set={"cents": 12}, task=pay, reason="typo", dry_run=True)

    assert engine.everything() == before
    assert (made.successor, made.dry_run, made.checked) == (None, True, True)
    assert made.payload == {"cents": 12, "currency": "EUR"}
    assert [change["path"] for change in made.diff] == ["/cents", "/currency"]


async def test_a_dry_run_is_refused_where_the_act_would_be(dead: Any, engine: Engine, kill: Kill) -> None:
    old, done = kill(key="k"), engine.started()
    engine.end(done, "complete")
    living = engine.enqueue(key="k").id
    with pytest.raises(TransitionRefused, match=f"while job {living} of its key is not finished"):
        await dead.fix(old, set={"a": 1}, reason="typo", dry_run=True)
    with pytest.raises(TransitionRefused, match="is succeeded, which is no dead letter"):
        await dead.fix(done.id, set={"a": 1}, reason="typo", dry_run=True)


@pytest.mark.parametrize(
    ("correction", "field"),
    [
        ({"set": {"cents": "twelve"}}, "cents"),
        ({"set": {"cnets": 12}}, "cnets"),
        ({"unset": ["cents"]}, "cents"),
        ({"unset": ["colour"]}, "colour"),
        ({"payload": {}}, "cents"),
        ({"payload": {"cents": 1}, "set": {"cents": 1}}, "payload"),
        ({"payload": {"cents": "1", "currency": "EUR"}}, "cents"),
        ({"set": {"cents": float("nan")}}, "payload"),
        ({"set": {"currency": "x" * 300_000}}, "payload"),
        ({"set": {"currency": "sk_live_0123456789abcdef"}}, "payload.currency"),
        ({"set": {"currency": "\0"}}, "payload.currency"),
        ({"set": {"currency": object()}}, "payload"),
        ({}, "payload"),
    ],
)
async def test_a_correction_that_the_task_cannot_read_is_refused_by_name_and_nothing_is_written(
    dead: Any, engine: Engine, kill: Kill, correction: dict[str, Any], field: str
) -> None:
    old = kill(payload={"cents": 12, "currency": "EUR"})
    before = engine.everything()

    with pytest.raises(ValidationError) as caught:
        await dead.fix(old, **correction, task=pay, reason="typo")

    assert caught.value.field == field
    assert engine.everything() == before


async def test_without_the_task_a_correction_is_checked_as_json_only_and_says_so(dead: Any, kill: Kill) -> None:
    made = await dead.fix(kill(payload={"cents": 12}), payload={"anything": [1, {"a": None}]}, reason="typo")
    assert (made.checked, made.payload) == (False, {"anything": [1, {"a": None}]})


async def test_a_correction_that_corrects_nothing_or_is_for_another_task_is_refused(dead: Any, kill: Kill) -> None:
    with pytest.raises(ValidationError, match="payload: is unchanged; replay the job instead"):
        await dead.fix(kill(payload={"cents": 12}), set={"cents": 12}, reason="typo")
    with pytest.raises(ValidationError, match=r"task: job .* is of task other"):
        await dead.fix(kill(task="other"), set={"cents": 12}, task=pay, reason="typo")


async def test_the_key_moves_to_the_successor(dead: Any, engine: Engine, kill: Kill) -> None:
    old = kill(key="k", mode="keep", payload={"n": 1})

    made = await dead.fix(old, set={"n": 2}, reason="typo")

    assert engine.status("k")[0] == "pending"
    again = engine.enqueue(key="k", mode="keep", payload={"n": 2})
    assert (again.id, again.answer) == (made.successor, "existing")
    assert engine.job(made.successor).idempotency_key == "k"
    (claim,) = engine.claim()
    assert (claim.id, claim.key) == (made.successor, "k")


@pytest.mark.parametrize("verb", ["replay", "fix"])
async def test_a_job_whose_key_another_live_job_has_is_not_run_again(
    dead: Any, engine: Engine, kill: Kill, verb: str
) -> None:
    old = kill(key="k")
    living = engine.enqueue(key="k").id
    arguments = {"set": {"n": 2}} if verb == "fix" else {}
    with pytest.raises(TransitionRefused, match=str(living)):
        await getattr(dead, verb)(old, reason="again", **arguments)
    await dead.discard(old, reason="the newer one does it")


async def test_a_discarded_job_may_still_be_replayed_and_is_open_again_when_it_dies(
    dead: Any, engine: Engine, kill: Kill
) -> None:
    old = kill()
    await dead.discard(old, reason="not needed")

    await dead.replay(old, reason="needed after all")

    assert engine.job(old).resolution is None
    assert events(engine, "job.replayed")[0]["before"]["resolution"] == "discarded"
    (claim,) = engine.claim()
    engine.end(claim, "bury")
    assert [d.id for d in await dead.list()] == [old]


async def test_a_discarded_job_may_still_be_fixed_forward(dead: Any, engine: Engine, kill: Kill) -> None:
    old = kill()
    await dead.discard(old, reason="not needed")

    made = await dead.fix(old, set={"n": 2}, reason="needed after all")

    assert (engine.job(old).resolution, engine.job(old).fixed_by) == ("fixed_forward", made.successor)
    assert events(engine, "job.fixed_forward")[0]["before"]["resolution"] == "discarded"


async def test_a_discarded_job_that_is_enqueued_again_is_open_again_when_it_dies(
    dead: Any, engine: Engine, kill: Kill
) -> None:
    old = kill(key="k", mode="reset_failed")
    await dead.discard(old, reason="not needed")
    assert engine.enqueue(key="k", mode="reset_failed").answer == "reset"
    assert engine.job(old).resolution is None
    (claim,) = engine.claim()
    engine.end(claim, "bury")
    assert [d.id for d in await dead.list()] == [old]


@pytest.mark.rule("ENG-12.05")
@pytest.mark.parametrize("reason", [None, "", "  ", "x" * 1001, "a\x1b[2J"])
async def test_a_decision_without_a_reason_is_refused_and_nothing_is_written(
    dead: Any, engine: Engine, kill: Kill, reason: Any
) -> None:
    old = kill()
    before = engine.everything()
    for verb, arguments in (
        (dead.replay, {"job": old}),
        (dead.discard, {"job": old}),
        (dead.fix, {"job": old, "set": {"n": 1}}),
        (dead.replay_many, {"task": "t"}),
        (dead.discard_many, {"task": "t"}),
    ):
        with pytest.raises(ValidationError) as caught:
            await verb(**arguments, reason=reason)
        assert caught.value.field == "reason"
    assert engine.everything() == before


@pytest.mark.rule("ENG-12.05")
@pytest.mark.parametrize("reason", ["null", "''", "'  '"])
def test_sql_refuses_a_decision_without_a_reason_too(engine: Engine, kill: Kill, reason: str) -> None:
    old = kill()
    before = engine.everything()
    for call in (
        f"replay('{old}', null, 'user', 'ada', {reason})",
        f"discard('{old}', null, 'user', 'ada', {reason})",
        f"fix_forward('{old}', null, '{uuid7()}', '{{}}', '[]', 'user', 'ada', {reason}, false)",
    ):
        with pytest.raises(psycopg.Error) as caught:
            engine.rows(f"select mainspring.{call}")
        assert (caught.value.sqlstate, caught.value.diag.message_detail) == ("MS001", "reason")
    assert engine.everything() == before


@pytest.mark.rule("ENG-3.13")
@pytest.mark.parametrize("end", ["complete", "stop", None])
async def test_only_dead_letters_are_decided_about(dead: Any, engine: Engine, end: str | None) -> None:
    claim = engine.started()
    if end:
        engine.end(claim, end)
    before = engine.everything()
    for verb, arguments in (
        (dead.show, {}),
        (dead.replay, {"reason": "again"}),
        (dead.discard, {"reason": "again"}),
        (dead.fix, {"reason": "again", "set": {"n": 1}}),
    ):
        with pytest.raises(TransitionRefused, match="which is no dead letter") as caught:
            await verb(claim.id, **arguments)
        assert (caught.value.state, caught.value.job_id) == (engine.state(claim.id), claim.id)
    assert engine.everything() == before


async def test_what_does_not_exist_or_is_another_organisation_s_is_not_found(dead: Any, kill: Kill) -> None:
    for job, org in ((uuid7(), None), (kill(org_id="acme"), "other")):
        for verb, arguments in (
            (dead.show, {}),
            (dead.replay, {"reason": "again"}),
            (dead.discard, {"reason": "again"}),
            (dead.fix, {"reason": "again", "set": {"n": 1}}),
        ):
            with pytest.raises(JobNotFound):
                await verb(job, org=org, **arguments)


def test_a_decision_joins_the_caller_s_transaction(
    client: Client, engine: Engine, kill: Kill, database: Database
) -> None:
    replayed, discarded, fixed = kill(), kill(), kill()
    before = engine.everything()
    with database.connect() as conn, conn.transaction(force_rollback=True):
        client.dead.replay(replayed, reason="x", conn=conn)
        client.dead.discard(discarded, reason="x", conn=conn)
        client.dead.fix(fixed, set={"n": 1}, reason="x", conn=conn)
        assert client.dead.list(conn=conn) == []
    assert engine.everything() == before


def test_two_decisions_at_once_are_one(engine: Engine, kill: Kill, database: Database) -> None:
    """The second waits for the first, and is then refused, whatever the two are."""
    fixed = "'{}', '[]', 'user', 'ada', 'x', false"
    acts = {
        "replay": lambda job: f"select moved from mainspring.replay('{job}', null, 'user', 'ada', 'x')",
        "discard": lambda job: f"select mainspring.discard('{job}', null, 'user', 'ada', 'x')",
        "fix": lambda job: f"select moved from mainspring.fix_forward('{job}', null, '{uuid7()}', {fixed})",
    }
    for first in acts:
        for second in acts:
            job: UUID = kill()
            with database.connect() as one, database.connect() as two:
                one.execute("begin")
                assert one.execute(acts[first](job).encode()).fetchone() == (True,)
                two.pgconn.send_query(acts[second](job).encode())
                while not one.execute("select from pg_locks where not granted").fetchall():
                    pass
                one.execute("commit")
                (result,) = iter(two.pgconn.get_result, None)
                allowed = first == "discard" and second != "discard"
                assert result.get_value(0, 0) == (b"t" if allowed else b"f"), (first, second)
            engine.claim()
            engine.clear()
