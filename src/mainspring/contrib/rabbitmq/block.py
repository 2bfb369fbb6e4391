"""The block: who publishes, who listens, and what readiness asks."""

from __future__ import annotations

import asyncio
import time

from mainspring.config import NO_ALIASES, SettingAliases
from mainspring.contrib.rabbitmq.config import queue_config
from mainspring.contrib.rabbitmq.link import BrokerLink
from mainspring.contrib.rabbitmq.listener import MessageListener
from mainspring.contrib.rabbitmq.publisher import Publisher
from mainspring.declare.block import Block, Check
from mainspring.declare.registry import Registry

FIRST_ANSWER_S = 1.5  # seconds that the first question waits for the connection; whoever asks waits for two


class RabbitMQ(Block):
    """A broker that tells workers of new jobs: never the truth, only a reason to look at once.

    ::

        app = ms.App(tasks, blocks=[RabbitMQ()])  # and MAINSPRING_QUEUE_ENABLED=true

    Without `enabled`, or a setting of the environment that says so, it does nothing and connects to nobody.
    `setting_aliases` are your own names of its settings: `{"SHOP_BROKER_URL": "MAINSPRING_QUEUE_URL"}`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        exchange: str | None = None,
        routing_key: str | None = None,
        enabled: bool | None = None,
        required: bool | None = None,
        setting_aliases: SettingAliases = NO_ALIASES,
    ) -> None:
        self.registry = Registry("rabbitmq")
        self.config = queue_config(
            aliases=setting_aliases,
            url=url,
            exchange=exchange,
            routing_key=routing_key,
            enabled=enabled,
            required=required,
        )
        self._publisher, self._listener = Publisher(self.config), MessageListener(self.config)
        if self.config.enabled:
            self.observers = (self._publisher,)
            self.triggers = (self._listener,)
            self.checks = (Check("queue", self._probe, self.config.required),)

    def close(self) -> None:
        """Let go of the connection on which jobs are told; a program that ends does so by itself."""
        self._publisher.close()

    async def _probe(self) -> None:
        """Whether the connections of this process live; where there is none, one is opened, and kept."""
        links = self._links() or [self._publisher.link()]
        deadline = time.monotonic() + FIRST_ANSWER_S
        while not all(link.known for link in links) and time.monotonic() < deadline:  # noqa: ASYNC110 (threads say so)
            await asyncio.sleep(0.01)
        for link in links:
            link.check()

    def _links(self) -> list[BrokerLink]:
        return [*self._listener.links, *([self._publisher.link()] if self._publisher.started else [])]
