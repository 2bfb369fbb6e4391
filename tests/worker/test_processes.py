from __future__ import annotations

import asyncio
import os
from datetime import timedelta
from pathlib import Path

import pytest
from tests.worker import cpu
from tests.worker.stage import Stage

from mainspring import Registry
from mainspring.circuit import counts
from mainspring.declare.task import Task
from mainspring.outcome import Failed
from mainspring.worker.processes import Children, Late, RaisedInChild

pytestmark = pytest.mark.anyio


@pytest.fixture
def tasks() -> Registry:
    return cpu.tasks


def lives(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


async def pid_in(path: Path) -> int:
    async with asyncio.timeout(15):
        while not path.exists() or not path.read_text():
            await asyncio.sleep(0.01)
    return int(path.read_text())


async def test_a_cpu_bound_handler_runs_in_a_process_of_its_own_which_is_kept_for_the_next_job(
    stage: Stage, tasks: Registry
) -> None:
    async with stage.work(tasks, processes=1):
        results = [await stage.result(await stage.enqueue(cpu.where.job())) for _ in range(2)]
        assert await stage.result(await stage.enqueue(cpu.double.job(n=21))) == 42

    assert results[0] == results[1]
    assert results[0]["pid"] != os.getpid()
    assert results[0]["parent"] == os.getpid()
    assert not lives(results[0]["pid"]), "it ends with the worker"


@pytest.mark.rule("ENG-16.05")
async def test_what_a_process_raises_or_how_it_dies_decides_as_in_any_handler(stage: Stage, tasks: Registry) -> None:
    wanted = [
        (cpu.fail.job(how="permanent"), ("failed", "RULE_TYPE_ERROR")),
        (cpu.fail.job(how="snooze"), ("scheduled", None)),
        (cpu.fail.job(how="plain"), ("retrying", "INTERNAL_ERROR")),
        (cpu.fail.job(how="odd"), ("retrying", "INTERNAL_ERROR")),
        (cpu.die.job(how="exit"), ("retrying", "INTERNAL_ERROR")),
        (cpu.die.job(how="kill"), ("retrying", "INTERNAL_ERROR")),
        (cpu.unwritable.job(), ("succeeded", None)),
        (cpu.double.job(n=1), ("succeeded", None)),
    ]
    jobs = await stage.enqueue_many([job for job, _ in wanted])
    await stage.drain(tasks)

    found = [await stage.job(job.id) for job in jobs]
    assert [(job.state, job.error and job.error["code"]) for job in found] == [end for _, end in wanted]


@pytest.mark.rule("ENG-16.05")
async def test_an_exception_of_a_process_runs_no_code_in_the_worker_and_says_where_it_was_raised(
    stage: Stage, tasks: Registry
) -> None:
    job = await stage.enqueue(cpu.fail.job(how="foreign"))
    await stage.drain(tasks)

    error = (await stage.job(job)).error
    assert error is not None
    assert error["message"] == "Foreign: the words"
    assert 'raise Foreign("the words")' in error["stack"]


@pytest.mark.rule("ENG-16.05")
async def test_a_process_whose_exception_cannot_be_read_in_time_says_what_can_be_seen_of_it() -> None:
    children = Children()
    with pytest.raises(RaisedInChild) as told:
        await children.call(cpu.fail, '{"how": "endless"}')
    assert isinstance(told.value.outcome, Failed)
    assert told.value.outcome.error.message == "Endless: its text could not be read in time"
    assert await children.call(cpu.double, '{"n": 2}') == 4
    children.close()


async def test_a_failure_of_a_process_says_whether_breakers_count_it() -> None:
    children = Children()
    with pytest.raises(RaisedInChild) as told:
        await children.call(cpu.fail, '{"how": "permanent"}')
    assert counts(told.value.outcome, told.value) is True
    with pytest.raises(RaisedInChild) as told:
        await children.call(cpu.fail, '{"how": "plain"}')
    assert counts(told.value.outcome, told.value) is True
    children.close()


@pytest.mark.rule("ENG-6.13")
async def test_a_process_that_takes_too_long_is_killed(stage: Stage, tasks: Registry, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    async with stage.work(tasks):
        await stage.result(await stage.enqueue(cpu.double.job(n=1)), timeout=20)  # so that a process is there
        job = await stage.enqueue(cpu.overrun.job(path=str(path)))
        pid = await pid_in(path)
        await stage.until(lambda: stage.rows("select 1 from mainspring.waiting where retrying"))

    found = await stage.job(job)
    assert (found.state, found.attempt, found.error and found.error["code"]) == ("retrying", 1, "TIMEOUT")
    assert not lives(pid)


@pytest.mark.rule("ENG-16.09", "ENG-3.10")
async def test_a_stop_ends_the_process_and_hands_its_job_back(stage: Stage, tasks: Registry, tmp_path: Path) -> None:
    path = tmp_path / "pid"
    async with stage.work(tasks, grace=timedelta(0)):
        job = await stage.enqueue(cpu.spin.job(path=str(path)))
        pid = await pid_in(path)

    found = await stage.job(job)
    assert (found.state, found.attempt) == ("ready", 0)
    assert not lives(pid)


async def test_a_process_found_dead_is_replaced() -> None:
    children = Children()
    double: Task[..., int] = cpu.double
    assert await children.call(double, '{"n": 1}') == 2
    (child,) = children._idle
    child._process.kill()
    child._process.join()

    assert await children.call(double, '{"n": 2}') == 4
    assert children._idle != [child]
    children.close()


async def test_a_process_that_is_there_too_late_for_a_permit_does_not_enter_the_handler() -> None:
    children = Children()
    with pytest.raises(Late):
        await children.call(cpu.double, '{"n": 1}', start_by=asyncio.get_running_loop().time() + 0.001)
    (child,) = children._idle

    assert await children.call(cpu.double, '{"n": 2}') == 4
    assert children._idle == [child], "the next one finds it ready"
    children.close()
