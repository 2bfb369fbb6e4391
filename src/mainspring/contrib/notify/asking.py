"""Asking for notifications: rows and delivery jobs in the caller's transaction."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, time
from itertools import product
from typing import Any, TypedDict

import msgspec
from msgspec.structs import replace

from mainspring.checks import check_instant, check_subject
from mainspring.client.colour import Work
from mainspring.client.seam import Seam
from mainspring.contrib.by import By, SyncBy, seam_of
from mainspring.contrib.notify.quiet import quiet_until
from mainspring.contrib.notify.setup import Setup
from mainspring.contrib.notify.template import Template, check_channels
from mainspring.contrib.notify.values import normalised
from mainspring.db import notify as db
from mainspring.db import recipients
from mainspring.db.notify import Asked, Class, Note, NotifyRefusal
from mainspring.db.recipients import Channel, Recipient
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.caller import current_job
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG, NewJob
from mainspring.text.document import stable_hash
from mainspring.text.sanitize import sanitize
from mainspring.text.texts import MAX_NAME, did_you_mean, text_problem
from mainspring.uuid7 import uuid7
from mainspring.worker.job_seam import JobSeam

log = logging.getLogger("mainspring.notify")

To = str | Sequence[str] | None
Known = dict[str, Recipient]
#: Those that are in a hurry come first among the jobs of their queue.
PRIORITY: Mapping[Class, int] = {"critical": 0, "time_bound": 1, "normal": 2}
#: Channels that ring in the night.
LOUD: frozenset[Channel] = frozenset({"sms", "push"})


class Where(TypedDict, total=False):
    """Whose, and in which transaction."""

    conn: Any  # None: your connection, as `client.enqueue` takes it, to join your transaction
    org: str | None  # None: the organisation of who asks


class RecipientFields(Where, total=False):
    """What may be said of a recipient; see `Recipient`."""

    email: str | None
    phone: str | None
    push_token: str | None
    zone: str
    language: str
    quiet_from: time | str
    quiet_to: time | str
    opt_out: Sequence[str]
    spam_limit: int | None


class NotifyOptions(Where, total=False):
    """What may be said when a notification is asked for."""

    channels: Sequence[Channel] | None  # the template's
    at: datetime | None  # None: as soon as may be; else no sooner
    event_at: datetime | None  # None: when that happened which the message tells
    fallback: str | None  # None; who receives it where `to` is None, or unknown in our own table of recipients
    subject: str | None  # None; what it is about, such as `booking 17`; a mail's subject line is the template's title
    zone: str | None  # None; where it is said, instants in the data become dates there
    best_effort: bool  # False; True: what is refused is logged, and your transaction goes on
    necessary: bool  # False; True: neither opt-out nor quiet hours count


@dataclass(frozen=True, slots=True, repr=False)  # its data are personal
class NotifyRequest:
    """What was asked for, checked: one notification for each recipient and channel."""

    setup: Setup
    template: Template
    subject: str | None
    data: msgspec.Raw
    to: Sequence[str]
    fallback: str | None
    channels: Sequence[Channel]
    at: datetime | None
    bucket: datetime | None
    necessary: bool
    best_effort: bool
    org: str | None

    def made(self) -> list[NewJob]:
        """The jobs that deliver; each names its notification, and nothing else."""
        found = []
        for _ in range(len(self.to) * len(self.channels)):
            job = self.setup.task.job(notification_id=uuid7()).with_priority(PRIORITY[self.template.class_])
            job = job if self.org is None else job.for_org(self.org)
            found.append(replace(job, best_effort=self.best_effort, scheduled_for=self.at))
        return found

    def dialogue(self, jobs: Sequence[NewJob]) -> Dialogue[list[Asked]]:
        """Look at the recipients, and write. Best effort looks inside its savepoint only: the rest is the caller's."""
        org = jobs[0].org_id or DEFAULT_ORG
        known: Known | None = None
        now: datetime | None = None
        if self.setup.recipients is None and not self.best_effort:
            ids = [*self.to, *([self.fallback] if self.fallback else [])]
            now, known = yield from recipients.find(self.setup.sql, org, ids)
        places = [(who, channel) for who in self.to for channel in self.channels]
        pairs = [self._note(org, *place, job, now, known) for place, job in zip(places, jobs, strict=True)]
        notes, wanted = [note for note, _ in pairs], [job for _, job in pairs]
        answer = yield from db.request(self.setup.sql, notes, wanted, best_effort=self.best_effort)
        if isinstance(answer, NotifyRefusal):
            refused(self.template.name, answer.text)
            return []
        return answer

    def _note(
        self,
        org: str,
        who: str,
        channel: Channel,
        job: NewJob,
        now: datetime | None,
        known: dict[str, Recipient] | None,
    ) -> tuple[Note, NewJob]:
        due = self.at
        if known is not None:
            assert now is not None
            if who not in known and self.fallback is not None:
                who = self.fallback
            if who not in known:
                raise ValidationError(f"to: there is no recipient {who!r}", field="to")
            until = waits_until(channel, self.template.class_, self.necessary, known[who], max(self.at or now, now))
            due = until if until > now else self.at
        job = replace(job, scheduled_for=due)
        note = Note(
            org_id=org,
            id=msgspec.json.decode(job.payload)["notification_id"],
            recipient_id=who,
            channel=channel,
            template=self.template.name,
            class_=self.template.class_,
            necessary=self.necessary,
            subject=self.subject,
            fallback=self.fallback if self.best_effort and self.setup.recipients is None else None,
            data=self.data,
            payload_hash=stable_hash(self.data),
            bucket=self.bucket,
            at=self.at,
            due_at=due,
        )
        return note, job


def waits_until(channel: Channel, class_: Class, necessary: bool, who: Recipient, at: datetime) -> datetime:
    """When a message may be sent that could be sent at an instant: normal ones do not ring in quiet hours."""
    if class_ != "normal" or necessary or channel not in LOUD:
        return at
    return quiet_until(at, who.zone, who.quiet_from, who.quiet_to)


def prepared(setup: Setup, to: To, template: str, data: Mapping[str, Any] | None, how: NotifyOptions) -> NotifyRequest:
    """Check what is asked for, before anything is written; what the texts need must be there."""
    for name in how.keys() - NotifyOptions.__annotations__.keys():
        raise ValidationError(
            f"{name}: cannot be said here{did_you_mean(name, NotifyOptions.__annotations__)}", field=name
        )
    said, at, fallback, subject = setup.template(template), how.get("at"), how.get("fallback"), how.get("subject")
    if not isinstance(to, str | Iterable | None):
        raise ValidationError("to: is neither an id nor a list of them", field="to")
    people = [to] if isinstance(to, str) else list(to or filter(None, [fallback]))
    if not people:
        raise ValidationError("to: is missing", field="to")
    _check_texts("to", people)
    for name, value in (("fallback", fallback), ("org", how.get("org"))):
        _check_texts(name, [] if value is None else [value])
    wanted = how.get("channels") or said.channels
    check_channels(wanted, lambda problem: ValidationError(problem, field="channels"))
    for channel in wanted:
        setup.check_sender(channel)
    for name, instant in (("at", at), ("event_at", how.get("event_at"))):
        if instant is not None:
            check_instant(name, instant)
    values = normalised(data, how.get("zone"), dates=said.style == "brackets")
    if said.fill is None:
        for channel, language in product(wanted, ("", *said.languages)):
            said.render(msgspec.json.decode(values), channel, language)
    job = current_job()
    return NotifyRequest(
        setup=setup,
        template=said,
        subject=None if subject is None else check_subject(subject),
        data=values,
        to=list(dict.fromkeys(people)),
        fallback=fallback,
        channels=list(dict.fromkeys(wanted)),
        at=at,
        bucket=at or how.get("event_at") or (job.scheduled_for or job.created_at if job else None),
        necessary=how.get("necessary", False) or said.class_ == "critical",
        best_effort=how.get("best_effort", False),
        org=how.get("org"),
    )


def _check_texts(field: str, values: Sequence[object]) -> None:
    for value in values:
        if problem := text_problem(value, MAX_NAME):
            raise ValidationError(f"{field}: {problem}", field=field)


def ask(by: By, conn: Any, request: NotifyRequest) -> list[Asked] | Awaitable[list[Asked]]:
    """Ask in the colour of who asks. A context without a connection asks with its job's success."""
    seam = seam_of(by)
    if not isinstance(seam, JobSeam):
        return seam.do(_asked(seam, conn, request, seam.complete(request.made())))
    wanted = seam.follow_ups(request.made())
    if conn is not None:
        return seam.do(_asked(seam, conn, request, wanted))
    seam.with_success(wanted, lambda jobs: _plan(request, jobs))
    return nothing(by)


def _asked(seam: Seam, conn: Any, request: NotifyRequest, wanted: list[NewJob]) -> Work[list[Asked]]:
    answer = yield from seam.ask(request.dialogue(wanted), conn)
    seam.tell_created(wanted, db.enqueued(answer), conn)
    return answer


def _plan(request: NotifyRequest, jobs: Sequence[NewJob]) -> Dialogue[Any]:
    return db.enqueued((yield from request.dialogue(jobs)))


def nothing(by: By) -> list[Asked] | Awaitable[list[Asked]]:
    """No answer, in the colour of who asks."""

    async def later() -> list[Asked]:
        return []

    return [] if isinstance(by, SyncBy) else later()


def refused(template: object, why: str) -> None:
    """A best-effort notification was not written: the caller's work goes on, and this line says so."""
    log.warning("notification:refused %s: %s", sanitize(str(template), 200), sanitize(why, 500))
