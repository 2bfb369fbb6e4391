"""What everybody in a marketplace works with: its client, its provider of money, its messages and its settings.

Handlers and business events are handed the desk of their marketplace: several can live in one process. What only reads
takes a connection.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, Final

from psycopg_pool import ConnectionPool

import mainspring as ms
from mainspring.contrib.notify import Notify
from mainspring.contrib.stripe import Stripe
from mainspring_apps.staffing import store
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.store import Conn
from mainspring_apps.tasks import fitted

_POOL: Final = 4  # connections for requests
REQUEST_WAIT_S: Final = 5.0  # seconds that a request waits for one of them
log = logging.getLogger("mainspring_apps.staffing")


@dataclass(frozen=True)
class Desk:
    """The hands of one marketplace. Everything that takes a connection joins its transaction."""

    app: ms.App
    stripe: Stripe
    notify: Notify
    settings: Settings

    @cached_property
    def client(self) -> ms.Client:
        """A client of the application's database."""
        return self.app.client()

    @contextmanager
    def connection(self) -> Iterator[Conn]:
        """A connection for a request, in a transaction that commits at the end of the block."""
        with self._pool.connection() as conn:
            yield conn

    @cached_property
    def _pool(self) -> ConnectionPool[Conn]:
        about: dict[str, Any] = {"min_size": 0, "max_size": _POOL, "timeout": REQUEST_WAIT_S, "name": "staffing"}
        return ConnectionPool(self.app.dsn, open=True, **about)

    def now(self, conn: Conn) -> datetime:
        """The one clock, in UTC: hours that are added to it are hours, also where clocks change."""
        return self.client.now(conn=conn).astimezone(UTC)

    def enqueue(self, conn: Conn, *jobs: ms.NewJob) -> list[ms.Enqueued]:
        """Enqueue with the transaction."""
        return self.client.enqueue_many([self.fitted(job) for job in jobs], conn=conn)

    def fitted(self, job: ms.NewJob) -> ms.NewJob:
        """A job that is tried as often as the settings say."""
        return fitted(self.app.registry, job)

    def tell(
        self,
        conn: Conn,
        kind: str,
        to: Sequence[int],
        about: Mapping[str, Any],
        *,
        occurrence: datetime,
        channels: Sequence[Any] | None = None,
        at: datetime | None = None,
    ) -> None:
        """Ask for a message: one for each person and channel, once for what it is about and its occurrence.

        `about` names the row that it is about, besides what the text needs: the same again at the same occurrence is
        the same message, however often a job runs (STAFF-14.09). With a `booking_id` it is part of the booking's story.
        """
        people = [str(user) for user in dict.fromkeys(to)]
        if not people:
            self._miss(conn, kind, about)
            return
        subject = booking_subject(about["booking_id"]) if "booking_id" in about else None
        self.notify.send(
            people,
            kind,
            about,
            by=self.client,
            conn=conn,
            subject=subject,
            event_at=occurrence,
            channels=channels,
            at=at,
        )

    def _miss(self, conn: Conn, kind: str, about: Mapping[str, Any]) -> None:
        """Nobody is there for a message: open an alert for each company without an admin; see the watch of its name."""
        log.warning("nobody to tell: %s", kind, extra={"kind": kind})
        ids = {name: about.get(name) for name in ("booking_id", "policy_id")}
        for company in store.column(conn, "companies_without_admin", **ids):
            self.alert(
                conn, "nobody_to_tell", f"company {company}", f"it has no admin: {kind} reached nobody", critical=True,
                kind=kind, **ids,
            )  # fmt: skip

    def record(
        self,
        conn: Conn,
        action: str,
        entity: str,
        entity_id: int,
        *,
        booking_id: int | None = None,
        reason: str | None = None,
        dispute_id: int | None = None,
        before: Any = None,
        after: Any = None,
    ) -> None:
        """Write an act on a business row to the audit trail: by SYSTEM in a job, else by whoever is `acting`.

        An act on something that belongs to a booking is part of the booking's story.
        """
        detail = {
            "entity": entity,
            "entity_id": entity_id,
            "reason": reason,
            "dispute_id": dispute_id,
            "before": before,
            "after": after,
        }
        known = {name: value for name, value in detail.items() if value is not None}
        subject = f"{entity} {entity_id}" if booking_id is None else booking_subject(booking_id)
        self.client.audit.record(f"staffing.{action}", known, subject=subject, conn=conn)

    def alert(self, conn: Conn, name: str, subject: str, text: str, *, critical: bool = False, **detail: Any) -> None:
        """Open an alert for the operations team, with the transaction; while it is open it only counts."""
        self.client.alerts.open(
            name, subject, text=text, severity="critical" if critical else "warning", detail=detail, conn=conn
        )

    def calm(self, conn: Conn, name: str, subject: str) -> None:
        """Close an alert whose reason is gone."""
        self.client.alerts.close(name, subject, conn=conn)

    def close(self) -> None:
        """Let go of all connections; who asks again gets new ones."""
        for name in ("client", "_pool"):
            if name in vars(self):
                vars(self).pop(name).close()


def booking_subject(booking_id: int) -> str:
    """What acts, messages and alerts about a booking are found by."""
    return f"booking {booking_id}"


@contextmanager
def acting(user_id: int | None) -> Iterator[None]:
    """Inside the block a user acts; in a job it is SYSTEM, whoever is named."""
    if user_id is None:
        yield
        return
    with ms.calling(ms.Caller(actor_type="user", actor_id=str(user_id))):
        yield
