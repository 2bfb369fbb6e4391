"""The block: what an application says once of its outgoing webhooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict, Unpack, overload
from uuid import UUID

from psycopg.conninfo import conninfo_to_dict

from mainspring.circuit import Breaker, breaker
from mainspring.client import AsyncClient, Client
from mainspring.client.colour import Work
from mainspring.client.seam import Seam
from mainspring.config import DEFAULT_SCHEMA
from mainspring.contrib.by import AsyncBy, By, SyncBy, seam_of
from mainspring.contrib.webhooks import vault
from mainspring.contrib.webhooks.attempt import WebhookSender
from mainspring.contrib.webhooks.deliveries import AsyncDeliveries, Deliveries
from mainspring.contrib.webhooks.endpoint import check_prefix
from mainspring.contrib.webhooks.endpoints import AsyncEndpoints, Endpoints
from mainspring.contrib.webhooks.event import WebhookEvent, event
from mainspring.contrib.webhooks.policy import Policy
from mainspring.contrib.webhooks.transport import WEBHOOK_TIMEOUT_S, Transport
from mainspring.db import jobs, webhooks
from mainspring.db.webhooks import Endpoint, MadeDelivery, Published
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.block import Block
from mainspring.declare.caller import current
from mainspring.declare.context import Context
from mainspring.declare.registry import Registry
from mainspring.errors import ConfigurationError
from mainspring.job import DEFAULT_ORG, Enqueued, NewJob
from mainspring.limit import DeclaredLimit, concurrency
from mainspring.retry import Retry, listed
from mainspring.text.span import Span, configured_span

if TYPE_CHECKING:
    from mainspring.app import App
    from mainspring.cipher import OrgKeys

#: The schedule that the Standard Webhooks specification recommends: ten attempts in three days.
STANDARD: Final = listed(5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400)
#: Five failures of an endpoint in half a minute, and nobody knocks for a minute, at last for an hour.
BREAKER: Final = breaker("webhook", longest=timedelta(hours=1))
NOBODYS: Final = UUID(int=0)


class PublishOptions(TypedDict, total=False):
    """What may be said about an event that is published."""

    event_id: UUID | str | None  # None: a new one; in a handler, the same on every attempt
    occurred_at: datetime | None  # None: now, by the database's clock
    org: str | None  # None: the caller's
    conn: Any  # None: in a transaction of its own


class Webhooks(Block):
    """Signed webhooks to endpoints that organisations register.

    ::

        webhooks = Webhooks(prefix="X-Shop")
        app = ms.App(tasks, dsn=dsn, blocks=[webhooks])

        webhooks.endpoints(client).add("https://example.com/hooks", events=["order.*"])
        webhooks.publish("order.paid", {"total": 7}, ("Order", 1), by=client, conn=conn)  # in conn's transaction

    `policy` says what may be reached: HTTPS at public addresses unless the server's configuration says otherwise.
    `concurrency` bounds the calls of one endpoint at once, over all workers; None: no bound.
    `disabled` makes a job that tells the organisation when a receiver has said that it is gone.
    """

    def __init__(
        self,
        prefix: str = "X-Mainspring",
        *,
        policy: Policy | None = None,
        retry: Retry = STANDARD,
        timeout: Span = WEBHOOK_TIMEOUT_S,
        concurrency: int | None = 10,
        breaker: Breaker = BREAKER,
        disabled: Callable[[Endpoint], NewJob | None] | None = None,
        task: str = "webhooks.deliver",
        queue: str = "q:notifications",
        transport: Transport | None = None,
    ) -> None:
        if breaker.name != BREAKER.name:
            raise ConfigurationError(f"breaker: is not called {BREAKER.name}")
        patience = configured_span("timeout", timeout)
        if not timedelta(0) < patience <= timedelta(seconds=300):
            raise ConfigurationError("timeout: is not between 0 and 300 seconds")
        self.prefix, self.timeout = check_prefix(prefix), patience.total_seconds()
        self._policy, self._transport, self._disabled = policy, transport, disabled
        self._app: App | None = None
        self._sql = Sql(DEFAULT_SCHEMA)
        self.registry = Registry("webhooks")
        self.breakers = (breaker,)
        self.limits: Sequence[DeclaredLimit] = () if concurrency is None else (_bound(task, concurrency),)

        @self.registry.task(
            name=task,
            category="notifications",
            queue=queue,
            priority=3,
            retry=retry,
            strand="{endpoint_id}",
            needs=("webhook:{endpoint_id}",),
            timeout=patience + timedelta(seconds=30),
            snooze_limit=None,  # an endpoint may be paused for long
            encrypt=False,  # ids only
            subject="delivery_id",
        )
        async def deliver(ctx: Context, *, delivery_id: UUID, endpoint_id: UUID) -> None:
            """Deliver an event to an endpoint."""
            await self._sender().attempt(ctx, delivery_id)

        self._deliver = deliver

    def joined(self, app: App) -> None:
        """See Block."""
        self._app, self._sql = app, Sql(app.schema)

    # -- for applications

    @overload
    def publish(
        self,
        event_type: str,
        payload: Any,
        aggregate: tuple[str, object],
        *,
        by: SyncBy,
        **how: Unpack[PublishOptions],
    ) -> list[MadeDelivery]: ...
    @overload
    def publish(
        self,
        event_type: str,
        payload: Any,
        aggregate: tuple[str, object],
        *,
        by: AsyncBy,
        **how: Unpack[PublishOptions],
    ) -> Coroutine[Any, Any, list[MadeDelivery]]: ...
    def publish(
        self,
        event_type: str,
        payload: Any,
        aggregate: tuple[str, object],
        *,
        by: By,
        **how: Unpack[PublishOptions],
    ) -> list[MadeDelivery] | Coroutine[Any, Any, list[MadeDelivery]]:
        """Tell every endpoint of the organisation that wants such events, by a delivery and a job for each.

        They are written in the transaction of `conn`: the one that the change itself is written in. Without one they
        join the block of a handler's context that is open, or commit at once, in a handler under its lease. An event id
        that was published before makes no second delivery; a handler that names none gets the same on every attempt.
        """
        named: Any = {"id": how.get("event_id"), "occurred_at": how.get("occurred_at"), "job": current().parent_id}
        told, org, conn = event(event_type, payload, aggregate, **named), how.get("org"), how.get("conn")
        job, seam = self.job() if org is None else self.job().for_org(org), seam_of(by)
        return seam.do(self.tell(seam, told, job, conn))

    @overload
    def endpoints(self, client: Client) -> Endpoints: ...
    @overload
    def endpoints(self, client: AsyncClient) -> AsyncEndpoints: ...
    def endpoints(self, client: Client | AsyncClient) -> Endpoints | AsyncEndpoints:
        """Register endpoints, and change them."""
        return Endpoints(client, self) if isinstance(client, Client) else AsyncEndpoints(client, self)

    @overload
    def deliveries(self, client: Client) -> Deliveries: ...
    @overload
    def deliveries(self, client: AsyncClient) -> AsyncDeliveries: ...
    def deliveries(self, client: Client | AsyncClient) -> Deliveries | AsyncDeliveries:
        """See what became of deliveries, and have one sent again."""
        return Deliveries(client, self) if isinstance(client, Client) else AsyncDeliveries(client, self)

    # -- for its parts

    @property
    def transport(self) -> Transport:
        """How webhooks travel; our own database is no target, whatever is allowed."""
        if self._transport is None:
            self._transport = Transport(self._policy or Policy.from_env(), own=self._own())
        return self._transport

    def job(self) -> NewJob:
        """The job of a delivery, whose ids the database fills in."""
        return self._deliver.job(delivery_id=NOBODYS, endpoint_id=NOBODYS)

    def tell(
        self, seam: Seam, told: WebhookEvent, job: NewJob, conn: Any, only: UUID | None = None
    ) -> Work[list[MadeDelivery]]:
        """Publish an event by jobs like this one, whose ids the database fills in."""
        (job,) = seam.complete([job])
        keys = yield from seam.keys_to_write(job.org_id or DEFAULT_ORG)
        made = yield from seam.ask(_publish(seam.sql, told, job, keys, only), conn)
        answers = [Enqueued(each.id, "created", "ready") for each in made]
        seam.tell_created([job.with_id(each.id) for each in made], answers, conn)
        return made

    def _sender(self) -> WebhookSender:
        observers = () if self._app is None else self._app.observers
        return WebhookSender(self._sql, self.transport, self.timeout, self._disabled, observers)

    def _own(self) -> list[str]:
        with suppress(ConfigurationError):  # it has none yet
            if self._app is not None:
                return _hosts(conninfo_to_dict(self._app.dsn))
        return []


def _hosts(about: Mapping[str, Any]) -> list[str]:
    """Where a database listens, by name and by address, as libpq would find it."""
    ports = str(about.get("port") or os.environ.get("PGPORT") or "5432").split(",")
    found: list[str] = []
    for name in ("host", "hostaddr"):
        hosts = str(about.get(name) or os.environ.get(f"PG{name.upper()}") or "").split(",")
        each = ports if len(ports) == len(hosts) else ports[:1] * len(hosts)
        pairs = [(host, port) for host, port in zip(hosts, each, strict=True) if host[:1] not in "/@"]
        found += [f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in pairs]
    return found


def _publish(
    sql: Sql, told: WebhookEvent, job: NewJob, keys: OrgKeys | None, only: UUID | None = None
) -> Dialogue[list[MadeDelivery]]:
    """The body is built here, once; where nobody says when it happened, the database does."""
    now = told.occurred_at or (yield from jobs.now(sql))
    org = job.org_id or DEFAULT_ORG
    body = vault.closed(keys, org, "body", told.id, told.body(now))
    event = Published(org, told.id, told.type, told.aggregate_type, told.aggregate_id, body)
    return (yield from webhooks.publish(sql, event, job, only))


def _bound(task: str, most: int) -> DeclaredLimit:
    return concurrency(task=task, most=most, by="strand")
