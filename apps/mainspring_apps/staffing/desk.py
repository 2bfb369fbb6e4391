"""What everybody in a marketplace works with: its client, its provider of money, its messages and its settings.

Handlers and business events are handed the desk of their marketplace: several can live in one process. What only reads
takes a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mainspring.contrib.stripe import Stripe
from mainspring_apps.frame.desk import TellingDesk
from mainspring_apps.staffing import store
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.store import Conn

log = logging.getLogger("mainspring_apps.staffing")


@dataclass(frozen=True)
class Desk(TellingDesk):
    """The hands of one marketplace; what is about a booking is part of its story."""

    NAME = "staffing"
    STORY = "booking_id"

    stripe: Stripe
    settings: Settings

    def nobody(self, conn: Conn, kind: str, about: Mapping[str, Any]) -> None:
        """Nobody is there for a message: open an alert for each company without an admin; see the watch of its name."""
        log.warning("nobody to tell: %s", kind, extra={"kind": kind})
        ids = {name: about.get(name) for name in ("booking_id", "policy_id")}
        for company in store.column(conn, "companies_without_admin", **ids):
            self.alert(
                conn, "nobody_to_tell", f"company {company}", f"it has no admin: {kind} reached nobody", critical=True,
                kind=kind, **ids,
            )  # fmt: skip


booking_subject = Desk.subject
