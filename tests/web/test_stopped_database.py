"""A database that is stopped is a clear 503 for everybody, soon; when it is back, so is the server, by itself."""

from __future__ import annotations

import time
from collections.abc import Iterator

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from tests.databases import Database, fresh_database
from tests.web.visit import SHOWN, served

import mainspring as ms
from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.db.jobs import Who
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.embedded import Cluster
from mainspring.web import by_role, public

ANSWERED_S = 30.0  # on a busy machine: the server itself waits for a connection for 3 to 5 seconds
ASKED: list[tuple[str, str, dict[str, object]]] = [
    ("GET", "/v1/health/ready", {}),
    ("GET", "/api/v1/queues", {}),
    ("GET", "/api/v1/users", {}),
    ("POST", "/api/v1/jobs", {"json": {"task": "greet", "payload": {"name": "Ada"}}}),
    ("GET", "/hello", {}),
    ("POST", "/v1/run", {"headers": SHOWN}),
]


@pytest.fixture
def place(durable_cluster: Cluster) -> Iterator[Database]:
    durable_cluster.start()
    with fresh_database(durable_cluster) as database:
        yield database
        durable_cluster.start()


@pytest.mark.rule("ENG-17.09")
def test_a_stopped_database_is_a_503_for_everybody_and_all_is_well_when_it_is_back(
    durable_cluster: Cluster, place: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.web.health.ANSWER_KEPT_S", 0.0)  # else the last one is said for a second more
    tasks = ms.Registry("shop")

    @tasks.task
    async def greet(*, name: str) -> None: ...

    async def hello(_: Request) -> Response:
        return PlainTextResponse("hello")

    routes = [by_role(Route("/hello", hello), "viewer", org=None), public(Route("/idle", hello))]
    app = ms.App(tasks, dsn=place.dsn, maintenance=False, routes=routes)
    with place.connect() as conn:
        who = Who(actor_type="user", actor_id="olga")
        create_one = access.create_token(Sql(), "deploys", Grant(role="admin"), None, who)
        token = run(psycopg_door(conn), create_one).text
    about = {"authorization": f"Bearer {token}"}
    with served(app) as url, httpx2.Client(base_url=url, headers=about, timeout=ANSWERED_S) as visitor:

        def statuses() -> list[int]:
            return [visitor.request(method, path, **how).status_code for method, path, how in ASKED]  # type: ignore[arg-type]  # by name

        assert statuses() == [200] * len(ASKED)
        durable_cluster.stop("immediate")
        for method, path, how in ASKED:
            answer = visitor.request(method, path, **how)  # type: ignore[arg-type]  # by name
            assert answer.status_code == 503, (path, answer.text)
            assert answer.headers["retry-after"] == "5"
            if path != "/v1/health/ready":
                assert (answer.json()["code"], "Traceback" in answer.text) == ("DB_UNAVAILABLE", False)
                assert not any(text in answer.text for text in ("127.0.0.1", "5432", "socket", "psycopg"))
        for path in ("/v1/health/live", "/idle"):
            assert visitor.get(path).status_code == 200
        durable_cluster.start()
        until = time.monotonic() + 60
        while (seen := statuses()) != [200] * len(ASKED) and time.monotonic() < until:
            time.sleep(0.2)  # health is remembered for a second
        assert seen == [200] * len(ASKED)
