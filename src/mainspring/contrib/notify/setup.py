"""What asking and delivering share: senders, templates, who gets messages, how many, and whether any are sent."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Final

from mainspring.config import SettingsTable, changes, switch
from mainspring.contrib.notify.sender import Sender
from mainspring.contrib.notify.template import Template
from mainspring.db.recipients import Channel, Recipient
from mainspring.db.wire.sql import Sql
from mainspring.declare.task import Task
from mainspring.errors import ConfigurationError, ValidationError
from mainspring.text.span_field import SpanField
from mainspring.text.texts import did_you_mean

#: Recipients from an application's own tables: (psycopg's async connection, organisation, ids).
Recipients = Callable[[Any, str, Sequence[str]], Awaitable[Iterable[Recipient]]]

OUTSIDE: Final[tuple[Channel, ...]] = ("email", "sms", "push")
_DRY: Final[SettingsTable] = {"dry_run": ("MAINSPRING_NOTIFY_DRY_RUN", switch)}


@dataclass(frozen=True)
class Spam:
    """At most so many messages within a time, to one recipient on one channel; critical ones neither wait nor count."""

    most: int = 30
    within: SpanField = SpanField("1h")

    def __post_init__(self) -> None:
        if not 1 <= self.most <= 100_000 or not timedelta(0) < self.within <= timedelta(days=31):
            raise ConfigurationError("spam: is not 1 to 100000 messages within at most 31 days")


@dataclass(slots=True)
class Setup:
    """An application's notifications, as it declared them."""

    senders: Mapping[Channel, Sender]
    templates: Mapping[str, Template]
    dry: frozenset[Channel]
    spam: Spam | None
    recipients: Recipients | None
    timeout: float
    sql: Sql
    task: Task[..., Any]

    def template(self, name: object) -> Template:
        """A template by its name."""
        found = self.templates.get(name) if isinstance(name, str) else None
        if found is None:
            near = did_you_mean(name, self.templates)
            raise ValidationError(f"template: no template is called {str(name)[:200]!r}{near}", field="template")
        return found

    def check_sender(self, channel: Channel) -> None:
        """Refuse a channel on which nothing can be sent."""
        if channel != "in_app" and channel not in self.dry and channel not in self.senders:
            raise ValidationError(f"channels: there is no sender for {channel}", field="channels")


def by_channel(senders: Sequence[Sender]) -> dict[Channel, Sender]:
    """The sender of each channel: the first."""
    found: dict[Channel, Sender] = {}
    for sender in senders:
        if sender.channel not in OUTSIDE:
            raise ConfigurationError(f"senders: {sender.name} is for {sender.channel!r}, not {', '.join(OUTSIDE)}")
        found.setdefault(sender.channel, sender)
    return found


def by_name(templates: Sequence[Template]) -> dict[str, Template]:
    """Templates by their names, each once."""
    found: dict[str, Template] = {}
    for template in templates:
        if found.setdefault(template.name, template) is not template:
            raise ConfigurationError(f"templates: {template.name} is declared twice")
    return found


def dry_channels(said: bool | None, env: Mapping[str, str] | None = None) -> frozenset[Channel]:
    """The channels on which nothing leaves: as said, else by the environment.

    >>> sorted(dry_channels(None, {"SEND_EMAILS": "false"})), sorted(dry_channels(None, {"SEND_EMAILS": "true"}))
    (['email'], [])
    """
    env = os.environ if env is None else env
    if said is None:
        said = changes(_DRY, env).get("dry_run")
    if said is not None:
        return frozenset(OUTSIDE if said else ())
    return frozenset(["email"] if env.get("SEND_EMAILS", "true").strip().lower() != "true" else [])
