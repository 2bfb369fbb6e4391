"""Keys: what each mode makes of a second enqueue, and what is remembered of a key."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import Engine
from tests.documents import ALL_CATEGORIES

from mainspring.dedupe import MODES
from mainspring.job import Enqueued

ENDS = {"succeeded": "complete", "failed": "reject", "dead": "bury", "cancelled": "stop"}


def ended(engine: Engine, state: str, **fields: Any) -> Enqueued:
    """A job under the key `k` that has ended."""
    claim = engine.started(**{"key": "k", **fields})
    assert engine.end(claim, ENDS[state])
    return Enqueued(claim.id, "existing", state)


@pytest.mark.rule("ENG-4.01", "ENG-4.08", "ENG-13.05")
def test_a_key_enqueued_twice_is_one_job(engine: Engine) -> None:
    first = engine.enqueue(key="k", delay=timedelta(hours=1))
    second = engine.enqueue(key="k", delay=timedelta(hours=1))

    assert (first.answer, second.answer, second.state) == ("created", "existing", "scheduled")
    assert first.id == second.id
    assert engine.rows("select count(*) from mainspring.job") == [(1,)]


def test_without_a_key_two_equal_enqueues_are_two_jobs(engine: Engine) -> None:
    first, second = engine.enqueue_many([{}, {}])

    assert first.id != second.id
    assert engine.rows("select count(*) from mainspring.idempotency") == [(0,)]
    assert engine.rows("select count(*) from mainspring.keys where status = 'pending'") == [(2,)]


@pytest.mark.rule("ENG-4.02", "ENG-4.07")
@pytest.mark.parametrize("mode", [mode for mode in MODES if mode != "debounce"])
def test_fifty_enqueues_of_one_key_at_once_are_one_job(database: Database, mode: str) -> None:
    def enqueue(_: int) -> Any:
        with database.connect() as conn:
            return Engine(conn).enqueue("issue_invoice", payload={"booking": 42}, key="issue_invoice:42", mode=mode).id

    with ThreadPoolExecutor(10) as pool:
        ids = list(pool.map(enqueue, range(50)))

    assert len(set(ids)) == 1
    with database.connect() as conn:
        assert conn.execute("select id from mainspring.job").fetchall() == [(ids[0],)]


@pytest.mark.rule("ENG-4.02")
def test_batches_that_share_keys_never_wait_in_a_circle(database: Database) -> None:
    def enqueue(turn: int) -> list[Any]:
        keys = [f"k{n}" for n in range(20)]
        with database.connect() as conn:
            batch = [{"key": key} for key in (keys if turn % 2 else reversed(keys))]
            return sorted(answer.id for answer in Engine(conn).enqueue_many(batch))

    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(enqueue, range(16)))

    assert all(ids == answers[0] for ids in answers)
    assert len(set(answers[0])) == 20


@pytest.mark.rule("ENG-4.15")
def test_organisations_do_not_share_keys(engine: Engine) -> None:
    ours, theirs = engine.enqueue_many([{"key": "k", "org_id": "a"}, {"key": "k", "org_id": "b", "payload": {"n": 2}}])

    assert (ours.answer, theirs.answer) == ("created", "created")
    assert ours.id != theirs.id


def test_one_batch_may_name_a_key_twice(engine: Engine) -> None:
    first, second = engine.enqueue_many([{"key": "k"}, {"key": "k"}])
    assert (first.answer, second.answer) == ("created", "existing")
    assert first.id == second.id


@pytest.mark.rule("ENG-4.03", "ENG-4.08")
@pytest.mark.parametrize("state", ENDS)
def test_keep_returns_the_job_whatever_became_of_it(engine: Engine, state: str) -> None:
    job = ended(engine, state, mode="keep")
    engine.clock.advance(days=800)

    assert engine.enqueue(key="k", mode="keep") == job


@pytest.mark.rule("ENG-4.04", "ENG-3.12")
@pytest.mark.parametrize("state", ["failed", "dead", "cancelled"])
def test_reset_failed_runs_it_again_with_the_new_payload(engine: Engine, state: str) -> None:
    job = ended(engine, state, mode="reset_failed", payload={"n": 1})
    history = engine.attempts(job.id)

    answer = engine.enqueue(key="k", mode="reset_failed", payload={"n": 2}, max_attempts=9)

    assert (answer.id, answer.answer, answer.state) == (job.id, "reset", "ready")
    now = engine.job(job.id)
    assert (now.state, now.attempt, now.payload, now.max_attempts) == ("ready", 0, {"n": 2}, 9)
    assert (now.result, now.finished_at) == (None, None)
    assert engine.attempts(job.id) == history
    assert len(history) == 1
    (claim,) = engine.claim()
    assert (claim.id, claim.payload) == (job.id, '{"n": 2}')


@pytest.mark.rule("ENG-4.05")
@pytest.mark.parametrize("state", ["scheduled", "ready", "running", "retrying", "succeeded"])
def test_reset_failed_leaves_any_other_job_alone(engine: Engine, state: str) -> None:
    if state in {"scheduled", "ready"}:
        delay = timedelta(hours=1) if state == "scheduled" else None
        id_ = engine.enqueue(key="k", mode="reset_failed", delay=delay).id
    else:
        claim = engine.started(key="k", mode="reset_failed")
        id_ = claim.id
        if state != "running":
            engine.end(claim, "fail" if state == "retrying" else "complete", delay="PT1M")
    before = engine.job(id_)

    answer = engine.enqueue(key="k", mode="reset_failed", delay=timedelta(hours=5))

    assert (answer.id, answer.answer, answer.state) == (id_, "existing", state)
    assert engine.job(id_) == before


@pytest.mark.rule("ENG-4.06", "ENG-9.07")
def test_a_window_blocks_until_its_end_counted_from_the_end_of_the_job(engine: Engine) -> None:
    week: dict[str, Any] = {"key": "k", "mode": "window", "ttl": timedelta(days=7)}
    first = engine.enqueue(**week, delay=timedelta(days=10))
    engine.clock.set(NOON + timedelta(days=9))
    assert engine.enqueue(**week).id == first.id  # the key outlives the wait for its job
    engine.clock.set(NOON + timedelta(days=10))
    (claim,) = engine.claim()
    engine.end(claim, "complete")

    engine.clock.set(NOON + timedelta(days=16))
    assert engine.enqueue(**week) == Enqueued(first.id, "existing", "succeeded")
    engine.clock.set(NOON + timedelta(days=17))
    assert engine.enqueue(**week).answer == "created"


@pytest.mark.rule("ENG-4.16")
@pytest.mark.parametrize("state", ["failed", "dead"])
def test_in_a_window_a_failed_job_is_returned_and_runs_again_only_when_that_is_asked_for(
    engine: Engine, state: str
) -> None:
    week: dict[str, Any] = {"key": "k", "mode": "window", "ttl": timedelta(days=7)}
    job = ended(engine, state, **week)

    assert engine.enqueue(**week) == job
    assert engine.enqueue(**week, reset=True) == Enqueued(job.id, "reset", "ready")
    assert [claim.id for claim in engine.claim()] == [job.id]


@pytest.mark.rule("ENG-9.04")
def test_a_window_is_released_by_a_job_cancelled_before_it_started_and_by_no_other(engine: Engine) -> None:
    week: dict[str, Any] = {"mode": "window", "ttl": timedelta(days=7)}
    never = engine.enqueue(key="never", **week)
    engine.cancel(never.id)
    began = ended(engine, "cancelled", **week)
    kept = engine.enqueue(key="kept", mode="keep")
    engine.cancel(kept.id)

    assert engine.enqueue(key="never", **week).answer == "created"
    assert engine.enqueue(key="k", **week) == began
    assert engine.enqueue(key="kept", mode="keep") == Enqueued(kept.id, "existing", "cancelled")
    assert engine.status("k")[0] == "failed"
    assert engine.status("k")[3] == str(began.id)


@pytest.mark.rule("ENG-4.09")
@pytest.mark.parametrize("mode", ["live", "keep", "window", "reset_failed"])
@pytest.mark.parametrize("other", [{"payload": {"n": 2}}, {"task": "u"}])
def test_a_key_with_another_payload_or_task_is_refused(engine: Engine, mode: str, other: dict[str, Any]) -> None:
    job = engine.enqueue(key="k", mode=mode, payload={"n": 1})
    before = engine.everything()

    with pytest.raises(psycopg.Error) as caught:
        engine.enqueue_many([{}, {"key": "k", "mode": mode, "payload": {"n": 1}} | other])

    assert (caught.value.sqlstate, caught.value.diag.message_detail) == ("MS002", str(job.id))
    assert engine.everything() == before


@pytest.mark.rule("ENG-4.09")
@pytest.mark.parametrize(("mode", "state"), [("reset_failed", "failed"), ("replace", "ready"), ("debounce", "ready")])
def test_a_job_does_not_take_the_payload_of_another_task(engine: Engine, mode: str, state: str) -> None:
    wait: dict[str, Any] = {"wait": timedelta(0)} if mode == "debounce" else {}
    if state == "failed":
        ended(engine, "failed", mode=mode)
    else:
        engine.enqueue(key="k", mode=mode, **wait)
    before = engine.everything()

    with pytest.raises(psycopg.Error) as caught:
        engine.enqueue("u", key="k", mode=mode, payload={"n": 2}, **wait)

    assert caught.value.sqlstate == "MS002"
    assert engine.everything() == before


def test_the_order_of_a_payloads_fields_does_not_matter(engine: Engine) -> None:
    first = engine.enqueue(key="k", payload={"a": 1, "b": 2})
    assert engine.enqueue(key="k", payload={"b": 2, "a": 1}) == Enqueued(first.id, "existing", "ready")


def test_replace_changes_payload_and_time_only_before_the_start(engine: Engine) -> None:
    first = engine.enqueue(key="k", mode="replace", payload={"n": 1})

    answer = engine.enqueue(key="k", mode="replace", payload={"n": 2}, delay=timedelta(hours=1))
    assert answer == Enqueued(first.id, "replaced", "scheduled")
    assert engine.job(first.id).payload == {"n": 2}
    engine.clock.advance(hours=1)
    (claim,) = engine.claim()
    second = engine.enqueue(key="k", mode="replace", payload={"n": 3})

    assert claim.payload == '{"n": 2}'
    assert second.answer == "created"
    assert engine.job(first.id).payload == {"n": 2}


def test_debounce_starts_once_nobody_has_asked_for_a_while(engine: Engine) -> None:
    ask: dict[str, Any] = {"key": "k", "mode": "debounce", "wait": timedelta(seconds=30)}
    first = engine.enqueue(**ask, payload={"n": 0})
    for n in range(1, 5):
        engine.clock.advance(seconds=20)
        assert engine.claim() == []
        assert engine.enqueue(**ask, payload={"n": n}) == Enqueued(first.id, "replaced", "scheduled")

    engine.clock.advance(seconds=29)
    assert engine.claim() == []
    engine.clock.advance(seconds=1)
    assert [claim.payload for claim in engine.claim()] == ['{"n": 4}']


@pytest.mark.rule("ENG-9.02", "ENG-9.03")
def test_the_status_of_a_key_follows_its_job(engine: Engine) -> None:
    id_ = engine.enqueue(key="k", mode="window", ttl=timedelta(days=7)).id
    assert engine.status("k") == ("pending", None, None, None)
    (claim,) = engine.claim()
    assert engine.status("k")[0] == "running"
    engine.end(claim, "fail", delay="PT1M")
    assert engine.status("k")[0] == "pending"
    engine.clock.advance(minutes=1)
    (claim,) = engine.claim()
    engine.end(claim, "complete")
    assert engine.status("k") == ("succeeded", engine.clock.now() + timedelta(days=7), str(id_), None)

    for state in ("failed", "dead"):
        job = ended(engine, state, key=state)
        assert (engine.status(state)[0], engine.status(state)[3]) == (state, str(job.id))


@pytest.mark.rule("ENG-9.02")
def test_a_key_remembers_when_it_was_seen_first_and_last(engine: Engine) -> None:
    engine.enqueue(key="k")
    engine.clock.advance(minutes=5)
    engine.enqueue(key="k")

    seen = engine.rows("select first_seen_at, last_seen_at from mainspring.keys where key = 'k'")
    assert seen == [(NOON, NOON + timedelta(minutes=5))]


@pytest.mark.rule("ENG-9.05", "ENG-9.06")
@pytest.mark.parametrize(
    ("category", "days"),
    [
        ("notifications", 7),
        ("maintenance", 7),
        ("planning", 30),
        ("exports", 30),
        ("audit", 30),
        ("default", 30),
        ("passport", 30),
        ("rental", None),
        ("billing", None),
    ],
)
def test_a_key_expires_its_categorys_time_after_the_end_or_never(
    engine: Engine, category: str, days: int | None
) -> None:
    ttl = ALL_CATEGORIES[category].key_ttl
    assert ttl == (timedelta(days=days) if days else None)
    claim = engine.started(key="k", mode="window", ttl=ttl)
    engine.clock.advance(hours=1)
    engine.end(claim, "complete")
    end = engine.clock.now()

    for _ in range(2):  # before and after the job is pruned
        assert engine.status("k")[1] == (end + ttl if ttl else None)
        engine.clock.set(end + (ttl or timedelta(days=730)) - timedelta(seconds=1))
        assert engine.enqueue(key="k", mode="window", ttl=ttl) == Enqueued(claim.id, "existing", "succeeded")
        engine.prune()
    engine.clock.advance(seconds=1)
    assert engine.enqueue(key="k", mode="window", ttl=ttl).answer == ("created" if ttl else "existing")


@pytest.mark.rule("ENG-9.15")
def test_job_and_key_roll_back_together(engine: Engine) -> None:
    before = engine.everything()
    with engine.conn.transaction(force_rollback=True):
        engine.enqueue(key="k")
    assert engine.everything() == before
    assert engine.enqueue(key="k", payload={"n": 2}).answer == "created"
