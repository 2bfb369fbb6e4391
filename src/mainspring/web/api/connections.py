"""How the API reaches the database: as the api and the operator role, each with a few connections."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from psycopg_pool import AsyncConnectionPool

from mainspring.app import App
from mainspring.cipher import Cipher
from mainspring.client import AsyncClient
from mainspring.config import role_dsn
from mainspring.db.requests import bind
from mainspring.db.schema.rights import Role
from mainspring.db.wire.connect import AsyncConnection, async_pool
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.translate import unavailable
from mainspring.errors import ConfigurationError
from mainspring.job import DEFAULT_ORG

API_POOL_SIZE: Final = 4  # connections of each role; whoever finds none free waits, but not for long
API_PATIENCE_S: Final = 3.0  # seconds for a connection
API_ANSWERED_WITHIN_S: Final = 10.0  # seconds for what is asked on it


class Connections:
    """Transactions of requests; the pools open with the first one, so that nobody need run a lifespan."""

    def __init__(self, app: App) -> None:
        self._secured, self.sql = app.secured, Sql(app.schema)
        self._dsns: dict[Role, str] = {}
        for role in ("api", "operator"):
            found = role_dsn(role)
            if found is None and app.secured:
                setting = f"MAINSPRING_{role.upper()}_DSN"
                raise ConfigurationError(f"{setting}: is not set, and the API never uses the login of workers")
            self._dsns[role] = found or app.dsn
        self._pools: dict[str, AsyncConnectionPool[AsyncConnection]] = {}
        self._app = app
        self._clients: dict[tuple[str, bool], AsyncClient] = {}

    def client(self, role: Role, *, reads_encrypted: bool = False) -> AsyncClient:
        """The verbs of a role, for connections of ours: what is encrypted stays so unless somebody may read it."""
        key = self._dsns[role], reads_encrypted
        if key not in self._clients:
            cipher: Cipher | None = self._app.cipher if reads_encrypted else None
            self._clients[key] = AsyncClient(
                key[0],
                schema=self._app.schema,
                secured=self._secured,
                observers=self._app.observers,
                cipher=cipher,
                answered_within=API_ANSWERED_WITHIN_S,
            )
        return self._clients[key]

    def org(self, named: str | None) -> str | None:
        """The organisation that a request is about; on a secured schema there is no other than one."""
        return DEFAULT_ORG if named is None and self._secured else named

    @asynccontextmanager
    async def transaction(self, role: Role, org: str | None, *, writes: bool) -> AsyncIterator[AsyncConnection]:
        """A transaction bound to an organisation; a database that is away or silent is DatabaseUnavailable, soon."""
        with unavailable():
            pool = self._pool(self._dsns[role])
            await pool.open()
            async with pool.connection() as conn:
                try:
                    async with conn.transaction():
                        await run_async(async_psycopg_door(conn), bind(self.sql, org, writes=writes))
                        yield conn
                finally:
                    if conn.closed:  # the others of the pool are probably as lost
                        await pool.drain()

    async def close(self) -> None:
        """Let go of the connections; the next request opens others."""
        pools, clients = list(self._pools.values()), list(self._clients.values())
        self._pools, self._clients = {}, {}
        for pool in pools:
            await pool.close()
        for client in clients:
            await client.close()

    def _pool(self, dsn: str) -> AsyncConnectionPool[AsyncConnection]:
        if dsn not in self._pools:
            self._pools[dsn] = async_pool(
                dsn,
                size=API_POOL_SIZE,
                name="mainspring api",
                timeout=API_PATIENCE_S,
                answered_within=API_ANSWERED_WITHIN_S,
            )
        return self._pools[dsn]
