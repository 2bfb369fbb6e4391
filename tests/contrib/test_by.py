"""What blocks do by the context of a handler: in whichever block of it is open, else under its lease, or at its end."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import psycopg
import pytest
import sqlalchemy
import sqlalchemy.orm
from tests.worker.conftest import colour as colour
from tests.worker.conftest import stage as stage
from tests.worker.conftest import tasks as tasks
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.contrib.notify import Notify, Template
from mainspring.contrib.stripe import Stripe
from mainspring.contrib.webhooks import Policy, Webhooks
from mainspring.errors import AfterCompletion
from mainspring.events import Event, JobEnqueued

pytestmark = pytest.mark.anyio

HELLO = Template("hello", "Hello", "Hello {{ name }}!", channels=("in_app",))
BODY = '{"id": "evt_1", "object": "event", "type": "payout.paid", "created": 1, "data": {"object": {}}}'


class Shop:
    """An application with three blocks; one endpoint wants its events, one recipient its messages."""

    def __init__(self, stage: Stage, tasks: ms.Registry) -> None:
        self.stage = stage
        self.hooks, self.notify = Webhooks(policy=Policy.local()), Notify(templates=[HELLO])
        self.stripe = Stripe("sk_test_1", base="http://127.0.0.1:9", webhook_secrets=["whsec_1"])
        self.told: list[Event] = []
        about: Any = {"blocks": [self.hooks, self.notify, self.stripe], "observers": [self.told.extend]}
        self.app = ms.App(tasks, dsn=stage.dsn, maintenance=False, **about)
        #: What others saw right after the calls: was the event published, was the message asked for?
        self.seen: dict[str, tuple[bool, bool]] = {}

    async def run(self, job: ms.NewJob) -> str:
        """Run a job, and nothing that it asks for; says how it ended."""
        insert = "insert into mainspring.inbound values ('default', 'stripe', 'evt_1', 'payout.paid', %s, null, now())"
        self.stage.rows(insert, BODY)
        async with self.app.async_client() as client:
            await self.hooks.endpoints(client).add("http://127.0.0.1:9/", events=["shop.*"])
            await self.notify.save_recipient("ana", email="ana@example.com", by=client)
            enqueued = await client.enqueue(job)
            await self.app.arun_due(limit=1)
            return (await client.get(enqueued.id)).state

    async def act(self, ctx: ms.Context, place: str, conn: Any = None) -> None:
        await self.hooks.publish(f"shop.{place}", {}, ("Shop", 1), by=ctx, conn=conn)
        await self.notify.send("ana", "hello", {"name": place}, by=ctx, conn=conn)
        self.look(place)

    def act_in_thread(self, ctx: ms.SyncContext, place: str, conn: Any = None) -> None:
        self.hooks.publish(f"shop.{place}", {}, ("Shop", 1), by=ctx, conn=conn)
        self.notify.send("ana", "hello", {"name": place}, by=ctx, conn=conn)
        self.look(place)

    def look(self, place: str) -> None:
        self.seen[place] = place in self.published, place in self.asked

    @property
    def published(self) -> set[str]:
        rows = self.stage.rows("select event_type from mainspring.webhook_delivery")
        return {row[0].removeprefix("shop.") for row in rows}

    @property
    def asked(self) -> set[str]:
        return {row[0] for row in self.stage.rows("select data ->> 'name' from mainspring.notification")}

    def told_of(self, task: str) -> int:
        """Of how many jobs of a task observers were told."""
        return sum(isinstance(event, JobEnqueued) and event.task == task for event in self.told)


@pytest.mark.rule("ENG-9.10", "ENG-4.11")
async def test_a_block_joins_the_open_block_of_a_handler_and_writes_at_once_outside_of_blocks(
    stage: Stage, tasks: ms.Registry, colour: str
) -> None:
    shop = Shop(stage, tasks)

    if colour == "async":

        @tasks.task(name="work")
        async def work(ctx: ms.Context) -> None:
            await shop.act(ctx, "outside")
            async with ctx.transaction() as conn:
                await shop.act(ctx, "middle")
                await shop.act(ctx, "middle_conn", conn)
                assert (await shop.stripe.event(ctx, "evt_1")).id == "evt_1"
            shop.look("middle_conn")
            for name, block in (("middle_failed", ctx.transaction), ("complete_failed", ctx.complete)):
                with suppress(ZeroDivisionError):
                    async with block():
                        await shop.act(ctx, name)
                        raise ZeroDivisionError
            await shop.act(ctx, "after_failures")
            assert (await shop.stripe.event(ctx, "evt_1")).id == "evt_1"
            async with ctx.complete() as conn:
                await shop.act(ctx, "complete")
                await shop.act(ctx, "complete_conn", conn)
            with pytest.raises(AfterCompletion):
                await shop.hooks.publish("shop.late", {}, ("Shop", 1), by=ctx)
            with pytest.raises(AfterCompletion):
                await shop.notify.send("ana", "hello", {"name": "late"}, by=ctx)
            with pytest.raises(AfterCompletion):
                await shop.stripe.event(ctx, "evt_1")
    else:

        @tasks.task(name="work")
        def work(ctx: ms.SyncContext) -> None:
            shop.act_in_thread(ctx, "outside")
            with ctx.transaction() as conn:
                shop.act_in_thread(ctx, "middle")
                shop.act_in_thread(ctx, "middle_conn", conn)
                assert shop.stripe.sync.event(ctx, "evt_1").id == "evt_1"
            shop.look("middle_conn")
            for name, block in (("middle_failed", ctx.transaction), ("complete_failed", ctx.complete)):
                with suppress(ZeroDivisionError), block():
                    shop.act_in_thread(ctx, name)
                    raise ZeroDivisionError
            shop.act_in_thread(ctx, "after_failures")
            assert shop.stripe.sync.event(ctx, "evt_1").id == "evt_1"
            with ctx.complete() as conn:
                shop.act_in_thread(ctx, "complete")
                shop.act_in_thread(ctx, "complete_conn", conn)
            with pytest.raises(AfterCompletion):
                shop.hooks.publish("shop.late", {}, ("Shop", 1), by=ctx)
            with pytest.raises(AfterCompletion):
                shop.notify.send("ana", "hello", {"name": "late"}, by=ctx)
            with pytest.raises(AfterCompletion):
                shop.stripe.sync.event(ctx, "evt_1")

    assert await shop.run(work.job()) == "succeeded"

    unseen, at_once, committed = (False, False), (True, False), (True, True)
    assert shop.seen == {
        "outside": at_once,  # under the lease; the message waits for the job's success
        "middle": unseen,
        "middle_conn": committed,  # looked at after its block
        "middle_failed": unseen,
        "complete_failed": unseen,
        "after_failures": at_once,
        "complete": unseen,
        "complete_conn": unseen,
    }
    assert shop.published == shop.asked == shop.seen.keys() - {"middle_failed", "complete_failed"}
    assert shop.told_of("webhooks.deliver") == shop.told_of("notify.deliver") == len(shop.published)


async def test_what_a_handler_published_outside_of_blocks_is_told_though_its_job_fails(
    stage: Stage, tasks: ms.Registry, colour: str
) -> None:
    shop = Shop(stage, tasks)

    if colour == "async":

        @tasks.task(name="work", retry=ms.fixed(1, attempts=2))
        async def work(ctx: ms.Context) -> None:
            await shop.act(ctx, "outside")
            raise ConnectionError
    else:

        @tasks.task(name="work", retry=ms.fixed(1, attempts=2))
        def work(ctx: ms.SyncContext) -> None:
            shop.act_in_thread(ctx, "outside")
            raise ConnectionError

    assert await shop.run(work.job()) == "retrying"

    assert (shop.published, shop.asked) == ({"outside"}, set())
    assert (shop.told_of("webhooks.deliver"), shop.told_of("notify.deliver")) == (1, 0)


@pytest.mark.parametrize("commits", [True, False])
async def test_a_block_joins_the_transaction_of_their_own_in_which_handlers_complete_their_job(
    stage: Stage, tasks: ms.Registry, commits: bool
) -> None:
    shop = Shop(stage, tasks)
    engine = sqlalchemy.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(stage.dsn))

    @tasks.task(retry=ms.fixed(1, attempts=2))
    def work(ctx: ms.SyncContext) -> None:
        with sqlalchemy.orm.Session(engine) as session, session.begin():
            shop.act_in_thread(ctx, "own", session)
            ctx.complete_in(session)
            if not commits:
                raise ConnectionError

    assert await shop.run(work.job()) == ("succeeded" if commits else "retrying")

    engine.dispose()
    assert shop.seen == {"own": (False, False)}
    assert shop.published == shop.asked == ({"own"} if commits else set())
