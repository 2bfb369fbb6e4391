"""Notifications and the inbox, as dialogues."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, get_args
from uuid import UUID

import msgspec

from mainspring.category import CATEGORIES
from mainspring.checks import check_instant
from mainspring.db.jobs import Who, check_id, check_limit, check_texts, to_uuid, utc, why
from mainspring.db.recipients import Channel
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Row, Statement, ask, nothing, scalar
from mainspring.declare.envelope import encode
from mainspring.errors import TransitionRefused, ValidationError
from mainspring.job import DEFAULT_ORG, Claim, Enqueued, NewJob
from mainspring.text.texts import MAX_NAME

Class = Literal["critical", "time_bound", "normal"]
NotificationStatus = Literal["pending", "sending", "sent", "skipped", "failed"]
_json = msgspec.json.Encoder().encode

TASK = "notify.deliver"


class Note(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that is asked for: one message on one channel."""

    org_id: str
    id: UUID
    recipient_id: str
    fallback: str | None = None  # who receives it if the recipient is unknown; None: that was looked up, or is nobody
    channel: Channel
    template: str
    class_: Class = msgspec.field(name="class")
    necessary: bool
    subject: str | None = None  # what it is about, besides its recipient
    data: msgspec.Raw
    payload_hash: str
    bucket: datetime | None = None  # None: now
    at: datetime | None = None  # asked for by the caller
    due_at: datetime | None = None  # after quiet hours

    def __repr__(self) -> str:
        return f"<Note {self.id}>"


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """What asking for a notification did: it is new, or was asked for before."""

    id: UUID
    recipient_id: str
    channel: Channel
    answer: Literal["created", "existing"]
    job_id: UUID


class Notification(msgspec.Struct, frozen=True, kw_only=True):
    """A notification as its delivery sees it."""

    org_id: str
    id: UUID
    recipient_id: str
    channel: Channel
    template: str
    class_: Class = msgspec.field(name="class")
    necessary: bool
    data: dict[str, Any]
    status: Literal["pending", "sending", "sent", "skipped"]
    resends: int
    job_id: UUID
    due_at: datetime
    created_at: datetime
    reserved_at: datetime | None = None
    title: str | None = None
    text: str | None = None
    html: str | None = None

    def __repr__(self) -> str:
        return f"<Notification {self.id}>"

    @property
    def key(self) -> str:
        """The provider's: the same on every attempt, another one after a resend."""
        return str(self.id) if self.resends == 0 else f"{self.id}-{self.resends}"


class Logged(msgspec.Struct, frozen=True, kw_only=True):
    """A notification as the view `mainspring.notification_log` shows it."""

    org_id: str
    id: UUID
    recipient_id: str
    channel: Channel
    template: str
    class_: Class = msgspec.field(name="class")
    critical: bool
    necessary: bool
    subject: str | None
    title: str | None
    text: str | None
    status: NotificationStatus
    reason: str | None
    error: str | None
    attempts: int
    resends: int
    bucket: datetime
    due_at: datetime
    reserved_at: datetime | None
    sent_at: datetime | None
    provider: str | None
    provider_id: str | None
    payload_hash: str
    job_id: UUID
    created_at: datetime

    def __repr__(self) -> str:
        return f"<Logged {self.id} {self.status}>"


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """How deliveries of a template on a channel ended."""

    template: str
    channel: Channel
    sent: int
    failed: int
    skipped: int
    open: int

    @property
    def rate(self) -> float | None:
        """The part that was sent of what was sent or failed; None: nothing has ended yet."""
        ended = self.sent + self.failed
        return self.sent / ended if ended else None


class Item(msgspec.Struct, frozen=True, kw_only=True):
    """A notification that is shown in the application."""

    id: UUID
    recipient_id: str
    title: str
    text: str
    link: str | None
    created_at: datetime
    read_at: datetime | None

    def __repr__(self) -> str:
        return f"<Item {self.id}>"


class Reserved(msgspec.Struct, frozen=True):
    """How a reservation went; `since` when an earlier one stands whose end nobody saw."""

    answer: Literal["reserved", "wait", "sent", "skipped", "gone"]
    since: datetime | None
    wait: float | None


_notification = msgspec.json.Decoder(Notification).decode
_logged = msgspec.json.Decoder(Logged).decode
_rate = msgspec.json.Decoder(Rate).decode
_item = msgspec.json.Decoder(Item).decode


# -- asking -----------------------------------------------------------------------------------------------------------


class NotifyRefusal(msgspec.Struct, frozen=True):
    """Why best-effort notifications were not written."""

    text: str


def request(
    sql: Sql, notes: Sequence[Note], jobs: Sequence[NewJob], *, best_effort: bool
) -> Dialogue[list[Asked] | NotifyRefusal]:
    """Write notifications and the jobs that deliver them, in one statement."""
    params: Params = {"notes": _json(notes).decode(), "jobs": encode(jobs), "best_effort": int(best_effort)}
    rows: list[Row] = yield from ask(Statement(sql["request_notifications"], params, list, org=notes[0].org_id))
    if rows and rows[0][1] == "refused":
        return NotifyRefusal(rows[0][3])
    return [
        Asked(id=to_uuid(row[0]), recipient_id=row[4], channel=note.channel, answer=row[1],
              job_id=to_uuid(row[2]))
        for note, row in zip(notes, rows, strict=True)
    ]  # fmt: skip


def enqueued(asked: Sequence[Asked]) -> list[Enqueued]:
    """The same as an enqueue answers it."""
    return [Enqueued(one.job_id, one.answer, "ready") for one in asked]


# -- delivering -------------------------------------------------------------------------------------------------------


def get(sql: Sql, org: str, id: UUID) -> Dialogue[Notification | None]:
    """One notification, or None."""
    read = lambda rows: _notification(rows[0][0]) if rows else None  # noqa: E731 (used once)
    return (yield from ask(Statement(sql["get_notification"], {"org": org, "id": str(id)}, read)))


def reserve(
    sql: Sql, job: Claim, id: UUID, title: str, text: str, html: str | None, spam: tuple[int, timedelta] | None
) -> Dialogue[Reserved]:
    """Reserve a notification for sending, unless it is sent, or its recipient has had enough."""
    params = _of(job, id) | {"title": title, "text": text, "html": html}
    params |= {"most": spam and str(spam[0]), "window": spam and f"{spam[1].total_seconds()} s"}
    return (yield from ask(Statement(sql["reserve_notification"], params, lambda rows: Reserved(*rows[0]))))


def alike(sql: Sql, note: Notification, text: str, since: datetime) -> Dialogue[list[str]]:
    """The provider's ids of other messages of the same words to the same recipient."""
    params: Params = {"org": note.org_id, "id": str(note.id), "recipient": note.recipient_id, "channel": note.channel}
    params |= {"text": text, "since": utc("since", since)}
    return (yield from ask(Statement(sql["alike_notifications"], params, lambda rows: [row[0] for row in rows])))


def put_off(sql: Sql, job: Claim, id: UUID, until: datetime) -> Dialogue[None]:
    """Show until when a delivery waits."""
    yield from ask(Statement(sql["put_off_notification"], _of(job, id) | {"until": until.isoformat()}, nothing))


def unsent(sql: Sql, job: Claim, id: UUID, error: str | None, *, certain: bool, counted: bool = True) -> Dialogue[None]:
    """An attempt failed; `certain` that nothing was sent."""
    params = _of(job, id) | {"error": error, "certain": int(certain), "uncounted": int(not counted)}
    yield from ask(Statement(sql["unsent_notification"], params, nothing))


def stamp(sql: Sql, job: Claim, id: UUID, provider: str, provider_id: str | None) -> Dialogue[None]:
    """It was sent."""
    params = _of(job, id) | {"provider": provider, "provider_id": provider_id}
    yield from ask(Statement(sql["stamp_notification"], params, nothing))


def skip(
    sql: Sql, job: Claim, id: UUID, reason: str, title: str | None = None, text: str | None = None
) -> Dialogue[None]:
    """It is not sent, and why."""
    params = _of(job, id) | {"reason": reason, "title": title, "text": text}
    yield from ask(Statement(sql["skip_notification"], params, nothing))


def put_in_inbox(sql: Sql, note: Notification, title: str, text: str, link: str | None) -> Dialogue[None]:
    """Show it in the application."""
    params: Params = {"org": note.org_id, "id": str(note.id), "recipient": note.recipient_id}
    params |= {"title": title, "text": text, "link": link}
    yield from ask(Statement(sql["put_in_inbox"], params, nothing))


def _of(job: Claim, id: UUID) -> Params:
    return {"org": job.org_id, "id": str(id), "job": str(job.id)}


# -- looking ----------------------------------------------------------------------------------------------------------


def inbox(sql: Sql, org: str | None, recipient: str, *, unread: bool, limit: int) -> Dialogue[list[Item]]:
    """What is shown to somebody in the application, newest first."""
    check_texts(MAX_NAME, org=org, recipient=recipient)
    check_limit(limit, 1000)
    params: Params = {"org": org or DEFAULT_ORG, "recipient": recipient, "unread": int(unread), "limit": limit}
    return (yield from ask(Statement(sql["inbox"], params, lambda rows: [_item(row[0]) for row in rows])))


def read(sql: Sql, org: str | None, recipient: str, ids: Sequence[UUID]) -> Dialogue[int]:
    """Mark as read; answers how many were not."""
    check_texts(MAX_NAME, org=org, recipient=recipient)
    texts = _json([str(check_id(one, "ids")) for one in ids]).decode()
    params: Params = {"org": org or DEFAULT_ORG, "recipient": recipient, "ids": texts}
    count: int = yield from ask(Statement(sql["read_inbox"], params, scalar))
    return count


def listing(
    sql: Sql,
    who: Who,
    *,
    id: UUID | None = None,
    status: str | None = None,
    channel: str | None = None,
    template: str | None = None,
    recipient: str | None = None,
    subject: str | None = None,
    limit: int = 50,
) -> Dialogue[list[Logged]]:
    """Notifications by filter, newest first."""
    check_limit(limit, 1000)
    check_texts(MAX_NAME, template=template, recipient=recipient, subject=subject)
    for field, value, known in (
        ("status", status, get_args(NotificationStatus)),
        ("channel", channel, get_args(Channel)),
    ):
        if value is not None and value not in known:
            raise ValidationError(f"{field}: is not one of {', '.join(known)}", field=field)
    params: Params = {"org": who.org_id, "id": None if id is None else str(check_id(id, "id")), "limit": limit}
    params |= {"status": status, "channel": channel, "template": template, "recipient": recipient, "subject": subject}
    return (
        yield from ask(Statement(sql["list_notifications"], params, lambda rows: [_logged(row[0]) for row in rows]))
    )


def rates(sql: Sql, org: str | None, *, since: datetime | None = None) -> Dialogue[list[Rate]]:
    """How deliveries ended, by template and channel."""
    check_texts(MAX_NAME, org=org)
    if since is not None:
        check_instant("since", since)
    params: Params = {"org": org, "since": None if since is None else utc("since", since)}
    return (yield from ask(Statement(sql["notification_rates"], params, lambda rows: [_rate(row[0]) for row in rows])))


def delivery(id: UUID) -> NewJob:
    """The job that delivers a notification, for who has no application at hand: with its category's options."""
    category = CATEGORIES["notifications"]
    return NewJob(
        task=TASK,
        payload=msgspec.Raw(_json({"notification_id": str(id)})),
        queue=category.queue,
        max_attempts=category.retry.attempts,
        encrypt=False,
    )


def resend(sql: Sql, who: Who, id: UUID, job: NewJob, reason: str) -> Dialogue[None]:
    """Clear the stamp of a notification and enqueue the job that sends it again."""
    if reason is None:
        raise ValidationError("reason: is missing", field="reason")
    params: Params = {"org": job.org_id or DEFAULT_ORG, "id": str(check_id(id, "id")), "job": encode([job])[1:-1]}
    params |= {"actor_type": who.actor_type, "actor_id": who.actor_id, "reason": why(reason)}
    done: bool | None = yield from ask(Statement(sql["resend_notification"], params, scalar))
    if done is None:
        raise ValidationError(f"id: there is no notification {id}", field="id")
    if not done:
        text = f"resend: notification {id} is still to be sent"
        raise TransitionRefused(text, verb="resend", state="pending")
