"""Register endpoints and change them, in both colours."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from mainspring.contrib.webhooks import vault
from mainspring.contrib.webhooks.endpoint import Registered, checked_description, checked_events, written_headers
from mainspring.contrib.webhooks.event import PING, event
from mainspring.contrib.webhooks.signature import new_secret
from mainspring.db import webhooks
from mainspring.db.jobs import Who
from mainspring.db.schema import Sql
from mainspring.db.statement import Flow
from mainspring.db.webhooks import Endpoint, check_overlap
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG
from mainspring.uuid7 import uuid7

if TYPE_CHECKING:
    from mainspring.cipher import Keys
    from mainspring.client import AsyncClient, Client
    from mainspring.contrib.webhooks.block import Webhooks

OVERLAP: Final = timedelta(hours=24)
Found: TypeAlias = list[Endpoint]  # the classes have a method of that name


@dataclass(frozen=True, slots=True)
class _New:
    """An endpoint that is about to be registered."""

    id: UUID
    events: list[str]
    description: str | None
    headers: str | None
    secret: str

    def written(self, sql: Sql, who: Who, prefix: str, url: str, keys: Keys | None) -> Flow[Endpoint]:
        org = who.org_id or DEFAULT_ORG
        headers = None if self.headers is None else vault.closed(keys, org, "headers", self.id, self.headers)
        secret = vault.closed(keys, org, "secret", self.id, self.secret)
        about: Any = {"url": url, "events": self.events, "description": self.description, "prefix": prefix}
        return webhooks.add(sql, who, self.id, **about, headers=headers, secret=secret)


def _new(events: Sequence[str], description: str | None, headers: Mapping[str, str] | None, prefix: str) -> _New:
    checked = checked_events(events), checked_description(description), written_headers(headers, prefix)
    return _New(uuid7(), *checked, new_secret())


def _pingable(endpoint: Endpoint) -> Endpoint:
    if endpoint.state == "disabled":
        raise ValidationError("endpoint: is disabled: resume it first", field="endpoint")
    return endpoint


class Endpoints:
    """Endpoints, for sync code.

    ::

        added = webhooks.endpoints(client).add("https://example.com/hooks", events=["order.*"])
        print(added.endpoint.id, added.secret)  # the secret is shown this once
    """

    def __init__(self, hooks: Webhooks, client: Client) -> None:
        self._hooks, self._of = hooks, client

    def add(
        self,
        url: str,
        *,
        events: Sequence[str] = (),
        description: str | None = None,
        headers: Mapping[str, str] | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Registered:
        """Register an endpoint for these events (`order.paid`, `order.*`; none: all); its URL is checked first."""
        new, who = _new(events, description, headers, self._hooks.prefix), self._who(org)
        with ThreadPoolExecutor(1) as thread:  # a loop may run in this one
            target = thread.submit(asyncio.run, self._hooks.transport.check(url)).result()
        keys = vault.to_write(self._of._ring, who.org_id or DEFAULT_ORG)
        flow = new.written(self._of._sql, who, self._hooks.prefix, target.url, keys)
        return Registered(self._of._run(flow, conn), new.secret)

    def list(self, *, after: UUID | None = None, limit: int = 100, org: str | None = None, conn: Any = None) -> Found:
        """Endpoints in the order in which they were made; `after` continues behind the last one seen."""
        return self._of._run(webhooks.endpoints(self._of._sql, self._of._who(org), after=after, limit=limit), conn)

    def get(self, endpoint: UUID, *, org: str | None = None, conn: Any = None) -> Endpoint:
        """One endpoint, or UnknownName."""
        return self._of._run(webhooks.endpoint_of(self._of._sql, endpoint, self._of._who(org)), conn)

    def pause(self, endpoint: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> bool:
        """Send nothing for now: deliveries wait until it is resumed; False: so it was already."""
        who = self._of._who(org)
        return self._of._run(webhooks.stand(self._of._sql, endpoint, who, "paused", reason), conn)

    def resume(self, endpoint: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> bool:
        """Send again, what waits at once; False: it was active already."""
        who = self._of._who(org)
        return self._of._run(webhooks.stand(self._of._sql, endpoint, who, "active", reason), conn)

    def remove(self, endpoint: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> None:
        """Remove an endpoint and its secrets; what waits for it is cancelled."""
        self._of._run(webhooks.remove(self._of._sql, endpoint, self._of._who(org), reason), conn)

    def rotate(
        self,
        endpoint: UUID,
        *,
        overlap: timedelta = OVERLAP,
        reason: str | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> str:
        """A new secret, shown this once; the old one signs too until `overlap` is over. 0: others know it."""
        check_overlap(overlap)
        found, secret = self.get(endpoint, org=org, conn=conn), new_secret()
        keys = vault.to_write(self._of._ring, found.org_id)
        written = vault.closed(keys, found.org_id, "secret", found.id, secret)
        who = replace(self._of._who(org), org_id=found.org_id)
        flow = webhooks.rotate(self._of._sql, found.id, who, secret=written, overlap=overlap, reason=reason)
        self._of._run(flow, conn)
        return secret

    def ping(self, endpoint: UUID, *, org: str | None = None, conn: Any = None) -> UUID:
        """Send a `webhook.ping` event to one endpoint, whatever it wants; answers the delivery."""
        found = _pingable(self.get(endpoint, org=org, conn=conn))
        told = event(PING, {"endpoint_id": found.id}, ("Endpoint", found.id))
        return self._hooks.tell(self._of, told, self._hooks.job().for_org(found.org_id), conn, found.id)[0].id

    def _who(self, org: str | None) -> Who:
        who = self._of._who(org)
        return replace(who, org_id=DEFAULT_ORG) if who.org_id is None else who


class AsyncEndpoints:
    """Endpoints, for async code."""

    def __init__(self, hooks: Webhooks, client: AsyncClient) -> None:
        self._hooks, self._of = hooks, client

    async def add(
        self,
        url: str,
        *,
        events: Sequence[str] = (),
        description: str | None = None,
        headers: Mapping[str, str] | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Registered:
        """Register an endpoint for these events (`order.paid`, `order.*`; none: all); its URL is checked first."""
        new, who = _new(events, description, headers, self._hooks.prefix), self._who(org)
        target = await self._hooks.transport.check(url)
        keys = await vault.async_to_write(self._of._ring, who.org_id or DEFAULT_ORG)
        flow = new.written(self._of._sql, who, self._hooks.prefix, target.url, keys)
        return Registered(await self._of._run(flow, conn), new.secret)

    async def list(
        self, *, after: UUID | None = None, limit: int = 100, org: str | None = None, conn: Any = None
    ) -> Found:
        """Endpoints in the order in which they were made; `after` continues behind the last one seen."""
        flow = webhooks.endpoints(self._of._sql, self._of._who(org), after=after, limit=limit)
        return await self._of._run(flow, conn)

    async def get(self, endpoint: UUID, *, org: str | None = None, conn: Any = None) -> Endpoint:
        """One endpoint, or UnknownName."""
        return await self._of._run(webhooks.endpoint_of(self._of._sql, endpoint, self._of._who(org)), conn)

    async def pause(
        self, endpoint: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Send nothing for now: deliveries wait until it is resumed; False: so it was already."""
        who = self._of._who(org)
        return await self._of._run(webhooks.stand(self._of._sql, endpoint, who, "paused", reason), conn)

    async def resume(
        self, endpoint: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Send again, what waits at once; False: it was active already."""
        who = self._of._who(org)
        return await self._of._run(webhooks.stand(self._of._sql, endpoint, who, "active", reason), conn)

    async def remove(
        self, endpoint: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> None:
        """Remove an endpoint and its secrets; what waits for it is cancelled."""
        await self._of._run(webhooks.remove(self._of._sql, endpoint, self._of._who(org), reason), conn)

    async def rotate(
        self,
        endpoint: UUID,
        *,
        overlap: timedelta = OVERLAP,
        reason: str | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> str:
        """A new secret, shown this once; the old one signs too until `overlap` is over. 0: others know it."""
        check_overlap(overlap)
        found, secret = await self.get(endpoint, org=org, conn=conn), new_secret()
        keys = await vault.async_to_write(self._of._ring, found.org_id)
        written = vault.closed(keys, found.org_id, "secret", found.id, secret)
        who = replace(self._of._who(org), org_id=found.org_id)
        flow = webhooks.rotate(self._of._sql, found.id, who, secret=written, overlap=overlap, reason=reason)
        await self._of._run(flow, conn)
        return secret

    async def ping(self, endpoint: UUID, *, org: str | None = None, conn: Any = None) -> UUID:
        """Send a `webhook.ping` event to one endpoint, whatever it wants; answers the delivery."""
        found = _pingable(await self.get(endpoint, org=org, conn=conn))
        told = event(PING, {"endpoint_id": found.id}, ("Endpoint", found.id))
        job = self._hooks.job().for_org(found.org_id)
        return (await self._hooks.async_tell(self._of, told, job, conn, found.id))[0].id

    def _who(self, org: str | None) -> Who:
        who = self._of._who(org)
        return replace(who, org_id=DEFAULT_ORG) if who.org_id is None else who
