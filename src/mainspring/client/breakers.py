"""`client.breakers`: see and force circuit breakers, in both colours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from mainspring.db import breakers
from mainspring.db.breakers import BreakerRow, Verb
from mainspring.events import BreakerForced
from mainspring.job import DEFAULT_ORG, SYSTEM
from mainspring.sanitize import mask, sanitize

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncClient
    from mainspring.client.sync import Client

Rows: TypeAlias = list[BreakerRow]  # the classes have a method of that name
_TO = {"open": "open", "close": "closed", "auto": "automatic"}


def _forced(verb: Verb, name: str, key: str | None, org: str | None, by: str, reason: str) -> BreakerForced:
    owner = SYSTEM if key is None else org or DEFAULT_ORG
    return BreakerForced(name, key and sanitize(key, 200), owner, _TO[verb], by, mask(reason))


class Breakers:
    """Circuit breakers, for sync code.

    ::

        for breaker in client.breakers.list():
            print(breaker.name, breaker.state, breaker.next_probe)
    """

    def __init__(self, client: Client) -> None:
        self._of = client

    def list(self, *, org: str | None = None, limit: int = 100, conn: Any = None) -> Rows:
        """Every breaker that is declared, and the keys of them that are open or forced."""
        return self._of._run(breakers.listing(self._of._sql, self._of._who(org), limit=limit), conn)

    def show(
        self, name: str, *, key: str | None = None, org: str | None = None, limit: int = 100, conn: Any = None
    ) -> Rows:
        """One breaker and the keys of it that are or were in trouble of late, or one of these keys."""
        flow = breakers.listing(self._of._sql, self._of._who(org), name=name, key=key, limit=limit)
        return self._of._run(flow, conn)

    def open(self, name: str, *, reason: str, key: str | None = None, org: str | None = None, conn: Any = None) -> bool:
        """Hold the jobs that need it, or need one key of it, until somebody says otherwise; False: so it was."""
        return self._force("open", name, reason, key, org, conn)

    def close(
        self, name: str, *, reason: str, key: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Let all calls through, whatever they meet, until somebody says otherwise; False: so it was."""
        return self._force("close", name, reason, key, org, conn)

    def auto(self, name: str, *, reason: str, key: str | None = None, org: str | None = None, conn: Any = None) -> bool:
        """Let the calls decide again; False: nobody had forced it."""
        return self._force("auto", name, reason, key, org, conn)

    def _force(self, verb: Verb, name: str, reason: str, key: str | None, org: str | None, conn: Any) -> bool:
        who = self._of._who(org)
        changed = self._of._run(breakers.force(self._of._sql, verb, name, who, reason=reason, key=key), conn)
        if changed:
            self._of._committed(conn, _forced(verb, name, key, who.org_id, who.actor_id, reason))
        return changed


class AsyncBreakers:
    """Circuit breakers, for async code."""

    def __init__(self, client: AsyncClient) -> None:
        self._of = client

    async def list(self, *, org: str | None = None, limit: int = 100, conn: Any = None) -> Rows:
        """Every breaker that is declared, and the keys of them that are open or forced."""
        return await self._of._run(breakers.listing(self._of._sql, self._of._who(org), limit=limit), conn)

    async def show(
        self, name: str, *, key: str | None = None, org: str | None = None, limit: int = 100, conn: Any = None
    ) -> Rows:
        """One breaker and the keys of it that are or were in trouble of late, or one of these keys."""
        flow = breakers.listing(self._of._sql, self._of._who(org), name=name, key=key, limit=limit)
        return await self._of._run(flow, conn)

    async def open(
        self, name: str, *, reason: str, key: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Hold the jobs that need it, or need one key of it, until somebody says otherwise; False: so it was."""
        return await self._force("open", name, reason, key, org, conn)

    async def close(
        self, name: str, *, reason: str, key: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Let all calls through, whatever they meet, until somebody says otherwise; False: so it was."""
        return await self._force("close", name, reason, key, org, conn)

    async def auto(
        self, name: str, *, reason: str, key: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Let the calls decide again; False: nobody had forced it."""
        return await self._force("auto", name, reason, key, org, conn)

    async def _force(self, verb: Verb, name: str, reason: str, key: str | None, org: str | None, conn: Any) -> bool:
        who = self._of._who(org)
        changed = await self._of._run(breakers.force(self._of._sql, verb, name, who, reason=reason, key=key), conn)
        if changed:
            self._of._committed(conn, _forced(verb, name, key, who.org_id, who.actor_id, reason))
        return changed
