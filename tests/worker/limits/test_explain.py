"""`job explain` under limits: it says which one holds a job, and agrees with what the claim does."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from tests.cli.test_explain import blocked, join
from tests.db.engine import Engine

import mainspring as ms

QUEUE = "q:default"


@pytest.fixture(autouse=True)
def worker(engine: Engine) -> None:
    join(engine, "w1", queues="{q:default}", tasks="{t,u}")


def test_a_full_rate_says_when_the_next_start_is_expected(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(QUEUE, 2, per="1s", name="weekly-payments"))
    jobs = [engine.enqueue().id for _ in range(3)]
    engine.claim()
    found = client.explain(jobs[2])
    assert blocked(found) == ["limit weekly-payments"]
    verdict = "The limit weekly-payments (2 per 1 s) has let in its 2; the next start is expected "
    assert found.verdict.startswith(verdict)


def test_a_job_that_a_rate_put_off_is_expected_at_its_instant(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task="t", most=1, per="1m"))
    jobs = [engine.enqueue().id for _ in range(2)]
    engine.claim()
    found = client.explain(jobs[1])
    assert blocked(found) == ["limit rate:t"]
    assert "has let in its 1; it is expected in 1 min" in found.verdict
    assert "at 2026-03-02 12:0" in found.verdict


def test_a_full_concurrency_says_how_many_run(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.concurrency(task="t", most=2, by="org", name="exports"))
    jobs = [engine.enqueue(org_id="acme").id for _ in range(3)]
    engine.claim()
    found = client.explain(jobs[2])
    assert blocked(found) == ["limit exports"]
    assert "The limit exports by organisation (2 at once) is full: it waits behind 2 that run" in found.verdict


def test_order_says_which_job_goes_first(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.in_order(task="t"))
    jobs = [engine.enqueue(strand="booking:42").id for _ in range(2)]
    assert f"waits for job {jobs[0]} of strand booking:42" in client.explain(jobs[1]).verdict
    (first,) = engine.claim()
    assert f"in order: it waits for job {jobs[0]}" in client.explain(jobs[1]).verdict.lower()
    engine.end(first, "fail", delay="PT1H")  # its place stays its own
    found = client.explain(jobs[1])
    assert f"waits for job {jobs[0]}" in found.verdict
    assert blocked(client.explain(jobs[0])) == ["due"]


def test_a_fair_queue_counts_only_what_is_ahead_in_the_organisation(engine: Engine, client: ms.Client) -> None:
    client.limits.fair(QUEUE)
    engine.enqueue_many([{"org_id": "flood"}] * 50)
    job = engine.enqueue(org_id="small").id
    found = client.explain(job)
    (turn,) = [check.detail for check in found.checks if check.name == "turn"]
    assert "0 ready jobs of q:default ahead of it; organisations take turns" in turn
    assert found.verdict == "Nothing holds it: the next claim of a worker with a free slot takes it."


def test_what_a_claim_takes_was_called_claimable(engine: Engine, client: ms.Client) -> None:
    """Not the other way round: of several for which there is room, one may take the last of it."""
    chance, seen = random.Random(7), Counter[str]()
    every: list[Any] = [
        ms.rate(QUEUE, 3, per="1s"),
        ms.rate(task="t", most=2, per="1s", by="org"),
        ms.concurrency(QUEUE, 4),
        ms.concurrency(task="u", most=1, by="strand"),
        ms.in_order(task="t"),
    ]
    rounds = 0
    while (rounds := rounds + 1) <= 12 or len(seen) < 5:  # which of its reasons it meets is chance
        limits = chance.sample(every, 2)
        for limit in limits:
            client.limits.set(limit)
        for _ in range(8):
            engine.enqueue(
                chance.choice("tu"), org_id=chance.choice(["a", "b"]), strand=chance.choice(["x", "y", None])
            )
        engine.claim(n=chance.randint(1, 4), tasks=["t", "u"])
        for (job,) in engine.rows("select id from mainspring.waiting order by due_at, id"):
            said = client.explain(job)
            with engine.conn.transaction(force_rollback=True):
                taken = {claim.id for claim in engine.claim(n=100, tasks=["t", "u"])}
            seen["taken" if job in taken else blocked(said)[0] if blocked(said) else "after others"] += 1
            assert said.claimable or job not in taken, said.verdict
        engine.clock.advance(seconds=chance.choice([0.2, 1.5, 61]))
        engine.rescue()
        engine.conn.execute("update mainspring.worker set seen_at = mainspring.now()")
        for limit in limits:
            client.limits.drop(limit.name)
        engine.clear()
        engine.conn.execute("truncate mainspring.slot, mainspring.bucket")
