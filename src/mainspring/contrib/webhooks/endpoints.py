"""Register endpoints and change them, by a client."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from msgspec.structs import replace

from mainspring.client.colour import Async, Blocking, Sync, Verbs, Work, verb
from mainspring.contrib.standard_webhooks import new_secret
from mainspring.contrib.webhooks import vault
from mainspring.contrib.webhooks.endpoint import Registered, checked_description, checked_events, written_headers
from mainspring.contrib.webhooks.event import PING, event
from mainspring.contrib.webhooks.target import WebhookTarget
from mainspring.contrib.webhooks.transport import Transport
from mainspring.db import webhooks
from mainspring.db.jobs import Who
from mainspring.db.webhooks import Endpoint, check_overlap
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG
from mainspring.text.span import Span, span_of
from mainspring.uuid7 import uuid7

if TYPE_CHECKING:
    from mainspring.cipher import OrgKeys
    from mainspring.contrib.webhooks.block import Webhooks

_SECRETS_OVERLAP: Final = timedelta(hours=24)
EndpointList: TypeAlias = list[Endpoint]  # the classes have a method of that name


@dataclass(frozen=True, slots=True)
class _New:
    """An endpoint that is about to be registered."""

    id: UUID
    events: list[str]
    description: str | None
    headers: str | None
    secret: str

    def written(self, sql: Sql, who: Who, prefix: str, url: str, keys: OrgKeys | None) -> Dialogue[Endpoint]:
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


class EndpointVerbs(Verbs):
    """Register endpoints, and change them.

    ::

        added = webhooks.endpoints(client).add("https://example.com/hooks", events=["order.*"])
        print(added.endpoint.id, added.secret)  # the secret is shown this once
    """

    def __init__(self, client: Verbs, hooks: Webhooks) -> None:
        super().__init__(client)
        self._hooks = hooks

    @verb
    def add(
        self,
        url: str,
        *,
        events: Sequence[str] = (),
        description: str | None = None,
        headers: Mapping[str, str] | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[Registered]:
        """Register an endpoint for these events (`order.paid`, `order.*`; none: all); its URL is checked first."""
        new, who = _new(events, description, headers, self._hooks.prefix), self._who(org)
        target: WebhookTarget = yield Blocking(lambda: _checked(self._hooks.transport, url))
        keys = yield from self.seam.keys_to_write(who.org_id or DEFAULT_ORG)
        dialogue = new.written(self.seam.sql, who, self._hooks.prefix, target.url, keys)
        return Registered((yield from self.seam.ask(dialogue, conn)), new.secret)

    @verb
    def list(
        self, *, after: UUID | None = None, limit: int = 100, org: str | None = None, conn: Any = None
    ) -> Work[EndpointList]:
        """Endpoints in the order in which they were made; `after` continues behind the last one seen."""
        return self.seam.ask(webhooks.endpoints(self.seam.sql, self.seam.who(org), after=after, limit=limit), conn)

    @verb
    def get(self, endpoint: UUID, *, org: str | None = None, conn: Any = None) -> Work[Endpoint]:
        """One endpoint, or UnknownName."""
        return self.seam.ask(webhooks.endpoint_of(self.seam.sql, endpoint, self.seam.who(org)), conn)

    @verb
    def pause(
        self, endpoint: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[bool]:
        """Send nothing for now: deliveries wait until it is resumed; False: so it was already."""
        who = self.seam.who(org)
        return self.seam.ask(webhooks.set_state(self.seam.sql, endpoint, who, "paused", reason), conn)

    @verb
    def resume(
        self, endpoint: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[bool]:
        """Send again, what waits at once; False: it was active already."""
        who = self.seam.who(org)
        return self.seam.ask(webhooks.set_state(self.seam.sql, endpoint, who, "active", reason), conn)

    @verb
    def remove(
        self, endpoint: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[None]:
        """Remove an endpoint and its secrets; what waits for it is cancelled."""
        return self.seam.ask(webhooks.remove(self.seam.sql, endpoint, self.seam.who(org), reason), conn)

    @verb
    def rotate(
        self,
        endpoint: UUID,
        *,
        overlap: Span = _SECRETS_OVERLAP,
        reason: str | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[str]:
        """A new secret, shown this once; the old one signs too until `overlap` is over. 0: others know it."""
        length = span_of("overlap", overlap)
        check_overlap(length)
        found = yield from self.seam.ask(webhooks.endpoint_of(self.seam.sql, endpoint, self.seam.who(org)), conn)
        keys, secret = (yield from self.seam.keys_to_write(found.org_id)), new_secret()
        written = vault.closed(keys, found.org_id, "secret", found.id, secret)
        who = replace(self.seam.who(org), org_id=found.org_id)
        dialogue = webhooks.rotate(self.seam.sql, found.id, who, secret=written, overlap=length, reason=reason)
        yield from self.seam.ask(dialogue, conn)
        return secret

    @verb
    def ping(self, endpoint: UUID, *, org: str | None = None, conn: Any = None) -> Work[UUID]:
        """Send a `webhook.ping` event to one endpoint, whatever it wants; answers the delivery."""
        dialogue = webhooks.endpoint_of(self.seam.sql, endpoint, self.seam.who(org))
        found = _pingable((yield from self.seam.ask(dialogue, conn)))
        told = event(PING, {"endpoint_id": found.id}, ("Endpoint", found.id))
        job = self._hooks.job().for_org(found.org_id)
        return (yield from self._hooks.tell(self.seam, told, job, conn, found.id))[0].id

    def _who(self, org: str | None) -> Who:
        who = self.seam.who(org)
        return replace(who, org_id=DEFAULT_ORG) if who.org_id is None else who


class Endpoints(EndpointVerbs, Sync):
    """Endpoints, for sync code; made by `webhooks.endpoints(client)`."""


class AsyncEndpoints(EndpointVerbs, Async):
    """Endpoints, for async code; made by `webhooks.endpoints(client)`."""


def _checked(transport: Transport, url: str) -> WebhookTarget:
    """The target of a URL, from code that may block; in a thread, because a loop may run in this one."""
    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, transport.check(url)).result()
