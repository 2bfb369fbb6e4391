"""The client for sync code, and its connections."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Self, TypeVar, overload

import psycopg
from psycopg_pool import PoolTimeout

from mainspring.cipher import Cipher
from mainspring.client.alerts import ClientAlerts
from mainspring.client.audit import Audit
from mainspring.client.batches import Batches, EnqueuedBatch, EnqueuedBatchVerbs
from mainspring.client.breakers import Breakers
from mainspring.client.colour import Sync, Work, do
from mainspring.client.dead import DeadLetters
from mainspring.client.enqueue import EnqueueVerbs, bound, enqueue, enqueue_together, send
from mainspring.client.jobs import JobVerbs
from mainspring.client.limits import Limits
from mainspring.client.quarantine import Quarantine
from mainspring.client.schedules import Schedules
from mainspring.client.seam import ClientSeam, Seam, still_open
from mainspring.client.timers import Timers
from mainspring.config import ANSWERED_WITHIN, DEFAULT_SCHEMA
from mainspring.db.batches import Together
from mainspring.db.wire.adopt import adopt
from mainspring.db.wire.bound import bound_door
from mainspring.db.wire.connect import CONNECT_PATIENCE_S, pool, why_not
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.statement import Dialogue
from mainspring.db.wire.translate import is_read_only, unavailable
from mainspring.declare.caller import NOBODY, Caller
from mainspring.errors import DatabaseUnavailable
from mainspring.events import Observer
from mainspring.job import Enqueued, NewJob
from mainspring.text.span import Span, configured_span
from mainspring.together.batch import NewBatch
from mainspring.together.flow import Flow

T = TypeVar("T")


class Client(JobVerbs, EnqueueVerbs, Sync):
    """Enqueues and manages jobs from sync code.

    ::

        client = ms.Client("postgresql://localhost/shop")
        client.enqueue(send_welcome.job(user_id=7))
        client.enqueue(send_welcome.job(user_id=8), conn=conn)  # part of conn's transaction

    On a schema that `mainspring schema secure` has secured, `secured=True` binds each statement to its organisation.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        caller: Caller = NOBODY,
        pool_size: int = 4,
        timeout: Span = CONNECT_PATIENCE_S,
        answered_within: Span = ANSWERED_WITHIN,
        secured: bool = False,
        observers: Sequence[Observer] = (),
        cipher: Cipher | None = None,
    ) -> None:
        about: dict[str, Any] = {"schema": schema, "caller": caller, "secured": secured, "observers": observers}
        about |= {"cipher": cipher, "answered_within": answered_within}
        self._begin(SyncClientSeam(dsn, pool_size=pool_size, timeout=timeout, **about))

    @classmethod
    def over(cls, seam: SyncSeam) -> Self:
        """A client whose verbs work by another seam: that of a handler's context."""
        client = cls.__new__(cls)
        client._begin(seam)
        return client

    def _begin(self, seam: SyncSeam) -> None:
        self.seam = seam
        self.dead = DeadLetters(self)
        self.alerts = ClientAlerts(self)
        self.audit = Audit(self)
        self.batches = Batches(self)
        self.breakers = Breakers(self)
        self.limits = Limits(self)
        self.quarantine = Quarantine(self)
        self.schedules = Schedules(self)
        self.timers = Timers(self)

    @property
    def dsn(self) -> str:
        """The database."""
        return self.seam.dsn

    @overload
    def enqueue(self, job: NewJob[T], *, conn: Any = None) -> Enqueued[T]: ...
    @overload
    def enqueue(self, job: NewBatch, *, conn: Any = None) -> EnqueuedBatch: ...
    @overload
    def enqueue(self, job: Flow, *, conn: Any = None) -> list[Enqueued]: ...
    def enqueue(self, job: NewJob | Together, *, conn: Any = None) -> Enqueued | EnqueuedBatchVerbs | list[Enqueued]:
        """Enqueue one job; or a batch or a flow, all of it or nothing."""
        if isinstance(job, NewBatch):
            return EnqueuedBatch(self, job, bound(self, self.seam.do(enqueue_together(self.seam, job, conn))))
        return bound(self, self.seam.do(enqueue(self.seam, job, conn)))

    def close(self) -> None:
        """Close the client's own connections."""
        self.seam.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SyncSeam(Seam, ABC):
    """The seam of sync code: it does a verb's work in place."""

    def do(self, work: Work[T]) -> T:
        """Do a verb's work, here and now."""
        return do(work, self)

    def run(self, dialogue: Dialogue[T], conn: Any = None, *, atomic: bool = False) -> T:
        """Run a dialogue: in the transaction that it joins, or apart."""
        if (conn := self.joins(conn)) is None:
            return self.run_apart(dialogue, atomic=atomic)
        with unavailable():
            return run(adopt(conn, self.sql["wake"]), dialogue, joined=True)

    @abstractmethod
    def run_apart(self, dialogue: Dialogue[T], *, atomic: bool) -> T:
        """Run a dialogue on a connection that nobody gave; `atomic`: in one transaction."""

    @abstractmethod
    def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one completed job."""

    def close(self) -> None:
        """Close what it has of its own."""


class SyncClientSeam(ClientSeam, SyncSeam):
    """The seam of a sync client, and its connections."""

    def __init__(self, dsn: str, *, pool_size: int, timeout: Span, **about: Any) -> None:
        super().__init__(dsn, **about)
        limit, wait = self.answered_within, configured_span("timeout", timeout).total_seconds()
        self._pool = pool(dsn, size=pool_size, name="mainspring client", timeout=wait, answered_within=limit)

    def run_apart(self, dialogue: Dialogue[T], *, atomic: bool) -> T:
        """On a connection of the client's."""
        with self.connection() as own, own.transaction() if atomic else nullcontext():
            return run(bound_door(own, self.org) if self.secured else psycopg_door(own), dialogue)

    @contextmanager
    def connection(self) -> Iterator[psycopg.Connection[Any]]:
        """A connection of the client's."""
        with still_open():
            self._pool.open()
            try:
                own = self._pool.getconn()
            except PoolTimeout:
                raise DatabaseUnavailable(f"the database is unavailable: {why_not(self.dsn)}", sent=False) from None
        try:
            with unavailable():
                yield own
        except DatabaseUnavailable as error:
            if is_read_only(error):
                own.close()
            raise
        finally:
            if own.closed:  # the others of the pool are probably as lost
                self._pool.drain()
            self._pool.putconn(own)

    def close(self) -> None:
        """Close the connections."""
        self.keyring.close()
        self._pool.close()

    def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one completed job."""
        return self.do(send(self, [job]))[0]
