"""The examples do what they say."""

from __future__ import annotations

import importlib
from threading import Thread
from typing import Any

import pytest
from tests.databases import Database

from mainspring import App, Client
from mainspring.virtual.clock import Clock
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def address(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_DSN", database.dsn)


async def work(app: App) -> None:
    await Worker(app.dsn, app.registry).drain()


def jobs(client: Client) -> dict[str, Any]:
    return {job.task: job for job in client.jobs()}


async def test_hello(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    hello = importlib.import_module("examples.hello")
    caller = Thread(target=hello.main)  # it waits for the result
    caller.start()
    while caller.is_alive():
        await work(hello.app)
    assert capsys.readouterr().out == "Hello, Ada!\n"


async def test_orders(database: Database, client: Client) -> None:
    orders = importlib.import_module("examples.orders")
    for _ in range(2):
        orders.main()
    await work(orders.app)
    await work(orders.app)
    orders.main()  # the key is kept for ever: nothing runs again
    await work(orders.app)
    with database.connect() as conn:
        assert conn.execute("select * from invoice").fetchall() == [(7, 4200)]
    assert sorted((job.task, job.state) for job in client.jobs()) == [
        ("issue_invoice", "succeeded"),
        ("send_invoice", "succeeded"),
    ]


async def test_failures(database: Database, client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    failures = importlib.import_module("examples.failures")
    failures.main()
    assert capsys.readouterr().out == "ten changes, one job: replaced\n"
    await work(failures.app)
    found = jobs(client)
    assert {task: job.state for task, job in found.items()} == {
        "call_provider": "retrying",
        "obey_provider": "retrying",
        "charge_closed_account": "failed",
        "wait_for_file": "scheduled",
        "index_document": "scheduled",
    }
    assert found["wait_for_file"].attempt == 0
    with database.connect() as conn:
        clock = Clock(conn)
        for _ in range(2):
            clock.advance(seconds=50)
            await work(failures.app)
    found = jobs(client)
    assert found["call_provider"].result == "answered at attempt 3"
    assert found["index_document"].state == "succeeded"
    assert found["obey_provider"].attempt == 1  # 120 s have not passed since its first attempt
