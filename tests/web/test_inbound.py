"""Webhooks of providers: verified, recorded once with their job, answered after the commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest
from tests.secured import Secured
from tests.web.visit import Part, Provider, open_to
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.declare.block import Received
from mainspring.events import Event, JobEnqueued
from mainspring.job import NewJob
from mainspring.web import inbound as web_inbound
from mainspring.web.backend import Backend

pytestmark = pytest.mark.anyio

BODY = b"evt_1:order.paid"
PLACE = "/v1/inbound/acme"


@pytest.fixture
def act(tasks: ms.Registry) -> ms.Task[..., Any]:
    @tasks.task
    async def act(*, event_id: str) -> None:
        """Act on an event."""

    return act


@pytest.fixture
def acme(act: ms.Task[..., Any]) -> Provider:
    return Provider(act)


def shop(dsn: str, tasks: ms.Registry, acme: Provider, **about: Any) -> ms.App:
    return ms.App(tasks, dsn=dsn, maintenance=False, blocks=[Part(inbound=[acme])], **about)


def kept(stage: Stage) -> list[tuple[Any, ...]]:
    return stage.rows("select org_id, provider, event_id, type, body from mainspring.inbound")


def jobs(stage: Stage) -> int:
    return int(stage.one("select count(*) from mainspring.job"))


@pytest.mark.rule("ENG-24.10", "STAFF-19.05")
async def test_the_same_event_twice_has_one_effect_and_two_answers(
    stage: Stage, tasks: ms.Registry, acme: Provider
) -> None:
    async with open_to(shop(stage.dsn, tasks, acme)) as visitor:
        headers = acme.signed(BODY, stage.clock.now())
        first = [await visitor.post(PLACE, content=BODY, headers=headers) for _ in range(2)]
        together = await asyncio.gather(*(visitor.post(PLACE, content=BODY, headers=headers) for _ in range(5)))

    assert [(answer.status_code, answer.json()) for answer in (*first, *together)] == [(200, {"received": True})] * 7
    assert kept(stage) == [("default", "acme", "evt_1", "order.paid", "evt_1:order.paid")]
    ((job, task, payload),) = stage.rows("select id, task, payload from mainspring.job")
    assert (task, payload) == ("act", {"event_id": "evt_1"})
    assert stage.one("select job_id from mainspring.inbound") == job


@pytest.mark.rule("STAFF-19.04")
@pytest.mark.parametrize("case", ["unsigned", "wrong", "changed", "old", "of the future", "no stamp"])
async def test_what_the_provider_did_not_sign_just_now_is_refused_and_leaves_nothing(
    stage: Stage, tasks: ms.Registry, acme: Provider, case: str
) -> None:
    stage.clock.advance(hours=1)  # the database's time decides, not this machine's
    now, body = stage.clock.now(), BODY
    match case:
        case "unsigned":
            headers = {}
        case "wrong":
            headers = acme.signed(body, now) | {"Acme-Signature": "0" * 64}
        case "changed":
            headers, body = acme.signed(body, now), b"evt_1:order.paid!"
        case "old":
            headers = acme.signed(body, now - timedelta(seconds=301))
        case "of the future":
            headers = acme.signed(body, now + timedelta(seconds=301))
        case _:
            headers = {"Acme-Signature": acme.signed(body, now)["Acme-Signature"]}

    async with open_to(shop(stage.dsn, tasks, acme)) as visitor:
        refused = await visitor.post(PLACE, content=body, headers=headers)
        taken = await visitor.post(PLACE, content=b"evt_2:x", headers=acme.signed(b"evt_2:x", now))

    assert (refused.status_code, refused.json()["code"]) == (400, "SIGNATURE_REFUSED")
    assert taken.status_code == 200
    assert [row[2] for row in kept(stage)] == ["evt_2"]
    assert jobs(stage) == 1


async def test_a_flood_of_forged_webhooks_does_not_take_the_connections(
    stage: Stage, tasks: ms.Registry, acme: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken, connection = list[int](), Backend.connection

    def counted(self: Backend) -> Any:
        taken.append(1)
        return connection(self)

    monkeypatch.setattr(Backend, "connection", counted)
    headers = acme.signed(BODY, stage.clock.now())
    async with open_to(shop(stage.dsn, tasks, acme)) as visitor:
        forged = [visitor.post(PLACE, content=BODY, headers={}) for _ in range(50)]
        answers = await asyncio.gather(*forged, visitor.post(PLACE, content=BODY, headers=headers))

    assert [answer.status_code for answer in answers] == [400] * 50 + [200]
    assert len(taken) < 10  # one asks for all what time it is


@pytest.mark.rule("STAFF-19.07")
async def test_an_event_that_nobody_wants_is_recorded_and_answered(
    stage: Stage, tasks: ms.Registry, acme: Provider
) -> None:
    body = b"evt_9:unwanted"
    async with open_to(shop(stage.dsn, tasks, acme)) as visitor:
        answer = await visitor.post(PLACE, content=body, headers=acme.signed(body, stage.clock.now()))

    assert (answer.status_code, len(kept(stage)), jobs(stage)) == (200, 1, 0)


@pytest.mark.rule("ENG-1.01")
async def test_a_webhook_is_answered_at_once_however_long_its_job_takes(stage: Stage, tasks: ms.Registry) -> None:
    running, answered = asyncio.Event(), asyncio.Event()

    @tasks.task
    async def slow(*, event_id: str) -> None:
        running.set()
        await answered.wait()

    acme = Provider(slow)
    async with open_to(shop(stage.dsn, tasks, acme)) as visitor, stage.work(tasks):
        await visitor.get("/v1/health/ready")
        async with asyncio.timeout(30):  # who waited for the job would wait for ever
            answer = await visitor.post(PLACE, content=BODY, headers=acme.signed(BODY, stage.clock.now()))
            assert jobs(stage) == 1
            await running.wait()
        answered.set()

    assert answer.status_code == 200


@pytest.mark.rule("ENG-1.06")
async def test_what_does_not_commit_is_not_answered_as_if_it_had(
    stage: Stage, tasks: ms.Registry, acme: Provider
) -> None:
    stage.rows(
        "create function no() returns trigger language plpgsql as $$ begin raise 'no' using errcode = '57014'; end $$"
    )
    stage.rows("create trigger no before insert on mainspring.waiting for each row execute function no()")
    told = list[Event]()

    async with open_to(shop(stage.dsn, tasks, acme, observers=[told.extend])) as visitor:
        headers = acme.signed(BODY, stage.clock.now())
        refused = await visitor.post(PLACE, content=BODY, headers=headers)
        assert (kept(stage), jobs(stage), told) == ([], 0, [])
        stage.rows("drop trigger no on mainspring.waiting")
        again = await visitor.post(PLACE, content=BODY, headers=headers)

    assert (refused.status_code, refused.headers["retry-after"], again.status_code) == (503, "5", 200)
    assert (len(kept(stage)), jobs(stage)) == (1, 1)
    assert [type(event) for event in told] == [JobEnqueued]


async def test_a_database_that_is_away_makes_the_provider_send_again(
    tasks: ms.Registry, acme: Provider, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.web.backend.CONNECTION_PATIENCE_S", 0.3)
    async with open_to(shop("postgresql://ada:hunter2@127.0.0.1:1/shop", tasks, acme)) as visitor:
        answer = await visitor.post(PLACE, content=BODY, headers=acme.signed(BODY, stage.clock.now()))

    assert (answer.status_code, answer.json()["code"]) == (503, "DB_UNAVAILABLE")
    assert "hunter2" not in answer.text


async def test_jobs_carry_the_request_that_brought_them(stage: Stage, tasks: ms.Registry, acme: Provider) -> None:
    async with open_to(shop(stage.dsn, tasks, acme)) as visitor:
        headers = acme.signed(BODY, stage.clock.now()) | {"X-Request-ID": "req-7", "X-Correlation-ID": "cor-7"}
        answer = await visitor.post(PLACE, content=BODY, headers=headers)

    assert answer.headers["x-request-id"] == "req-7"
    assert stage.rows("select request_id, correlation_id from mainspring.job") == [("req-7", "cor-7")]


@pytest.mark.parametrize(
    ("place", "method", "status"),
    [
        ("/v1/inbound/other", "POST", 404),
        ("/v1/inbound/", "POST", 404),
        ("/v1/inbound/acme/", "POST", 404),
        ("/v1/inbound/acme%00", "POST", 404),
        ("/v1/inbound/..%2facme", "POST", 404),
        (PLACE, "GET", 405),
        (PLACE, "PUT", 405),
    ],
)
async def test_other_places_and_methods_receive_nothing(
    stage: Stage, tasks: ms.Registry, acme: Provider, place: str, method: str, status: int
) -> None:
    async with open_to(shop(stage.dsn, tasks, acme)) as visitor:
        headers = acme.signed(BODY, stage.clock.now())
        answer = await visitor.request(method, place, content=BODY, headers=headers)

    assert (answer.status_code, kept(stage)) == (status, [])


@pytest.mark.parametrize(
    "body",
    [b"", b"no colon", b"\xff\xfe:x", b"evt_\x00:x", b":x", b"evt_1:", b"e" * 256 + b":x", b"evt_1:" + b"t" * 256],
)
async def test_signed_nonsense_is_a_400_and_leaves_nothing(
    stage: Stage, tasks: ms.Registry, acme: Provider, body: bytes
) -> None:
    async with open_to(shop(stage.dsn, tasks, acme)) as visitor:
        answer = await visitor.post(PLACE, content=body, headers=acme.signed(body, stage.clock.now()))

    assert (answer.status_code, "code" in answer.json()) == (400, True)
    assert (kept(stage), jobs(stage)) == ([], 0)


@pytest.mark.parametrize("announced", [True, False])
async def test_a_body_that_is_too_large_is_refused_before_it_is_read(
    stage: Stage, tasks: ms.Registry, acme: Provider, announced: bool
) -> None:
    sent = list[int]()

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            sent.append(1)
            yield b"x" * 64 * 1024

    async with open_to(shop(stage.dsn, tasks, acme)) as visitor:
        content: Any = b"x" * (web_inbound.LARGEST_INBOUND_BODY + 1) if announced else endless()
        answer = await visitor.post(PLACE, content=content)

    assert (answer.status_code, len(sent) < 20, kept(stage)) == (413, True, [])
    assert answer.json()["code"] == "PAYLOAD_TOO_LARGE"


async def test_a_body_that_does_not_arrive_is_not_waited_for(
    stage: Stage, tasks: ms.Registry, acme: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.web.guard.BODY_S", 0.1)

    async def drip() -> AsyncIterator[bytes]:
        yield b"evt_1"
        await asyncio.sleep(3600)

    async with open_to(shop(stage.dsn, tasks, acme)) as visitor:
        answer = await visitor.post(PLACE, content=drip())

    assert (answer.status_code, kept(stage)) == (408, [])


async def test_on_a_secured_schema_an_event_belongs_to_its_organisation(
    secured: Secured, tasks: ms.Registry, act: ms.Task[..., Any]
) -> None:
    acme = Provider(act, org="globex")
    app = shop(secured.dsn("api"), tasks, acme, secured=True)
    with ms.Client(secured.dsn("api"), secured=True) as client:
        now = client.now()
    async with open_to(app) as visitor:
        answers = [await visitor.post(PLACE, content=BODY, headers=acme.signed(BODY, now)) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert secured.do("select org_id from mainspring.inbound") == [("globex",)]
    assert secured.do("select org_id from mainspring.job") == [("globex",)]


async def test_an_event_belongs_to_the_organisation_of_its_job(
    secured: Secured, tasks: ms.Registry, act: ms.Task[..., Any]
) -> None:
    class Sorting(Provider):
        def job(self, received: Received) -> NewJob | None:
            job = super().job(received)
            return None if job is None else job.for_org("globex")

    acme = Sorting(act)
    with ms.Client(secured.dsn("api"), secured=True) as client:
        now = client.now()
    async with open_to(shop(secured.dsn("api"), tasks, acme, secured=True)) as visitor:
        answers = [await visitor.post(PLACE, content=BODY, headers=acme.signed(BODY, now)) for _ in range(2)]

    assert [answer.status_code for answer in answers] == [200, 200]
    assert secured.do("select org_id from mainspring.inbound") == [("globex",)]  # where the job looks for it
    assert secured.do("select org_id from mainspring.job") == [("globex",)]
