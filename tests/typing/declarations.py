"""Read by mypy only: a job's payload is checked where the job is made.

Each ignored error is the point of its line; were it no error any more, mypy would report the unused ignore.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Any, assert_type
from uuid import UUID

from mainspring.declare.context import Context, SyncContext
from mainspring.declare.registry import Registry
from mainspring.declare.schedule import Schedule
from mainspring.job import AsyncEnqueued, EnqueueAnswer, NewJob
from mainspring.when.rule import daily

tasks = Registry("typing")


@dataclass
class Invoice:
    id: int


@tasks.task
async def plain(*, booking_id: int, note: str = "") -> None: ...


@tasks.task(queue="q:default", timeout=timedelta(minutes=1))
async def with_context(ctx: Context, *, booking_id: int) -> int:
    return booking_id


@tasks.task
def in_a_thread(ctx: SyncContext, booking_id: int) -> int:
    return booking_id


@tasks.task()
def by_model(invoice: Invoice) -> str:
    return str(invoice.id)


@tasks.task
async def empty(ctx: Context) -> None: ...


assert_type(plain.job(booking_id=7), NewJob[None])
assert_type(plain.job(booking_id=7).after(60).with_key("k"), NewJob[None])
assert_type(in_a_thread.job(7), NewJob[int])
assert_type(with_context.job(booking_id=7), NewJob[int])
plain.job(booking_id=7, note="x")
plain.job(wrong=7)  # type: ignore[call-arg]
plain.job(booking_id="7")  # type: ignore[arg-type]
plain.job()  # type: ignore[call-arg]
plain.job(7)  # type: ignore[call-arg]

with_context.job(booking_id=7)
with_context.job(ctx=None, booking_id=7)  # type: ignore[call-arg]
with_context.job(wrong=7)  # type: ignore[call-arg]

in_a_thread.job(7)
in_a_thread.job(booking_id="7")  # type: ignore[arg-type]

by_model.job(Invoice(7))
by_model.job(7)  # type: ignore[arg-type]
assert_type(by_model(Invoice(7)), str)

empty.job()
empty.job(booking_id=7)  # type: ignore[call-arg]


def in_sync_code(conn: Any) -> None:
    assert_type(with_context.enqueue(booking_id=7).id, UUID)
    assert_type(with_context.enqueue(booking_id=7).result(timeout="5s"), int)
    assert_type(in_a_thread.enqueue(7, conn=conn).answer, EnqueueAnswer)
    with_context.enqueue(booking_id="7")  # type: ignore[call-overload]
    assert_type(with_context.enqueue_in(conn, booking_id=7).result(), int)
    assert_type(in_a_thread.enqueue_in(conn, 7).answer, EnqueueAnswer)
    with_context.enqueue_in(conn, booking_id="7")  # type: ignore[arg-type]
    with_context.enqueue_in(conn, wrong=7)  # type: ignore[call-arg]
    with_context.enqueue_in(conn)  # type: ignore[call-arg]
    with_context.enqueue_in(booking_id=7)  # type: ignore[call-arg]
    with_context.enqueue(wrong=7)  # type: ignore[call-overload]
    with_context.enqueue()  # type: ignore[call-overload]


async def in_async_code(conn: Any) -> None:
    assert_type(await with_context.enqueue(booking_id=7), AsyncEnqueued[int])
    assert_type(await (await with_context.enqueue(booking_id=7)).result(), int)
    assert_type(await in_a_thread.enqueue(7), AsyncEnqueued[int])
    assert_type(await plain.enqueue(booking_id=7, conn=conn), AsyncEnqueued[None])
    assert_type(await plain.enqueue_in(conn, booking_id=7), AsyncEnqueued[None])
    assert_type(await with_context(None, booking_id=7), int)


@tasks.schedule("nightly", daily("03:00"), jitter="5m")
@tasks.task
async def nightly(*, note: str = "") -> int:
    return len(note)


assert_type(nightly.job(note=""), NewJob[int])
assert_type(tasks.schedule("weekly", daily("03:00"), nightly), Schedule)

tasks.task(queues="q:default")  # type: ignore[call-overload]
tasks.task(priority="high")  # type: ignore[call-overload]
