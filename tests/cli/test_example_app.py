"""The application of `mainspring up`: one task of each kind, and a stream of jobs that never ends."""

from __future__ import annotations

import json
from itertools import islice

import pytest
from tests.databases import Database
from tests.web.visit import open_to
from tests.worker.stage import Stage

import mainspring as ms
from mainspring import Client, example
from mainspring.cli.live import words
from mainspring.cli.providers import environment
from mainspring.contrib.stripe import sign
from mainspring.db.pulse import PULSE_LAG, pulse
from mainspring.db.schema.migrate import migrate
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.example.till import PAID, Till
from mainspring.worker import Worker


def test_example_shows_every_kind_of_task_and_of_dedupe() -> None:
    assert {task.runs for task in example.tasks} == {"async", "thread", "process"}
    assert {job.task for job in islice(example.customers(), 500)} == set(example.tasks.names())


@pytest.mark.anyio
async def test_order_its_row_and_its_receipt_are_one(database: Database, client: Client) -> None:
    with database.connect() as conn:
        assert migrate(conn, line=example.MIGRATIONS).tables == [1, 2]
        client.enqueue(example.place_order.job(order_id=7, cents=4200))
        await Worker(database.dsn, example.tasks, config=example.app.config).drain()
        assert conn.execute("select order_id, cents from mainspring.shop_order").fetchall() == [(7, 4200)]
    assert {(job.task, job.payload["order_id"]) for job in client.jobs()} == {("place_order", 7), ("send_receipt", 7)}


@pytest.mark.anyio
async def test_a_confirmation_that_comes_before_the_row_of_its_payment_is_applied_later(database: Database) -> None:
    till = Till(environment("http://127.0.0.1:9", 9, "whsec_1"))
    app = ms.App(till.tasks, dsn=database.dsn, blocks=till.blocks, maintenance=False)
    with database.connect() as conn:
        migrate(conn, line=example.MIGRATIONS)
        async with ms.AsyncClient(database.dsn) as client, open_to(app) as visitor:
            stage = Stage(database, conn, client)
            about = {"id": "evt_1", "type": "payment_intent.succeeded", "data": {"object": {"id": "pi_1"}}}
            body = json.dumps(about).encode()
            headers = {"Stripe-Signature": sign(body, "whsec_1", stage.clock.now())}
            assert (await visitor.post("/v1/inbound/stripe", content=body, headers=headers)).status_code == 200
            await app.worker().drain()
            assert stage.rows("select state from mainspring.jobs") == [("scheduled",)]

            stage.rows(PAID, 7, "pi_1", 4200)
            stage.clock.advance(minutes=1)
            await app.worker().drain()
            assert stage.rows("select state from mainspring.jobs") == [("succeeded",)]
            assert stage.one("select confirmed_at is not null from mainspring.shop_payment") is True


def test_pulse_counts_what_happened_in_its_span_only(database: Database) -> None:
    from tests.db.engine import Engine

    with database.connect() as conn:
        engine, sql = Engine(conn), Sql()
        began = engine.clock.set(engine.clock.now())
        for verb in ("complete", "complete", "fail", "reject", "bury"):
            engine.clock.advance(milliseconds=10)
            claim = engine.started(created_at=engine.clock.now().isoformat())
            engine.clock.advance(milliseconds=10)
            engine.end(claim, verb, delay="PT1H")
        engine.enqueue()
        engine.clock.advance(PULSE_LAG)
        first = run(psycopg_door(conn), pulse(sql, began))
        assert (first.started, first.succeeded, first.retried, first.failed, first.dead) == (5, 2, 1, 1, 1)
        assert (first.ready, first.later, first.running, first.rescued) == (1, 1, 0, 0)
        assert first.pickup_ms == 0
        assert "started   5 · succeeded   2 · retried 1 · failed 1 · dead 1 · waiting 1 (+1 later)" in words(first)
        engine.clock.advance(seconds=1)
        second = run(psycopg_door(conn), pulse(sql, first.until))
        assert (second.started, second.succeeded, second.retried, second.pickup_ms) == (0, 0, 0, None)
