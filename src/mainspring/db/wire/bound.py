"""Transactions that are bound to an organisation, for row-level security by `mainspring.org`: ours and applications'.

The setting is local to its transaction, so that nothing is left in the session for a pooler to carry over.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from typing import Any, LiteralString
from uuid import UUID

import psycopg
from psycopg.pq import Escaping
from psycopg.pq.abc import PGconn

from mainspring.db.wire.run import AsyncDoor, Door, async_psycopg_door, psycopg_door
from mainspring.db.wire.statement import Row, Statement
from mainspring.job import DEFAULT_ORG

#: Without an organisation that is said, the one that the connection brings (`options=-c mainspring.org=…`), or the
#: organisation of teams that have one only: what an enqueue without one means, too.
_BIND: LiteralString = (
    "select set_config('mainspring.org', coalesce(%s, nullif(current_setting('mainspring.org', true), ''), %s), true)"
)


def binding(pgconn: PGconn, org: str, project: UUID | None = None) -> str:
    """The command that binds a transaction to an organisation, and to a project where there is one."""
    encoding = pgconn._encoding  # in another one it would be the name of another organisation
    text = f"set local mainspring.org to {Escaping(pgconn).escape_literal(org.encode(encoding)).decode(encoding)}"
    return text if project is None else f"{text}; set local mainspring.project to '{project}'"


@contextmanager
def bound(conn: psycopg.Connection[Any], org: str | None, project: UUID | None = None) -> Iterator[None]:
    """A transaction of an organisation, or a savepoint; beginning and binding are one round trip."""
    with ExitStack() as stack:
        with conn.pipeline():
            stack.enter_context(psycopg.Transaction(conn))  # conn.transaction() would stay a pipeline to its end
            conn.execute(_BIND, [org, DEFAULT_ORG])
            if project is not None:
                conn.execute("select set_config('mainspring.project', %s, true)", [str(project)])
        yield


@asynccontextmanager
async def async_bound(conn: psycopg.AsyncConnection[Any], org: str | None) -> AsyncIterator[None]:
    """The same for asyncio."""
    async with AsyncExitStack() as stack:
        async with conn.pipeline():
            await stack.enter_async_context(psycopg.AsyncTransaction(conn))
            await conn.execute(_BIND, [org, DEFAULT_ORG])
        yield


def bound_door(conn: psycopg.Connection[Any], default: Callable[[], str | None]) -> Door:
    """A door to a secured schema: each statement in a transaction of its organisation, or of the caller's."""
    door = psycopg_door(conn)

    def execute(statement: Statement[Any]) -> Sequence[Row]:
        with bound(conn, statement.organisation or default()):
            return door(statement)

    return execute


def async_bound_door(conn: psycopg.AsyncConnection[Any], default: Callable[[], str | None]) -> AsyncDoor:
    """The same for asyncio."""
    door = async_psycopg_door(conn)

    async def execute(statement: Statement[Any]) -> Sequence[Row]:
        async with async_bound(conn, statement.organisation or default()):
            return await door(statement)

    return execute
