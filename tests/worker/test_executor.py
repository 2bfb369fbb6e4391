from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from tests.worker.stage import Stage

from mainspring import Registry, fixed
from mainspring.errors import ResultUnavailable

pytestmark = pytest.mark.anyio

ONCE = fixed(60, attempts=1)


async def test_a_client_gets_what_an_async_handler_returned(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def add(*, a: int, b: int) -> dict[str, int]:
        return {"sum": a + b}

    async with stage.work(tasks):
        job = await stage.enqueue(add.job(a=2, b=3))

        assert await stage.result(job) == {"sum": 5}


async def test_a_plain_function_runs_in_a_thread_and_the_loop_goes_on(stage: Stage, tasks: Registry) -> None:
    go, names = threading.Event(), list[str]()

    @tasks.task
    def slow() -> str:
        names.append(threading.current_thread().name)
        assert go.wait(60)
        return "slow"

    @tasks.task
    async def quick() -> str:
        go.set()
        return "quick"

    async with stage.work(tasks):
        first = await stage.enqueue(slow.job())
        await stage.until(lambda: names)
        second = await stage.enqueue(quick.job())

        assert (await stage.result(second), await stage.result(first)) == ("quick", "slow")
    assert names[0].startswith("mainspring")


async def test_waiting_for_the_result_of_a_failed_job_says_why_there_is_none(stage: Stage, tasks: Registry) -> None:
    @tasks.task(retry=ONCE)
    async def broken() -> None:
        raise ValueError("no luck")

    job = await stage.enqueue(broken.job())
    await stage.drain(tasks)

    with pytest.raises(ResultUnavailable) as caught:
        await stage.result(job)
    assert (caught.value.state, caught.value.error and caught.value.error["message"]) == ("dead", "ValueError: no luck")


@pytest.mark.parametrize("result", [object(), "\x00", {"deep": float}, {1, 2, 3}])
async def test_a_result_that_cannot_be_stored_is_the_jobs_failure_and_it_is_not_run_again(
    stage: Stage, tasks: Registry, result: object
) -> None:
    runs = []

    @tasks.task
    async def strange() -> object:
        runs.append(1)
        return result

    job = await stage.enqueue(strange.job())
    await stage.drain(tasks)

    found = await stage.job(job)
    if isinstance(result, set):
        assert (found.state, found.result) == ("succeeded", [1, 2, 3])
    else:
        assert (found.state, (found.error or {})["code"]) == ("failed", "VALIDATION_ERROR")
    assert runs == [1]


class Unprintable(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not even this")


def stop_iteration() -> None:
    next(iter(()))


def raiser(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


@pytest.mark.rule("ENG-16.05")
@pytest.mark.parametrize("colour", ["async", "thread"])
@pytest.mark.parametrize(
    "fail",
    [raiser(ValueError("x")), raiser(SystemExit(3)), raiser(KeyboardInterrupt()), raiser(Unprintable()), stop_iteration,
     raiser(ExceptionGroup("many", [ValueError("x")])), raiser(RecursionError())],
    ids=["ValueError", "SystemExit", "KeyboardInterrupt", "unprintable", "StopIteration", "group", "recursion"],
)  # fmt: skip
async def test_whatever_a_handler_raises_the_job_is_tried_again_and_the_worker_goes_on(
    stage: Stage, tasks: Registry, fail: Callable[[], None], colour: str
) -> None:
    if colour == "async":

        @tasks.task(name="bad")
        async def bad() -> None:
            fail()
    else:

        @tasks.task(name="bad")
        def bad() -> None:
            fail()

    @tasks.task
    async def good() -> str:
        return "fine"

    first = await stage.enqueue(bad.job())
    async with stage.work(tasks, concurrency=1, threads=1):
        await stage.until(lambda: stage.rows("select 1 from mainspring.waiting where retrying"))
        second = await stage.enqueue(good.job())
        assert await stage.result(second) == "fine"

    found = await stage.job(first)
    assert (found.state, found.attempt, found.error and found.error["code"]) == ("retrying", 1, "INTERNAL_ERROR")


@pytest.mark.rule("ENG-2.10", "ENG-8.05")
async def test_a_corrupted_payload_fails_after_one_attempt_without_a_call(stage: Stage, tasks: Registry) -> None:
    calls = []

    @tasks.task
    async def charge(*, amount: int) -> None:
        calls.append(amount)

    job = await stage.enqueue(charge.job(amount=5))
    with stage.conn.transaction():
        stage.rows("set local mainspring.verb = 'replace'")
        stage.rows("""update mainspring.job set payload = '{"amount": "a lot"}'""")
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, found.attempt, found.error and found.error["code"]) == ("failed", 1, "VALIDATION_ERROR")
    assert found.error is not None
    assert "amount" in found.error["message"]
    assert calls == []


async def test_one_poisonous_payload_does_not_stop_its_batch(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def read(*, data: list[Any]) -> int:
        return len(data)

    deep = await stage.enqueue(read.job(data=[]))
    with stage.conn.transaction():
        stage.rows("set local mainspring.verb = 'replace'")
        stage.rows("update mainspring.job set payload = %s", f'{{"data": {"[" * 5000}{"]" * 5000}}}')
    good = [await stage.enqueue(read.job(data=[n])) for n in range(3)]
    await stage.drain(tasks)

    assert [await stage.state(job) for job in good] == ["succeeded"] * 3
    poisoned = stage.rows("select state, error ->> 'code' from mainspring.finished where id = %s", deep)
    assert poisoned == [("failed", "VALIDATION_ERROR")]


@pytest.mark.rule("ENG-5.07")
async def test_a_job_of_an_unknown_task_is_left_alone(stage: Stage, tasks: Registry) -> None:
    newer = Registry("newer")

    @newer.task
    async def unheard_of() -> None: ...

    @tasks.task
    async def known() -> str:
        return "done"

    unknown = await stage.enqueue(unheard_of.job())
    job = await stage.enqueue(known.job())
    await stage.drain(tasks)

    assert await stage.result(job) == "done"
    assert ((await stage.job(unknown)).state, (await stage.job(unknown)).attempt) == ("ready", 0)


@pytest.mark.rule("ENG-5.08", "ENG-8.06")
async def test_running_an_unknown_task_by_force_fails_for_good(stage: Stage, tasks: Registry) -> None:
    newer = Registry("newer")

    @newer.task
    async def foo() -> None: ...

    job = await stage.enqueue(foo.job())
    async with stage.work(tasks) as worker:
        worker._parts.crews["async"].tasks.append("foo")
        await stage.until(lambda: stage.rows("select 1 from mainspring.finished"))

    found = await stage.job(job)
    assert (found.state, found.attempt) == ("failed", 1)
    assert found.error is not None
    assert (found.error["code"], found.error["message"]) == ("UNKNOWN_JOB_TYPE", "Unknown job type: foo")


@pytest.mark.rule("ENG-5.07")
async def test_only_the_queues_that_a_worker_serves_are_claimed(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    mine = await stage.enqueue(work.job().on_queue("q:mine"))
    other = await stage.enqueue(work.job())
    await stage.drain(tasks, queues={"q:mine": 1})

    assert [await stage.state(job) for job in (mine, other)] == ["succeeded", "ready"]


@pytest.mark.rule("ENG-5.11", "ENG-19.09")
async def test_one_worker_runs_the_jobs_of_many_organisations_each_under_its_own(stage: Stage, tasks: Registry) -> None:
    from mainspring.declare.caller import current

    seen = []

    @tasks.task
    async def work() -> None:
        seen.append((current().org_id, current().actor_id))

    jobs = [await stage.enqueue(work.job().for_org(org).by(f"user of {org}")) for org in ("a", "b")]
    worker = await stage.drain(tasks)

    assert sorted(seen) == [("a", "user of a"), ("b", "user of b")]
    assert {row[0] for row in stage.rows("select worker from mainspring.attempts")} == {worker.id}
    assert [(await stage.job(job)).actor_id for job in jobs] == ["user of a", "user of b"]


@pytest.mark.rule("ENG-16.03")
async def test_a_former_name_of_a_task_still_finds_its_one_handler(stage: Stage, tasks: Registry) -> None:
    old = Registry("old")

    @old.task(name="send_mail")
    async def former() -> str:
        return "old code"

    @tasks.task(aliases=("send_mail",))
    async def send_email() -> str:
        return "new code"

    job = await stage.enqueue(former.job())
    await stage.drain(tasks)

    assert await stage.result(job) == "new code"


async def test_no_more_handlers_run_at_once_than_there_are_slots(stage: Stage, tasks: Registry) -> None:
    now, most = 0, 0

    @tasks.task
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.001)
        now -= 1

    await stage.enqueue_many([work.job() for _ in range(60)])
    worker = await stage.drain(tasks, concurrency=7)

    assert worker.counts["succeeded"] == 60
    assert most == 7


@pytest.mark.rule("ENG-1.01")
async def test_enqueueing_waits_for_no_work(stage: Stage, tasks: Registry) -> None:
    never = asyncio.Event()

    @tasks.task(timeout=timedelta(minutes=1))
    async def slow() -> None:
        await never.wait()

    async with stage.work(tasks, grace=timedelta(0)):
        job = await stage.enqueue(slow.job())  # would not come back if it waited for the work
        await stage.until(lambda: stage.rows("select 1 from mainspring.running"))

    assert await stage.state(job) == "ready"
