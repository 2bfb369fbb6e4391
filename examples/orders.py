"""Exactly one effect: jobs that commit together with your own rows, on both sides.

The order and its job are one transaction, so there is never one without the other. The invoice, the e-mail that follows
and the job's success are one transaction too, so a crash leaves either all of them or none.

    mainspring worker run --app examples.orders:app
    python -m examples.orders
"""

import psycopg

import mainspring as ms

tasks = ms.Registry("orders")

TABLES = """
    create table if not exists orders (id integer primary key, cents integer not null);
    create table if not exists invoice (order_id integer primary key, cents integer not null);
"""


@tasks.task(queue="q:critical", dedupe=ms.dedupe.keep("{order_id}"))
async def issue_invoice(ctx: ms.Context, *, order_id: int) -> None:
    """Write the invoice of an order, once."""
    await ctx.enqueue(send_invoice.job(order_id=order_id))
    async with ctx.complete() as conn:
        await conn.execute("insert into invoice select id, cents from orders where id = %s", [order_id])


@tasks.task(category="notifications")
async def send_invoice(*, order_id: int) -> str:
    """Send the invoice by e-mail."""
    return f"sent the invoice of order {order_id}"


app = ms.App(tasks)


def main() -> None:
    with psycopg.connect(app.dsn) as conn, app.client() as client:
        conn.execute(TABLES)
        conn.execute("insert into orders values (7, 4200) on conflict do nothing")
        job = client.enqueue(issue_invoice.job(order_id=7), conn=conn)
    print(f"order 7 and its job {job.id} are committed ({job.answer})")


if __name__ == "__main__":
    main()
