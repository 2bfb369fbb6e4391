"""Delivering one notification: reserve, send, stamp.

The reservation is committed before the provider is called, the stamp together with the job's success. So whoever comes
after a crash knows that a message may be out: it asks the provider, and else sends once more under the same key. A
message that was asked for is never forgotten: without a stamp its job lives on, or stands in the dead letter.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

import psycopg

from mainspring.contrib.notify.asking import waits_until
from mainspring.contrib.notify.sender import Outgoing, Receipt, Sender
from mainspring.contrib.notify.setup import Setup
from mainspring.contrib.notify.template import Rendered, Template
from mainspring.db import jobs, recipients
from mainspring.db import notify as db
from mainspring.db.notify import Notification
from mainspring.db.recipients import Recipient
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.caller import job_fields
from mainspring.declare.context import Context
from mainspring.errors import LeaseLost, MainspringError
from mainspring.outcome import BreakerOpen, Failed, Failure, Permanent, Snooze
from mainspring.worker.aside import judge

log = logging.getLogger("mainspring.notify")
T = TypeVar("T")


@dataclass(frozen=True, slots=True, repr=False)
class Send:
    """It is reserved: hand it to the provider, who may have it already since then."""

    said: Rendered
    to: str
    since: datetime | None
    others: frozenset[str] = frozenset()  # messages of the same words that the provider knows as those of others


@dataclass(frozen=True, slots=True)
class Skip:
    """It is not sent, and why; what it would have said, where that is known, and what may be out from before."""

    reason: str
    said: Rendered | None = None
    out: Send | None = None


@dataclass(frozen=True, slots=True)
class Postpone:
    """Not yet."""

    span: timedelta


@dataclass(frozen=True, slots=True)
class Over:
    """It has ended before, or is another job's by now."""

    how: str


DeliveryStep = Send | Skip | Postpone | Over


class NotificationDelivery:
    """One attempt to deliver one notification."""

    def __init__(self, setup: Setup, ctx: Context, id: UUID) -> None:
        self._setup, self._ctx, self._id = setup, ctx, id
        self._note: Notification | None = None

    async def run(self) -> None:
        """Do what is left to do."""
        try:
            async with self._ctx.transaction() as conn:
                step = await self._begin(conn)
            note = self._note
            assert note is not None
            match step:
                case Over(how):
                    self._tell("skipped", reason=how)
                case Skip(out=Send() as out) if (receipt := await self._found(note, out)) is not None:
                    await self._stamp(receipt)
                case Skip(reason, said):
                    await self._skip(reason, said)
                case Postpone(span):
                    raise Snooze(span)
                case Send() if note.channel == "in_app":
                    await self._stamp(Receipt(provider="in_app"), step.said)
                case Send():
                    await self._stamp(await self._send(note, step))
        except Exception as error:
            outcome = await judge(error)
            if isinstance(outcome, Failed) and not isinstance(error, LeaseLost):
                self._tell("error", code=outcome.error.code)
            raise

    # -- before: look, and reserve

    async def _begin(self, conn: Any) -> DeliveryStep:
        job, setup = self._ctx.job, self._setup
        note = self._note = await self._do(conn, db.get(setup.sql, job.org_id, self._id))
        if note is None:
            raise Permanent("there is no such notification any more", code="NOTIFICATION_GONE")
        if note.job_id != job.id:
            return Over("replaced")
        if note.status in ("sent", "skipped"):
            return Over(f"already_{note.status}")
        template = setup.templates.get(note.template)
        if template is None:
            raise Failure(f"there is no template {note.template!r} here", code="TEMPLATE_UNKNOWN", counts=False)
        now, who = await self._recipient(conn, note)
        if who is None:
            return Skip("unknown_recipient")
        if not note.necessary and {note.channel, note.template, f"{note.template}/{note.channel}"} & set(who.opt_out):
            return await self._unwanted(conn, note, who, "opted_out")
        if (to := who.address(note.channel)) is None:
            return Skip("no_address")
        until = waits_until(note.channel, note.class_, note.necessary, who, now)
        if until > now:
            await self._do(conn, db.put_off(setup.sql, job, note.id, until))
            return Postpone(until - now)
        if template.still is not None and not await template.still(conn, note):
            return await self._unwanted(conn, note, who, "no_longer_holds")
        said = await self._said(conn, template, note, who.language)
        if note.channel in setup.dry:
            return Skip("dry_run", said)
        if note.channel != "in_app" and note.channel not in setup.senders:
            raise Failure(f"there is no sender for {note.channel} here", code="SENDER_MISSING", counts=False)
        spam = self._spam(note, who)
        found = await self._do(conn, db.reserve(setup.sql, job, note.id, said.title, said.text, said.html, spam))
        match found.answer:
            case "reserved":
                if found.since is None or note.channel == "in_app":
                    return Send(said, to, found.since)
                return await self._maybe_out(conn, note, said, to, found.since)
            case "wait":
                return Postpone(timedelta(seconds=max(found.wait or 0.0, 0.001)))
            case how:
                return Over(f"already_{how}")

    async def _unwanted(self, conn: Any, note: Notification, who: Recipient, reason: str) -> Skip:
        """It must not be sent any more, and yet may be out since an attempt whose end nobody saw."""
        to, since = who.address(note.channel), note.reserved_at
        if to is None or since is None or note.channel not in self._setup.senders:
            return Skip(reason)
        said = Rendered(note.title or "", note.text or "", note.html)
        return Skip(reason, out=await self._maybe_out(conn, note, said, to, since))

    async def _maybe_out(self, conn: Any, note: Notification, said: Rendered, to: str, since: datetime) -> Send:
        others = await self._do(conn, db.alike(self._setup.sql, note, said.text, since))
        return Send(said, to, since, frozenset(others))

    async def _recipient(self, conn: Any, note: Notification) -> tuple[datetime, Recipient | None]:
        own = self._setup.recipients
        if own is None:
            now, known = await self._do(conn, recipients.find(self._setup.sql, note.org_id, [note.recipient_id]))
            return now, known.get(note.recipient_id)
        found = {one.recipient_id: one for one in await own(conn, note.org_id, [note.recipient_id])}
        return await self._do(conn, jobs.now(self._setup.sql)), found.get(note.recipient_id)

    async def _said(self, conn: Any, template: Template, note: Notification, language: str) -> Rendered:
        if note.status == "sending" and note.title is not None and note.text is not None and note.channel != "in_app":
            return Rendered(note.title, note.text, note.html)  # the provider may have it: the same key, the same words
        more = {} if template.fill is None else await template.fill(conn, note)
        return template.render({**note.data, **more}, note.channel, language)

    def _spam(self, note: Notification, who: Recipient) -> tuple[int, timedelta] | None:
        spam = self._setup.spam
        if spam is None or note.class_ == "critical" or note.channel == "in_app":
            return None
        return who.spam_limit or spam.most, spam.within

    # -- the provider

    async def _send(self, note: Notification, step: Send) -> Receipt:
        sender = self._setup.senders[note.channel]
        try:
            async with self._ctx.breaker(sender.name):
                return await self._handed(sender, _outgoing(note, step), step.since)
        except BreakerOpen:
            await self._unsent(note, None, certain=step.since is None, counted=False)
            raise
        except Exception as error:
            outcome = await judge(error)
            if isinstance(outcome, Failed):
                known = outcome.error.error_class == "permanent" or outcome.error.code == "RATE_LIMITED"
                await self._unsent(note, outcome.error.code, certain=known and step.since is None)
            raise

    async def _handed(self, sender: Sender, message: Outgoing, since: datetime | None) -> Receipt:
        """Send, unless the provider has it from an attempt whose end nobody saw."""
        if since is not None:
            async with self._limited(sender):
                found = await sender.find(message, since)
            if found is not None:
                return found
        async with self._limited(sender):
            return await sender.send(message)

    async def _found(self, note: Notification, step: Send) -> Receipt | None:
        """What the provider has from an attempt whose end nobody saw: it was sent then, whatever is wished now."""
        assert step.since is not None
        sender = self._setup.senders[note.channel]
        async with self._ctx.breaker(sender.name), self._limited(sender):
            return await sender.find(_outgoing(note, step), step.since)

    @asynccontextmanager
    async def _limited(self, sender: Sender) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._setup.timeout):
                yield
        except TimeoutError:
            text = f"{sender.name}: no answer within {self._setup.timeout:g} s"
            raise Failure(text, code="TIMEOUT") from None

    # -- afterwards

    async def _unsent(self, note: Notification, code: str | None, *, certain: bool, counted: bool = True) -> None:
        dialogue = db.unsent(self._setup.sql, self._ctx.job, note.id, code, certain=certain, counted=counted)
        with suppress(MainspringError, psycopg.Error):  # without it the next attempt is only more careful
            async with self._ctx.transaction() as conn:
                await self._do(conn, dialogue)

    async def _stamp(self, receipt: Receipt, shown: Rendered | None = None) -> None:
        sql, job, note = self._setup.sql, self._ctx.job, self._note
        assert note is not None
        async with self._ctx.complete() as conn:
            if shown is not None:
                await self._do(conn, db.put_in_inbox(sql, note, shown.title, shown.text, shown.link))
            await self._do(conn, db.stamp(sql, job, note.id, receipt.provider, receipt.provider_id))
        self._tell("sent", provider=receipt.provider)

    async def _skip(self, reason: str, said: Rendered | None) -> None:
        words = (None, None) if said is None else (said.title, said.text)
        async with self._ctx.complete() as conn:
            await self._do(conn, db.skip(self._setup.sql, self._ctx.job, self._id, reason, *words))
        self._tell("skipped", reason=reason)

    def _tell(self, event: str, **more: object) -> None:
        """A line such as `email:sent`: ids, and nothing of what was said to whom."""
        note = self._note
        about = {} if note is None else {"channel": note.channel, "template": note.template}
        level = logging.WARNING if event == "error" else logging.INFO
        name = f"{note.channel if note else 'notification'}:{event}"
        log.log(level, name, extra={**job_fields(self._ctx.job), "notification_id": str(self._id), **about, **more})

    async def _do(self, conn: Any, dialogue: Dialogue[T]) -> T:
        return await run_async(async_psycopg_door(conn), dialogue)


def _outgoing(note: Notification, step: Send) -> Outgoing:
    said = step.said
    return Outgoing(
        channel=note.channel, to=step.to, title=said.title, text=said.text, html=said.html, key=note.key,
        others=step.others,
    )  # fmt: skip
