"""Flows: a job starts when all that it waits for has succeeded, and only then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

import mainspring as ms
from mainspring.declare.task import Task
from mainspring.job import NewJob
from mainspring.testing import Harness
from mainspring.together.flow import FlowLink

BLANK = NewJob(task="t", payload=msgspec.Raw(b"{}"))


class Plant:
    """One task whose jobs end as the test says, and the order in which they ran."""

    def __init__(self, tasks: ms.Registry) -> None:
        self.bad: set[str] = set()
        self.ran: list[str] = []

        @tasks.task(retry=ms.fixed(60, attempts=2))
        async def work(*, name: str) -> str:
            self.ran.append(name)
            if name in self.bad:
                raise ms.Permanent("closed")
            return name.upper()

        self.work: Task[Any, Any] = work

    def job(self, name: str) -> NewJob:
        return self.work.job(name=name)


@pytest.fixture
def plant(tasks: ms.Registry) -> Plant:
    return Plant(tasks)


def states(mainspring: Harness, answers: list[ms.Enqueued]) -> list[str]:
    return [mainspring.client.get(answer.id).state for answer in answers]


def test_a_chain_waits_for_the_one_before_and_a_group_for_nobody_inside_it() -> None:
    flow = ms.chain(BLANK, ms.group(BLANK, ms.chain(BLANK, BLANK)), BLANK)
    links = {link.child: link.parents for link in flow.links}
    assert links == {1: (0,), 2: (0,), 3: (2,), 4: (1, 3)}
    assert (flow.heads, flow.tails) == ((0,), (4,))
    assert ms.chain().jobs == ms.group().jobs == ()
    assert ms.group(BLANK, BLANK).then(BLANK, BLANK, anyway=True).links == (
        FlowLink(2, (0, 1), True),
        FlowLink(3, (2,), True),
    )


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: ms.chain(BLANK, "b"), "flow: str is neither a job nor a flow"),  # type: ignore[arg-type]  # it is wrong
        (lambda: ms.group(*[BLANK] * 400).then(ms.group(*[BLANK] * 400)), "put one job between two large groups"),
    ],
)
def test_what_is_no_flow_is_refused(make: Any, message: str) -> None:
    with pytest.raises(ms.ValidationError, match=message):
        make()


def test_jobs_of_a_flow_run_in_its_order(mainspring: Harness, plant: Plant) -> None:
    flow = ms.chain(plant.job("a"), ms.group(plant.job("b"), plant.job("c")), plant.job("d"))
    answers = mainspring.client.enqueue(flow)
    assert [answer.state for answer in answers] == ["ready", "scheduled", "scheduled", "scheduled"]
    mainspring.run_one(answers[0].id)
    assert states(mainspring, answers) == ["succeeded", "ready", "ready", "scheduled"]
    mainspring.run_one(answers[2].id)
    assert states(mainspring, answers)[3] == "scheduled"
    mainspring.run_one(answers[1].id)
    mainspring.drain()
    assert plant.ran == ["a", "c", "b", "d"]


def test_a_job_that_waits_for_others_waits_for_its_own_time_too(mainspring: Harness, plant: Plant) -> None:
    began = mainspring.now()
    a, b = mainspring.client.enqueue(ms.chain(plant.job("a"), plant.job("b").after(timedelta(hours=2))))
    mainspring.client.reschedule(b.id, at=began + timedelta(hours=3))  # still held
    mainspring.drain()
    assert mainspring.client.get(b.id).state == "scheduled"
    mainspring.advance(hours=2)
    assert plant.ran == ["a"]
    mainspring.advance(hours=1)
    assert plant.ran == ["a", "b"]
    assert mainspring.client.get(a.id).finished_at == began


def test_results_of_parents_are_read_in_their_order(mainspring: Harness, tasks: ms.Registry, plant: Plant) -> None:
    @tasks.task
    async def join(ctx: ms.Context) -> list[Any]:
        return [job.result for job in await ctx.parents()]

    @tasks.task
    def join_in_a_thread(ctx: ms.SyncContext) -> list[Any]:
        return [job.result for job in ctx.parents()]

    last = ms.group(join.job(), join_in_a_thread.job())
    flow = ms.group(*(plant.job(name) for name in ("c", "a", "b"))).then(last)
    answers = mainspring.client.enqueue(flow)
    for answer in reversed(answers[:3]):
        mainspring.run_one(answer.id)
    mainspring.drain()
    assert [mainspring.client.result(answer.id) for answer in answers[3:]] == [["C", "A", "B"]] * 2


def test_a_parent_that_failed_holds_its_child_until_somebody_decides(mainspring: Harness, plant: Plant) -> None:
    client = mainspring.client
    plant.bad = {"a"}
    a, b, c = client.enqueue(ms.chain(plant.job("a"), plant.job("b"), plant.job("c")))
    mainspring.drain(raise_errors=False)
    assert states(mainspring, [a, b, c]) == ["failed", "scheduled", "scheduled"]
    explained = client.explain(b.id)
    assert not explained.claimable
    assert explained.verdict.startswith(f"It waits for job {a.id} of work, which is failed: replay or discard it;")

    plant.bad = set()
    client.replay(a.id, reason="mended")
    assert client.explain(b.id).verdict.startswith(f"It waits for job {a.id} of work, which is ready;")
    mainspring.drain()
    assert (states(mainspring, [a, b, c]), plant.ran) == (["succeeded"] * 3, ["a", "a", "b", "c"])


@pytest.mark.parametrize("how", ["discard", "cancel"])
def test_a_parent_that_is_given_up_takes_what_waits_for_it_along(mainspring: Harness, plant: Plant, how: str) -> None:
    client = mainspring.client
    plant.bad = {"a"}
    flow = ms.chain(ms.group(plant.job("a"), plant.job("x")), ms.group(plant.job("b"), plant.job("c")), plant.job("d"))
    a, x, b, c, d = client.enqueue(flow)
    mainspring.run_one(x.id)
    if how == "discard":
        mainspring.run_one(a.id, raise_errors=False)
        client.dead.discard(a.id, reason="not needed")
    else:
        client.cancel(a.id)
    assert states(mainspring, [b, c, d]) == ["cancelled"] * 3
    error, of_last = client.get(b.id).error, client.get(d.id).error
    assert error is not None
    assert of_last is not None
    assert error["message"] == f"Job {a.id}, which it waited for, was {how}ed.".replace("celed", "celled")
    assert "which it waited for, was cancelled." in of_last["message"]
    mainspring.drain()
    assert plant.ran in (["x", "a"], ["x"])


def test_what_runs_anyway_waits_for_the_end_and_not_for_success(mainspring: Harness, plant: Plant) -> None:
    plant.bad = {"a"}
    flow = ms.group(plant.job("a"), plant.job("b"), plant.job("c")).then(plant.job("clean up"), anyway=True)
    answers = mainspring.client.enqueue(flow)
    mainspring.client.cancel(answers[2].id)
    mainspring.run_one(answers[0].id, raise_errors=False)
    assert mainspring.client.get(answers[3].id).state == "scheduled"
    mainspring.drain()
    assert plant.ran == ["a", "b", "clean up"]


def test_a_fixed_parent_lets_its_child_wait_for_the_successor(mainspring: Harness, plant: Plant) -> None:
    client = mainspring.client
    plant.bad = {"a"}
    a, b = client.enqueue(ms.chain(plant.job("a"), plant.job("b")))
    mainspring.drain(raise_errors=False)
    fixed = client.dead.fix(a.id, set={"name": "better"}, reason="a typo")
    assert str(fixed.successor) in client.explain(b.id).verdict
    mainspring.drain()
    assert plant.ran == ["a", "better", "b"]


def test_retries_and_crashes_of_a_parent_release_nothing(mainspring: Harness, tasks: ms.Registry, plant: Plant) -> None:
    @tasks.task(retry=ms.fixed(60, attempts=3))
    async def shaky(ctx: ms.Context) -> None:
        plant.ran.append(f"attempt {ctx.attempt}")
        if ctx.attempt == 2:
            raise RuntimeError("no answer")

    first, second = mainspring.client.enqueue(ms.chain(shaky.job(), plant.job("b")))
    mainspring.crash(first.id)
    mainspring.expire_leases()
    mainspring.drain(raise_errors=False)
    assert (states(mainspring, [first, second]), plant.ran) == (["retrying", "scheduled"], ["attempt 2"])
    mainspring.advance(minutes=1)
    assert plant.ran == ["attempt 2", "attempt 3", "b"]


def test_the_same_flow_under_keys_is_enqueued_once(mainspring: Harness, plant: Plant) -> None:
    flow = ms.chain(plant.job("a").with_key("a", "keep"), plant.job("b").with_key("b", "keep"))
    first = mainspring.client.enqueue(flow)
    again = mainspring.client.enqueue(flow)
    assert [(a.id, a.answer) for a in again] == [(a.id, "existing") for a in first]
    mainspring.drain()
    assert plant.ran == ["a", "b"]
    last = mainspring.client.enqueue(ms.chain(plant.job("a").with_key("a", "keep"), plant.job("c")))
    assert last[1].state == "ready"  # what it waits for has succeeded before


def test_a_job_that_exists_is_not_made_to_wait_for_others(mainspring: Harness, plant: Plant) -> None:
    a, b = plant.job("a").with_key("a", "keep"), plant.job("b").with_key("b", "keep")
    mainspring.client.enqueue(ms.chain(a, b))
    for flow in (ms.chain(b, a), ms.chain(a, a)):  # a circle
        with pytest.raises(ms.ValidationError, match=r"key: . is taken by a job that does not wait for these others"):
            mainspring.client.enqueue(flow)
    mainspring.drain()
    assert plant.ran == ["a", "b"]


def test_a_running_job_may_be_waited_for(mainspring: Harness, plant: Plant) -> None:
    a = mainspring.crash(plant.job("a").with_key("a", "keep"))
    answers = mainspring.client.enqueue(ms.chain(plant.job("a").with_key("a", "keep"), plant.job("b")))
    assert (answers[0].id, answers[1].state) == (a.id, "scheduled")
    mainspring.expire_leases()
    mainspring.drain()
    mainspring.drain()
    assert plant.ran == ["a", "b"]


def test_a_job_behind_another_of_its_key_waits_for_its_parents_too(mainspring: Harness, plant: Plant) -> None:
    mainspring.crash(plant.job("k").with_key("k"))
    answers = mainspring.client.enqueue(ms.chain(plant.job("a"), plant.job("k").with_key("k")))
    mainspring.run_one(answers[0].id)
    assert mainspring.client.get(answers[1].id).state == "scheduled"  # the one before it runs
    mainspring.expire_leases()
    mainspring.drain()
    assert plant.ran == ["a", "k", "k"]

    mainspring.crash(plant.job("k").with_key("k"))
    answers = mainspring.client.enqueue(ms.chain(plant.job("b").after(60), plant.job("k").with_key("k")))
    plant.ran.clear()
    mainspring.expire_leases()  # exactly when b is due
    mainspring.run_one(plant.work)
    assert mainspring.client.get(answers[1].id).state == "scheduled"
    mainspring.drain()
    assert sorted(plant.ran) == ["b", "k", "k"]


def test_a_handler_enqueues_a_flow_with_its_success(mainspring: Harness, tasks: ms.Registry, plant: Plant) -> None:
    @tasks.task
    def begin(ctx: ms.SyncContext) -> None:
        ctx.enqueue(ms.chain(plant.job("a"), plant.job("b")), plant.job("c"))

    mainspring.client.enqueue(begin.job())
    ran = mainspring.drain()
    assert sorted(plant.ran) == ["a", "b", "c"]
    assert plant.ran.index("a") < plant.ran.index("b")
    parents: set[UUID | None] = {run.job.parent_id for run in ran.runs[1:]}
    assert parents == {ran.runs[0].job.id}


def test_a_flow_belongs_to_one_organisation_and_is_written_whole(mainspring: Harness, plant: Plant) -> None:
    mixed = ms.chain(plant.job("a").for_org("a"), plant.job("b").for_org("b"))
    with pytest.raises(ms.ValidationError, match="org_id: is not the same for all jobs"):
        mainspring.client.enqueue(mixed)
    with mainspring.conn.transaction(force_rollback=True):
        mainspring.client.enqueue(ms.chain(plant.job("a"), plant.job("b")), conn=mainspring.conn)
    assert mainspring.client.jobs() == []
    mainspring.client.enqueue(ms.chain(plant.job("a"), plant.job("b")), conn=mainspring.conn)
    mainspring.drain()
    assert plant.ran == ["a", "b"]


def test_pruning_takes_what_a_job_waited_for_with_it(mainspring: Harness, plant: Plant) -> None:
    mainspring.client.enqueue(ms.chain(plant.job("a"), plant.job("b")))
    mainspring.drain()
    mainspring.advance(days=2)
    assert mainspring.client.prune(["succeeded"], timedelta(days=1)) == 2
    rows = mainspring.conn.execute("select count(*) from mainspring.dependency")
    assert rows.fetchone() == (0,)
