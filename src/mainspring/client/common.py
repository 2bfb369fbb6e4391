"""What both colours of the client share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from psycopg_pool import PoolClosed

from mainspring.caller import Caller, current
from mainspring.cipher import Cipher
from mainspring.db import batches, jobs
from mainspring.db.batches import Together
from mainspring.db.cipher import Keyring
from mainspring.db.commits import after_commit
from mainspring.db.jobs import Who
from mainspring.db.queues import GONE_AFTER as GONE_AFTER  # the clients' own default
from mainspring.db.schema import Sql
from mainspring.db.statement import Flow
from mainspring.envelope import complete, merged
from mainspring.errors import ConfigurationError, DatabaseUnavailable, JobExists, ResultUnavailable
from mainspring.events import Bus, Event, Observer, enqueued
from mainspring.job import SYSTEM, Enqueued, Job, NewJob
from mainspring.states import FINISHED

#: Pauses between tries of an enqueue whose connection was lost.
TRIES = (0.05, 0.2, 1.0, 3.0)


class Common:
    """What both colours share: the statements, the caller's defaults, how a result is read."""

    def __init__(
        self,
        dsn: str,
        *,
        schema: str,
        caller: Caller,
        secured: bool,
        observers: Sequence[Observer],
        cipher: Cipher | None,
    ) -> None:
        self.dsn = dsn
        self._bus = Bus(observers)
        self._sql = Sql(schema)
        self._caller = caller
        self._secured = secured
        self._ring = Keyring(cipher, dsn, self._sql, secured=secured)

    def _who(self, org: str | None = None) -> Who:
        """Who acts, for verbs that are audited; without an organisation a job id may be anybody's."""
        caller = current()
        who = caller if caller.actor_id is not None else self._caller
        # An empty organisation was said, and is refused: it must not mean all of them.
        org = next((said for said in (org, caller.org_id) if said is not None), self._caller.org_id)
        return Who(org, who.actor_type or "system", SYSTEM if who.actor_id is None else who.actor_id)

    def _org(self) -> str | None:
        """The organisation of who calls, which binds statements that name none on a secured schema."""
        return self._who().org_id

    def _acting(self, org: str | None) -> Caller:
        """Who acts, with their request and, inside a handler, its job: for events of their domain."""
        caller = merged(current(), self._caller)
        return caller if org is None else replace(caller, org_id=org)

    def _complete(self, wanted: Sequence[NewJob]) -> list[NewJob]:
        return complete(wanted, self._caller)

    def _joined(self, wanted: Sequence[NewJob]) -> Flow[list[Enqueued]]:
        """In a caller's hands: one statement, because their connection may commit each by itself."""
        return jobs.enqueue_many(self._sql, wanted, batch=len(wanted) or 1)

    def _tries(self, wanted: Sequence[NewJob]) -> Iterator[tuple[Flow[list[Enqueued]], float | None]]:
        """An enqueue and its repetitions after the connection was lost, each with the pause that follows, if any."""
        if len(wanted) == 1 and not self._secured:  # there, nobody but the verbs writes to tables
            yield jobs.enqueue_one(self._sql, wanted[0]), TRIES[0]
        else:
            yield jobs.enqueue_many(self._sql, wanted, by_org=self._secured), TRIES[0]
        for pause in (*TRIES[1:], None):
            yield jobs.enqueue_again(self._sql, wanted, by_org=self._secured), pause

    def _tries_together(
        self, what: Together, wanted: Sequence[NewJob]
    ) -> Iterator[tuple[Flow[list[Enqueued]], float | None]]:
        """The same for a batch or a flow."""
        org = batches.org_of(wanted, self._org())
        yield batches.enqueue(self._sql, what, wanted, org, portion=jobs.BATCH), TRIES[0]
        for pause in (*TRIES[1:], None):
            yield batches.enqueue_again(self._sql, what, wanted, org, jobs.BATCH), pause

    def _joined_together(self, what: Together, wanted: Sequence[NewJob]) -> Flow[list[Enqueued]]:
        """In a caller's hands: one statement."""
        return batches.enqueue(self._sql, what, wanted, batches.org_of(wanted, self._org()))

    def _tell(self, wanted: Sequence[NewJob], answers: list[Enqueued], conn: Any = None) -> list[Enqueued]:
        """Tell observers what was created, once it is committed; where nobody says when that is, not at all."""
        if self._bus:
            events = [enqueued(job, a.state) for job, a in zip(wanted, answers, strict=False) if a.answer == "created"]
            self._committed(conn, *events)
        return answers

    def _committed(self, conn: Any, *events: Event) -> None:
        if conn is None:
            self._bus.extend(events)
        elif self._bus:
            after_commit(conn, lambda: self._bus.extend(events))

    def _needs_transaction(self, wanted: Sequence[NewJob]) -> bool:
        """Whether an enqueue is more than one statement."""
        return len(wanted) > jobs.BATCH or (self._secured and len({job.org_id for job in wanted}) > 1)


def result_of(job: Job) -> Any:
    """What a succeeded job's handler returned; else the error that says how it stands."""
    if job.state != "succeeded":
        text = f"job {job.id} {'ended as' if job.state in FINISHED else 'has not ended, it is'} {job.state}"
        raise ResultUnavailable(text, job_id=job.id, state=job.state, error=job.error)
    return job.result


@contextmanager
def still_open() -> Iterator[None]:
    """Say it clearly when a client is used after its end."""
    try:
        yield
    except PoolClosed:
        raise ConfigurationError("the client is closed") from None


def pauses() -> Iterator[float]:
    """How long to wait between looks at a job: short at first, a quarter of a second at last."""
    pause = 0.005
    while True:
        yield pause
        pause = min(pause * 1.5, 0.25)


def is_final(error: DatabaseUnavailable | JobExists, pause: float | None, lost: bool) -> bool:
    """Whether a failed try is the last: later ones follow only where one may have committed without our knowledge."""
    if isinstance(error, DatabaseUnavailable):
        again = error.sent and pause is not None
        error.sent = error.sent or lost
        return not again
    return not lost or pause is None  # its id is taken: after a loss, by the try before, which was still under way
