"""Back-pressure: best-effort work is refused while its queue is full, other work never."""

from __future__ import annotations

import psycopg
import pytest
from tests.databases import Database
from tests.db.engine import Engine

import mainspring as ms
from mainspring.errors import QueueFull

tasks = ms.Registry("depth")


@tasks.task(queue="mail", best_effort=True)
async def notify(*, user: int) -> None:
    """Nobody suffers if it is not sent."""


@tasks.task(queue="mail")
async def invoice(*, user: int) -> None:
    """Money."""


@pytest.mark.rule("ENG-29.05")
def test_a_full_queue_refuses_notifications_and_takes_invoices(engine: Engine, client: ms.Client) -> None:
    client.limits.depth("mail", 3)
    for n in range(3):
        client.enqueue(notify.job(user=n))
    with pytest.raises(QueueFull, match="queue: mail is full, 3 jobs or more are ready") as caught:
        client.enqueue(notify.job(user=3))
    assert (caught.value.queue, caught.value.code) == ("mail", "QUEUE_FULL")
    client.enqueue(invoice.job(user=3))
    assert engine.rows("select count(*) from mainspring.job") == [(4,)]


@pytest.mark.rule("ENG-29.05")
def test_a_batch_with_a_refused_job_is_refused_whole(engine: Engine, client: ms.Client) -> None:
    client.limits.depth("mail", 1)
    client.enqueue(notify.job(user=0))
    with pytest.raises(QueueFull):
        client.enqueue_many([invoice.job(user=1), notify.job(user=2)])
    assert engine.rows("select count(*) from mainspring.job") == [(1,)]


def test_what_is_due_later_or_elsewhere_does_not_fill_a_queue(engine: Engine, client: ms.Client) -> None:
    client.limits.depth("mail", 1)
    client.enqueue(notify.job(user=0).after(3600))
    client.enqueue(notify.job(user=1).on_queue("q:default"))
    client.enqueue(notify.job(user=2))
    with pytest.raises(QueueFull):
        client.enqueue(notify.job(user=3).after(3600))
    engine.claim(queues=["mail"], tasks=["notify"])
    client.enqueue(notify.job(user=4))
    client.limits.depth("mail", None)
    client.enqueue_many([notify.job(user=n) for n in range(20)])


def test_what_a_limit_has_put_off_still_fills_its_queue(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task=notify.name, most=1, per="1s"))
    client.limits.depth("mail", 3)
    for n in range(3):
        client.enqueue(notify.job(user=n))
    assert len(engine.claim(queues=["mail"], tasks=[notify.name])) == 1
    client.enqueue(notify.job(user=3))
    with pytest.raises(QueueFull):
        client.enqueue(notify.job(user=4))


def test_sql_and_other_connections_meet_the_same_bound(engine: Engine, database: Database, client: ms.Client) -> None:
    client.limits.depth("q:default", 1)
    enqueue = "select state from mainspring.enqueue('notify', best_effort => true)"
    assert engine.rows(enqueue) == [("ready",)]
    with pytest.raises(psycopg.Error, match="q:default is full") as caught:
        engine.rows(enqueue)
    assert caught.value.sqlstate == "MS006"
    with database.connect() as conn, pytest.raises(QueueFull):
        client.enqueue(notify.job(user=1).on_queue("q:default"), conn=conn)
    assert engine.rows("select state from mainspring.enqueue('invoice')") == [("ready",)]
