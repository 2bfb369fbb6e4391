"""A small web shop: the application that `mainspring up` runs. One task of each kind.

Its handlers only pretend: they wait, compute a little, write a row, and fail now and then, so that there is something
to see. What costs money or reaches people goes through its till, to the sandbox.
"""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import timedelta
from itertools import islice
from typing import Any

import psycopg

import mainspring as ms
from mainspring.db.schema.line import Line, Migration
from mainspring.db.schema.secure import is_secured
from mainspring.errors import DatabaseUnavailable
from mainspring.example.till import open_till

tasks = ms.Registry("shop")
till = open_till()
dice = random.SystemRandom()
_TICK_S = 0.1  # seconds between two crowds of customers
EXPORTS = ms.Queue("exports", start_target="5m")

#: The shop's own tables, applied by the same runner as the engine's.
MIGRATIONS = Line(
    "shop",
    (
        Migration(
            1,
            "receipts",
            """
            create table {schema}.shop_order (
              org_id   text not null default 'default',
              order_id integer not null,
              cents    integer not null,
              paid_at  timestamptz not null default {schema}.now(),
              primary key (org_id, order_id)
            );
            """,
        ),
        Migration(
            2,
            "payments",
            """
            create table {schema}.shop_payment (
              org_id       text not null default 'default',
              order_id     integer not null,
              intent       text not null,
              cents        integer not null,
              paid_at      timestamptz not null default {schema}.now(),
              confirmed_at timestamptz,  -- by Stripe's own webhook
              primary key (org_id, order_id)
            );
            create index shop_payment_intent on {schema}.shop_payment (intent);
            """,
        ),
    ),
)


@tasks.task(queue="q:critical", priority=0)
async def place_order(ctx: ms.Context, *, order_id: int, cents: int) -> None:
    """Write the order; its row, the e-mail that follows and this job's success are one commit."""
    await asyncio.sleep(dice.uniform(0.01, 0.05))
    await ctx.enqueue(send_receipt.job(order_id=order_id))
    async with ctx.complete() as conn:
        await conn.execute(
            "insert into mainspring.shop_order (order_id, cents) values (%s, %s) on conflict do nothing",
            [order_id, cents],
        )


@tasks.task(category="notifications", retry=ms.exponential(base=1, cap=10, attempts=8))
async def send_receipt(*, order_id: int) -> str:
    """Send an e-mail through a provider that is busy now and then: it is tried again."""
    await asyncio.sleep(dice.uniform(0.05, 0.2))
    if dice.random() < 0.15:
        raise ConnectionError("the mail server did not answer")
    return f"receipt of order {order_id}"


@tasks.task(queue=EXPORTS.name)
def export_orders(*, day: int) -> int:
    """Call a library that blocks: a plain function runs in a thread."""
    time.sleep(dice.uniform(0.2, 0.5))
    return day * 100


@tasks.task(cpu=True)
def resize_photo(*, photo_id: int) -> str:
    """Compute: with cpu=True it runs in a process of its own."""
    return hashlib.pbkdf2_hmac("sha256", str(photo_id).encode(), b"photo", 20_000).hex()[:16]


@tasks.task(retry=ms.fixed(1, attempts=3))
async def ask_supplier(*, article_id: int) -> None:
    """Ask a supplier that is mostly away: after three attempts the job is dead, and stays until somebody decides."""
    await asyncio.sleep(0.05)
    if dice.random() < 0.7:
        raise TimeoutError("the supplier did not answer")


@tasks.task(category="notifications", dedupe=ms.dedupe.debounce("{cart_id}", wait=timedelta(seconds=5)))
async def remind_cart(*, cart_id: int) -> None:
    """Remind a customer who left a cart: each change of the cart puts the timer off again."""
    await asyncio.sleep(0.01)


def customers() -> Iterator[ms.NewJob]:
    """What customers do, without end."""
    order = int(time.time() * 1000) % 1_000_000_000
    while True:
        order += 1
        yield place_order.job(order_id=order, cents=dice.randrange(500, 20_000))
        yield remind_cart.job(cart_id=dice.randrange(20))
        yield send_receipt.job(order_id=order)
        if till is not None:
            yield till.payment(order)
        if dice.random() < 0.3:
            yield resize_photo.job(photo_id=order)
        if dice.random() < 0.2:
            yield export_orders.job(day=dice.randrange(31))
        if dice.random() < 0.1:
            yield ask_supplier.job(article_id=order)


async def busy(dsn: str, rate: float, sandbox: str) -> None:
    """Let customers come, so many jobs a second, until cancelled."""
    if till is not None:
        with ms.Client(dsn, secured=True) as office:
            await asyncio.to_thread(till.settle_in, office, sandbox)
    jobs, owed = customers(), 0.0
    async with ms.AsyncClient(dsn, secured=True) as client:
        while True:
            owed += rate * _TICK_S
            batch = list(islice(jobs, int(owed)))
            owed -= len(batch)
            if batch:
                with suppress(DatabaseUnavailable):  # customers come again
                    await client.enqueue_many(batch)
            await asyncio.sleep(_TICK_S)


def grant(conn: psycopg.Connection[Any]) -> None:
    """Let workers use the shop's own tables, where the schema is secured."""
    if is_secured(conn):
        tables = "mainspring.shop_order, mainspring.shop_payment"
        conn.execute(f"grant select, insert, update on {tables} to mainspring_worker".encode())


app = ms.App(
    tasks,
    *([till.tasks] if till else []),
    blocks=till.blocks if till else [],
    queues=[EXPORTS],
    migrations=[MIGRATIONS],
    prepare=[grant],
)
