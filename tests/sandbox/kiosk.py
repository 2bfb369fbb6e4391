"""An application that charges cards and hears of it by Stripe's webhooks, in both colours."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import mainspring as ms
from mainspring.contrib.stripe import Money, Stripe

PRICE = Money(1250, "EUR")
TABLES = """
create table sale (number integer primary key, intent text, charged_at timestamptz);
create table heard (event_id text, type text, intent text, at timestamptz);
"""


class Kiosk:
    """Sells tickets."""

    def __init__(self, base: str, secret: str = "whsec_sandbox") -> None:
        self.tasks = tasks = ms.Registry("kiosk")
        self.stripe = stripe = Stripe("sk_test_1", base=f"{base}/stripe", webhook_secrets=[secret])

        @tasks.task
        async def sell(ctx: ms.Context, *, number: int) -> None:
            who = await stripe.customer(key="customer:1", name="Ada")
            paid = await stripe.charge(PRICE, customer=who, payment_method="pm_card_visa", key=ctx.idempotency_key)
            async with ctx.complete() as conn:
                await conn.execute("insert into sale values (%s, %s, mainspring.now())", [number, paid.id])

        @tasks.task
        def sell_plainly(ctx: ms.SyncContext, *, number: int) -> None:
            who = stripe.sync.customer(key="customer:1", name="Ada")
            paid = stripe.sync.charge(PRICE, customer=who, payment_method="pm_card_visa", key=ctx.idempotency_key)
            with ctx.complete() as conn:
                conn.execute("insert into sale values (%s, %s, mainspring.now())", [number, paid.id])

        @stripe.on("payment_intent.succeeded", "charge.succeeded")
        @tasks.task(snooze_limit=timedelta(hours=1))
        async def hear(ctx: ms.Context, *, provider: str, event_id: str) -> None:
            event = await stripe.event(ctx, event_id)
            async with ctx.complete() as conn:
                told = [event.id, event.type, event.object.get("payment_intent") or event.object["id"]]
                await conn.execute("insert into heard values (%s, %s, %s, mainspring.now())", told)

        self.sell, self.sell_plainly, self.hear = sell, sell_plainly, hear
        self.app = ms.App(tasks, blocks=[stripe], maintenance=False)


def heard(conn: Any) -> list[tuple[Any, ...]]:
    """What was heard, in order."""
    found: list[tuple[Any, ...]] = conn.execute("select type, at from heard order by at, type").fetchall()
    return found
