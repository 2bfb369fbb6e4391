"""The handle of a batch that was enqueued: how far it is, its end, its failures again, and its cancellation."""

from __future__ import annotations

import pytest
from tests.databases import Database
from tests.secured import Secured

import mainspring as ms
from mainspring.client import EnqueuedBatch
from mainspring.declare.task import Task
from mainspring.errors import BatchNotFound, ResultUnavailable, TransitionRefused
from mainspring.testing import Harness
from mainspring.together.batch import NewBatch

bad: set[int] = set()


@pytest.fixture
def load(tasks: ms.Registry) -> Task[..., int]:
    @tasks.task
    def load(n: int) -> int:
        if n in bad:
            raise ms.Permanent("no price")
        return 10 * n

    bad.clear()
    return load


@pytest.fixture
def rows(load: Task[..., int]) -> NewBatch:
    return ms.batch("rows", [load.job(n) for n in range(3)])


def test_batch_is_followed_to_its_end_and_its_failures_run_again(mainspring: Harness, rows: NewBatch) -> None:
    bad.add(1)
    imports = mainspring.client.enqueue(rows)
    assert (imports.id, imports.progress().percent) == (rows.id, 0.0)

    mainspring.drain(raise_errors=False)
    ended = imports.wait(timeout="1s")
    assert (ended.state, ended.succeeded, ended.failed) == ("finished", 2, 1)
    assert imports.jobs[2].result() == 20

    bad.clear()
    assert imports.retry_failed(reason="prices are there") == 1
    mainspring.drain()
    assert imports.wait().succeeded == 3


def test_batch_that_is_not_finished_in_time_says_how_far_it_is(mainspring: Harness, rows: NewBatch) -> None:
    imports = mainspring.client.enqueue(rows)
    mainspring.run_one(imports.jobs[0].id)

    with pytest.raises(ResultUnavailable, match=f"batch {rows.id} has not finished, it is running: 1 of 3 jobs"):
        imports.wait(timeout=0)
    with pytest.raises(ms.ValidationError, match="timeout: is not a time span"):
        imports.wait(timeout="soon")


def test_cancelled_batch_is_finished(mainspring: Harness, rows: NewBatch) -> None:
    imports = mainspring.client.enqueue(rows)
    imports.cancel(reason="wrong file")

    assert imports.wait(timeout=0).cancelled == 3
    with pytest.raises(TransitionRefused, match="has finished"):
        imports.cancel()


def test_batch_in_a_transaction_is_there_when_that_has_committed(database: Database, rows: NewBatch) -> None:
    with ms.Client(database.dsn) as client, database.connect() as conn:
        with conn.transaction():
            imports = client.enqueue(rows, conn=conn)
            with pytest.raises(BatchNotFound):
                imports.progress()

        assert imports.progress().total == 3


@pytest.mark.anyio
async def test_async_code_awaits_the_same_verbs(database: Database, tasks: ms.Registry, rows: NewBatch) -> None:
    bad.add(1)
    async with ms.AsyncClient(database.dsn) as client:
        imports = await client.enqueue(rows)
        assert (await imports.progress()).waiting == 3
        await ms.App(tasks, dsn=database.dsn).worker().drain()
        assert (await imports.wait()).failed == 1
        assert await imports.retry_failed(reason="again") == 1
        await imports.cancel()
        assert (await imports.wait()).cancelled == 1


def test_handler_has_the_handle_from_its_client(mainspring: Harness, tasks: ms.Registry, rows: NewBatch) -> None:
    seen: list[EnqueuedBatch] = []

    @tasks.task
    def start(ctx: ms.SyncContext) -> None:
        imports = ctx.client.enqueue(rows)
        assert imports.progress().waiting == 3
        seen.append(imports)

    mainspring.client.enqueue(start.job())
    mainspring.drain()

    assert mainspring.client.batches.wait(seen[0].id, timeout=0).succeeded == 3


def test_handle_keeps_the_organisation_of_its_jobs(secured: Secured, load: Task[..., int]) -> None:
    with ms.Client(secured.dsn("api"), secured=True) as client:
        said = client.enqueue(ms.batch("said", [load.job(1).for_org("acme")]))
        with ms.calling(ms.Caller(org_id="globex")):
            called = client.enqueue(ms.batch("called", [load.job(1)]))

        assert [each.progress().org_id for each in (said, called)] == ["acme", "globex"]
