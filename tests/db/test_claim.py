"""Claims: which jobs, in which order, how many, by whom."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from uuid import UUID

import pytest
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import LEASE, Engine

from mainspring.job import Claim


def crashed(engine: Engine, count: int, *, worker: str = "dead") -> list[UUID]:
    """Jobs whose worker died once, ready again."""
    ids = [answer.id for answer in engine.enqueue_many([{}] * count)]
    assert len(engine.claim(worker, count)) == count
    engine.clock.advance(LEASE)
    assert len(engine.rescue()) == count
    return ids


def ids(claims: list[Claim]) -> list[UUID]:
    return [claim.id for claim in claims]


@pytest.mark.rule("ENG-3.03")
def test_a_claim_changes_state_attempt_epoch_and_lease_together(engine: Engine) -> None:
    id_ = engine.enqueue(payload={"n": 1}).id
    engine.clock.advance(seconds=5)

    (claim,) = engine.claim("w1")

    job = engine.job(id_)
    assert (job.state, job.attempt, job.epoch, job.worker) == ("running", 1, claim.epoch, "w1")
    assert (job.lease_expires_at, job.started_at) == (engine.clock.now() + LEASE, engine.clock.now())
    assert (claim.payload, claim.priority, claim.due_at) == ('{"n": 1}', 2, NOON)
    assert claim.claimed_at - claim.due_at == timedelta(seconds=5)


@pytest.mark.rule("ENG-5.03", "ENG-11.01")
def test_priority_comes_first_then_due_time_then_creation(engine: Engine) -> None:
    old, new, newer, critical, late = (
        answer.id
        for answer in engine.enqueue_many(
            [
                {"priority": 2},
                {"priority": 1, "delay": "PT10S"},
                {"priority": 1, "delay": "PT20S"},
                {"priority": 0, "delay": "PT30S"},
                {"priority": 1, "delay": "PT10S"},
            ]
        )
    )
    engine.clock.advance(minutes=1)

    assert [ids(engine.claim(n=1))[0] for _ in range(5)] == [critical, new, late, newer, old]


@pytest.mark.rule("ENG-5.04", "ENG-5.03")
def test_one_claim_hands_out_its_jobs_in_due_order(engine: Engine) -> None:
    delays = [7, 3, 9, 1, 5, 8, 2, 6, 4, 0]
    answers = engine.enqueue_many([{"delay": timedelta(seconds=s)} for s in delays])
    engine.clock.advance(minutes=1)

    assert ids(engine.claim()) == [answer.id for _, answer in sorted(zip(delays, answers, strict=True))]


@pytest.mark.rule("ENG-5.09")
@pytest.mark.parametrize("rescued", [0, 2])
def test_a_claim_takes_no_more_than_it_asked_for_each_under_its_own_epoch(engine: Engine, rescued: int) -> None:
    crashed(engine, rescued)
    engine.enqueue_many([{}] * 25)

    claims = engine.claim(n=10)

    assert len(claims) == len({claim.epoch for claim in claims}) == 10
    assert engine.rows("select count(*) from mainspring.running where worker = 'w1'") == [(10,)]


@pytest.mark.rule("ENG-5.01", "ENG-5.02")
def test_twenty_workers_take_each_job_once_and_none_waits_for_another(database: Database, engine: Engine) -> None:
    engine.enqueue_many([{}] * 1000)

    def work(n: int) -> list[UUID]:
        mine: list[UUID] = []
        with database.connect() as conn:
            other = Engine(conn)
            conn.execute("set lock_timeout = '2s'")  # whoever waits for the claim that stays open fails
            while found := other.claim(f"w{n}", 13):
                mine += ids(found)
        return mine

    with ThreadPoolExecutor(20) as pool, database.connect() as slow, slow.transaction():
        held = ids(Engine(slow).claim("slow", 13))
        taken = held + [id_ for mine in pool.map(work, range(20)) for id_ in mine]

    assert len(held) == 13
    assert len(taken) == len(set(taken)) == 1000


@pytest.mark.rule("ENG-5.02")
def test_a_job_that_another_claim_is_taking_is_passed_over(database: Database, engine: Engine) -> None:
    first, second = engine.enqueue_many([{}, {}])
    with database.connect() as other, other.transaction():
        assert ids(Engine(other).claim("w2", 1)) == [first.id]
        assert ids(engine.claim("w1", 2)) == [second.id]


@pytest.mark.rule("ENG-5.05", "ENG-3.02")
def test_a_claim_sees_scheduled_retrying_and_rescued_jobs_once_they_are_due(engine: Engine) -> None:
    retrying, lost = engine.enqueue_many([{}, {}])
    scheduled = engine.enqueue(delay=timedelta(seconds=30))
    claims = {claim.id: claim for claim in engine.claim(lease=timedelta(seconds=30))}
    engine.end(claims[retrying.id], "fail", delay="PT30S")
    engine.clock.advance(seconds=29)
    assert engine.rescue() == []
    assert engine.claim() == []

    engine.clock.advance(seconds=1)
    engine.rescue()

    found = {claim.id: claim for claim in engine.claim("w2")}
    assert found.keys() == {scheduled.id, retrying.id, lost.id}
    assert found[lost.id].epoch > claims[lost.id].epoch


@pytest.mark.rule("ENG-5.07")
def test_a_worker_leaves_tasks_and_queues_that_it_does_not_know(engine: Engine) -> None:
    known, new, elsewhere = engine.enqueue_many([{}, {"task": "new"}, {"queue": "q:other"}])

    assert ids(engine.claim()) == [known.id]

    assert [engine.state(answer.id) for answer in (new, elsewhere)] == ["ready", "ready"]
    assert ids(engine.claim("w2", queues=["q:default", "q:other"], tasks=["t", "new"])) == [new.id, elsewhere.id]


@pytest.mark.rule("ENG-5.11")
def test_one_claim_serves_all_organisations_and_names_each(engine: Engine) -> None:
    engine.enqueue_many([{"org_id": "a"}, {"org_id": "b"}])
    assert [claim.org_id for claim in engine.claim()] == ["a", "b"]


@pytest.mark.rule("ENG-11.04")
def test_queues_share_a_claim_by_their_limits_whatever_the_priorities(engine: Engine) -> None:
    engine.enqueue_many([{"queue": "q:critical", "priority": 0}] * 30 + [{"priority": 3}] * 30)

    claims = engine.claim(n=10, queues=["q:critical", "q:default"], limits=[6, 4])

    assert [claim.queue for claim in claims] == ["q:critical"] * 6 + ["q:default"] * 4


def test_a_claim_for_few_jobs_is_filled_by_the_queue_named_first(engine: Engine) -> None:
    engine.enqueue_many([{"queue": "q:critical"}, {}])

    (claim,) = engine.claim(n=1, queues=["q:default", "q:critical"])

    assert claim.queue == "q:default"


def test_the_oldest_job_comes_first_when_that_is_asked_for(engine: Engine) -> None:
    low = engine.enqueue(priority=3).id
    engine.clock.advance(seconds=1)
    engine.enqueue_many([{"priority": 1}] * 20)

    assert low not in ids(engine.claim(n=5))
    assert ids(engine.claim(n=1, oldest=True)) == [low]


def test_a_lower_bound_leaves_out_what_was_due_before(engine: Engine) -> None:
    early = engine.enqueue().id
    engine.clock.advance(minutes=1)
    late = engine.enqueue().id

    assert ids(engine.claim(low=(NOON + timedelta(seconds=30)).isoformat())) == [late]
    assert ids(engine.claim()) == [early]


@pytest.mark.rule("ENG-3.08")
def test_jobs_that_crashed_a_worker_are_handed_out_one_at_a_time_and_only_on_demand(engine: Engine) -> None:
    bad = crashed(engine, 3)
    good = engine.enqueue().id

    assert ids(engine.claim(rescued=False)) == [good]
    assert ids(engine.claim()) == bad[:1]
    assert ids(engine.claim(n=1)) == bad[1:2]


@pytest.mark.rule("ENG-5.06", "ENG-6.08")
def test_a_crash_counts_as_an_attempt(engine: Engine) -> None:
    crashed(engine, 1)

    (claim,) = engine.claim("w2")

    assert (claim.attempt, claim.crashes) == (2, 1)
    assert engine.end(claim, "complete", "w2")
    assert engine.job(claim.id).attempt == 2


@pytest.mark.rule("ENG-13.02")
def test_no_job_starts_before_its_time_by_the_databases_clock(engine: Engine) -> None:
    """However fast the worker's clock: its own time is not even asked."""
    engine.enqueue(scheduled_for=NOON + timedelta(seconds=1))
    engine.clock.advance(timedelta(microseconds=999_999))
    assert engine.claim() == []
    engine.clock.advance(timedelta(microseconds=1))
    assert len(engine.claim()) == 1


@pytest.mark.rule("ENG-7.12")
def test_failing_jobs_move_behind_ready_work(engine: Engine) -> None:
    engine.enqueue_many([{}] * 10)
    good = engine.enqueue().id
    for claim in engine.claim(n=10):
        engine.end(claim, "fail", delay="PT1S")
    engine.clock.advance(seconds=1)

    assert ids(engine.claim(n=1)) == [good]


def test_the_next_timer_is_known_and_held_jobs_are_none(engine: Engine) -> None:
    ask = [["q:default", "q:other"]]
    assert engine.ask("next_due", ask) == [(None, NOON)]
    engine.started(key="k")
    engine.enqueue(key="k", payload={"n": 2})
    engine.enqueue(queue="q:elsewhere", delay=timedelta(seconds=1))
    assert engine.value("next_due", ask) is None

    engine.enqueue(queue="q:other", priority=3, delay=timedelta(seconds=90))
    engine.enqueue(delay=timedelta(seconds=120))

    assert engine.value("next_due", ask) == timedelta(seconds=90)


@pytest.mark.parametrize("limited", [False, True])
def test_a_claim_reads_few_more_tickets_than_it_takes_also_without_statistics(engine: Engine, limited: bool) -> None:
    if limited:
        limit = "'far', 'q:default', null, 'all', 1000, '1 s', null, false, 'user', 'ada', 'none'"
        engine.rows(f"select mainspring.set_limit({limit})")
    engine.enqueue_many([{}] * 2000)
    read = "select sum(seq_tup_read + idx_tup_fetch) from pg_stat_xact_all_tables where relname = 'waiting'"
    with engine.conn.transaction():
        ((before,),) = engine.rows(read)
        assert len(engine.claim(n=10, rescued=1)) == 10
        ((after,),) = engine.rows(read)

    assert after - before < 100, "or every claim looks for suspects among all that is due"
