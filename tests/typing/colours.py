"""Read by mypy only: a verb is called in sync code and awaited in async code, and its answer is typed in both.

Each ignored error is the point of its line; were it no error any more, mypy would report the unused ignore.
"""

from __future__ import annotations

from typing import assert_type
from uuid import UUID

import mainspring as ms
from mainspring.client import AsyncEnqueuedBatch, AsyncTimers, EnqueuedBatch, Timers
from mainspring.db.dead import DeadLetter
from mainspring.db.timers import Timer
from mainspring.job import AsyncEnqueued, Enqueued, Job
from mainspring.together.batch import Batch, NewBatch
from mainspring.together.flow import Flow


def in_sync_code(
    client: ms.Client, job: ms.NewJob, typed: ms.NewJob[int], batch: NewBatch, flow: Flow, id: UUID
) -> None:
    assert_type(client.enqueue(job), Enqueued)
    assert_type(client.enqueue(typed), Enqueued[int])
    assert_type(client.enqueue(typed).result(), int)
    assert_type(client.enqueue(batch), EnqueuedBatch)
    assert_type(client.enqueue(batch).progress(), Batch)
    assert_type(client.enqueue(batch).wait(timeout="5m"), Batch)
    assert_type(client.enqueue(batch).retry_failed(reason="it is back"), int)
    client.enqueue(batch).retry_failed()  # type: ignore[call-arg]
    assert_type(client.enqueue(flow), list[Enqueued])
    assert_type(client.enqueue_many([job]), list[Enqueued])
    assert_type(client.get(id), Job)
    assert_type(client.jobs(queue="q:default"), list[Job])
    assert_type(client.timers.get("key"), Timer | None)
    assert_type(client.dead.list(task="t"), list[DeadLetter])
    client.prioritize(id, "high")  # type: ignore[arg-type]
    client.replay(id)  # type: ignore[call-arg]
    client.dead.list(tsak="t")  # type: ignore[call-arg]
    client.timers.get(key=1)  # type: ignore[arg-type]


async def in_async_code(
    client: ms.AsyncClient, job: ms.NewJob, typed: ms.NewJob[int], batch: NewBatch, flow: Flow, id: UUID
) -> None:
    assert_type(await client.enqueue(typed), AsyncEnqueued[int])
    assert_type(await (await client.enqueue(typed)).result(timeout="5s"), int)
    assert_type(await client.enqueue(batch), AsyncEnqueuedBatch)
    assert_type(await (await client.enqueue(batch)).progress(), Batch)
    assert_type(await (await client.enqueue(batch)).wait(timeout=5), Batch)
    await (await client.enqueue(batch)).cancel(reason=7)  # type: ignore[arg-type]
    assert_type(await client.enqueue(flow), list[Enqueued])
    assert_type(await client.enqueue_many([job]), list[Enqueued])
    assert_type(await client.get(id), Job)
    assert_type(await client.timers.get("key"), Timer | None)
    assert_type(await client.dead.list(task="t"), list[DeadLetter])
    client.now()  # type: ignore[unused-coroutine]
    await client.replay(id)  # type: ignore[call-arg]


def colours_do_not_mix(client: ms.Client, async_client: ms.AsyncClient) -> None:
    Timers(client)
    AsyncTimers(async_client)
    Timers(async_client)  # type: ignore[arg-type]
    AsyncTimers(client)  # type: ignore[arg-type]
