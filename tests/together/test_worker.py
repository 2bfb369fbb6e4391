"""A real worker, both colours of the client, and encryption."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.databases import Database

import mainspring as ms
from mainspring.client import EnqueuedBatch
from mainspring.errors import DatabaseUnavailable
from mainspring.testing import Harness


@pytest.fixture
def cipher() -> ms.Cipher:
    return ms.Cipher(ms.Cipher.new_master_key())


class House:
    """Rows in chunks, one of them bad, and a summary."""

    def __init__(self, tasks: ms.Registry) -> None:
        self.done: Counter[int] = Counter()
        self.told: list[tuple[int, int, int]] = []

        @tasks.task(halve="rows", retry=ms.fixed(0, attempts=2))
        async def load(ctx: ms.Context, *, rows: list[int]) -> list[int]:
            async for row in ctx.each(rows):
                if row == 13:
                    raise RuntimeError("row 13 is bad")
                self.done[row] += 1
            return rows

        @tasks.task
        async def tell(ctx: ms.Context, *, word: str) -> str:
            batch = await ctx.batch()
            assert batch is not None
            self.told.append((batch.total, batch.succeeded, batch.dead))
            return word

        @tasks.task
        def total(ctx: ms.SyncContext) -> int:
            return sum(sum(job.result) for job in ctx.parents())

        self.load, self.tell, self.total = load, tell, total


@pytest.mark.rule("STAFF-17.12", "STAFF-17.13")
def test_a_worker_halves_chunks_finishes_the_batch_and_goes_on_with_what_waits(
    mainspring: Harness, tasks: ms.Registry
) -> None:
    house = House(tasks)
    jobs = [house.load.job(rows=rows) for rows in ms.chunks(range(40), 20)]
    batch = ms.batch("rows", jobs, on_finish=house.tell.job(word="done"))
    with mainspring.working():
        mainspring.client.enqueue(batch)
        mainspring.wait_for("job.succeeded", task=house.tell, timeout=20)
        flow = mainspring.client.enqueue(
            ms.group(house.load.job(rows=[1, 2]), house.load.job(rows=[3])).then(house.total.job())
        )
        assert mainspring.client.result(flow[2].id, timeout=20) == 6
    assert set(house.done) == set(range(40)) - {13}
    found = mainspring.client.batches.get(batch.id)
    assert house.told == [(found.total, found.total - 1, 1)]


@pytest.mark.anyio
async def test_both_colours_enqueue_and_look_and_act(database: Database, tasks: ms.Registry) -> None:
    house = House(tasks)
    async with ms.AsyncClient(database.dsn) as client:
        batch = ms.batch("rows", [house.load.job(rows=[n]) for n in range(3)], open=True)
        assert [answer.answer for answer in (await client.enqueue(batch)).jobs] == ["created"] * 3
        await client.batches.add(batch.id, [house.load.job(rows=[13])])
        await client.batches.close(batch.id)
        assert [found.id for found in await client.batches.list(state="running")] == [batch.id]
        assert len(await client.batches.members(batch.id, limit=2)) == 2
        flow = await client.enqueue(ms.chain(house.load.job(rows=[7]), house.total.job()))
        await ms.App(tasks, dsn=database.dsn).worker().drain()
        assert await client.result(flow[1].id) == 7
        found = await client.batches.get(batch.id)
        assert (found.state, found.succeeded, found.dead) == ("finished", 3, 1)
        assert await client.batches.retry_failed(batch.id, reason="again") == 1
        await client.batches.cancel(batch.id, reason="enough")
        assert (await client.batches.get(batch.id)).cancelled == 1


@pytest.mark.anyio
async def test_what_batches_and_flows_carry_is_encrypted_and_read_again(
    database: Database, tasks: ms.Registry, cipher: ms.Cipher
) -> None:
    house = House(tasks)
    app = ms.App(tasks, dsn=database.dsn, cipher=cipher)
    with app.client() as client:
        jobs = [house.load.job(rows=[11, 12, 13, 14])]
        batch = ms.batch("rows", jobs, on_finish=house.tell.job(word="quiet"))
        client.enqueue(batch)
        *_, last = client.enqueue(ms.chain(house.load.job(rows=[5, 6]), house.total.job()))
        await app.worker().drain()
        assert client.result(last.id) == 11
        assert house.told == [(2, 1, 1)]
        (dead,) = client.batches.members(batch.id, state="dead")
        assert dead.payload == {"rows": [13]}

        client.batches.retry_failed(batch.id, reason="again")  # its on-finish job is written anew, by the database
        await app.worker().drain()
        tellers = [job for job in client.jobs(task="tell") if job.state == "succeeded"]
        assert ([job.payload for job in tellers], len(house.told)) == ([{"word": "quiet"}] * 2, 2)
    with database.connect() as conn:
        rows = conn.execute("select payload::text from mainspring.job").fetchall()
    assert [row for row in rows if "rows" in row[0] or "quiet" in row[0]] == []


def test_an_enqueue_whose_answer_was_lost_is_one_batch_and_one_flow(
    database: Database, tasks: ms.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = House(tasks)
    keyed = house.load.job(rows=[1]).with_key("one", "keep")
    with ms.Client(database.dsn) as client:
        lost: list[int] = []
        run = client.seam.run

        def answer_lost(*args: object, **kwargs: object) -> object:
            found: object = run(*args, **kwargs)  # type: ignore[arg-type]  # it hands on what it gets
            if not lost:
                lost.append(1)
                raise DatabaseUnavailable("the connection is lost", sent=True)
            return found

        monkeypatch.setattr(client.seam, "run", answer_lost)
        for what in (ms.batch("rows", [keyed, house.load.job(rows=[2])]), ms.chain(keyed, house.load.job(rows=[3]))):
            lost.clear()
            answers = client.enqueue(what)
            assert len(answers.jobs if isinstance(answers, EnqueuedBatch) else answers) == 2
        monkeypatch.undo()
        assert (len(client.jobs()), len(client.batches.list())) == (3, 1)
