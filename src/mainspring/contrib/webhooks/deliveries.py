"""See what became of deliveries, and have one sent again."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any, TypeAlias
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.cipher import SEALED
from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.contrib.webhooks import vault
from mainspring.db import webhooks
from mainspring.db.webhooks import Delivery

if TYPE_CHECKING:
    from mainspring.cipher import OrgKeys
    from mainspring.contrib.webhooks.block import Webhooks

DeliveryList: TypeAlias = list[Delivery]  # the classes have a method of that name


class DeliveryVerbs(Verbs):
    """See what became of deliveries, and have one sent again.

    ::

        for delivery in webhooks.deliveries(client).list(status="failed"):
            print(delivery.id, delivery.http_status, delivery.error)
    """

    def __init__(self, client: Verbs, hooks: Webhooks) -> None:
        super().__init__(client)
        self._hooks = hooks

    @verb
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
    ) -> Work[DeliveryList]:
        """Deliveries, newest first, without what was sent and answered; `before` continues after the last one seen."""
        filters: Any = {"endpoint": endpoint, "status": status, "event": event, "before": before, "limit": limit}
        return self.seam.ask(webhooks.deliveries(self.seam.sql, self.seam.who(org), **filters), conn)

    @verb
    def get(self, delivery: UUID, *, org: str | None = None, conn: Any = None) -> Work[Delivery]:
        """One delivery with what was sent and what was last answered, or UnknownName."""
        found = yield from self.seam.ask(webhooks.delivery_of(self.seam.sql, delivery, self.seam.who(org)), conn)
        return _readable(found, (yield from vault.to_read(self.seam, found.org_id, found.body)))

    @verb
    def redeliver(self, delivery: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> Work[UUID]:
        """Send a delivery again, under its own id; answers the job. Refused while it is tried anyway."""
        job = self.seam.complete([self._hooks.job()])[0]
        return self.seam.ask(webhooks.redeliver(self.seam.sql, delivery, self.seam.who(org), job, reason), conn)


class Deliveries(DeliveryVerbs, Sync):
    """Deliveries, for sync code; made by `webhooks.deliveries(client)`."""


class AsyncDeliveries(DeliveryVerbs, Async):
    """Deliveries, for async code; made by `webhooks.deliveries(client)`."""


def _readable(found: Delivery, keys: OrgKeys | None) -> Delivery:
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
