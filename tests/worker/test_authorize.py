from __future__ import annotations

from uuid import UUID

import pytest
from tests.worker.stage import Stage

from mainspring import Registry, fixed
from mainspring.job import Claim

pytestmark = pytest.mark.anyio

AT_ONCE = fixed(0, attempts=3)


@pytest.mark.rule("ENG-19.01", "ENG-8.04", "ENG-19.02")
@pytest.mark.parametrize("colour", ["async", "plain"])
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_a_refused_job_fails_at_once_and_its_handler_is_not_called(
    stage: Stage, tasks: Registry, colour: str, kind: str
) -> None:
    calls: list[str] = []

    if kind == "async":

        @tasks.task(name="work")
        async def work(*, n: str) -> None:
            calls.append(n)
    else:

        @tasks.task(name="work")
        def work(*, n: str) -> None:
            calls.append(n)

    def closed(job: Claim) -> str | None:
        return "the organisation is closed" if job.org_id == "closed" else None

    async def closed_async(job: Claim) -> str | None:
        return closed(job)

    good = await stage.enqueue(work.job(n="good").for_org("open"))
    bad = await stage.enqueue(work.job(n="bad").for_org("closed"))
    await stage.drain(tasks, authorize=closed if colour == "plain" else closed_async)

    assert calls == ["good"]
    assert await stage.state(good) == "succeeded"
    found = await stage.job(bad)
    assert (found.state, found.attempt) == ("failed", 1)
    assert found.error is not None
    assert (found.error["code"], found.error["message"]) == ("OWNERSHIP_VIOLATION", "the organisation is closed")


@pytest.mark.rule("ENG-19.01")
async def test_it_is_asked_before_each_attempt_so_that_a_lost_right_counts(stage: Stage, tasks: Registry) -> None:
    asked: list[tuple[str, UUID | None, str, str, str, int]] = []

    @tasks.task(retry=AT_ONCE)
    async def work() -> None:
        raise ConnectionError

    def fired_meanwhile(job: Claim) -> str | None:
        asked.append((job.org_id, job.project_id, job.actor_type, job.actor_id, job.task, job.attempt))
        return "jane left" if job.attempt == 2 else None

    job = await stage.enqueue(work.job().for_org("acme").in_project(UUID(int=7)).by("jane"))
    await stage.drain(tasks, authorize=fired_meanwhile)

    assert asked == [("acme", UUID(int=7), "user", "jane", "work", attempt) for attempt in (1, 2)]
    found = await stage.job(job)
    assert (found.state, found.error and found.error["code"]) == ("failed", "OWNERSHIP_VIOLATION")


async def test_a_question_that_cannot_be_answered_is_asked_again_later(stage: Stage, tasks: Registry) -> None:
    calls: list[int] = []

    @tasks.task(retry=AT_ONCE)
    async def work() -> None:
        calls.append(1)

    def directory_away(job: Claim) -> str | None:
        if job.attempt == 1:
            raise ConnectionError("the directory is away")
        return None

    job = await stage.enqueue(work.job())
    await stage.drain(tasks, authorize=directory_away)

    found = await stage.job(job)
    assert (found.state, found.attempt, calls) == ("succeeded", 2, [1])
