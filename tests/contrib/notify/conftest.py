"""Notifications at work: senders that remember what they were handed, and fail when told to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

import mainspring as ms
from mainspring.contrib.notify import Channel, Notify, Outgoing, Receipt, Template
from mainspring.testing import Harness

MIDNIGHT = datetime(2026, 11, 16, tzinfo=UTC)


class Recording:
    """A provider that keeps what it took; `fails` are the errors of the next calls, `lost` answers that never come."""

    def __init__(self, name: str, channel: Channel, *, finds: bool = False) -> None:
        self.name, self.channel, self.finds = name, channel, finds
        self.taken: list[Outgoing] = []
        self.calls: list[str] = []
        self.fails: list[BaseException | None] = []
        self.lost: list[BaseException] = []
        self.during: Callable[[], Any] = lambda: None
        self.hangs = False

    async def send(self, message: Outgoing) -> Receipt:
        self.calls.append(f"send {message.key}")
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails and (error := self.fails.pop(0)) is not None:
            raise error
        self.taken.append(message)
        self.during()
        if self.lost:
            raise self.lost.pop(0)
        return Receipt(provider=self.name, provider_id=f"{self.name}-{len(self.taken)}")

    async def find(self, message: Outgoing, since: datetime) -> Receipt | None:
        self.calls.append(f"find {message.key}")
        if self.finds and any(one.key == message.key for one in self.taken):
            return Receipt(provider=self.name, provider_id="found")
        return None

    async def close(self) -> None: ...

    @property
    def texts(self) -> list[str]:
        return [message.text for message in self.taken]


TEMPLATES = [
    Template("greeting", "Hello", "Hello {{ name }}!", channels=("email",)),
    Template("both", "Hello", "Hello {{ name }}!", channels=("email", "sms")),
    Template("alarm", "Alarm", "[What] is on fire.", class_="critical", channels=("sms",), style="brackets"),
    Template("soon", "Soon", "[What] begins.", class_="time_bound", channels=("sms",), style="brackets"),
    Template("everywhere", "News", "News", channels=("email", "sms", "push", "in_app"), link="/news"),
]


@pytest.fixture
def mail() -> Recording:
    return Recording("smtp", "email")


@pytest.fixture
def sms() -> Recording:
    return Recording("twilio", "sms")


@pytest.fixture
def push() -> Recording:
    return Recording("push", "push")


@pytest.fixture
def notify(mail: Recording, sms: Recording, push: Recording) -> Notify:
    return Notify(senders=[mail, sms, push], templates=TEMPLATES)


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("test")


@pytest.fixture
def mainspring_app(tasks: ms.Registry, notify: Notify) -> ms.App:
    return ms.App(tasks, blocks=[notify], maintenance=False)


@pytest.fixture
def mainspring(mainspring: Harness, notify: Notify) -> Harness:
    """At midnight UTC, with one recipient, Ana, who lives in Lisbon."""
    mainspring.clock.set(MIDNIGHT)
    addresses: dict[str, Any] = {"email": "ana@example.com", "phone": "+351900000007", "push_token": "device-7"}
    notify.save_recipient("ana", by=mainspring.client, zone="Europe/Lisbon", **addresses)
    return mainspring


def rows(mainspring: Harness, columns: str = "status", where: str = "true") -> list[Any]:
    """What the log shows, oldest first; single columns bare."""
    query = f"select {columns} from mainspring.notification_log where {where} order by created_at, channel, id"
    found = mainspring.conn.execute(query.encode()).fetchall()
    return [row[0] if len(row) == 1 else row for row in found]
