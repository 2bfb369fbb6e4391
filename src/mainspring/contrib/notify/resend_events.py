"""What becomes of a mail at Resend after it was taken: delivered, bounced, complained of; as signed webhooks."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mainspring.contrib import standard_webhooks
from mainspring.contrib.heard import LONGEST_EVENT_NAME, AnyTask, HeardEvents
from mainspring.db.inbound import received
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.block import Block, Received, SignatureRefused
from mainspring.declare.context import Context, SyncContext
from mainspring.declare.registry import Registry
from mainspring.errors import ConfigurationError
from mainspring.outcome import Permanent
from mainspring.text.texts import text_problem

RESEND_NAME: Final = "resend"
LARGEST_RESEND_BODY: Final = 1_048_576  # bytes of a body, as the table takes them
#: Resend signs by the Standard Webhooks scheme, under the names that its headers had before.
_NAMES: Final = {f"svix-{part}": f"webhook-{part}" for part in ("id", "timestamp", "signature")}


class _MailEventHead(msgspec.Struct):
    type: str


class MailEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a mail."""

    id: str  # of the event
    type: str  # email.delivered, email.bounced, email.complained, …
    created: datetime
    email_id: str  # the mail's, as its Receipt says: provider_id
    to: tuple[str, ...]
    reason: str | None = None  # of a bounce: Permanent, Transient or Undetermined
    detail: str | None = None  # Suppressed, General, …

    @property
    def undeliverable(self) -> bool:
        """Whether that address gets nothing more: it does not exist, or its owner complained."""
        return self.type == "email.complained" or (self.type == "email.bounced" and self.reason != "Transient")

    def __repr__(self) -> str:  # addresses do not go to logs
        return f"<MailEvent {self.type} {self.email_id}>"

    @classmethod
    def read(cls, id: str, body: str) -> MailEvent:
        """From the body of a webhook."""
        said: Mapping[str, Any] = msgspec.json.decode(body)
        data = said.get("data") or {}
        bounce, to = data.get("bounce") or {}, data.get("to") or ()
        return cls(
            id=id,
            type=said["type"],
            created=_instant(said.get("created_at")),
            email_id=str(data.get("email_id") or ""),
            to=(to,) if isinstance(to, str) else tuple(map(str, to)),
            reason=bounce.get("type"),
            detail=bounce.get("subType"),
        )


class ResendInbound(HeardEvents):
    """Where Resend's webhooks come in: `/v1/inbound/resend`."""

    def __init__(self, secrets: Sequence[str]) -> None:
        super().__init__(RESEND_NAME)
        self._secrets = tuple(secrets)

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Received:
        """The event, if Resend sent it within five minutes of now; several secrets: one is just being replaced."""
        if len(body) > LARGEST_RESEND_BODY:
            raise SignatureRefused("the body is larger than 1 MiB")
        given = {ours: headers.get(theirs, "") for theirs, ours in _NAMES.items()}
        message = standard_webhooks.verify(given, body, self._secrets, now=now)
        try:
            text = body.decode()
            head = msgspec.json.decode(text, type=_MailEventHead)
        except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
            raise SignatureRefused("the body is not an event in JSON, with a type") from None
        if text_problem(head.type, LONGEST_EVENT_NAME):
            raise SignatureRefused("the event's type is empty, too long or not a text")
        return Received(message.id, head.type, text)


class ResendEvents(Block):
    """What Resend tells of mails that it took: each event is recorded once, with the job that acts on it.

    ::

        mail_events = ResendEvents([os.environ["RESEND_WEBHOOK_SECRET"]])
        app = ms.App(tasks, blocks=[notify, mail_events])


        @mail_events.on("email.bounced", "email.complained")
        @tasks.task
        async def bounced(ctx: ms.Context, *, provider: str, event_id: str) -> None:
            event = await mail_events.event(ctx, event_id)

    `secrets` are several while one is replaced.
    """

    def __init__(self, secrets: Sequence[str]) -> None:
        if isinstance(secrets, str):
            raise ConfigurationError("secrets: is not a list of secrets")
        for secret in secrets:
            standard_webhooks.key(secret)
        self.registry = Registry(RESEND_NAME)
        self._inbound = ResendInbound(secrets)
        self.inbound = (self._inbound,) if secrets else ()

    @classmethod
    def from_env(cls, env: Mapping[str, str] | None = None) -> ResendEvents:
        """As the environment says: RESEND_WEBHOOK_SECRET, several with commas; without it nothing is received.

        >>> ResendEvents.from_env({}).inbound
        ()
        """
        said = (os.environ if env is None else env).get("RESEND_WEBHOOK_SECRET", "")
        return cls([part.strip() for part in said.split(",") if part.strip()])

    def on(self, *types: str) -> Callable[[AnyTask], AnyTask]:
        """Give a task the events of these types; each event is one job, whose payload names it."""
        return self._inbound.on(*types)

    async def event(self, ctx: Context, event_id: str) -> MailEvent:
        """The event that a job is about, as it was verified and recorded."""
        return await ctx.client.seam.run(_mail_event(ctx, event_id))

    def sync_event(self, ctx: SyncContext, event_id: str) -> MailEvent:
        """The same in a plain function."""
        return ctx.client.seam.run(_mail_event(ctx, event_id))


def _mail_event(ctx: Context | SyncContext, event_id: str) -> Dialogue[MailEvent]:
    found = yield from received(ctx.client.seam.sql, ctx.job.org_id, RESEND_NAME, event_id)
    if found is None:
        raise Permanent(f"event_id: no event {event_id[:100]} was received", code="VALIDATION_ERROR")
    return MailEvent.read(event_id, found.body)


def _instant(text: object) -> datetime:
    try:
        at = datetime.fromisoformat(str(text))
    except ValueError:
        return datetime.fromtimestamp(0, UTC)
    return at if at.tzinfo else at.replace(tzinfo=UTC)
