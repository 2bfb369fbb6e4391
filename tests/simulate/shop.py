"""A small application that a simulation can move: schedules in zones, chance, failures, and data of its own."""

from __future__ import annotations

import random
from datetime import timedelta
from typing import Any

import mainspring as ms

tasks = ms.Registry("shop")


def fill(conn: Any) -> None:
    """Demo data, and what a customer did just before."""
    conn.execute("insert into shop_zone values ('Europe/Berlin'), ('Asia/Kathmandu'), ('America/New_York')")
    for number in range(3):
        client.enqueue(order.job(order_id=random.randrange(1000) * 10 + number), conn=conn)


@tasks.task(subject="order_id")
async def order(ctx: ms.Context, *, order_id: int) -> None:
    """Take an order; its mail follows when the customer has slept over it."""
    async with ctx.complete() as tx:
        await tx.execute("insert into shop_order values (%s, mainspring.now())", [order_id])
        await ctx.enqueue(mail.job(order_id=order_id).after(timedelta(minutes=random.randrange(60))))


@tasks.task(subject="order_id", retry=ms.exponential(base=60, attempts=3))
def mail(*, order_id: int) -> str:
    """Send a mail through a server that is often away."""
    if random.random() < 0.5:
        raise ConnectionError("the mail server is away")
    return f"mail of {order_id}"


@tasks.task(dedupe=ms.dedupe.live("{zone}"))
async def charge(*, zone: str) -> None:
    """Charge the customers of a zone."""


@tasks.task
async def report(ctx: ms.Context) -> None:
    """Count what there is, and start a job the other way: by a client that was made for another database."""
    client.enqueue(order.job(order_id=random.randrange(1000)))


tasks.schedule("report", ms.daily("02:30", zone="Europe/Berlin"), report)
tasks.schedule("charge", ms.weekly("wed", "10:00"), charge, zones="select zone from shop_zone")
tasks.schedule("spread", ms.cron("0 */6 * * *"), order, payload={"order_id": 7}, jitter=timedelta(minutes=30))

TABLES = "create table shop_zone (zone text); create table shop_order (order_id integer, at timestamptz)"
app = ms.App(tasks, dsn="postgresql://nowhere.invalid/real", prepare=[TABLES, fill])
client = app.client()
