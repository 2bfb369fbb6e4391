"""The run endpoint: who may call it, what runs, what is answered, who may hang up."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from datetime import datetime, timedelta
from urllib.parse import urlsplit

import pytest
from tests.databases import Database
from tests.web.visit import SECRET, SHOWN, open_to, served, visiting
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.errors import ConfigurationError
from mainspring.job import NewJob
from mainspring.web import Run, create
from mainspring.web import runs as web_runs

pytestmark = pytest.mark.anyio


@pytest.fixture
def shop(tasks: ms.Registry, database: Database) -> ms.App:
    @tasks.task
    async def noop() -> None:
        """Do nothing."""

    return ms.App(tasks, dsn=database.dsn, maintenance=False)


def noop(app: ms.App) -> NewJob:
    return app.registry.get("noop").job()


@pytest.mark.rule("ENG-15.01", "ENG-15.02", "ENG-15.06")
async def test_a_call_with_the_secret_runs_what_is_due_and_says_what_is_left(
    shop: ms.App, tasks: ms.Registry, stage: Stage
) -> None:
    rental = Run("/api/cron/process-booking-jobs", limit=2)
    app = ms.App(tasks, dsn=shop.dsn, maintenance=False, routes=[rental])
    jobs = await stage.enqueue_many([noop(app) for _ in range(5)])

    async with open_to(app) as visitor:
        answer = await visitor.post(rental.path, headers=SHOWN)

    said = answer.json()
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert list(said) == ["ok", "processed", "remainingPending", "asOfUtc"]
    assert said | {"asOfUtc": ""} == {"ok": True, "processed": 2, "remainingPending": 3, "asOfUtc": ""}
    offset = datetime.fromisoformat(said["asOfUtc"]).utcoffset()
    assert offset == timedelta(0)
    assert Counter([await stage.state(job.id) for job in jobs]) == {"succeeded": 2, "ready": 3}


@pytest.mark.rule("ENG-15.03")
@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"x-cron-secret": ""},
        {"x-cron-secret": SECRET[:-1]},
        {"x-cron-secret": f"{SECRET} "[1:]},
        {"x-cron-secret": "\udcff" * 16},
        {"authorization": f"Basic {SECRET}"},
        {"authorization": "Bearer"},
        {"cron-secret": SECRET},
        {"cookie": f"x-cron-secret={SECRET}"},
    ],
)
async def test_without_the_secret_the_answer_is_unauthorized_and_nothing_runs(
    shop: ms.App, stage: Stage, headers: dict[str, str]
) -> None:
    job = await stage.enqueue(noop(shop))
    before = stage.rows("select * from mainspring.waiting")
    raw = [(name.encode(), value.encode("utf-8", "surrogateescape")) for name, value in headers.items()]

    async with open_to(shop) as visitor:
        for method in ("POST", "GET", "HEAD"):
            answer = await visitor.request(method, "/v1/run", headers=raw)
            assert (answer.status_code, answer.text) == (401, "" if method == "HEAD" else "Unauthorized")

    assert await stage.state(job) == "ready"
    assert stage.rows("select * from mainspring.waiting") == before


@pytest.mark.rule("ENG-15.04")
async def test_a_secret_in_the_address_is_refused_and_not_logged(
    shop: ms.App, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    job = await stage.enqueue(noop(shop))

    async with open_to(shop) as visitor:
        answer = await visitor.post("/v1/run", params={"token": SECRET})

    assert (answer.status_code, await stage.state(job)) == (401, "ready")
    ours = [record for record in caplog.records if record.name == "mainspring.web"]
    assert [record.getMessage() for record in ours if getattr(record, "action", "") == "request"] == [
        "POST /v1/run 401"
    ]
    assert not any(SECRET in str(record.__dict__) or "token" in str(record.__dict__) for record in ours)


@pytest.mark.rule("ENG-15.04")
async def test_a_secret_in_the_address_is_taken_where_it_is_switched_on(
    shop: ms.App, tasks: ms.Registry, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    app = ms.App(tasks, dsn=shop.dsn, maintenance=False, routes=[Run("/cron", token=True)])
    await stage.enqueue(noop(shop))

    async with open_to(app) as visitor:
        answers = [await visitor.get("/cron", params={"token": token}) for token in ("x" * 20, SECRET)]

    assert [answer.status_code for answer in answers] == [401, 200]
    ours = [record for record in caplog.records if record.name.startswith("mainspring")]
    assert not any(SECRET in str(record.__dict__) for record in ours)


@pytest.mark.rule("ENG-15.05")
@pytest.mark.parametrize("name", ["CRON_SECRET", "MAINSPRING_CRON_SECRET"])
@pytest.mark.parametrize("value", ["", "fifteen letters", "  spaces around it  ", "ein Geheimnis für alle"])
async def test_a_secret_that_is_set_but_unfit_stops_the_start(
    tasks: ms.Registry, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)

    with pytest.raises(ConfigurationError, match=r"^CRON_SECRET: must ") as caught:
        create(ms.App(tasks, dsn="postgresql://127.0.0.1:1/shop", maintenance=False))
    assert not value or value not in str(caught.value)


@pytest.mark.rule("ENG-15.05")
async def test_without_a_secret_nothing_is_started_that_runs_jobs(shop: ms.App, tasks: ms.Registry) -> None:
    with pytest.raises(ConfigurationError, match=r"^CRON_SECRET: is not set"):
        create(ms.App(tasks, dsn=shop.dsn, maintenance=False, routes=[Run("/cron")]))

    async with visiting(create(shop)) as visitor:
        assert (await visitor.post("/v1/run", headers=SHOWN)).status_code == 404


async def test_two_names_of_the_secret_must_agree(shop: ms.App, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRON_SECRET", SECRET)
    monkeypatch.setenv("MAINSPRING_CRON_SECRET", SECRET[::-1])

    with pytest.raises(ConfigurationError, match="two names of one setting have different values"):
        create(shop)


@pytest.mark.rule("ENG-15.05")
async def test_secrets_are_compared_by_digests_of_one_length(
    shop: ms.App, monkeypatch: pytest.MonkeyPatch, stage: Stage
) -> None:
    seen = list[tuple[int, int]]()

    def compare(one: bytes, other: bytes) -> bool:
        seen.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr("mainspring.web.secret.hmac.compare_digest", compare)
    async with open_to(shop) as visitor:
        for given in ("", "x", SECRET, SECRET * 100):
            await visitor.post("/v1/run", headers={"x-cron-secret": given})

    assert len(seen) >= 4
    assert set(seen) == {(32, 32)}


@pytest.mark.rule("ENG-15.17")
@pytest.mark.parametrize("shown", [SHOWN, {"authorization": f"Bearer {SECRET}"}])
@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_get_and_post_run_and_are_never_cached(
    shop: ms.App, stage: Stage, method: str, shown: dict[str, str]
) -> None:
    await stage.enqueue(noop(shop))

    async with open_to(shop) as visitor:
        answer = await visitor.request(method, "/v1/run", headers=shown)

    assert (answer.status_code, answer.json()["processed"]) == (200, 1)
    assert answer.headers["cache-control"] == "no-store"


@pytest.mark.parametrize("method", ["HEAD", "PUT", "DELETE", "PATCH", "OPTIONS"])
async def test_other_methods_run_nothing(shop: ms.App, stage: Stage, method: str) -> None:
    job = await stage.enqueue(noop(shop))

    async with open_to(shop) as visitor:
        answer = await visitor.request(method, "/v1/run", headers=SHOWN)

    assert (answer.status_code, await stage.state(job)) == (405, "ready")


async def test_a_run_serves_only_its_queues(shop: ms.App, tasks: ms.Registry, stage: Stage) -> None:
    app = ms.App(tasks, dsn=shop.dsn, maintenance=False, routes=[Run("/cron", queues=["q:bookings"])])
    other, own = await stage.enqueue(noop(app)), await stage.enqueue(noop(app).on_queue("q:bookings"))

    async with open_to(app) as visitor:
        said = (await visitor.post("/cron", headers=SHOWN)).json()

    assert (said["processed"], said["remainingPending"]) == (1, 0)
    assert (await stage.state(other), await stage.state(own)) == ("ready", "succeeded")


async def test_more_calls_than_may_run_at_once_are_answered_at_once(
    tasks: ms.Registry, database: Database, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(web_runs, "AT_ONCE", 1)
    go, entered = asyncio.Event(), asyncio.Event()

    @tasks.task
    async def wait() -> None:
        entered.set()
        await go.wait()

    await stage.enqueue_many([wait.job(), wait.job(), wait.job()])
    async with open_to(ms.App(tasks, dsn=database.dsn, maintenance=False)) as visitor:
        first = asyncio.create_task(visitor.post("/v1/run", headers=SHOWN))
        await asyncio.wait_for(entered.wait(), 8)
        said = (await visitor.post("/v1/run", headers=SHOWN)).json()
        assert not first.done()
        go.set()
        ran = (await first).json()

    assert (said["ok"], said["processed"], said["remainingPending"]) == (True, 0, 2)
    assert (ran["processed"], ran["remainingPending"]) == (3, 0)


async def test_a_database_that_is_away_is_a_503_without_its_address(tasks: ms.Registry) -> None:
    app = ms.App(tasks, dsn="postgresql://ada:hunter2@127.0.0.1:1/shop", maintenance=False)

    async with open_to(app) as visitor:
        answer = await visitor.post("/v1/run", headers=SHOWN)

    assert (answer.status_code, answer.json()["code"]) == (503, "DB_UNAVAILABLE")
    assert "127.0.0.1" not in answer.text
    assert "hunter2" not in answer.text


@pytest.mark.rule("ENG-15.12")
async def test_a_caller_that_hangs_up_aborts_nothing(tasks: ms.Registry, database: Database, stage: Stage) -> None:
    go = stage.one("select pg_advisory_lock(7)") or True  # the handler waits until the caller is gone
    assert go

    @tasks.task
    async def slow(ctx: ms.Context) -> str:
        async with ctx.complete() as conn:
            await conn.execute("select pg_advisory_xact_lock(7)")
        return "done"

    job = await stage.enqueue(slow.job())
    with served(ms.App(tasks, dsn=database.dsn, maintenance=False)) as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port)) as line:
            head = f"POST /v1/run HTTP/1.1\r\nhost: localhost\r\nx-cron-secret: {SECRET}\r\ncontent-length: 0\r\n\r\n"
            line.sendall(head.encode())
            await stage.until(lambda: stage.rows("select 1 from mainspring.running"))
        stage.one("select pg_advisory_unlock(7)")
        await stage.until(lambda: stage.rows("select 1 from mainspring.finished"))

        assert await stage.state(job) == "succeeded"


@pytest.mark.rule("ENG-15.12")
async def test_a_server_that_cancels_the_request_of_who_hung_up_aborts_nothing(
    tasks: ms.Registry, database: Database, stage: Stage
) -> None:
    entered, go = asyncio.Event(), asyncio.Event()

    @tasks.task
    async def slow() -> None:
        entered.set()
        await go.wait()

    job = await stage.enqueue(slow.job())
    async with open_to(ms.App(tasks, dsn=database.dsn, maintenance=False)) as visitor:
        call = asyncio.create_task(visitor.post("/v1/run", headers=SHOWN))
        await asyncio.wait_for(entered.wait(), 8)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        go.set()  # and the lifespan waits for it

    assert await stage.state(job) == "succeeded"


async def test_a_stop_lets_runs_end_and_gives_back_what_takes_too_long(
    tasks: ms.Registry, database: Database, stage: Stage
) -> None:
    entered = asyncio.Event()

    @tasks.task
    async def endless() -> None:
        entered.set()
        await asyncio.Event().wait()

    await stage.enqueue_many([endless.job(), endless.job()])
    web = create(ms.App(tasks, dsn=database.dsn, maintenance=False), secret=SECRET, grace=timedelta(seconds=0.1))
    async with visiting(web) as visitor:
        call = asyncio.create_task(visitor.post("/v1/run", headers=SHOWN))
        await asyncio.wait_for(entered.wait(), 8)
    answer = await call

    assert (answer.status_code, answer.json()["processed"], answer.json()["remainingPending"]) == (200, 0, 2)
    assert stage.rows("select attempt from mainspring.waiting") == [(0,), (0,)]  # nobody has lost an attempt


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"path": "run"}, "path"), ({"path": "/{x}"}, "path"), ({"limit": 0}, "limit"), ({"budget": -1}, "budget")],
)
async def test_a_run_that_makes_no_sense_is_refused(wrong: dict[str, object], field: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^{field}: "):
        Run(**wrong)  # type: ignore[arg-type] # that is the mistake
