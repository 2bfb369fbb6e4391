"""An application that charges cards, sends mail and texts and hears from Stripe, all as the environment says."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import mainspring as ms
from mainspring.contrib.notify import Notify, Template, senders
from mainspring.contrib.stripe import Declined, Money, Stripe

tasks = ms.Registry("market")
stripe = Stripe.from_env()
TEMPLATE = Template("paid", "Paid", "Stall {{ stall }}: {{ text }}.", channels=("email", "sms"))
notify = Notify(senders=senders(), templates=[TEMPLATE], spam=None)
PRICE = Money(1250, "EUR")
CARDS = ("pm_card_visa", "pm_card_visa", "pm_card_chargeDeclinedInsufficientFunds")


@tasks.task(needs=("stripe",), subject="stall")
async def charge(ctx: ms.Context, *, stall: int) -> None:
    """Take the rent of a stall."""
    who = await stripe.customer(key=f"stall:{stall}", name=f"Stall {stall}")
    try:
        paid = await stripe.charge(PRICE, customer=who, payment_method=CARDS[stall % 3], key=ctx.idempotency_key)
    except Declined:
        async with ctx.complete() as conn:
            await notify.send("owner", "paid", {"stall": stall, "text": "declined"}, by=ctx, conn=conn)
        return
    async with ctx.complete() as conn:
        await conn.execute("insert into rent values (%s, %s, mainspring.now())", [stall, paid.id])


@stripe.on("payment_intent.succeeded")
@tasks.task(snooze_limit=timedelta(hours=1))
async def confirm(ctx: ms.Context, *, provider: str, event_id: str) -> None:
    """Stripe's own word for it."""
    event = await stripe.event(ctx, event_id)
    async with ctx.complete() as conn:
        confirmed = "update rent set confirmed_at = mainspring.now() where intent = %s returning stall"
        ((stall,),) = await (await conn.execute(confirmed, [event.object["id"]])).fetchall()
        await notify.send("owner", "paid", {"stall": stall, "text": "paid"}, by=ctx, conn=conn)


@tasks.task
async def open_market(ctx: ms.Context) -> None:
    """Every stall pays."""
    for stall in range(STALLS):
        await ctx.enqueue(charge.job(stall=stall))


def found(conn: Any) -> None:
    """Who is told."""
    with app.client() as client:
        notify.save_recipient("owner", email="owner@example.com", phone="+4915100000001", by=client)


STALLS = 3
TABLES = "create table rent (stall integer, intent text, charged_at timestamptz, confirmed_at timestamptz)"
tasks.schedule("market", ms.daily("10:00"), open_market)
app = ms.App(tasks, blocks=[stripe, notify], prepare=[TABLES, found], maintenance=False)
