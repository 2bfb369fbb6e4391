"""Batches: counted when somebody looks, finished once, retried in part, stopped, cancelled, pruned."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

import mainspring as ms
from mainspring.declare.task import Task
from mainspring.errors import BatchNotFound, TransitionRefused
from mainspring.testing import Harness
from mainspring.together.batch import Batch, NewBatch
from mainspring.uuid7 import uuid7


class Shop:
    """Tasks whose jobs end as the test says, and what they saw."""

    def __init__(self, tasks: ms.Registry) -> None:
        self.bad: set[int] = set()
        self.ran: list[int] = []
        self.finished: list[Batch] = []

        @tasks.task(retry=ms.fixed(0, attempts=2))
        async def load(*, n: int) -> int:
            self.ran.append(n)
            if n in self.bad:
                raise ms.Permanent(f"row {n} is bad") if n % 2 else RuntimeError(f"row {n} is bad")
            return 10 * n

        @tasks.task
        async def tell(ctx: ms.Context, *, what: str = "all") -> None:
            batch = await ctx.batch()
            assert batch is not None
            self.finished.append(batch)

        self.load: Task[Any, Any] = load
        self.tell: Task[Any, Any] = tell

    def batch(self, count: int, **options: Any) -> NewBatch:
        jobs = [self.load.job(n=n) for n in range(count)]
        return ms.batch("load", jobs, **{"on_finish": self.tell.job()} | options)


@pytest.fixture
def shop(tasks: ms.Registry) -> Shop:
    return Shop(tasks)


def counts(batch: Batch) -> dict[str, int]:
    names = ("succeeded", "failed", "dead", "cancelled", "running", "waiting")
    return {name: getattr(batch, name) for name in names if getattr(batch, name)}


def test_a_batch_counts_its_jobs_and_its_on_finish_job_runs_once_after_the_last(
    mainspring: Harness, shop: Shop
) -> None:
    shop.bad = {3, 4}
    batch, client = shop.batch(6), mainspring.client
    answers = client.enqueue(batch).jobs
    assert [answer.state for answer in answers] == ["ready"] * 6

    before = client.batches.get(batch.id)
    assert (before.name, before.state, before.total, counts(before)) == ("load", "running", 6, {"waiting": 6})
    mainspring.run_one(answers[0].id)
    running = mainspring.crash(answers[1].id)
    half = client.batches.get(batch.id)
    assert (counts(half), round(half.percent)) == ({"succeeded": 1, "running": 1, "waiting": 4}, 17)
    assert running.state == "running"

    mainspring.drain(raise_errors=False)
    assert shop.finished == []  # one still runs
    mainspring.expire_leases()
    mainspring.drain(raise_errors=False)

    after = client.batches.get(batch.id)
    assert (after.state, counts(after), after.percent) == ("finished", {"succeeded": 4, "failed": 1, "dead": 1}, 100.0)
    assert [counts(seen) for seen in shop.finished] == [counts(after)]
    assert {job.result for job in client.batches.members(batch.id, state="succeeded")} == {0, 10, 20, 50}


@pytest.mark.parametrize("options", [{}, {"open": True}])
def test_an_empty_batch_finishes_when_nothing_more_is_added(
    mainspring: Harness, shop: Shop, options: dict[str, bool]
) -> None:
    batch = shop.batch(0, **options)
    mainspring.client.enqueue(batch)
    if options:
        mainspring.drain()
        assert (mainspring.client.batches.get(batch.id).state, shop.finished) == ("open", [])
        mainspring.client.batches.close(batch.id)
    mainspring.drain()
    assert (mainspring.client.batches.get(batch.id).state, len(shop.finished)) == ("finished", 1)


def test_an_open_batch_takes_more_and_a_finished_one_does_not(mainspring: Harness, shop: Shop) -> None:
    batch, client = shop.batch(1, open=True), mainspring.client
    client.enqueue(batch)
    mainspring.drain()
    client.batches.add(batch.id, [shop.load.job(n=1), shop.load.job(n=2)])
    client.batches.close(batch.id)
    mainspring.drain()

    assert counts(shop.finished[0]) == {"succeeded": 3}
    with pytest.raises(ms.ValidationError, match="batch: has finished"):
        client.batches.add(batch.id, [shop.load.job(n=3)])
    with pytest.raises(ms.ValidationError, match="batch: does not exist"):
        client.batches.add(uuid7(), [shop.load.job(n=3)])
    assert shop.ran == [0, 1, 2]


def test_a_member_adds_members_and_the_batch_waits_for_them(
    mainspring: Harness, tasks: ms.Registry, shop: Shop
) -> None:
    @tasks.task
    async def fan_out(ctx: ms.Context, *, width: int) -> None:
        await ctx.add(*(shop.load.job(n=n) for n in range(width)))

    @tasks.task
    def fan_out_in_a_thread(ctx: ms.SyncContext, *, width: int) -> None:
        ctx.add(*(shop.load.job(n=n) for n in range(10, 10 + width)))

    batch = ms.batch("fan", [fan_out.job(width=3), fan_out_in_a_thread.job(width=2)], on_finish=shop.tell.job())
    mainspring.client.enqueue(batch)
    mainspring.drain()
    assert [counts(seen) for seen in shop.finished] == [{"succeeded": 7}]
    mainspring.run_one(fan_out.job(width=1))  # without a batch they are follow-ups like any
    assert mainspring.client.batches.get(batch.id).total == 7


def test_a_handler_begins_a_batch_with_its_success(mainspring: Harness, tasks: ms.Registry, shop: Shop) -> None:
    @tasks.task(retry=ms.fixed(0, attempts=2))
    async def begin(ctx: ms.Context) -> None:
        await ctx.enqueue(shop.batch(2))
        if ctx.attempt == 1:
            raise RuntimeError("not this time")

    mainspring.client.enqueue(begin.job())
    mainspring.drain(raise_errors=False)
    assert ([counts(seen) for seen in shop.finished], shop.ran) == ([{"succeeded": 2}], [0, 1])


def test_retry_failed_replays_only_what_failed_and_the_on_finish_job_runs_again(
    mainspring: Harness, shop: Shop
) -> None:
    shop.bad = {1, 2}
    batch, client = shop.batch(5), mainspring.client
    client.enqueue(batch)
    mainspring.drain(raise_errors=False)
    shop.ran.clear()
    shop.bad = {2}

    assert client.batches.retry_failed(batch.id, reason="the supplier is back") == 2
    assert client.batches.get(batch.id).state == "running"
    mainspring.drain(raise_errors=False)
    assert sorted(shop.ran) == [1, 2, 2]
    assert [counts(seen) for seen in shop.finished] == [
        {"succeeded": 3, "failed": 1, "dead": 1},
        {"succeeded": 4, "dead": 1},
    ]
    (dead,) = client.batches.members(batch.id, state="dead")
    client.dead.discard(dead.id, reason="not needed")
    assert client.batches.retry_failed(batch.id, reason="again") == 0  # somebody has decided about it
    assert client.batches.get(batch.id).state == "finished"
    events = [event.event for event in client.audit.events() if event.event.startswith("batch.")]
    assert sorted(events) == ["batch.finished", "batch.finished", "batch.retried"]


def test_a_member_that_is_replayed_or_fixed_by_hand_reopens_its_batch(mainspring: Harness, shop: Shop) -> None:
    shop.bad = {1, 3}
    batch, client = shop.batch(4), mainspring.client
    answers = client.enqueue(batch).jobs
    mainspring.drain(raise_errors=False)
    shop.bad = {3}

    client.replay(answers[1].id, reason="mended")
    assert counts(client.batches.get(batch.id)) == {"succeeded": 2, "failed": 1, "waiting": 1}
    mainspring.drain(raise_errors=False)
    client.dead.fix(answers[3].id, set={"n": 5}, reason="a typo")
    mainspring.drain(raise_errors=False)
    assert [seen.succeeded for seen in shop.finished] == [2, 3, 4]
    assert client.batches.get(batch.id).total == 4


def test_an_on_finish_job_that_has_not_started_waits_again_when_its_batch_is_reopened(
    mainspring: Harness, shop: Shop
) -> None:
    shop.bad = {1}
    batch, client = shop.batch(2), mainspring.client
    answers = client.enqueue(batch).jobs
    for answer in answers:
        mainspring.run_one(answer.id, raise_errors=False)
    assert client.batches.get(batch.id).state == "finished"
    shop.bad = set()
    client.replay(answers[1].id, reason="at once")
    mainspring.drain()
    assert [counts(seen) for seen in shop.finished] == [{"succeeded": 2}]


def test_a_batch_that_stops_cancels_what_has_not_started_at_the_first_failure(mainspring: Harness, shop: Shop) -> None:
    shop.bad = {1}
    batch, client = shop.batch(5, on_failure="stop"), mainspring.client
    answers = client.enqueue(batch).jobs
    mainspring.drain(raise_errors=False)

    assert shop.ran == [0, 1]
    assert [counts(seen) for seen in shop.finished] == [{"succeeded": 1, "failed": 1, "cancelled": 3}]
    error = client.get(answers[4].id).error
    assert error is not None
    assert error["message"] == f"Job {answers[1].id} of its batch is failed."
    with pytest.raises(ms.ValidationError, match="batch: has finished"):
        client.batches.add(batch.id, [shop.load.job(n=9)])


def test_cancelling_a_batch_cancels_what_waits_and_asks_what_runs_to_stop(mainspring: Harness, shop: Shop) -> None:
    batch, client = shop.batch(4, open=True), mainspring.client
    answers = client.enqueue(batch).jobs
    mainspring.crash(answers[0].id)
    client.batches.cancel(batch.id, reason="wrong file")

    found = client.batches.get(batch.id)
    assert (found.state, found.stop_reason, counts(found)) == ("stopping", "wrong file", {"cancelled": 3, "running": 1})
    assert client.get(answers[0].id).cancel_requested_at is not None
    with pytest.raises(ms.ValidationError, match="batch: was stopped"):
        client.batches.add(batch.id, [shop.load.job(n=9)])
    mainspring.expire_leases()
    mainspring.drain()
    assert [counts(seen) for seen in shop.finished] == [{"cancelled": 4}]
    with pytest.raises(TransitionRefused, match="has finished"):
        client.batches.cancel(batch.id)
    (event,) = [event for event in client.audit.events() if event.event == "batch.cancelled"]
    assert (event.detail["reason"], event.detail["before"]) == ("wrong file", {"state": "open"})


def test_a_member_that_goes_back_to_the_queue_of_a_stopped_batch_is_cancelled_there(
    mainspring: Harness, tasks: ms.Registry, shop: Shop
) -> None:
    @tasks.task(cancellable=False, retry=ms.fixed(0, attempts=5))
    async def stubborn() -> None:
        mainspring.client.batches.cancel(batch.id, reason="enough")
        raise RuntimeError("no answer")

    batch = ms.batch("stubborn", [stubborn.job()], on_finish=shop.tell.job())
    mainspring.client.enqueue(batch)
    mainspring.drain(raise_errors=False)
    assert [counts(seen) for seen in shop.finished] == [{"cancelled": 1}]


def test_jobs_that_exist_already_join_as_they_stand(mainspring: Harness, shop: Shop) -> None:
    client = mainspring.client
    done, waits, runs = (client.enqueue(shop.load.job(n=n).with_key(f"row:{n}", "keep")).id for n in range(3))
    mainspring.run_one(done)
    mainspring.crash(runs)

    jobs = [shop.load.job(n=n).with_key(f"row:{n}", "keep") for n in (0, 1, 2, 3, 3)]
    batch = ms.batch("again", jobs, on_finish=shop.tell.job())
    answers = client.enqueue(batch).jobs
    assert [(answer.id, answer.answer) for answer in answers[:3]] == [(i, "existing") for i in (done, waits, runs)]
    assert counts(client.batches.get(batch.id)) == {"succeeded": 1, "waiting": 2, "running": 1}
    mainspring.drain()
    assert shop.finished == []
    mainspring.expire_leases()
    mainspring.drain()  # it was not linked when it started: a sweep has to see its end
    mainspring.drain()
    assert [counts(seen) for seen in shop.finished] == [{"succeeded": 4}]


def test_members_keep_their_ends_when_their_jobs_are_pruned_and_go_with_their_batch(
    mainspring: Harness, shop: Shop
) -> None:
    shop.bad = {1}
    batch, client = shop.batch(3), mainspring.client
    client.enqueue(batch)
    mainspring.drain(raise_errors=False)
    mainspring.advance(days=2)

    client.prune(["succeeded"], timedelta(days=1))
    assert counts(client.batches.get(batch.id)) == {"succeeded": 2, "failed": 1}
    (failed,) = client.batches.members(batch.id)
    client.dead.discard(failed.id, reason="not needed")
    client.prune(["failed"], timedelta(days=1))
    with pytest.raises(BatchNotFound):
        client.batches.get(batch.id)
    rows = mainspring.conn.execute("select (select count(*) from mainspring.member), count(*) from mainspring.batch")
    assert rows.fetchone() == (0, 0)


def test_more_jobs_than_one_statement_takes_are_one_batch(mainspring: Harness, shop: Shop) -> None:
    batch = shop.batch(2500, on_finish=None)
    assert len(mainspring.client.enqueue(batch).jobs) == 2500
    found = mainspring.client.batches.get(batch.id)
    assert (found.total, found.state) == (2500, "running")


def test_a_batch_is_written_whole_in_the_callers_transaction_or_not_at_all(mainspring: Harness, shop: Shop) -> None:
    batch, conn = shop.batch(3), mainspring.conn
    with conn.transaction(force_rollback=True):
        mainspring.client.enqueue(batch, conn=conn)
        assert mainspring.client.batches.get(batch.id, conn=conn).total == 3
    with pytest.raises(BatchNotFound, match=str(batch.id)):
        mainspring.client.batches.get(batch.id)
    mainspring.client.enqueue(batch, conn=conn)  # each statement commits by itself there
    with pytest.raises(ms.ValidationError, match="batch: exists already"):
        mainspring.client.enqueue(batch)
    mainspring.drain()
    assert (shop.ran, len(shop.finished)) == ([0, 1, 2], 1)


def test_jobs_of_two_organisations_are_no_batch(mainspring: Harness, shop: Shop) -> None:
    jobs = [shop.load.job(n=1).for_org("a"), shop.load.job(n=2).for_org("b")]
    with pytest.raises(ms.ValidationError, match="org_id: is not the same for all jobs"):
        mainspring.client.enqueue(ms.batch("mixed", jobs))
    batch = ms.batch("of a", jobs[:1])
    mainspring.client.enqueue(batch)
    with pytest.raises(BatchNotFound):
        mainspring.client.batches.get(batch.id, org="b")
    with pytest.raises(ms.ValidationError, match="batch: does not exist"):
        mainspring.client.batches.add(batch.id, jobs[1:])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"name": " "}, "name: is empty"),
        ({"on_failure": "keep-going"}, "on_failure: is not keep_going or stop (did you mean 'keep_going'?)"),
        ({"jobs": [7]}, "jobs: int is no job"),
        ({"on_finish": "tell"}, "jobs: str is no job"),
    ],
)
def test_a_wrong_batch_says_which_field_is_wrong(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ms.ValidationError) as raised:
        ms.batch(**{"name": "load"} | wrong)
    assert message in str(raised.value)


def test_batches_are_listed_by_page_and_by_state(mainspring: Harness, shop: Shop) -> None:
    made = [shop.batch(1, on_finish=None) for _ in range(3)]
    for batch in made:
        mainspring.client.enqueue(batch)
    mainspring.run_one(shop.load)
    listing = mainspring.client.batches.list
    newest_first: list[UUID] = [batch.id for batch in reversed(made)]
    assert [found.id for found in listing()] == newest_first
    assert [found.id for found in listing(limit=1, before=newest_first[0])] == newest_first[1:2]
    assert [found.id for found in listing(state="finished")] == [made[0].id]
    with pytest.raises(ms.ValidationError, match="state: is not one of open, running, stopping, finished"):
        listing(state="done")
