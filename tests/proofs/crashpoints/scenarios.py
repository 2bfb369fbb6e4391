"""What a worker does when it is killed: one application for each kind of effect, with its points of death."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, NamedTuple

import mainspring as ms
from mainspring.contrib.notify import Notify, Outgoing, Receipt, Sender, Template
from mainspring.contrib.notify.smtp import Smtp
from mainspring.contrib.notify.twilio import Twilio
from mainspring.contrib.stripe import Money, Stripe
from mainspring.contrib.vendus import InvoiceDraft, InvoiceLine, Vendus
from mainspring.contrib.webhooks import Policy, Transport, Webhooks
from mainspring.testing import Commit, at_commits

RECORD = "insert into movement (key, id) values (%s, %s)"
CONFIG = ms.WorkerConfig(concurrency=1, exchanges=1, wakeups=False, poll_interval=timedelta(milliseconds=20))
AMOUNT = Money(1250, "EUR")


class Surroundings(NamedTuple):
    """Where everything is."""

    dsn: str
    sandbox: str
    smtp_port: int


class Points:
    """Where this process shall die."""

    planted: str | None = None

    @classmethod
    def reach(cls, point: str) -> None:
        """Die here, if so planted."""
        if cls.planted == point:
            os.kill(os.getpid(), signal.SIGKILL)


def _recorded(commit: Commit) -> None:
    if commit.ends_job and commit.when == "after":
        Points.reach("after the record")


class Play:
    """One application."""

    app: ms.App

    def ask(self, client: ms.Client, **about: Any) -> None:
        """Ask for the effect, as a web request does."""
        raise NotImplementedError

    def plant(self, point: str | None) -> None:
        """Die at a point; the record and the job's success are one commit, behind which a worker can die too."""
        Points.planted = point

    async def drain(self) -> None:
        """Work until nothing is due."""
        with at_commits(_recorded):
            await self.app.worker(CONFIG).drain()


class Payment(Play):
    """A charge, a transfer or a refund, recorded in the transaction that ends the job."""

    def __init__(self, around: Surroundings) -> None:
        self.stripe = stripe = Stripe("sk_test_crash", base=f"{around.sandbox}/stripe")
        tasks = ms.Registry("payments")

        async def record(ctx: ms.Context, id: str) -> None:
            Points.reach("after the call")
            async with ctx.complete() as conn:
                await conn.execute(RECORD, [ctx.idempotency_key, id])

        @tasks.task(needs=("stripe",))
        async def charge(ctx: ms.Context, *, customer: str) -> None:
            Points.reach("before the call")
            about: Any = {"customer": customer, "payment_method": "pm_card_visa", "key": ctx.idempotency_key}
            await record(ctx, (await stripe.charge(AMOUNT, **about)).id)

        @tasks.task(needs=("stripe",))
        async def transfer(ctx: ms.Context, *, destination: str) -> None:
            Points.reach("before the call")
            await record(ctx, (await stripe.transfer(AMOUNT, destination=destination, key=ctx.idempotency_key)).id)

        @tasks.task(needs=("stripe",))
        async def refund(ctx: ms.Context, *, intent: str) -> None:
            Points.reach("before the call")
            await record(ctx, (await stripe.refund(intent=intent, key=ctx.idempotency_key)).id)

        self.tasks = {task.name: task for task in tasks}
        self.app = ms.App(tasks, dsn=around.dsn, blocks=[stripe])

    def ask(self, client: ms.Client, **about: Any) -> None:
        client.enqueue(self.tasks[about.pop("verb")].job(**about))


class Document(Play):
    """An invoice at a provider without keys: its reference is reserved in a row, and looked up by whoever finds it."""

    def __init__(self, around: Surroundings) -> None:
        vendus = Vendus("crash", base=f"{around.sandbox}/vendus")
        tasks = ms.Registry("documents")

        @tasks.task(needs=("vendus",))
        async def issue(ctx: ms.Context, *, reference: str) -> None:
            async with ctx.transaction() as conn:
                reserve = "insert into movement (key) values (%s) on conflict do nothing"
                fresh = (await conn.execute(reserve, [reference])).rowcount
            Points.reach("before the call")
            lines = [InvoiceLine(title="A week", price=AMOUNT.minor)]
            draft = InvoiceDraft(type="FR", reference=reference, lines=lines, paid_by=4)
            issued = await vendus.issue(draft, again=not fresh)
            Points.reach("after the call")
            async with ctx.complete() as conn:
                await conn.execute("update movement set id = %s where key = %s", [issued.number, reference])

        self.issue = issue
        self.app = ms.App(tasks, dsn=around.dsn, blocks=[vendus])

    def ask(self, client: ms.Client, **about: Any) -> None:
        client.enqueue(self.issue.job(**about))


class Dying:
    """A sender in a process that dies beside it."""

    def __init__(self, sender: Sender) -> None:
        self._sender, self.name, self.channel = sender, sender.name, sender.channel

    async def send(self, message: Outgoing) -> Receipt:
        Points.reach("before the call")
        receipt = await self._sender.send(message)
        Points.reach("after the call")
        return receipt

    async def find(self, message: Outgoing, since: datetime) -> Receipt | None:
        return await self._sender.find(message, since)

    async def close(self) -> None:
        await self._sender.close()


class Message(Play):
    """A mail and an SMS."""

    def __init__(self, around: Surroundings) -> None:
        senders = [
            Dying(Smtp("127.0.0.1", around.smtp_port, tls="none", sender="shop@example.com")),
            Dying(Twilio("AC1", "token", sender="+4930901820", base=f"{around.sandbox}/twilio")),
        ]
        template = Template("paid", "Paid", "Thank you.", class_="critical", channels=("email", "sms"))
        self.notify = Notify(senders=senders, templates=[template], dry_run=False)
        self.app = ms.App(dsn=around.dsn, blocks=[self.notify])

    def ask(self, client: ms.Client, **about: Any) -> None:
        self.notify.save_recipient("ada", email="ada@example.com", phone="+4915112345678", by=client)
        self.notify.send("ada", "paid", by=client, channels=[about["channel"]])


class Posting(Transport):
    """How webhooks travel from a process that dies."""

    async def post(self, *args: Any, **kwargs: Any) -> Any:
        Points.reach("before the call")
        answer = await super().post(*args, **kwargs)
        Points.reach("after the call")
        return answer


class Webhook(Play):
    """A webhook."""

    def __init__(self, around: Surroundings) -> None:
        self.webhooks = Webhooks(transport=Posting(Policy.local()))
        self.app = ms.App(dsn=around.dsn, blocks=[self.webhooks])

    def ask(self, client: ms.Client, **about: Any) -> None:
        self.webhooks.endpoints(client).add(about["url"])
        self.webhooks.publish("order.paid", {"total": 7}, ("Order", 1), by=client)


SCENARIOS: dict[str, Callable[[Surroundings], Play]] = {
    "charge": Payment,
    "transfer": Payment,
    "refund": Payment,
    "invoice": Document,
    "email": Message,
    "sms": Message,
    "webhook": Webhook,
}


def drain(around: tuple[str, str, int], scenario: str, point: str | None) -> None:
    """Work until nothing is due, and be killed at the point."""
    play = SCENARIOS[scenario](Surroundings(*around))
    play.plant(point)
    asyncio.run(play.drain())
