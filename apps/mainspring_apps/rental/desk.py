"""What everybody in a rental company works with: its client, its providers, its bookings and its settings."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import mainspring as ms
from mainspring.contrib.notify import Outgoing, Receipt, Sender
from mainspring.contrib.secret import Secret
from mainspring.contrib.stripe import Stripe
from mainspring.contrib.vendus import Vendus
from mainspring.errors import ConfigurationError
from mainspring_apps.frame.desk import BaseDesk
from mainspring_apps.rental.booking_table import Bookings
from mainspring_apps.rental.settings import Settings

log = logging.getLogger("mainspring_apps.rental")

SHORTEST_LINK_SECRET = 32  # characters


@dataclass(frozen=True)
class LinkSecrets:
    """What signs links to documents: the first does, and the second did until it was replaced (RENT-20.27)."""

    now: Secret
    before: Secret | None = None

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """As RENTAL_LINK_SECRET and RENTAL_LINK_SECRET_PREVIOUS say."""
        for name in ("RENTAL_LINK_SECRET", "RENTAL_LINK_SECRET_PREVIOUS"):
            if name in env and len(env[name]) < SHORTEST_LINK_SECRET:
                raise ConfigurationError(f"{name}: is shorter than {SHORTEST_LINK_SECRET} characters")
        if not (now := env.get("RENTAL_LINK_SECRET")):
            raise ConfigurationError("RENTAL_LINK_SECRET: is not set; it signs the links to invoices")
        before = env.get("RENTAL_LINK_SECRET_PREVIOUS")
        return cls(Secret(now), Secret(before) if before else None)

    @property
    def all(self) -> list[str]:
        """All that open a document."""
        return [one.reveal() for one in (self.now, self.before) if one is not None]


@dataclass(frozen=True)
class Desk(BaseDesk):
    """The hands of one rental company; what is about a booking is part of its story."""

    NAME = "rental"
    STORY = "booking_id"

    stripe: Stripe
    vendus: Vendus
    mailer: Sender | None
    bookings: Bookings
    links: LinkSecrets
    settings: Settings

    def mail(self, message: Outgoing) -> Receipt:
        """Send a mail now, from a plain handler."""
        if self.mailer is None:
            raise ms.Failure("no sender of mails is configured", code="SENDER_MISSING")
        return asyncio.run(self.mailer.send(message))
