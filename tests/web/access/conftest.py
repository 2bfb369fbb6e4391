from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import httpx2
import psycopg
import pytest
from tests.databases import Database
from tests.web.visit import visiting

import mainspring as ms
from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.db.jobs import Who
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.credential import new_secret
from mainspring.declare.password import PasswordRecipe
from mainspring.web import create

T = TypeVar("T")
ME = Who(actor_type="user", actor_id="olga")
PASSWORD = "correct horse battery"
SQL = Sql()


@dataclass
class House:
    """A server's application and its database, with one user who has a password: ana, an operator of acme."""

    app: ms.App
    conn: psycopg.Connection[Any]

    def do(self, dialogue: Dialogue[T]) -> T:
        return run(psycopg_door(self.conn), dialogue)

    def link(self, name: str = "ana") -> str:
        code = new_secret()
        self.do(access.create_link(SQL, name, code, ME))
        return code

    @asynccontextmanager
    async def visited(
        self, base: str = "http://localhost", client: str = "127.0.0.1", **how: Any
    ) -> AsyncIterator[httpx2.AsyncClient]:
        """A browser, with its own cookies."""
        async with visiting(create(self.app, **how), client=(client, 5000)) as visitor:
            visitor.base_url = base
            yield visitor


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passwords that cost a guess nothing, and as long for a connection as a busy machine takes."""
    monkeypatch.setattr("mainspring.web.access.desk.ACCESS_PATIENCE_S", 30.0)
    new = PasswordRecipe.new
    monkeypatch.setattr(PasswordRecipe, "new", lambda: new(4))


@pytest.fixture
def house(database: Database) -> Iterator[House]:
    app = ms.App(ms.Registry("shop"), dsn=database.dsn, maintenance=False)
    with database.connect() as conn:
        made = House(app, conn)
        made.do(access.create_user(SQL, "ana", Grant(role="operator", org="acme"), PASSWORD, ME))
        yield made
