from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.databases import Database

import mainspring as ms
from mainspring.errors import ConfigurationError

tasks = ms.Registry("app_tests")
may_end = asyncio.Event()


@tasks.task
async def send_mail(*, to: str) -> str:
    """Take as long as the test wants."""
    await may_end.wait()
    return to


@pytest.mark.rule("ENG-1.01")
@pytest.mark.anyio
async def test_a_webhook_answers_from_committed_state_while_the_slow_work_goes_on(database: Database) -> None:
    app = ms.App(tasks, dsn=database.dsn)
    worker = app.worker(ms.WorkerConfig(concurrency=1, exchanges=1))
    await worker.start()
    async with app.async_client() as client:

        async def webhook() -> tuple[int, str]:
            job = await client.enqueue(send_mail.job(to="ada@example.com"))
            return 202, str(job.id)

        status, job_id = await webhook()  # it answers although the work cannot end before the test lets it

        job = (await client.jobs())[0]
        assert (status, job_id) == (202, str(job.id))
        assert job.state in {"ready", "running"}
        may_end.set()
        assert await client.result(job.id, timeout=30) == "ada@example.com"
    await worker.stop()


def test_an_app_gives_its_settings_to_its_clients(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_DSN", database.dsn)
    app = ms.App(tasks, caller=ms.Caller(org_id="acme"))

    with app.client() as client:
        assert client.dsn == database.dsn
        assert client.get(client.enqueue(send_mail.job(to="x")).id).org_id == "acme"


def test_an_app_without_a_database_says_what_to_do(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)  # where no `mainspring up` runs
    app = ms.App(tasks)

    with pytest.raises(ConfigurationError, match="MAINSPRING_DSN"):
        app.client()


def test_an_async_client_may_be_made_before_its_loop(database: Database) -> None:
    client = ms.AsyncClient(database.dsn)

    async def main() -> str:
        async with client:
            return (await client.enqueue(send_mail.job(to="x"))).answer

    assert asyncio.run(main()) == "created"
