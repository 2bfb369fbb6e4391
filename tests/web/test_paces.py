"""Whoever sends too much is told when to come back, and others are answered meanwhile."""

from __future__ import annotations

from functools import partial

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.web.api.contract import check_answer
from tests.web.api.visit import TokenTable
from tests.web.visit import SHOWN, open_to, visiting

import mainspring as ms
from mainspring.declare.principal import Principal
from mainspring.declare.route import by_role
from mainspring.errors import ConfigurationError
from mainspring.web import create, paces
from mainspring.web.paces import RequestPace, RequestRates

pytestmark = pytest.mark.anyio


async def hello(_: Request) -> Response:
    return PlainTextResponse("hello")


@pytest.fixture
def shop() -> ms.App:
    """An application whose database is away: what is refused here, is refused without it."""
    route = by_role(Route("/hello", hello), "viewer", org=None)
    return ms.App(ms.Registry("shop"), dsn="postgresql://127.0.0.1:1/x", maintenance=False, routes=[route])


@pytest.fixture(autouse=True)
def still(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands still, with bursts of two seconds."""
    now = [1000.0]
    monkeypatch.setattr(paces, "REQUEST_BURST_S", 2.0)
    monkeypatch.setattr(paces, "RequestPace", partial(RequestPace, clock=lambda: now[0]))
    return now


def limited(monkeypatch: pytest.MonkeyPatch, **rates: int) -> None:
    for name in ("address", "caller", "org"):
        monkeypatch.setenv(f"MAINSPRING_REQUESTS_PER_{name.upper()}", str(rates.get(name, 0)))


def check_told_to_wait(answer: httpx2.Response) -> None:
    assert (answer.status_code, answer.json()["code"]) == (429, "TOO_MANY_REQUESTS")
    assert answer.headers["retry-after"] == "1"
    assert "x-request-id" in answer.headers


async def test_an_address_waits_before_anybody_is_asked_who_it_is_and_health_and_runs_do_not(
    shop: ms.App, monkeypatch: pytest.MonkeyPatch, still: list[float]
) -> None:
    limited(monkeypatch, address=2)
    async with open_to(shop, access=TokenTable()) as one:
        first = [(await one.get("/nowhere")).status_code for _ in range(4)]
        refused = await one.get("/api/v1/queues", headers={"authorization": "Bearer forged"})
        check_told_to_wait(refused)
        check_told_to_wait(await one.get("/nowhere"))
        health = await one.get("/v1/health/live")
        run = await one.post("/v1/run", headers={"x-cron-secret": "not the secret of this server"})
        metrics = await one.get("/metrics", headers=SHOWN)
        still[0] += 0.5
        after = [(await one.get("/nowhere")).status_code for _ in range(2)]
    assert first == [404] * 4
    assert (health.status_code, run.status_code, metrics.status_code) == (200, 401, 429)
    assert after == [404, 429]


async def test_one_address_does_not_make_another_wait(shop: ms.App, monkeypatch: pytest.MonkeyPatch) -> None:
    limited(monkeypatch, address=1)
    web = create(shop, proxies=["127.0.0.1"])
    addresses = ["203.0.113.9"] * 3 + ["203.0.113.8"] + [f"2001:db8::{end}" for end in "123"] + ["2001:db8:0:1::1"]
    async with visiting(web) as proxy:
        told = [{"x-forwarded-for": address} for address in addresses]
        seen = [(await proxy.get("/nowhere", headers=headers)).status_code for headers in told]
    assert seen == [404, 404, 429, 404, 404, 404, 429, 404]


async def test_somebody_and_their_organisation_wait_and_others_do_not(
    shop: ms.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, caller=2, org=3)
    async with open_to(shop, access=TokenTable()) as visitor:

        async def ask(who: str, path: str = "/api/v1/openapi.json") -> httpx2.Response:
            answer = await visitor.get(path, headers={"authorization": f"Bearer {who}"})
            check_answer("GET", answer)
            return answer

        assert [(await ask("vic")).status_code for _ in range(3)] == [200] * 3
        assert (await ask("vic", "/hello")).text == "hello"  # routes of the application count, too
        for path in ("/hello", "/api/v1/queues", "/api/v1/nowhere"):
            check_told_to_wait(await ask("vic", path))
        assert (await ask("ana")).status_code == 200
        assert [(await ask("viewer.acme")).status_code for _ in range(4)] == [200] * 4
        assert [(await ask("operator.acme")).status_code for _ in range(3)] == [200, 200, 429]
        assert (await ask("operator.globex")).status_code == 200


async def test_no_name_makes_somebody_of_another_organisation_wait(
    shop: ms.App, monkeypatch: pytest.MonkeyPatch
) -> None:
    limited(monkeypatch, caller=1)
    people = {"eve": Principal("b ana", "viewer", org="a"), "ana": Principal("ana", "viewer", org="a b")}
    async with open_to(shop, access=TokenTable(people)) as visitor:

        async def ask(who: str) -> int:
            return (await visitor.get("/api/v1/openapi.json", headers={"authorization": f"Bearer {who}"})).status_code

        assert [await ask("eve") for _ in range(3)] == [200, 200, 429]
        assert await ask("ana") == 200


def test_rates_are_numbers_and_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    for wrong in ("-1", "many", "nan", "1e9"):
        with pytest.raises(ConfigurationError, match="MAINSPRING_REQUESTS_PER_ORG"):
            RequestRates.configured({"MAINSPRING_REQUESTS_PER_ORG": wrong})
    monkeypatch.setattr(paces, "MOST_SENDERS", 10)
    pace = RequestPace(1)
    for number in range(1000):
        pace.wait(str(number))
    assert len(pace._free) == 10
