"""Enqueueing, as every verb that makes jobs does it: completed, encrypted, written once, told when committed."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

from mainspring.client.colour import Single, Verbs, Wait, Work, verb
from mainspring.client.seam import Seam
from mainspring.db import batches, jobs
from mainspring.db.batches import Together, jobs_of
from mainspring.db.wire.statement import Dialogue
from mainspring.errors import DatabaseUnavailable, JobExists, ValidationError
from mainspring.job import Enqueued, NewJob

A = TypeVar("A", Enqueued, list[Enqueued], Enqueued | list[Enqueued])

#: Pauses between tries of an enqueue whose connection was lost.
ENQUEUE_PAUSES = (0.05, 0.2, 1.0, 3.0)
#: What to do about an enqueue that may have happened.
SAFE = "to enqueue it again with the same id or key is safe, and makes no second job"


class EnqueueVerbs(Verbs):
    """Enqueue many; `enqueue` stands in each colour, because its answer depends on what is enqueued."""

    @verb
    def enqueue_many(self, jobs_: Sequence[NewJob], *, conn: Any = None) -> Work[list[Enqueued]]:
        """Enqueue jobs, all or none."""
        if isinstance(jobs_, NewJob):
            raise ValidationError("jobs: takes a list of jobs; enqueue(job) takes one", field="jobs")
        wanted = yield from self.seam.sealed(self.seam.complete(jobs_))
        if (conn := self.seam.joins(conn)) is None:
            return bound(self, (yield from send(self.seam, wanted))) if wanted else []
        dialogue = jobs.enqueue_many(self.seam.sql, wanted, batch=len(wanted) or 1)
        return bound(self, (yield from _joined(self.seam, dialogue, wanted, conn)))


def bound(client: object, answers: A) -> A:
    """The answer of an enqueue, or several, with the client that is asked for the result."""
    for answer in answers if isinstance(answers, list) else (answers,):
        answer.of(client)
    return answers


def enqueue_job(seam: Seam, job: NewJob, conn: Any) -> Work[Enqueued]:
    """Enqueue one job."""
    wanted = yield from seam.sealed(seam.complete([job]))
    if (conn := seam.joins(conn)) is None:
        answer: Enqueued = yield Single(wanted[0])
        return answer
    return (yield from _joined(seam, jobs.enqueue_many(seam.sql, wanted, batch=1), wanted, conn))[0]


def enqueue_together(seam: Seam, what: Together, conn: Any) -> Work[list[Enqueued]]:
    """Enqueue a batch or a flow, all of it or nothing."""
    wanted = yield from seam.sealed(seam.complete(jobs_of(what)))
    if (conn := seam.joins(conn)) is None:
        return (yield from send(seam, wanted, what))
    dialogue = batches.enqueue(seam.sql, what, wanted, batches.org_of(wanted, seam.org()))
    return (yield from _joined(seam, dialogue, wanted, conn))


def enqueue(seam: Seam, job: NewJob | Together, conn: Any) -> Work[Enqueued | list[Enqueued]]:
    """Enqueue one job; or a batch or a flow."""
    return enqueue_together(seam, job, conn) if isinstance(job, Together) else enqueue_job(seam, job, conn)


def send(seam: Seam, wanted: list[NewJob], what: Together | None = None) -> Work[list[Enqueued]]:
    """Write completed jobs on a connection of the client's, again where one was lost on the way."""
    lost = False
    last = time.monotonic() + seam.answered_within
    atomic = len(wanted) > jobs.ENQUEUE_BATCH or (seam.secured and len({job.org_id for job in wanted}) > 1)
    for dialogue, pause in _tries(seam, wanted) if what is None else _tries_together(seam, what, wanted):
        try:
            return seam.tell_created(wanted, (yield from seam.ask(dialogue, atomic=atomic)))
        except (DatabaseUnavailable, JobExists) as error:
            if _is_final(error, pause if time.monotonic() < last else None, lost):
                raise
            lost = True
        yield Wait(pause or 0)
    raise AssertionError


def _joined(seam: Seam, dialogue: Dialogue[list[Enqueued]], wanted: list[NewJob], conn: Any) -> Work[list[Enqueued]]:
    """In a caller's hands: one statement, because their connection may commit each by itself."""
    return seam.tell_created(wanted, (yield from seam.ask(dialogue, conn)), conn)


def _tries(seam: Seam, wanted: Sequence[NewJob]) -> Iterator[tuple[Dialogue[list[Enqueued]], float | None]]:
    """An enqueue and its repetitions after the connection was lost, each with the pause that follows, if any."""
    if len(wanted) == 1 and not seam.secured:  # there, nobody but the verbs writes to tables
        yield jobs.enqueue_one(seam.sql, wanted[0]), ENQUEUE_PAUSES[0]
    else:
        yield jobs.enqueue_many(seam.sql, wanted, by_org=seam.secured), ENQUEUE_PAUSES[0]
    for pause in (*ENQUEUE_PAUSES[1:], None):
        yield jobs.enqueue_again(seam.sql, wanted, by_org=seam.secured), pause


def _tries_together(
    seam: Seam, what: Together, wanted: Sequence[NewJob]
) -> Iterator[tuple[Dialogue[list[Enqueued]], float | None]]:
    """The same for a batch or a flow."""
    org = batches.org_of(wanted, seam.org())
    yield batches.enqueue(seam.sql, what, wanted, org, portion=jobs.ENQUEUE_BATCH), ENQUEUE_PAUSES[0]
    for pause in (*ENQUEUE_PAUSES[1:], None):
        yield batches.enqueue_again(seam.sql, what, wanted, org, jobs.ENQUEUE_BATCH), pause


def _is_final(error: DatabaseUnavailable | JobExists, pause: float | None, lost: bool) -> bool:
    """Whether a failed try is the last: later ones follow only where one may have committed without our knowledge."""
    if isinstance(error, DatabaseUnavailable):
        if error.sent and pause is not None:
            return False
        error.sent = error.sent or lost
        if error.sent:
            error.args = (f"{error}; {SAFE}",)
        return True
    return not lost or pause is None  # its id is taken: after a loss, by the try before, which was still under way
