"""Who asks over HTTP: by a token, or by the session of a browser."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Final, TypeVar

from psycopg_pool import AsyncConnectionPool
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection

from mainspring.app import App
from mainspring.config import role_dsn
from mainspring.db import access
from mainspring.db.access import AccessHolder
from mainspring.db.wire.bound import async_bound
from mainspring.db.wire.connect import AsyncConnection, async_pool
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.db.wire.translate import unavailable
from mainspring.declare.credential import AccessToken, csrf_fits
from mainspring.declare.principal import Principal
from mainspring.job import ActorType
from mainspring.web.access.cookie import secret_in
from mainspring.web.access.vouched import Vouching
from mainspring.web.guarded_route import bearer
from mainspring.web.origin import SAFE_METHODS

T = TypeVar("T")

CSRF_HEADER: Final = "x-csrf-token"
ACCESS_POOL_SIZE: Final = 4
ACCESS_PATIENCE_S: Final = 3.0  # seconds for a connection
ACCESS_ANSWERED_WITHIN_S: Final = 10.0  # seconds for what is asked on it


class AccessDesk:
    """Knows people and programs by what they show, from the tables of the engine.

    It connects as the api role (MAINSPRING_API_DSN), which can open a session for nobody on a word alone; where a proxy
    or a provider vouches for people, as the operator role (MAINSPRING_OPERATOR_DSN); else as the application does.
    """

    def __init__(self, app: App, vouching: Vouching | None = None) -> None:
        self.vouching, self.sql = vouching or Vouching(), Sql(app.schema)
        self._dsn = role_dsn("operator" if self.vouching.by else "api") or app.dsn
        self._pool: AsyncConnectionPool[AsyncConnection] | None = None

    async def principal(self, request: HTTPConnection, *, csrf: str | None = None) -> Principal | None:
        """Who asks, by the head of the request alone; None: nobody that we know.

        What a browser's cookie changes needs a token of its session besides, in the header `X-CSRF-Token` or given here
        from a form: a 403 without it.
        """
        shown = bearer(request.headers)
        if shown is not None:  # whoever shows a token is not helped by a cookie
            token = AccessToken.parse(shown)
            found = None if token is None else await self.ask(access.check_token(self.sql, token))
            return None if found is None else _principal(found)
        secret, found = await self.session(request)
        if found is None or secret is None:
            return None
        if request.scope.get("method", "GET") not in SAFE_METHODS:
            given = request.headers.get(CSRF_HEADER, "") if csrf is None else csrf
            if not csrf_fits(secret, given):
                raise HTTPException(403, "The token of this session is missing: X-CSRF-Token")
        return _principal(found)

    async def session(self, request: HTTPConnection) -> tuple[str | None, AccessHolder | None]:
        """The session of a browser: its secret, and who has it; whoever shows a token has none.

        One that a proxy vouched for is good behind it only.
        """
        if bearer(request.headers) is not None:
            return None, None
        secret = secret_in(request)
        found = None if secret is None else await self.ask(access.check_session(self.sql, secret))
        if found is not None and found.how == "proxy" and self.vouching.proxy_user(request) != found.name:
            return None, None
        return secret, found

    async def ask(self, dialogue: Dialogue[T], *, org: str | None = None) -> T:
        """Ask the database; one that is away or stays silent is DatabaseUnavailable, soon.

        Who shows something of their own is found whatever organisation they are of; else one is named, or SYSTEM.
        """
        with unavailable():
            if self._pool is None:
                self._pool = async_pool(
                    self._dsn,
                    size=ACCESS_POOL_SIZE,
                    name="mainspring access",
                    timeout=ACCESS_PATIENCE_S,
                    answered_within=ACCESS_ANSWERED_WITHIN_S,
                )
            await self._pool.open()
            async with self._pool.connection() as conn, nullcontext() if org is None else async_bound(conn, org):
                return await run_async(async_psycopg_door(conn), dialogue)

    async def close(self) -> None:
        """Let go of the connections; the next request opens others."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()


def _principal(found: AccessHolder) -> Principal:
    kind: ActorType = "api_key" if found.session is None else "user"
    return Principal(found.name, found.role, found.org, found.reveals, actor_type=kind, token=found.token)
