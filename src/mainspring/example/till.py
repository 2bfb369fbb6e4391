"""The till of the example shop: it charges cards, sends messages and tells a partner, all through the sandbox.

The clients are those of production; only the addresses differ. `mainspring up` starts the sandbox and says where it is.
"""

from __future__ import annotations

import os
import random
from collections.abc import Mapping
from datetime import timedelta

import mainspring as ms
from mainspring.contrib.notify import Notify, Template, senders
from mainspring.contrib.stripe import Declined, Money, NotYet, Stripe
from mainspring.contrib.webhooks import Policy, Webhooks
from mainspring.declare.block import Block

SANDBOX = "MAINSPRING_SANDBOX"
CUSTOMERS = range(1, 21)
#: One card in ten is refused.
SHOP_CARDS = ["pm_card_visa"] * 9 + ["pm_card_chargeDeclinedInsufficientFunds"]
TEMPLATES = (
    Template("receipt", "Your receipt", "Order {{ order_id }}: {{ total }}.", channels=("email", "in_app")),
    Template(
        "card_refused",
        "Your card was refused",
        "The card for order {{ order_id }} was refused: please give us another.",
        class_="time_bound",  # tomorrow it is too late
        channels=("sms",),
    ),
)
PAID = "insert into mainspring.shop_payment (order_id, intent, cents) values (%s, %s, %s) on conflict do nothing"
CONFIRMED = "update mainspring.shop_payment set confirmed_at = mainspring.now() where intent = %s"

dice = random.SystemRandom()


class Till:
    """What takes money and tells people, with the blocks that it needs."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.stripe = stripe = Stripe.from_env(env)
        self.notify = notify = Notify(senders=senders(env), templates=TEMPLATES)
        self.webhooks = webhooks = Webhooks("X-Shop", policy=Policy.local())
        self.blocks: list[Block] = [stripe, notify, webhooks]
        self.tasks = tasks = ms.Registry("till")

        @tasks.task(needs=("stripe",), retry=ms.exponential(base=1, cap=30, attempts=8))
        async def take_payment(ctx: ms.Context, *, order_id: int, customer: int, cents: int, card: str) -> None:
            """Charge a card, once; row, receipt, webhook and this job's success are one commit."""
            amount, about = Money(cents, "EUR"), {"order_id": order_id}
            who = await ctx.step("customer", stripe.customer, key=f"customer:{customer}", name=f"Customer {customer}")
            try:
                paid = await stripe.charge(amount, customer=who, payment_method=card, key=ctx.idempotency_key)
            except Declined:
                async with ctx.complete() as conn:
                    await notify.send(f"customer-{customer}", "card_refused", about, by=ctx, conn=conn)
                return
            async with ctx.complete() as conn:
                await conn.execute(PAID, [order_id, paid.id, cents])
                await notify.send(f"customer-{customer}", "receipt", about | {"total": str(amount)}, by=ctx, conn=conn)
                await webhooks.publish("order.paid", about | {"cents": cents}, ("Order", order_id), by=ctx, conn=conn)

        @stripe.on("payment_intent.succeeded")
        @tasks.task(snooze_limit=timedelta(hours=1))
        async def confirm_payment(ctx: ms.Context, *, provider: str, event_id: str) -> None:
            """Stripe's own word for it, by a signed webhook."""
            event = await stripe.event(ctx, event_id)
            async with ctx.complete() as conn:
                if (await conn.execute(CONFIRMED, [event.object["id"]])).rowcount == 0:
                    raise NotYet(1)  # it was faster than our own row of the payment

        self.take_payment = take_payment

    def settle_in(self, client: ms.Client, sandbox: str) -> None:
        """Who gets messages, and the partner who hears of orders."""
        for number in CUSTOMERS:
            address, phone = f"customer-{number}@example.com", f"+49151000000{number:02}"
            self.notify.save_recipient(f"customer-{number}", email=address, phone=phone, by=client)
        partner, endpoints = f"{sandbox}/partner/hooks", self.webhooks.endpoints(client)
        known = endpoints.list()
        for endpoint in known:
            if endpoint.url != partner:  # the sandbox had another port the last time
                endpoints.remove(endpoint.id)
        if partner not in {endpoint.url for endpoint in known}:
            endpoints.add(partner, events=["order.*"], description="a partner who wants to know")

    def payment(self, order_id: int) -> ms.NewJob:
        """What a customer does at the till."""
        cents, customer = dice.randrange(500, 20_000), dice.choice(CUSTOMERS)
        return self.take_payment.job(order_id=order_id, customer=customer, cents=cents, card=dice.choice(SHOP_CARDS))


def open_till(env: Mapping[str, str] = os.environ) -> Till | None:
    """The till, where there is a sandbox; nobody's card is charged otherwise."""
    return Till(env) if env.get(SANDBOX) else None
