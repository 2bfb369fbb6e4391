"""Dead letters as tests make them: real jobs that real statements end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from tests.client.conftest import Awaited
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import ERROR, Engine

from mainspring import AsyncClient, Caller, Client

Kill = Callable[..., UUID]
ADA = Caller(actor_type="user", actor_id="ada")


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(NOON)
        yield engine


@pytest.fixture
def kill(engine: Engine) -> Kill:
    """Enqueue a job and end it: `bury` makes it dead, `reject` failed."""

    def kill(verb: str = "bury", *, code: str = "INTERNAL_ERROR", message: str = "no answer", **fields: Any) -> UUID:
        stack = fields.pop("stack", None)
        claim = engine.started(**fields)
        assert engine.end(claim, verb, error=ERROR | {"code": code, "message": message, "stack": stack})
        return claim.id

    return kill


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
async def dead(request: pytest.FixtureRequest, database: Database) -> AsyncIterator[Any]:
    """`client.dead` in both colours, always awaited."""
    client = request.param(database.dsn, caller=ADA)
    yield Awaited(client.dead)
    await Awaited(client).close()


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with Client(database.dsn, caller=ADA) as client:
        yield client


def events(engine: Engine, event: str) -> list[dict[str, Any]]:
    """What the audit trail keeps of an event, in order."""
    return [row[0] for row in engine.rows("select detail from mainspring.audit where event = %s order by id", event)]
