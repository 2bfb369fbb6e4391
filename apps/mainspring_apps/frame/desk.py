"""What handlers and events of an application are handed: its client, its messages, its clock, its audit and alerts.

::

    @dataclass(frozen=True)
    class Desk(TellingDesk):
        NAME = "shop"
        STORY = "order_id"

        stripe: Stripe
        settings: Settings

Everything that takes a connection joins its transaction. Several can live in one process.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, ClassVar, Final

from psycopg_pool import ConnectionPool

import mainspring as ms
from mainspring.contrib.notify import Notify
from mainspring_apps.frame.store import Conn
from mainspring_apps.tasks import fitted

_POOL: Final = 4  # connections for requests
REQUEST_WAIT_S: Final = 5.0  # seconds that a request waits for one of them


@dataclass(frozen=True)
class BaseDesk:
    """The hands of one application."""

    #: What its acts are called by in the audit trail, as in `shop.cancel`.
    NAME: ClassVar[str]
    #: The value that names what most things are about: acts, messages and alerts about one are found together.
    STORY: ClassVar[str]

    app: ms.App

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
        about: dict[str, Any] = {"min_size": 0, "max_size": _POOL, "timeout": REQUEST_WAIT_S, "name": self.NAME}
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

    def record(
        self,
        conn: Conn,
        action: str,
        entity: str,
        entity_id: int,
        *,
        reason: str | None = None,
        before: Any = None,
        after: Any = None,
        **about: Any,
    ) -> None:
        """Write an act on a business row to the audit trail: by SYSTEM in a job, else by whoever is `acting`.

        An act that is said to be about what `STORY` names is part of its story.
        """
        story = about.pop(self.STORY, None)
        detail = {"entity": entity, "entity_id": entity_id, "reason": reason, "before": before, "after": after, **about}
        known = {name: value for name, value in detail.items() if value is not None}
        subject = f"{entity} {entity_id}" if story is None else self.subject(story)
        self.client.audit.record(f"{self.NAME}.{action}", known, subject=subject, conn=conn)

    @classmethod
    def subject(cls, story: object) -> str:
        """What all about one is found by, such as `order 7`."""
        return f"{cls.STORY.removesuffix('_id')} {story}"

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


@dataclass(frozen=True)
class TellingDesk(BaseDesk):
    """A desk that tells people by the block of notifications."""

    notify: Notify

    def tell(
        self,
        conn: Conn,
        kind: str,
        to: Sequence[int | str],
        about: Mapping[str, Any],
        *,
        occurrence: datetime,
        channels: Sequence[Any] | None = None,
        at: datetime | None = None,
    ) -> None:
        """Ask for a message: one for each person and channel, once for what it is about and its occurrence.

        `about` names the row that it is about, besides what the text needs: the same again at the same occurrence is
        the same message, however often a job runs. With the value of `STORY` it is part of that story.
        """
        people = [str(one) for one in dict.fromkeys(to)]
        if not people:
            self.nobody(conn, kind, about)
            return
        self.notify.send(
            people,
            kind,
            about,
            by=self.client,
            conn=conn,
            subject=self.subject(about[self.STORY]) if self.STORY in about else None,
            event_at=occurrence,
            channels=channels,
            at=at,
        )

    def nobody(self, conn: Conn, kind: str, about: Mapping[str, Any]) -> None:
        """Nobody is there for a message."""
