"""Notifications as a block of an application: declared once, asked for anywhere, delivered by jobs of their own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar, Unpack, overload
from uuid import UUID

from mainspring.category import CATEGORIES
from mainspring.circuit import breaker
from mainspring.client import AsyncClient, Client
from mainspring.contrib.by import AsyncBy, By, SyncBy, seam_of
from mainspring.contrib.notify import asking
from mainspring.contrib.notify.asking import NotifyOptions, RecipientFields, To, Where
from mainspring.contrib.notify.delivery import NotificationDelivery
from mainspring.contrib.notify.sender import Sender
from mainspring.contrib.notify.setup import Recipients, Setup, Spam, by_channel, by_name, dry_channels
from mainspring.contrib.notify.template import Template
from mainspring.db import notify as db
from mainspring.db import recipients
from mainspring.db.notify import TASK, Asked, Item, Rate
from mainspring.db.recipients import Channel
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.block import Block
from mainspring.declare.context import Context
from mainspring.declare.registry import Registry
from mainspring.errors import ConfigurationError, MainspringError
from mainspring.retry import Retry
from mainspring.text.span import Span, configured_span

if TYPE_CHECKING:
    from mainspring.app import App
    from mainspring.circuit import Breaker

T = TypeVar("T")
NOTIFY_TIMEOUT_S = 10.0  # seconds for one call of a provider (PLAN-3.12)


class Notify(Block):
    """Messages by mail, SMS and push, and inside the application: asked for in your transaction, each delivered once.

    ::

        notify = Notify(senders=[Smtp(...)], templates=[Template("welcome", "Welcome", "Hello {{ name }}!")])
        app = ms.App(tasks, blocks=[notify])

        notify.send("user-7", "welcome", {"name": "Ana"}, by=client, conn=conn)
    """

    def __init__(
        self,
        *,
        senders: Sequence[Sender] = (),
        templates: Sequence[Template] = (),
        dry_run: bool | None = None,
        spam: Spam | None = Spam(),  # noqa: B008 (a frozen value)
        recipients: Recipients | None = None,
        retry: Retry | None = None,
        breakers: Sequence[Breaker] = (),
        timeout: Span = NOTIFY_TIMEOUT_S,
    ) -> None:
        patience = configured_span("timeout", timeout).total_seconds()
        if patience <= 0:
            raise ConfigurationError("timeout: is not positive")
        self.registry = Registry("notify")

        @self.registry.task(
            name=TASK,
            category="notifications",
            retry=retry or CATEGORIES["notifications"].retry,
            snooze_limit=None,  # quiet hours and the spam limit put off, and lose nothing
            encrypt=False,  # an id
            subject="notification_id",
        )
        async def deliver(ctx: Context, *, notification_id: UUID) -> None:
            """Deliver one notification on one channel."""
            await NotificationDelivery(self._setup, ctx, notification_id).run()

        used = by_channel(senders)
        named = {one.name: one for one in breakers}
        self.breakers = [named.get(sender.name) or breaker(sender.name) for sender in used.values()]
        self._setup = Setup(used, by_name(templates), dry_channels(dry_run), spam, recipients, patience, Sql(), deliver)

    def joined(self, app: App) -> None:
        """Its tables are in the application's schema."""
        self._setup.sql = Sql(app.schema)

    @property
    def dry_run(self) -> frozenset[Channel]:
        """The channels on which nothing is sent: their messages are recorded as skipped."""
        return self._setup.dry

    @overload
    def send(
        self, to: To, template: str, data: Mapping[str, Any] | None = None, *, by: SyncBy, **how: Unpack[NotifyOptions]
    ) -> list[Asked]: ...
    @overload
    def send(
        self, to: To, template: str, data: Mapping[str, Any] | None = None, *, by: AsyncBy, **how: Unpack[NotifyOptions]
    ) -> Awaitable[list[Asked]]: ...
    def send(
        self, to: To, template: str, data: Mapping[str, Any] | None = None, *, by: By, **how: Unpack[NotifyOptions]
    ) -> list[Asked] | Awaitable[list[Asked]]:
        """Ask for a notification: its row and its job commit with your transaction, and nothing is sent before.

        `by` is a client, or the context of a handler; with an async one, await it. A context without a `conn` asks
        with its job's success, and answers nothing. See `NotifyOptions` for what else may be said.

        The same recipient, template and data at the same time, cut to 15 minutes, is one message: the time is `at`, or
        `event_at`, or that of the job whose handler asks, else now.
        """
        try:
            request = asking.prepared(self._setup, to, template, data, how)
        except MainspringError as error:
            if not how.get("best_effort"):
                raise
            asking.refused(template, str(error))
            return asking.nothing(by)
        return asking.ask(by, how.get("conn"), request)

    # -- recipients

    @overload
    def save_recipient(self, recipient: str, /, *, by: SyncBy, **about: Unpack[RecipientFields]) -> None: ...
    @overload
    def save_recipient(
        self, recipient: str, /, *, by: AsyncBy, **about: Unpack[RecipientFields]
    ) -> Awaitable[None]: ...
    def save_recipient(self, recipient: str, /, *, by: By, **about: Unpack[RecipientFields]) -> Awaitable[None] | None:
        """Write who somebody is: see `Recipient`. What is not named keeps its value.

        ::

            notify.save_recipient("user-7", email="ana@example.com", zone="Europe/Lisbon", by=client, conn=conn)
        """
        said: dict[str, Any] = {**about}
        where: Where = {"conn": said.pop("conn", None), "org": said.pop("org", None)}
        return self._do(by, where, lambda org: recipients.save(self._setup.sql, org, recipient, said))

    @overload
    def forget_recipient(self, recipient: str, /, *, by: SyncBy, **where: Unpack[Where]) -> bool: ...
    @overload
    def forget_recipient(self, recipient: str, /, *, by: AsyncBy, **where: Unpack[Where]) -> Awaitable[bool]: ...
    def forget_recipient(self, recipient: str, /, *, by: By, **where: Unpack[Where]) -> bool | Awaitable[bool]:
        """Remove somebody's addresses: what is still to be sent to them is skipped. False: there was nobody."""
        return self._do(by, where, lambda org: recipients.forget(self._setup.sql, org, recipient))

    # -- inside the application

    @overload
    def inbox(
        self, recipient: str, *, by: SyncBy, unread: bool = False, limit: int = 50, **where: Unpack[Where]
    ) -> list[Item]: ...
    @overload
    def inbox(
        self, recipient: str, *, by: AsyncBy, unread: bool = False, limit: int = 50, **where: Unpack[Where]
    ) -> Awaitable[list[Item]]: ...
    def inbox(
        self, recipient: str, *, by: By, unread: bool = False, limit: int = 50, **where: Unpack[Where]
    ) -> list[Item] | Awaitable[list[Item]]:
        """What is shown to somebody in the application, newest first."""
        sql = self._setup.sql
        return self._do(by, where, lambda org: db.inbox(sql, org, recipient, unread=unread, limit=limit))

    @overload
    def read(self, recipient: str, ids: Sequence[UUID], *, by: SyncBy, **where: Unpack[Where]) -> int: ...
    @overload
    def read(self, recipient: str, ids: Sequence[UUID], *, by: AsyncBy, **where: Unpack[Where]) -> Awaitable[int]: ...
    def read(self, recipient: str, ids: Sequence[UUID], *, by: By, **where: Unpack[Where]) -> int | Awaitable[int]:
        """Mark as read what somebody has seen of their own; answers how many were not."""
        return self._do(by, where, lambda org: db.read(self._setup.sql, org, recipient, ids))

    # -- how it goes

    @overload
    def rates(self, *, by: SyncBy, since: datetime | None = None, **where: Unpack[Where]) -> list[Rate]: ...
    @overload
    def rates(self, *, by: AsyncBy, since: datetime | None = None, **where: Unpack[Where]) -> Awaitable[list[Rate]]: ...
    def rates(
        self, *, by: By, since: datetime | None = None, **where: Unpack[Where]
    ) -> list[Rate] | Awaitable[list[Rate]]:
        """How deliveries ended, by template and channel; without an organisation, all that may be seen."""
        return self._do(by, where, lambda org: db.rates(self._setup.sql, org, since=since))

    def _do(self, by: By, where: Where, dialogue: Callable[[str | None], Dialogue[T]]) -> T | Awaitable[T]:
        seam, org, conn = seam_of(by), where.get("org"), where.get("conn")
        if conn is None and not isinstance(by, Client | AsyncClient):
            raise ConfigurationError("by: give a client, or the context of a handler with the conn of its transaction")
        return seam.run(dialogue(seam.org() if org is None else org), conn)

    async def close(self) -> None:
        """Let go of the senders' connections in this event loop."""
        for sender in self._setup.senders.values():
            await sender.close()
