"""What a hostile page reaches for: a server on which somebody is signed in, and something to change and to read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import psycopg
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from tests.db.engine import Engine
from tests.web.visit import served

import mainspring as ms
from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.db.jobs import Who
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.declare.credential import new_secret
from mainspring.web import by_role, public

#: Stands in everything that nobody else may read.
CANARY = "canary-5f2c8a90"
EVERYTHING = (
    "job",
    "waiting",
    "running",
    "finished",
    "attempt",
    "audit",
    "queue",
    "request",
    "access_token",
    "access_user",
)


@dataclass
class GuardedHouse:
    """A server with its database: ana is an operator, and a job waits."""

    conn: psycopg.Connection[Any]
    url: str = ""
    changes: list[str] = field(default_factory=list)
    job: str = ""

    def link(self) -> str:
        """A code by which ana signs in once."""
        code = new_secret()
        who = Who(actor_type="user", actor_id="olga")
        run(psycopg_door(self.conn), access.create_link(Sql(), "ana", code, who))
        return code

    def state(self) -> list[Any]:
        """Everything that could have been changed, and what the routes have done."""
        ask = "select t::text from mainspring.{} t order by 1".format
        rows = [self.conn.execute(ask(name).encode()).fetchall() for name in EVERYTHING]
        return [*rows, list(self.changes)]


@contextmanager
def guarded_house(dsn: str, conn: psycopg.Connection[Any], **how: Any) -> Iterator[GuardedHouse]:
    """The server, on 127.0.0.1."""
    house = GuardedHouse(conn)

    async def change(request: Request) -> Response:
        if request.method != "GET":
            house.changes.append(request.url.path)
        return Response(CANARY)

    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text(CANARY)
        await socket.close()

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE"]
    tasks = ms.Registry("shop")
    app = ms.App(
        tasks, dsn=dsn, maintenance=False,
        routes=[
            by_role(Route("/account", change, methods=methods), "operator", org=None),
            public(Route("/note", change, methods=methods), accepts=()),
            public(WebSocketRoute("/socket", talk)),
        ],
    )  # fmt: skip
    who = Who(actor_type="user", actor_id="olga")
    run(psycopg_door(conn), access.create_user(Sql(), "ana", Grant(role="admin"), None, who))
    house.job = str(Engine(conn).enqueue("greet", payload={"name": CANARY}).id)
    with served(app, **how) as url:
        house.url = url
        yield house
