"""Batches and flows on a secured schema: a worker of all organisations ends them, each in its own."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from tests.secured import Secured
from tests.worker.stage import SETTINGS

import mainspring as ms
from mainspring.errors import BatchNotFound, NotPermitted
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio


async def drain(secured: Secured, tasks: ms.Registry) -> None:
    async with asyncio.timeout(30):
        await Worker(secured.dsn("worker"), tasks, config=ms.WorkerConfig(**SETTINGS)).drain()


async def test_batches_chunks_and_flows_of_two_organisations_end_by_one_worker(
    secured: Secured,
    tasks: ms.Registry,
) -> None:
    told: dict[str, tuple[int, int, int]] = {}
    bad = {3}

    @tasks.task(halve="rows", retry=ms.fixed(0, attempts=1))
    async def load(ctx: ms.Context, *, rows: list[int]) -> list[int]:
        if bad & set(rows):
            raise RuntimeError("no answer")
        async with ctx.complete():
            ctx.result = rows
        return rows

    @tasks.task
    async def tell(ctx: ms.Context) -> None:
        batch = await ctx.batch()
        assert batch is not None
        told[ctx.job.org_id] = (batch.total, batch.succeeded, batch.dead)

    @tasks.task
    def total(ctx: ms.SyncContext) -> int:
        return sum(sum(job.result) for job in ctx.parents())

    made: dict[str, Any] = {}
    with ms.Client(secured.dsn("api"), secured=True) as client:
        for org in ("acme", "globex"):
            chunk = load.job(rows=[1, 2, 3, 4]).for_org(org)
            made[org] = ms.batch("rows", [chunk], on_finish=tell.job().for_org(org))
            client.enqueue(made[org])
        flow = ms.chain(load.job(rows=[5, 6]).for_org("acme"), total.job().for_org("acme"))
        last = client.enqueue(flow)[-1].id
        await drain(secured, tasks)
        assert told == {"acme": (3, 2, 1), "globex": (3, 2, 1)}
        assert client.get(last, org="acme").result == 11
        with pytest.raises(BatchNotFound):
            client.batches.get(made["acme"].id, org="globex")
        with pytest.raises(NotPermitted):
            client.batches.retry_failed(made["acme"].id, org="acme", reason="the api may not")

    bad.clear()
    with ms.Client(secured.dsn("operator"), secured=True) as operator:
        with pytest.raises(BatchNotFound):
            operator.batches.retry_failed(made["acme"].id, org="globex", reason="not theirs")
        assert operator.batches.retry_failed(made["acme"].id, org="acme", reason="mended") == 1
        await drain(secured, tasks)
        assert told == {"acme": (3, 3, 0), "globex": (3, 2, 1)}
        assert operator.batches.get(made["acme"].id, org="acme").state == "finished"
