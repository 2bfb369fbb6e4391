"""What a claim takes under limits, decided by the statements themselves, with a clock that stands still."""

from __future__ import annotations

import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from tests.databases import Database
from tests.db.engine import Engine
from tests.worker.limits.conftest import NOON
from tests.worker.limits.windows import largest

import mainspring as ms

QUEUE = "q:default"


def waiting(engine: Engine, column: str = "count(*)") -> Any:
    return engine.rows(f"select {column} from mainspring.waiting")[0][0]


def slots(engine: Engine) -> int:
    return int(engine.rows("select count(*) from mainspring.slot")[0][0])


def fill(engine: Engine, count: int, **fields: Any) -> None:
    engine.enqueue_many([fields] * count)


def run_for(engine: Engine, seconds: float, step: float = 0.05, **claim: Any) -> list[float]:
    """Claim every few moments; what is let in ends at once. Answers when each was let in."""
    entered: list[float] = []
    for n in range(round(seconds / step)):
        engine.clock.set(NOON + timedelta(seconds=n * step))
        found = engine.claim(**claim)
        entered += [n * step] * len(found)
        engine.complete("w1", *(job.epoch for job in found))
    return entered


# -- rates ----------------------------------------------------------------------------------------------------------


@pytest.mark.rule("ENG-25.01", "STAFF-0.04")
@pytest.mark.parametrize("target", [{"queue": QUEUE}, {"task": "t"}], ids=["queue", "task"])
def test_no_window_lets_in_more_than_its_rate_and_nearly_as_many(
    engine: Engine, client: ms.Client, target: dict[str, str]
) -> None:
    client.limits.set(ms.rate(**target, most=10, per="1s"))  # type: ignore[arg-type]  # either a queue or a task
    fill(engine, 200)
    entered = run_for(engine, 10)
    assert largest(entered, 1.0) <= 10
    assert len(entered) >= 90


@pytest.mark.rule("ENG-25.01")
def test_one_a_minute_never_starts_two_in_a_minute(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task="t", most=1, per="1m"))
    fill(engine, 20)
    entered = run_for(engine, 600, step=1)
    assert largest(entered, 60.0) == 1
    assert len(entered) >= 9


@pytest.mark.rule("ENG-25.02")
def test_each_organisation_has_a_bucket_of_its_own(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task="t", most=3, per="1s", by="org"))
    fill(engine, 10, org_id="acme")
    fill(engine, 10, org_id="beta")
    found = engine.claim()
    assert Counter(job.org_id for job in found) == {"acme": 3, "beta": 3}


@pytest.mark.rule("ENG-25.03")
def test_what_a_rate_puts_off_is_spread_over_the_windows_to_come_and_burns_no_attempt(
    engine: Engine, client: ms.Client
) -> None:
    client.limits.set(ms.rate(task="t", most=2, per="1s"))
    fill(engine, 8)
    engine.claim()
    rows = engine.rows("select due_at, due_then, attempt, snoozes from mainspring.waiting order by due_at")
    assert all(due_then == NOON and (attempt, snoozes) == (0, 0) for _, due_then, attempt, snoozes in rows)
    assert all(due_at > NOON + timedelta(seconds=0.99) for due_at, *_ in rows)
    assert rows[-1][0] > NOON + timedelta(seconds=2)
    assert engine.claim() == []
    assert [attempt for _, _, attempt, _ in rows] == [0] * 6


def test_a_whole_queue_keeps_its_order_at_the_head(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(QUEUE, 2, per="1s"))
    ids = [engine.enqueue().id for _ in range(6)]
    assert waiting(engine, "count(gate)") == 0
    seen = [job.id for job in engine.claim()]
    for _ in range(3):
        engine.clock.advance(seconds=1.1)
        seen += [job.id for job in engine.claim()]
    assert seen == ids


@pytest.mark.rule("ENG-25.02")
def test_concurrent_claimers_share_one_rate(engine: Engine, database: Database, client: ms.Client) -> None:
    client.limits.set(ms.rate(QUEUE, 10, per="1s"))
    fill(engine, 200)
    found: list[int] = []

    def claim(number: int) -> None:
        with database.connect() as conn:
            mine = Engine(conn)
            for _ in range(10):
                found.extend(job.epoch for job in mine.claim(f"w{number}"))

    threads = [threading.Thread(target=claim, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 10


# -- concurrency ----------------------------------------------------------------------------------------------------


@pytest.mark.rule("ENG-25.04")
@pytest.mark.parametrize("by", ["all", "org", "strand"])
@pytest.mark.parametrize("target", [{"queue": QUEUE}, {"task": "t"}], ids=["queue", "task"])
def test_no_more_run_at_once_than_the_limit(engine: Engine, client: ms.Client, target: Any, by: Any) -> None:
    client.limits.set(ms.concurrency(**target, most=2, by=by))
    for n in range(12):
        engine.enqueue(org_id=f"org{n % 2}", strand=f"s{n % 3}")
    ended = 0
    while True:
        found = engine.claim()
        running = engine.rows(
            "select max(n) from (select count(*) as n from mainspring.running group by case %s when 'org' then org_id "
            "when 'strand' then org_id || strand end) x",
            by,
        )[0][0]
        if not running:
            break
        assert running <= 2
        assert slots(engine) == engine.rows("select count(*) from mainspring.running")[0][0]
        (first,) = engine.rows("select id, epoch from mainspring.running order by epoch limit 1")
        engine.complete("w1", first[1])
        ended += 1
        assert found is not None
    assert ended == 12
    assert slots(engine) == 0


@pytest.mark.rule("ENG-25.04", "ENG-25.03")
@pytest.mark.parametrize("verb", ["complete", "fail", "reject", "bury", "snooze", "release"])
def test_every_end_of_an_attempt_frees_its_place_for_the_next(engine: Engine, client: ms.Client, verb: str) -> None:
    client.limits.set(ms.concurrency(task="t", most=1))
    fill(engine, 2)
    (first,) = engine.claim()
    assert engine.claim() == []
    assert waiting(engine, "max(attempt)") == 0
    engine.end(first, verb, delay="PT1H" if verb in {"fail", "snooze", "release"} else None)
    (second,) = engine.claim()
    assert second.id != first.id
    assert slots(engine) == 1


@pytest.mark.rule("ENG-25.04")
def test_a_crash_and_a_cancellation_free_their_places(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.concurrency(task="t", most=1))
    fill(engine, 3)
    (crashed,) = engine.claim()
    engine.clock.advance(seconds=61)
    engine.rescue()
    assert slots(engine) == 0
    found = engine.claim()
    assert len(found) == 1
    assert slots(engine) == 1
    engine.cancel(found[0].id)
    engine.settle("w1", {"epoch": found[0].epoch, "verb": "stop"})
    assert slots(engine) == 0
    assert engine.state(crashed.id) is not None


def test_a_new_limit_counts_what_runs_already(engine: Engine, client: ms.Client) -> None:
    fill(engine, 6)
    before = engine.claim(n=3)
    client.limits.set(ms.concurrency(task="t", most=2))
    assert engine.claim() == []
    assert slots(engine) == 3
    engine.complete("w1", *(job.epoch for job in before[:2]))
    assert len(engine.claim()) == 1
    engine.complete("w1", before[2].epoch)
    assert len(engine.claim()) == 1
    assert slots(engine) == 2


def test_a_new_limit_waits_for_those_whose_row_somebody_has_locked(
    engine: Engine, database: Database, client: ms.Client
) -> None:
    fill(engine, 3)
    engine.claim(n=1)
    with database.connect() as other:
        with other.transaction():
            other.execute("update mainspring.running set cancel_requested_at = mainspring.now()")
            client.limits.set(ms.concurrency(task="t", most=1))
            assert engine.claim() == []
            assert engine.rows("select counted from mainspring.limit") == [(False,)]
        assert engine.claim() == []
    assert slots(engine) == 1


# -- order ----------------------------------------------------------------------------------------------------------


def test_jobs_of_a_strand_run_one_after_another_whatever_happens_to_them(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.in_order(task="t"))
    ids = [engine.enqueue(strand="booking:42").id for _ in range(4)]
    other = engine.enqueue(strand="booking:43").id
    free = engine.enqueue().id
    found = engine.claim()
    assert {job.id for job in found} == {ids[0], other, free}

    first = next(job for job in found if job.id == ids[0])
    engine.complete("w1", *(job.epoch for job in found if job is not first))
    engine.end(first, "fail", delay="PT60S")  # a retry: the next waits for it all the same
    engine.clock.advance(seconds=59)
    assert engine.claim() == []
    engine.clock.advance(seconds=2)
    (again,) = engine.claim()
    assert (again.id, again.attempt) == (ids[0], 2)

    engine.clock.advance(seconds=61)  # a crash: it is rescued, and still goes first
    engine.rescue()
    (rescued,) = engine.claim()
    assert (rescued.id, rescued.crashes) == (ids[0], 1)
    engine.complete("w1", rescued.epoch)

    (second,) = engine.claim()
    assert second.id == ids[1]
    engine.cancel(ids[2])  # one that waits is cancelled: its place is nobody's
    engine.end(second, "bury")
    (last,) = engine.claim()
    assert last.id == ids[3]


def test_a_strand_is_of_one_organisation_also_where_names_have_slashes(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.in_order(task="t"))
    engine.enqueue(org_id="a", strand="b/c")
    engine.enqueue(org_id="a/b", strand="c")
    assert len(engine.claim()) == 2


def test_concurrent_claimers_keep_the_order(engine: Engine, database: Database, client: ms.Client) -> None:
    engine.conn.execute("update mainspring.clock set at = null")  # real time: what waits for a slot asks again
    client.limits.set(ms.in_order(task="t"))
    order = {engine.enqueue(strand=f"s{n % 5}").id: n for n in range(100)}
    started: dict[str, list[int]] = {}
    lock = threading.Lock()
    left = 100

    def work(number: int) -> None:
        nonlocal left
        with database.connect() as conn:
            mine = Engine(conn)
            deadline = time.monotonic() + 20
            while left and time.monotonic() < deadline:
                for job in mine.claim(f"w{number}", n=3):
                    with lock:
                        started.setdefault(job.strand or "", []).append(order[job.id])
                        left -= 1
                    mine.complete(f"w{number}", job.epoch)

    threads = [threading.Thread(target=work, args=[n]) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert left == 0
    assert all(numbers == sorted(numbers) for numbers in started.values())


# -- several, changes, turns -----------------------------------------------------------------------------------------


@pytest.mark.rule("STAFF-0.03")
def test_a_job_obeys_all_its_limits(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(QUEUE, 6, per="1s"))
    client.limits.set(ms.concurrency(QUEUE, 4))
    client.limits.set(ms.concurrency(task="t", most=1, by="org"))
    client.limits.set(ms.rate(task="t", most=2, per="1s"))
    for n in range(12):
        engine.enqueue(org_id=f"org{n % 6}")
        engine.enqueue("u", org_id=f"org{n % 6}")
    found = engine.claim(tasks=["t", "u"])
    kinds = Counter(job.task for job in found)
    assert kinds["t"] <= 2
    assert 1 <= kinds.total() <= 4
    assert max(Counter(job.org_id for job in found if job.task == "t").values(), default=0) <= 1
    for _ in range(3):
        kinds += Counter(job.task for job in engine.claim(tasks=["t", "u"]))
    assert kinds["t"] <= 2
    assert kinds.total() == 4


@pytest.mark.rule("ENG-25.03")
def test_changing_a_limit_concerns_what_it_put_off(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task="t", most=1, per="1m"))
    fill(engine, 20)
    assert len(engine.claim()) == 1
    assert engine.claim() == []
    client.limits.set(ms.rate(task="t", most=5, per="1m"))
    assert len(engine.claim()) == 4  # one was let in already
    client.limits.drop("rate:t")
    assert len(engine.claim()) == 15
    assert waiting(engine) == 0


def test_raising_a_concurrency_lets_those_in_that_wait(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.concurrency(task="t", most=1))
    fill(engine, 5)
    engine.claim()
    client.limits.set(ms.concurrency(task="t", most=3))
    assert len(engine.claim()) == 2
    client.limits.set(ms.concurrency(task="t", most=1))  # three run: nothing more starts
    assert engine.claim() == []
    assert slots(engine) == 3


def test_a_limit_that_concerns_nobody_changes_nothing(engine: Engine, client: ms.Client) -> None:
    for limit in (ms.rate("elsewhere", 1, per="1s"), ms.concurrency(task="other", most=1), ms.in_order(task="t")):
        client.limits.set(limit)
    client.limits.fair("elsewhere")
    ids = [engine.enqueue().id for _ in range(50)]
    found = engine.claim()
    assert [job.id for job in found] == ids
    engine.complete("w1", *(job.epoch for job in found))
    assert slots(engine) == 0


@pytest.mark.rule("ENG-11.07")
def test_one_organisations_flood_does_not_keep_the_others_waiting(engine: Engine, client: ms.Client) -> None:
    client.limits.fair(QUEUE)
    for _ in range(10):
        fill(engine, 1000, org_id="flood")
    single = engine.enqueue(org_id="small").id
    assert single in {job.id for job in engine.claim(n=10)}


@pytest.mark.rule("ENG-11.07", "ENG-25.04")
def test_one_organisation_may_be_held_to_so_many_at_once(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.concurrency(QUEUE, 5, by="org"))
    fill(engine, 500, org_id="flood")
    single = engine.enqueue(org_id="small").id
    seen = Counter[str]()
    for _ in range(10):
        found = engine.claim(n=60)
        seen.update(job.org_id for job in found)
        if single in {job.id for job in found}:
            break
    assert seen == {"flood": 5, "small": 1}


def test_weights_share_a_fair_queue(engine: Engine, client: ms.Client) -> None:
    client.limits.fair(QUEUE, weights={"acme": 3})
    for org in ("acme", "beta", "gamma"):
        fill(engine, 200, org_id=org)
    found = Counter(job.org_id for job in engine.claim(n=50))
    assert found == {"acme": 30, "beta": 10, "gamma": 10}


def test_the_clock_set_back_exceeds_nothing_and_stops_nothing_for_long(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(QUEUE, 5, per="1s"))
    fill(engine, 20)
    assert len(engine.claim()) == 5
    engine.clock.set(NOON - timedelta(hours=1))
    engine.conn.execute("update mainspring.waiting set due_at = mainspring.now()")
    engine.claim()
    engine.clock.advance(seconds=1.1)
    assert len(engine.claim()) <= 5
    engine.clock.advance(seconds=1.1)
    assert len(engine.claim()) == 5
