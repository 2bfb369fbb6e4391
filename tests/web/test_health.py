"""Liveness and readiness: what is asked, how long, and how little is said."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from contextlib import closing, suppress

import httpx2
import pytest
from tests.databases import Database
from tests.secured import Secured
from tests.web.visit import SECRET, Part, open_to, visiting
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.contrib.rabbitmq import RabbitMQ
from mainspring.declare.block import Check
from mainspring.errors import ConfigurationError
from mainspring.web import create
from mainspring.web import health as web_health

pytestmark = pytest.mark.anyio

WELL = {"status": "ready", "checks": {"database": "ok", "schema": "ok"}}


@pytest.fixture(autouse=True)
def fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each question is asked anew, unless a test is about that."""
    monkeypatch.setattr(web_health, "ANSWER_KEPT_S", 0.0)


def shop(dsn: str, *checks: Check, schema: str = "mainspring") -> ms.App:
    blocks = [Part(checks=list(checks))] if checks else []
    return ms.App(ms.Registry("shop"), dsn=dsn, maintenance=False, blocks=blocks, schema=schema)


async def ready(visitor: httpx2.AsyncClient) -> tuple[int, object]:
    answer = await visitor.get("/v1/health/ready")
    return answer.status_code, answer.json()


async def broken() -> None:
    raise ConnectionError("amqp://guest:hunter2@broker does not answer")


async def well() -> None:
    """Well."""


@pytest.mark.rule("ENG-17.09")
async def test_readiness_needs_the_database_and_liveness_nobody() -> None:
    async with open_to(shop("postgresql://ada:hunter2@127.0.0.1:1/shop")) as visitor:
        live = await visitor.get("/v1/health/live")
        status, said = await ready(visitor)

    assert (live.status_code, live.json()) == (200, {"status": "live"})
    assert (status, said) == (
        503,
        {"status": "unavailable", "checks": dict.fromkeys(("database", "schema"), "unavailable")},
    )


@pytest.mark.rule("ENG-17.09")
async def test_readiness_needs_a_database_that_takes_writes(database: Database, stage: Stage) -> None:
    async with open_to(shop(database.dsn)) as visitor:
        assert await ready(visitor) == (200, WELL)
        stage.rows(f"alter database {stage.conn.info.dbname} set default_transaction_read_only = on")
        status, said = await ready(visitor)

    stage.rows("set default_transaction_read_only = off")
    stage.rows(f"alter database {stage.conn.info.dbname} reset default_transaction_read_only")
    assert (status, said) == (
        503,
        {"status": "unavailable", "checks": dict.fromkeys(("database", "schema"), "unavailable")},
    )


@pytest.mark.rule("ENG-17.09")
@pytest.mark.parametrize(
    "change",
    [
        "delete from mainspring.migration where number = (select max(number) from mainspring.migration)",
        "insert into mainspring.migration (line, number, name, breaking) values ('mainspring', 999, 'later', true)",
    ],
    ids=["older", "newer, breaking"],
)
async def test_readiness_needs_the_expected_schema(database: Database, stage: Stage, change: str) -> None:
    async with open_to(shop(database.dsn)) as visitor:
        stage.rows(change)
        found = await ready(visitor)

    assert found == (503, {"status": "unavailable", "checks": {"database": "ok", "schema": "unavailable"}})


async def test_a_schema_that_is_not_installed_is_not_ready(database: Database) -> None:
    async with open_to(shop(database.dsn, schema="elsewhere")) as visitor:
        assert (await ready(visitor))[0] == 503


@pytest.mark.rule("ENG-17.08")
@pytest.mark.parametrize(
    ("flag", "expected"), [("off", (200, "degraded", "degraded")), ("on", (503, "unavailable", "unavailable"))]
)
async def test_the_broker_is_required_only_by_its_flag(
    database: Database, monkeypatch: pytest.MonkeyPatch, flag: str, expected: tuple[int, str, str]
) -> None:
    monkeypatch.setenv("BPC_HEALTH_REQUIRE_QUEUE", flag)
    names = {"BPC_HEALTH_REQUIRE_QUEUE": "MAINSPRING_HEALTH_REQUIRE_QUEUE"}  # the passport's document has its own
    with closing(RabbitMQ("amqp://guest:hunter2@127.0.0.1:1/", enabled=True, setting_aliases=names)) as block:
        app = ms.App(ms.Registry("shop"), dsn=database.dsn, maintenance=False, blocks=[block])
        async with open_to(app) as visitor:
            answer = await visitor.get("/v1/health/ready")

    said = answer.json()
    assert (answer.status_code, said["status"], said["checks"]["queue"]) == expected
    assert "hunter2" not in answer.text


async def test_only_names_and_states_are_said_and_the_log_says_why_once(
    database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "mainspring.web")
    async with open_to(shop(database.dsn, Check("queue", broken), Check("cache", well, required=True))) as visitor:
        found = [await ready(visitor) for _ in range(3)]

    checks = {"database": "ok", "schema": "ok", "queue": "degraded", "cache": "ok"}
    assert found == [(200, {"status": "degraded", "checks": checks})] * 3
    said = [record.getMessage() for record in caplog.records if record.getMessage().startswith("readiness")]
    assert len(said) == 1
    assert "does not answer" in said[0]


async def test_a_probe_that_hangs_delays_the_answer_by_its_own_limit_only(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_health, "PROBE_PATIENCE_S", 0.2)

    over = asyncio.Event()

    async def stubborn() -> None:
        while not over.is_set():
            with suppress(asyncio.CancelledError):  # it does not let itself be stopped
                await over.wait()

    async with open_to(shop(database.dsn, *(Check(f"c{n}", stubborn) for n in range(20)))) as visitor:
        began = time.monotonic()
        async with asyncio.timeout(60):
            status, _ = await ready(visitor)
        took = time.monotonic() - began
        over.set()
        await asyncio.sleep(0)  # so that nothing of it is left behind for the loop's end

    assert (status, took < 20 * 0.2) == (200, True)  # not one after another


async def test_a_database_that_is_silent_is_unavailable_and_no_question_stays_behind(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(web_health, "PROBE_PATIENCE_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:  # takes calls, says nothing
        app = shop(f"postgresql://ada@127.0.0.1:{silent.getsockname()[1]}/shop")
        async with open_to(app) as visitor:
            began = time.monotonic()
            found = [(await ready(visitor))[0] for _ in range(5)]
            took = time.monotonic() - began

    assert (found, took < 20) == ([503] * 5, True)


async def test_a_flood_of_questions_asks_once(database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(web_health, "ANSWER_KEPT_S", 30.0)
    asked = list[int]()

    async def probe() -> None:
        asked.append(1)

    async with open_to(shop(database.dsn, Check("queue", probe))) as visitor:
        answers = await asyncio.gather(*(ready(visitor) for _ in range(50)))

    assert {status for status, _ in answers} == {200}
    assert len(asked) == 1


async def test_two_checks_of_one_name_are_refused(database: Database) -> None:
    with pytest.raises(ConfigurationError, match=r"^checks: two are called schema"):
        create(shop(database.dsn, Check("schema", well)))


@pytest.mark.parametrize(
    ("peer", "headers", "status"),
    [
        ("127.0.0.1", {}, 200),
        ("::1", {}, 200),
        ("10.0.0.9", {}, 401),
        ("203.0.113.9", {}, 401),
        ("127.0.0.1", {"x-forwarded-for": "127.0.0.1"}, 401),  # by a proxy that stands here
        ("127.0.0.1", {"forwarded": "for=127.0.0.1"}, 401),
    ],
)
async def test_metrics_without_a_secret_are_for_this_machine(
    database: Database, peer: str, headers: dict[str, str], status: int
) -> None:
    async with visiting(create(shop(database.dsn)), client=(peer, 5000)) as visitor:
        assert (await visitor.get("/metrics", headers=headers)).status_code == status


@pytest.mark.parametrize("shown", [{"x-cron-secret": SECRET}, {"authorization": f"Bearer {SECRET}"}])
async def test_metrics_show_what_a_worker_shows_to_who_knows_the_secret(
    database: Database, stage: Stage, tasks: ms.Registry, shown: dict[str, str]
) -> None:
    @tasks.task
    async def noop() -> None:
        """Do nothing."""

    await stage.enqueue_many([noop.job() for _ in range(12)])
    async with open_to(ms.App(tasks, dsn=database.dsn, maintenance=False)) as visitor:
        await visitor.post("/v1/run", headers=shown)
        refused = await visitor.get("/metrics")
        shown_text = (await visitor.get("/metrics", headers=shown)).text

    assert (refused.status_code, refused.text) == (401, "Unauthorized")
    lines = shown_text.splitlines()
    assert 'mainspring_jobs_succeeded_total{job_type="noop",queue="q:default"} 10.0' in lines
    assert 'mainspring_jobs_ready{queue="q:default"} 2.0' in lines
    assert "mainspring_gauges_up 1.0" in lines


async def test_metrics_of_a_role_that_may_not_read_the_gauges_show_what_was_counted_here(database: Database) -> None:
    with closing(Secured(database)) as secured:
        async with visiting(create(shop(secured.dsn("api"))), client=("127.0.0.1", 5000)) as visitor:
            answer = await visitor.get("/metrics")

    assert answer.status_code == 200
    assert "mainspring_gauges_up 0.0" in answer.text.splitlines()
