"""See what became of deliveries, and have one sent again, in both colours."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.cipher import SEALED
from mainspring.contrib.webhooks import vault
from mainspring.db import webhooks
from mainspring.db.webhooks import Delivery

if TYPE_CHECKING:
    from mainspring.cipher import Keys
    from mainspring.client import AsyncClient, Client
    from mainspring.contrib.webhooks.block import Webhooks

Found: TypeAlias = list[Delivery]  # the classes have a method of that name


class Deliveries:
    """Deliveries, for sync code.

    ::

        for delivery in webhooks.deliveries(client).list(status="failed"):
            print(delivery.id, delivery.http_status, delivery.error)
    """

    def __init__(self, hooks: Webhooks, client: Client) -> None:
        self._hooks, self._of = hooks, client

    def list(
        self,
        *,
        endpoint: UUID | None = None,
        status: str | None = None,
        event: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Found:
        """Deliveries, newest first, without what was sent and answered; `before` continues after the last one seen."""
        filters: Any = {"endpoint": endpoint, "status": status, "event": event, "before": before, "limit": limit}
        return self._of._run(webhooks.deliveries(self._of._sql, self._of._who(org), **filters), conn)

    def get(self, delivery: UUID, *, org: str | None = None, conn: Any = None) -> Delivery:
        """One delivery with what was sent and what was last answered, or UnknownName."""
        found = self._of._run(webhooks.delivery_of(self._of._sql, delivery, self._of._who(org)), conn)
        return _readable(found, vault.to_read(self._of._ring, found.org_id, found.body))

    def redeliver(self, delivery: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> UUID:
        """Send a delivery again, under its own id; answers the job. Refused while it is tried anyway."""
        job = self._of._complete([self._hooks.job()])[0]
        return self._of._run(webhooks.redeliver(self._of._sql, delivery, self._of._who(org), job, reason), conn)


class AsyncDeliveries:
    """Deliveries, for async code."""

    def __init__(self, hooks: Webhooks, client: AsyncClient) -> None:
        self._hooks, self._of = hooks, client

    async def list(
        self,
        *,
        endpoint: UUID | None = None,
        status: str | None = None,
        event: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Found:
        """Deliveries, newest first, without what was sent and answered; `before` continues after the last one seen."""
        filters: Any = {"endpoint": endpoint, "status": status, "event": event, "before": before, "limit": limit}
        return await self._of._run(webhooks.deliveries(self._of._sql, self._of._who(org), **filters), conn)

    async def get(self, delivery: UUID, *, org: str | None = None, conn: Any = None) -> Delivery:
        """One delivery with what was sent and what was last answered, or UnknownName."""
        found = await self._of._run(webhooks.delivery_of(self._of._sql, delivery, self._of._who(org)), conn)
        return _readable(found, await vault.async_to_read(self._of._ring, found.org_id, found.body))

    async def redeliver(self, delivery: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> UUID:
        """Send a delivery again, under its own id; answers the job. Refused while it is tried anyway."""
        job = self._of._complete([self._hooks.job()])[0]
        return await self._of._run(webhooks.redeliver(self._of._sql, delivery, self._of._who(org), job, reason), conn)


def _readable(found: Delivery, keys: Keys | None) -> Delivery:
    """A delivery as it was sent; whether its body is encrypted says it of its answer too."""
    if keys is None or found.body is None or not found.body.startswith(SEALED):
        return found
    body = vault.opened(keys, found.org_id, "body", found.event_id, found.body)
    if found.response_headers is None or found.response_body is None:
        return replace(found, body=body)
    sealed = msgspec.json.encode(found.response_headers).decode()
    headers = vault.opened(keys, found.org_id, "answer headers", found.id, sealed)
    answer = vault.opened(keys, found.org_id, "answer", found.id, found.response_body.decode())
    return replace(
        found, body=body, response_headers=msgspec.json.decode(headers), response_body=base64.b64decode(answer)
    )
