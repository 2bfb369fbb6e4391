"""What the endpoints share: the application, a few connections, the secret, and who observes."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from psycopg_pool import AsyncConnectionPool
from starlette.requests import Request

from mainspring.app import App
from mainspring.client import AsyncClient
from mainspring.db.gauges import Reader
from mainspring.db.jobs import now
from mainspring.db.measures import Measures
from mainspring.db.wire.connect import AsyncConnection, async_pool
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.translate import unavailable
from mainspring.events import Observer
from mainspring.observe import Metrics
from mainspring.web.guarded_route import bearer
from mainspring.web.proxies import is_direct
from mainspring.web.secret import HeaderSecret

SIZE = 4  # connections, for webhooks; what runs jobs has its own
CONNECTION_PATIENCE_S = 5.0  # seconds for a connection
ANSWER = 10.0  # seconds for what is then asked on it


class Backend:
    """Opened by its first use, so that it may be mounted where nobody runs its lifespan."""

    def __init__(self, app: App, secret: HeaderSecret | None) -> None:
        self.app, self.secret, self.sql = app, secret, Sql(app.schema)
        found = next((observer for observer in app.observers if isinstance(observer, Metrics)), None)
        self.metrics = found or Metrics(app.registry)
        if self.metrics.gauges is None:
            self.metrics.gauges = Reader(app.dsn, app.schema)
        if self.metrics.measures is None and app.measures:
            self.metrics.measures = Measures(app.dsn, app.measures, app.schema)
        self.observers: tuple[Observer, ...] = app.observers if found else (*app.observers, self.metrics)
        self._client: AsyncClient | None = None
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None
        self._asking: asyncio.Task[datetime] | None = None
        _ = app.dsn  # a missing one is told at the start

    @property
    def client(self) -> AsyncClient:
        """A client that enqueues on connections of ours."""
        if self._client is None:
            self._client = self.app.async_client()
        return self._client

    @asynccontextmanager
    async def connection(self) -> AsyncIterator[AsyncConnection]:
        """A connection; a database that is away or stays silent is DatabaseUnavailable, soon."""
        with unavailable():
            if self._pool is None:
                self._pool = async_pool(
                    self.app.dsn,
                    size=SIZE,
                    name="mainspring web",
                    timeout=CONNECTION_PATIENCE_S,
                    answered_within=ANSWER,
                )
            pool = self._pool
            await pool.open()
            async with pool.connection() as conn:
                yield conn

    async def now(self) -> datetime:
        """The database's time. One question is under way at most: a flood of forged webhooks holds one connection."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(lambda ended: ended.cancelled() or ended.exception())  # for nobody
        return await asyncio.shield(self._asking)

    async def _ask(self) -> datetime:
        async with self.connection() as conn:
            return await run_async(async_psycopg_door(conn), now(self.sql))

    def trusts(self, request: Request, *, token: bool = False) -> bool:
        """Whether a request shows the secret; `token` admits it in the address, too."""
        if self.secret is None:
            return False
        given = [request.headers.get("x-cron-secret"), bearer(request.headers)]
        if token:
            given.append(request.query_params.get("token"))
        return any(self.secret.matches(one) for one in given)

    def may_look(self, request: Request) -> bool:
        """Whether somebody may see the metrics: by the secret; where there is none, from this machine itself."""
        if self.secret is not None:
            return self.trusts(request)
        return is_direct(request.scope)

    async def close(self) -> None:
        """Let go of the connections; the next use opens others."""
        client, pool = self._client, self._pool
        self._client = self._pool = None
        if client is not None:
            await client.close()
        if pool is not None:
            await pool.close()


def is_loopback(host: str) -> bool:
    """Whether an address is of this machine alone.

    >>> [is_loopback(host) for host in ("127.0.0.1", "::1", "0.0.0.0", "10.0.0.1", "elsewhere")]
    [True, True, False, False, False]
    """
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
