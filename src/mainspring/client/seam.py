"""What verbs are written with, the client's own and those of blocks: `client.seam`.

It knows the statements of the schema, who acts, how a job is completed and encrypted, and whom to tell when it is
committed. `SyncSeam` and `AsyncSeam` do the work, in their colour; where, its owner says: a client has connections of
its own, a handler those of its blocks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from psycopg_pool import PoolClosed

from mainspring.cipher import Cipher, OrgKeys
from mainspring.client.colour import Blocking, Query, Work
from mainspring.config import ANSWERED_WITHIN, check_answered
from mainspring.db.cipher import Keyring
from mainspring.db.jobs import Who
from mainspring.db.readable import key_in, readable_job
from mainspring.db.wire.commits import after_commit
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.caller import NOBODY, Caller, current
from mainspring.declare.envelope import complete, merged
from mainspring.errors import ConfigurationError
from mainspring.events import Bus, Event, Observer, enqueued
from mainspring.job import SYSTEM, Enqueued, Job, NewJob
from mainspring.text.span import Span, configured_span

T = TypeVar("T")


class Seam:
    """What a verb needs of the client that it belongs to; `do` and `run` are those of its colour.

    ::

        (job,) = client.seam.complete([remind.job(order_id=7)])
        client.seam.run(dialogue, conn)
        client.seam.tell_created([job], answers, conn)
    """

    def __init__(
        self,
        sql: Sql,
        keyring: Keyring,
        caller: Caller = NOBODY,
        observers: Sequence[Observer] = (),
        *,
        secured: bool,
        answered_within: float = ANSWERED_WITHIN,
    ) -> None:
        self.sql, self.keyring = sql, keyring
        self.dsn, self.secured, self.answered_within = keyring.dsn, secured, answered_within
        self._caller, self._bus = caller, Bus(observers)

    def who(self, org: str | None = None) -> Who:
        """Who acts, for verbs that are audited; without an organisation a job id may be anybody's."""
        caller = current()
        who = caller if caller.actor_id is not None else self._caller
        # An empty organisation was said, and is refused: it must not mean all of them.
        org = next((said for said in (org, caller.org_id) if said is not None), self._caller.org_id)
        return Who(org, who.actor_type or "system", SYSTEM if who.actor_id is None else who.actor_id)

    def org(self) -> str | None:
        """The organisation of who calls, which binds statements that name none on a secured schema."""
        return self.who().org_id

    def acting(self, org: str | None = None) -> Caller:
        """Who acts, with their request and, inside a handler, its job: for events of their domain."""
        caller = merged(current(), self._caller)
        return caller if org is None else replace(caller, org_id=org)

    def joins(self, conn: Any) -> Any:
        """The connection whose transaction a verb joins; None: it gets one of its own."""
        return conn

    def ask(self, dialogue: Dialogue[T], conn: Any = None, *, atomic: bool = False) -> Work[T]:
        """Run a dialogue as a part of a verb's work, and return its answer, typed."""
        answer: T = yield Query(dialogue, conn, atomic)
        return answer

    # -- jobs

    def complete(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Jobs with an id, the caller and their trace, checked: as they may be written."""
        return complete(jobs, self._caller)

    def sealed(self, jobs: list[NewJob]) -> Work[list[NewJob]]:
        """Completed jobs, encrypted where the client has a cipher."""
        ring = self.keyring
        if ring.cipher is None:
            return jobs
        sealed: list[NewJob] = ring.sealed(jobs) if ring.ready(jobs) else (yield Blocking(lambda: ring.sealed(jobs)))
        return sealed

    def shown(self, job: Job) -> Work[Job]:
        """A job with what may be decrypted of it."""
        key = key_in(job)
        return job if key is None else readable_job(job, (yield from self.keys_to_read(job.org_id, key)))

    def all_shown(self, jobs: Sequence[Job]) -> Work[list[Job]]:
        """The same for many."""
        shown: list[Job] = []
        for job in jobs:
            shown.append((yield from self.shown(job)))  # noqa: PERF401 (a comprehension cannot yield)
        return shown

    # -- keys

    def keys_to_read(self, org: str, key: str | None) -> Work[OrgKeys]:
        """The keys of an organisation, with this one if there still is one; known ones are not asked for."""
        keys: OrgKeys | None = self.keyring.known(org, key)
        return keys if keys is not None else (yield Blocking(lambda: self.keyring.to_read(org, key)))

    def keys_to_write(self, org: str) -> Work[OrgKeys | None]:
        """The keys that encrypt what is written for an organisation; None: the client has no cipher."""
        if self.keyring.cipher is None:
            return None
        keys: OrgKeys = yield Blocking(lambda: self.keyring.to_write(org))
        return keys

    # -- observers

    @property
    def observed(self) -> bool:
        """Whether anybody is told."""
        return bool(self._bus)

    def tell(self, conn: Any, *events: Event) -> None:
        """Tell observers what happened, once it is committed; where nobody says when that is, not at all."""
        if conn is None:
            self._bus.extend(events)
        elif self._bus:
            after_commit(conn, lambda: self._bus.extend(events))

    def tell_created(self, jobs: Sequence[NewJob], answers: list[Enqueued], conn: Any = None) -> list[Enqueued]:
        """Tell observers of the jobs that were created, once they are committed; returns the answers."""
        if self._bus:
            pairs = zip(jobs, answers, strict=False)
            self.tell(conn, *(enqueued(job, answer.state) for job, answer in pairs if answer.answer == "created"))
        return answers


class ClientSeam(Seam):
    """The seam of a client that has connections of its own, of either colour."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str,
        caller: Caller,
        secured: bool,
        observers: Sequence[Observer],
        cipher: Cipher | None,
        answered_within: Span,
    ) -> None:
        seconds = configured_span("answered_within", answered_within).total_seconds()
        limit, sql = check_answered(seconds), Sql(schema)
        keyring = Keyring(cipher, dsn, sql, secured=secured, answered_within=limit)
        super().__init__(sql, keyring, caller, observers, secured=secured, answered_within=limit)


@contextmanager
def still_open() -> Iterator[None]:
    """Say it clearly when a client is used after its end."""
    try:
        yield
    except PoolClosed:
        raise ConfigurationError("the client is closed") from None
