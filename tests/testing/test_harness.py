"""The verbs of the fixture `mainspring`."""

from __future__ import annotations

import asyncio
import threading
import time
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from mainspring import App, Cipher, Context, Permanent, Registry, Snooze, SyncContext, fixed
from mainspring.errors import ConfigurationError, JobError
from mainspring.outcome import Cancelled
from mainspring.testing import Crash, Harness
from mainspring.testing.working import Working
from mainspring.virtual.tasks import DeclaredTasks

# -- time -------------------------------------------------------------------------------------------------------------


def test_time_stands_still_until_it_is_moved(mainspring: Harness) -> None:
    before = mainspring.now()

    assert mainspring.now() == before
    assert mainspring.client.now() == before
    mainspring.advance(timedelta(hours=1), raise_errors=False)
    assert mainspring.now() == before + timedelta(hours=1)
    mainspring.advance(to=before + timedelta(days=1))
    assert mainspring.now() == before + timedelta(days=1)
    with pytest.raises(ValueError, match="does not go back"):
        mainspring.advance(to=before)


@pytest.mark.rule("ENG-29.02")
def test_each_job_runs_at_its_own_instant_and_in_that_order(mainspring: Harness, tasks: Registry) -> None:
    ran: list[tuple[str, timedelta]] = []
    began = mainspring.now()

    @tasks.task
    async def tick(*, name: str) -> None:
        ran.append((name, mainspring.now() - began))

    @tasks.task
    def chain(ctx: SyncContext, *, left: int) -> None:
        ran.append((f"chain {left}", mainspring.now() - began))
        if left:
            ctx.enqueue(chain.job(left=left - 1).after(timedelta(minutes=20)))

    for name, minutes in (("c", 50), ("a", 10), ("never", 61), ("b", 30), ("now", 0)):
        mainspring.client.enqueue(tick.job(name=name).after(timedelta(minutes=minutes)))
    mainspring.client.enqueue(chain.job(left=2).after(timedelta(minutes=5)))

    done = mainspring.advance(hours=1)

    expected = [("now", 0), ("chain 2", 5), ("a", 10), ("chain 1", 25), ("b", 30), ("chain 0", 45), ("c", 50)]
    assert ran == [(name, timedelta(minutes=n)) for name, n in expected]
    assert [run.at - began for run in done] == [timedelta(minutes=n) for _, n in expected]
    assert mainspring.now() == began + timedelta(hours=1)


def test_a_day_of_minutely_snoozes_passes(mainspring: Harness, tasks: Registry) -> None:
    seen: list[datetime] = []

    @tasks.task
    async def poll(ctx: Context) -> None:
        seen.append(mainspring.now())
        raise Snooze(60)

    mainspring.client.enqueue(poll.job())
    began = mainspring.now()
    mainspring.advance(hours=1)

    assert seen == [began + timedelta(minutes=n) for n in range(61)]


# -- running ----------------------------------------------------------------------------------------------------------


def test_draining_says_what_ran_and_how_it_ended(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def parent(ctx: Context) -> str:
        await ctx.enqueue(child.job())
        return "done"

    @tasks.task
    def child() -> None: ...

    assert not mainspring.drain()
    job = mainspring.client.enqueue(parent.job())
    done = mainspring.drain()

    assert [(run.task, run.state, run.attempt, run.result) for run in done] == [
        ("parent", "succeeded", 1, "done"),
        ("child", "succeeded", 1, None),
    ]
    assert done.counts == {"succeeded": 2}
    assert done.jobs[0].id == job.id
    assert mainspring.client.result(job.id) == "done"


def test_a_handler_that_raises_fails_the_test_after_its_attempt_is_recorded(
    mainspring: Harness, tasks: Registry
) -> None:
    @tasks.task(retry=fixed(60, attempts=2))
    def broken() -> None:
        raise LookupError("no such order")

    job = mainspring.client.enqueue(broken.job())
    with pytest.raises(LookupError, match="no such order") as caught:
        mainspring.drain()

    assert any("broken" in note and "retrying" in note for note in caught.value.__notes__)
    assert caught.traceback[-1].name == "broken"
    assert mainspring.client.get(job.id).state == "retrying"
    (run,) = mainspring.advance(minutes=1, raise_errors=False)
    assert (run.state, run.attempt, type(run.error)) == ("dead", 2, LookupError)


@pytest.mark.parametrize(
    ("error", "state", "raises"),
    [
        (Permanent("closed"), "failed", Permanent),
        (Snooze(5), "scheduled", None),
        (Cancelled(), "cancelled", None),
        (TimeoutError(), "retrying", TimeoutError),
    ],
)
def test_only_what_is_no_failure_passes_silently(
    mainspring: Harness, tasks: Registry, error: Exception, state: str, raises: type[Exception] | None
) -> None:
    @tasks.task
    async def work() -> None:
        raise error

    job = mainspring.client.enqueue(work.job())
    caught: type[BaseException] | None = None
    try:
        mainspring.drain()
    except Exception as problem:
        caught = type(problem)

    assert caught is raises
    assert mainspring.client.get(job.id).state == state


def test_an_attempt_that_takes_too_long_fails_the_test(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task(timeout=timedelta(milliseconds=20))
    async def slow() -> None:
        await asyncio.Event().wait()

    job = mainspring.client.enqueue(slow.job())
    with pytest.raises(JobError, match="TIMEOUT"):
        mainspring.drain()

    assert mainspring.client.get(job.id).state == "retrying"


def test_an_error_after_the_job_s_own_commit_fails_the_test(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            pass
        raise KeyError("too late")

    job = mainspring.client.enqueue(work.job())
    with pytest.raises(KeyError, match="too late"):
        mainspring.drain()

    assert mainspring.client.get(job.id).state == "succeeded"


def test_a_job_that_enqueues_itself_for_ever_is_noticed(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def again(ctx: Context) -> None:
        await ctx.enqueue(again.job())

    mainspring.client.enqueue(again.job())
    with pytest.raises(AssertionError, match=r"20 jobs ran and more are due.*again"):
        mainspring.drain(limit=20)


def test_one_queue_can_be_drained_alone_and_a_paused_one_is_left(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    for queue in ("q:default", "q:exports", "q:notifications"):
        mainspring.client.enqueue(work.job().on_queue(queue))
    mainspring.client.pause("q:notifications")

    assert [run.job.queue for run in mainspring.drain(queue="q:exports")] == ["q:exports"]
    assert [run.job.queue for run in mainspring.drain()] == ["q:default"]


def test_one_job_runs_and_the_others_wait(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def double(*, n: int) -> int:
        return 2 * n

    jobs = [mainspring.client.enqueue(double.job(n=n)) for n in range(3)]

    assert mainspring.run_one(jobs[1]).result == 2
    assert mainspring.run_one(double.job(n=10)).result == 20
    assert mainspring.run_one(double).result == 0
    assert mainspring.run_one(jobs[2].id).result == 4
    with pytest.raises(AssertionError, match="no job of double is due"):
        mainspring.run_one(double)


def test_a_job_that_cannot_run_now_says_why(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    later = mainspring.client.enqueue(work.job().after(60))
    with pytest.raises(AssertionError, match=r"cannot be claimed: it is scheduled, due .*; it is "):
        mainspring.run_one(later)
    mainspring.advance(minutes=1)
    with pytest.raises(AssertionError, match="it is succeeded"):
        mainspring.run_one(later)


def test_a_cancelled_job_sees_it_between_its_steps(mainspring: Harness, tasks: Registry) -> None:
    steps: list[int] = []

    @tasks.task
    async def work(ctx: Context) -> None:
        for step in range(3):
            ctx.check()
            steps.append(step)
            if step == 1:
                mainspring.client.cancel(ctx.job.id)

    ran = mainspring.run_one(work.job())

    assert (steps, ran.state) == ([0, 1], "cancelled")


def test_authorize_and_queues_of_the_application_hold(mainspring: Harness, tasks: Registry) -> None:
    from mainspring import WorkerConfig

    @tasks.task
    async def work() -> None: ...

    app = App(tasks, authorize=lambda job: "not yours" if job.org_id == "evil" else None)
    app.config = WorkerConfig(queues={"q:own": 1})
    with Harness(mainspring.dsn, app) as harness:
        assert harness.run_one(work.job().for_org("evil"), raise_errors=False).state == "failed"
        harness.client.enqueue(work.job().on_queue("q:own"))
        assert [run.job.queue for run in harness.drain()] == ["q:own"]


def test_handlers_transactions_are_real_ones(mainspring: Harness, tasks: Registry) -> None:
    mainspring.conn.execute("create table ledger (note text)")

    @tasks.task
    async def modern(ctx: Context) -> None:
        async with ctx.complete() as tx:
            await tx.execute("insert into ledger values ('async')")

    @tasks.task
    def plain(ctx: SyncContext) -> None:
        with ctx.complete() as tx:
            tx.execute("insert into ledger values ('plain')")

    @tasks.task
    async def undone(ctx: Context) -> None:
        async with ctx.complete() as tx:
            await tx.execute("insert into ledger values ('never')")
            raise Permanent("no")

    for task in (modern, plain, undone):
        mainspring.client.enqueue(task.job())
    mainspring.drain(raise_errors=False)

    with psycopg.connect(mainspring.dsn) as other:
        assert other.execute("select note from ledger order by 1").fetchall() == [("async",), ("plain",)]


def test_jobs_of_an_open_transaction_are_not_drained_from_under_it(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    with mainspring.conn.transaction():
        mainspring.client.enqueue(work.job(), conn=mainspring.conn)
        with pytest.raises(RuntimeError, match=r"leave the transaction of mainspring\.conn"):
            mainspring.drain()
    assert len(mainspring.drain()) == 1


def test_draining_a_few_jobs_costs_milliseconds(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            pass

    def once() -> float:
        mainspring.client.enqueue_many([work.job() for _ in range(5)])
        start = time.process_time()  # of ours, however busy the machine is
        assert len(mainspring.drain()) == 5
        return time.process_time() - start

    assert min(once() for _ in range(5)) < 0.25, "a tenth of that on a quiet machine"


# -- crashes and leases -----------------------------------------------------------------------------------------------


def test_a_crash_inside_of_a_handler_leaves_the_lease_and_nothing_else(mainspring: Harness, tasks: Registry) -> None:
    mainspring.conn.execute("create table ledger (attempt int)")

    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete() as tx:
            await tx.execute("insert into ledger values (%s)", [ctx.attempt])
            if ctx.attempt == 1:
                raise Crash

    job = mainspring.client.enqueue(work.job())
    (run,) = mainspring.drain()
    assert run.state == "running"
    assert not mainspring.drain()

    assert [found.id for found in mainspring.expire_leases()] == [job.id]
    (run,) = mainspring.drain()

    assert (run.state, run.attempt, run.job.crashes) == ("succeeded", 2, 1)
    assert mainspring.conn.execute("select * from ledger").fetchall() == [(2,)]


def test_three_crashes_bury_a_job(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    def killer() -> None:
        raise Crash

    job = mainspring.client.enqueue(killer.job())
    began = mainspring.now()
    done = mainspring.advance(hours=1)

    assert [run.at - began for run in done] == [timedelta(minutes=n) for n in range(3)]
    assert mainspring.client.get(job.id).state == "dead"


def test_a_job_held_by_a_dead_worker_is_rescued_when_its_lease_ends(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    held = mainspring.crash(work.job())
    assert held.state == "running"
    assert not mainspring.advance(seconds=59)
    assert [run.state for run in mainspring.advance(seconds=1)] == ["succeeded"]


# -- both colours -----------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_async_twins_run_in_the_test_s_own_loop(mainspring: Harness, tasks: Registry) -> None:
    loops: set[Any] = set()

    @tasks.task
    async def work() -> str:
        loops.add(asyncio.get_running_loop())
        return "done"

    @tasks.task
    def plain() -> threading.Thread | None:
        loops.add(threading.current_thread())
        return None

    mainspring.client.enqueue(work.job())
    mainspring.client.enqueue(work.job().after(60))
    assert (await mainspring.adrain()).counts == {"succeeded": 1}
    assert len(await mainspring.aadvance(minutes=1)) == 1
    assert (await mainspring.arun_one(work.job())).result == "done"
    assert loops == {asyncio.get_running_loop()}
    await mainspring.arun_one(plain.job())
    assert threading.current_thread() not in loops, "a plain function does not block the loop"


@pytest.mark.anyio
async def test_sync_verbs_work_inside_of_an_async_test(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    mainspring.client.enqueue(work.job())

    assert mainspring.drain().counts == {"succeeded": 1}


# -- a worker in the background ---------------------------------------------------------------------------------------


def test_a_real_worker_is_waited_for_by_its_events(mainspring: Harness, tasks: Registry) -> None:
    go = threading.Event()

    @tasks.task
    def work() -> str:
        assert go.wait(60)
        return "done"

    with mainspring.working():
        job = mainspring.client.enqueue(work.job())
        started = mainspring.wait_for("job.started", job_id=job.id)
        assert started.name == "job.started"
        with pytest.raises(AssertionError, match=r"no event job\.succeeded of task work: not within 0\.01 s.*started"):
            mainspring.wait_for("job.succeeded", task=work, timeout=0.01)
        go.set()
        mainspring.wait_for("job.succeeded", job_id=job.id)
        assert mainspring.client.result(job.id) == "done"
    with pytest.raises(RuntimeError, match="nobody works"):
        mainspring.wait_for("job.succeeded")


@pytest.mark.anyio
async def test_a_timer_of_hours_runs_in_a_real_worker_too(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    with mainspring.working(concurrency=2):
        job = mainspring.client.enqueue(work.job().after(timedelta(hours=4)))
        mainspring.advance(hours=4)
        await mainspring.await_for("job.succeeded", job_id=job.id)

    assert mainspring.client.get(job.id).finished_at == mainspring.now()


def test_a_worker_that_cannot_start_says_why(mainspring: Harness) -> None:
    mainspring.conn.execute("delete from mainspring.migration")

    with pytest.raises(AssertionError, match=r"the worker has ended.*schema"), mainspring.working():
        pass


# -- looking ----------------------------------------------------------------------------------------------------------


def test_a_worker_whose_database_does_not_come_is_given_up_and_leaves_no_thread(
    tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def impatient(*_: Any, **__: Any) -> Any:
        raise AssertionError("no event worker.started: not within 0 s")

    monkeypatch.setattr(Working, "wait_for", impatient)
    working = Working("host=/nowhere dbname=nothing", DeclaredTasks(tasks), {})
    with pytest.raises(AssertionError, match="not within"), working:
        pass

    assert working._thread.ident is not None
    assert not working._thread.is_alive()


def test_what_waits_is_found_by_everything_that_is_said_of_it(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def ship(*, order: dict[str, int], day: datetime) -> None: ...

    day = datetime(2030, 1, 31, tzinfo=UTC)
    wanted = ship.job(order={"id": 7, "items": 2}, day=day).after(3600).with_key("ship:7").for_org("acme")
    job = mainspring.client.enqueue(wanted.on_queue("q:exports"))

    found = mainspring.assert_enqueued(
        ship,
        payload={"order": {"id": 7}, "day": day},
        queue="q:exports",
        at=timedelta(hours=1),
        key="ship:7",
        org="acme",
        count=1,
    )
    assert found.id == job.id
    mainspring.assert_enqueued("ship", at=mainspring.now() + timedelta(minutes=61), within=timedelta(minutes=1))
    mainspring.refute_enqueued(ship, at=timedelta(minutes=61))
    mainspring.refute_enqueued(ship, payload={"order": {"id": 8}})
    mainspring.refute_enqueued("other")
    assert [found.id for found in mainspring.jobs(ship, state="scheduled", queue="q:exports")] == [job.id]


def test_a_job_that_ran_or_was_cancelled_does_not_wait(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def ship() -> None: ...

    mainspring.run_one(ship.job())
    mainspring.client.cancel(mainspring.client.enqueue(ship.job().after(60)).id)

    mainspring.refute_enqueued(ship)
    with pytest.raises(AssertionError, match=r"is succeeded, and does not wait"):
        mainspring.assert_enqueued(ship)


def test_a_missing_job_is_reported_with_its_nearest(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def ship(*, order: int) -> None: ...

    @tasks.task
    async def bill(*, order: int) -> None: ...

    with pytest.raises(AssertionError, match=r"no job waits: ship with payload .*\nthere are no jobs at all"):
        mainspring.assert_enqueued(ship, payload={"order": 7})
    mainspring.client.enqueue_many([bill.job(order=7), ship.job(order=8), ship.job(order=9)])

    with pytest.raises(AssertionError) as caught:
        mainspring.assert_enqueued(ship, payload={"order": 7, "gift": True}, queue="q:exports")
    lines = str(caught.value).splitlines()
    assert lines[0] == "no job waits: ship with payload {'order': 7, 'gift': True}, queue q:exports"
    assert lines[2].startswith("  ship ")
    assert lines[3] == ("    queue is 'q:default', not 'q:exports'; payload.order is 8, not 7; payload.gift is missing")
    with pytest.raises(AssertionError, match="2 jobs wait, not 3: ship"):
        mainspring.assert_enqueued(ship, count=3)
    with pytest.raises(AssertionError, match="0 jobs wait, not 1: ship with key x"):
        mainspring.assert_enqueued(ship, key="x", count=1)
    with pytest.raises(AssertionError, match="2 jobs wait, and none should: ship"):
        mainspring.refute_enqueued(ship)


# -- what is missing --------------------------------------------------------------------------------------------------


def test_without_tasks_nothing_runs_and_it_is_said_how_to_name_them(mainspring: Harness) -> None:
    with Harness(mainspring.dsn) as bare:
        bare.refute_enqueued("anything")
        with pytest.raises(ConfigurationError, match="mainspring_app"):
            bare.drain()


def test_an_application_finds_the_database_of_its_test(mainspring: Harness) -> None:
    app = App(Registry("other"))

    assert app.dsn == mainspring.dsn
    with app.client() as client:
        assert client.now() == mainspring.now()


def test_an_unknown_job_is_not_found(mainspring: Harness) -> None:
    with pytest.raises(JobError, match="there is no job"):
        mainspring.run_one(uuid4())


def test_what_an_application_encrypts_is_readable_to_its_tests(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task(encrypt=True)
    async def pay(*, card: str) -> str:
        return f"paid by {card}"

    app = App(tasks, dsn=mainspring.dsn, cipher=Cipher(bytes(range(32))))
    with Harness(mainspring.dsn, app) as harness:
        job = harness.client.enqueue(pay.job(card="visa"))
        harness.assert_enqueued(pay, payload={"card": "visa"})
        assert "visa" not in str(mainspring.conn.execute("select payload from mainspring.job").fetchall())
        assert harness.run_one(job).result == "paid by visa"
