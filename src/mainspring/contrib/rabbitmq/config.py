"""How the broker is reached, and whether at all."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, unquote, urlsplit

from mainspring.config import NO_ALIASES, SettingAliases, SettingsTable, changes, check_aliases, switch
from mainspring.errors import ConfigurationError
from mainspring.extras import needs

LONGEST_NAME = 255  # bytes, of names in AMQP


@dataclass(frozen=True, slots=True)
class QueueConfig:
    """How the broker is reached, and whether at all."""

    enabled: bool = False
    url: str = field(default="amqp://guest:guest@localhost:5672/", repr=False)  # RabbitMQ's own defaults
    exchange: str = "mainspring"
    routing_key: str = "jobs.trigger"
    required: bool = False  # whether readiness needs it

    def __post_init__(self) -> None:
        try:
            parts = urlsplit(self.url)
            good = parts.scheme in ("amqp", "amqps") and parts.hostname and parts.port != 0
        except ValueError:
            good = False
        if not good:
            raise ConfigurationError("url of the broker: is not like amqp://user:password@host:5672/virtual-host")
        for name in ("exchange", "routing_key"):
            said = getattr(self, name)
            if not said.isprintable() or not 1 <= len(said.encode()) <= LONGEST_NAME:
                raise ConfigurationError(f"{name} of the broker: is not a name of 1 to {LONGEST_NAME} bytes")
        if self.required and not self.enabled:
            raise ConfigurationError("readiness requires the broker, but it is off: set MAINSPRING_QUEUE_ENABLED, too")
        if self.enabled:
            needs("a broker needs", "rabbitmq", "aio_pika")

    @property
    def place(self) -> str:
        """Where it is, without who we are: for logs."""
        parts = urlsplit(self.url)
        port = parts.port or (5671 if parts.scheme == "amqps" else 5672)
        return f"{parts.hostname}:{port}{parts.path}"

    def masked(self, text: str) -> str:
        """A text of somebody else, without our password."""
        secret = urlsplit(self.url).password
        for form in {secret, unquote(secret), quote(unquote(secret), safe="")} if secret else ():
            text = text.replace(form, "***")
        return text


_QUEUE: SettingsTable = {
    "enabled": ("MAINSPRING_QUEUE_ENABLED", switch),
    "url": ("MAINSPRING_QUEUE_URL", str),
    "exchange": ("MAINSPRING_QUEUE_EXCHANGE", str),
    "routing_key": ("MAINSPRING_QUEUE_ROUTING_KEY", str),
    "required": ("MAINSPRING_HEALTH_REQUIRE_QUEUE", switch),
}


def queue_config(
    env: Mapping[str, str] | None = None, aliases: SettingAliases = NO_ALIASES, **said: Any
) -> QueueConfig:
    """The broker's settings: what code says, and over it what the environment says.

    >>> queue_config({"MAINSPRING_QUEUE_ENABLED": "true"}, exchange="jobs")
    QueueConfig(enabled=True, exchange='jobs', routing_key='jobs.trigger', required=False)
    """
    check_aliases(aliases, _QUEUE)
    said = {name: value for name, value in said.items() if value is not None}
    return QueueConfig(**said | changes(_QUEUE, env, aliases))
