"""`client.batches`, and the handle of a batch that was enqueued: verbs over the dialogues of `mainspring.db`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any, TypeAlias

from mainspring.client.colour import Async, Sync, Verbs, Wait, Work, verb
from mainspring.client.jobs import looks
from mainspring.client.seam import Seam
from mainspring.db import batches
from mainspring.errors import ResultUnavailable
from mainspring.job import Enqueued, Id, Job, NewJob
from mainspring.text.span import Span, span_of
from mainspring.together.batch import Batch, NewBatch

# Named here, because inside the classes `list` is a method.
BatchList: TypeAlias = list[Batch]
Jobs: TypeAlias = list[Job]
Answers: TypeAlias = list[Enqueued]


class BatchVerbs(Verbs):
    """Jobs that are counted together; `client.enqueue(ms.batch(...))` begins a batch.

    ::

        client.batches.get(batch_id).percent
        client.batches.retry_failed(batch_id, reason="the supplier is back")
    """

    @verb
    def get(self, batch: Id, *, org: str | None = None, conn: Any = None) -> Work[Batch]:
        """One batch with its counts, or BatchNotFound."""
        seam = self.seam
        return seam.ask(batches.get(seam.sql, batch, seam.who(org)), conn)

    @verb
    def list(
        self,
        *,
        state: str | None = None,
        prefix: str | None = None,
        before: Id | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[BatchList]:
        """Batches, newest first, also by the first digits of their ids; `before` continues after the last one seen."""
        seam = self.seam
        filters: dict[str, Any] = {"state": state, "prefix": prefix, "before": before, "limit": limit}
        return seam.ask(batches.listing(seam.sql, seam.who(org), **filters), conn)

    @verb
    def members(
        self,
        batch: Id,
        *,
        state: str | None = None,
        before: Id | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[Jobs]:
        """The jobs of a batch with their results and errors, newest first; `before` continues after the last one."""
        seam = self.seam
        dialogue = batches.members(seam.sql, batch, seam.who(org), state=state, before=before, limit=limit)
        found = yield from seam.ask(dialogue, conn)
        return (yield from seam.all_shown(found))

    @verb
    def add(self, batch: Id, jobs: Sequence[NewJob], *, org: str | None = None, conn: Any = None) -> Work[Answers]:
        """Enqueue more jobs into a batch that has not finished, all or none."""
        seam = self.seam
        wanted = yield from seam.sealed(seam.complete(jobs))
        dialogue = batches.add(seam.sql, batch, batches.org_of(wanted, seam.who(org).org_id), wanted)
        return seam.tell_created(wanted, (yield from seam.ask(dialogue, conn)), conn)

    @verb
    def close(self, batch: Id, *, org: str | None = None, conn: Any = None) -> Work[None]:
        """Say that no more will be added: an open batch finishes when its jobs have ended."""
        seam = self.seam
        return seam.ask(batches.close(seam.sql, batch, seam.who(org)), conn)

    @verb
    def wait(self, batch: Id, *, org: str | None = None, timeout: Span = 60.0) -> Work[Batch]:
        """Wait until a batch has finished and return it with its counts; ResultUnavailable after the timeout."""
        return _finished(self.seam, batch, org, timeout)

    @verb
    def retry_failed(self, batch: Id, *, reason: str, org: str | None = None, conn: Any = None) -> Work[int]:
        """Replay the jobs of a batch that failed or died, and only those; returns how many."""
        seam = self.seam
        return seam.ask(batches.retry_failed(seam.sql, batch, seam.who(org), reason), conn)

    @verb
    def cancel(self, batch: Id, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> Work[None]:
        """Cancel what has not started of a batch, and ask what runs to stop."""
        seam = self.seam
        return seam.ask(batches.cancel(seam.sql, batch, seam.who(org), reason), conn)


class Batches(BatchVerbs, Sync):
    """Batches, for sync code."""


class AsyncBatches(BatchVerbs, Async):
    """Batches, for async code."""


class EnqueuedBatchVerbs(Verbs):
    """A batch that was enqueued: its id, its jobs, and the verbs of `client.batches` for it.

    ::

        imports = client.enqueue(ms.batch("import", [load.job(row=n) for n in range(100)]))
        imports.progress().percent
        if imports.wait(timeout="10m").failed:
            imports.retry_failed(reason="the supplier is back")
        imports.jobs[0].result()

    In async code its verbs are awaited. Enqueued with `conn=`, it is there when that transaction has committed.
    """

    def __init__(self, client: Any, batch: NewBatch, jobs: Answers) -> None:
        super().__init__(client)
        self.id, self.name, self.jobs = batch.id, batch.name, jobs
        said = (job.org_id for job in batches.jobs_of(batch) if job.org_id is not None)
        self._org = next(said, self.seam.org())  # who looks later may be somebody else

    def __repr__(self) -> str:
        return f"<batch {self.name} {self.id}>"

    @verb
    def progress(self) -> Work[Batch]:
        """The batch as it stands: its state and its counts."""
        return self.seam.ask(batches.get(self.seam.sql, self.id, self.seam.who(self._org)))

    @verb
    def wait(self, *, timeout: Span = 60.0) -> Work[Batch]:
        """Wait until every job has ended, however, and return the counts; ResultUnavailable after the timeout."""
        return _finished(self.seam, self.id, self._org, timeout)

    @verb
    def retry_failed(self, *, reason: str) -> Work[int]:
        """Replay the jobs that failed or died, and only those; returns how many."""
        return self.seam.ask(batches.retry_failed(self.seam.sql, self.id, self.seam.who(self._org), reason))

    @verb
    def cancel(self, *, reason: str | None = None) -> Work[None]:
        """Cancel what has not started, and ask what runs to stop."""
        return self.seam.ask(batches.cancel(self.seam.sql, self.id, self.seam.who(self._org), reason))


class EnqueuedBatch(EnqueuedBatchVerbs, Sync):
    """What sync code has of a batch that it enqueued."""


class AsyncEnqueuedBatch(EnqueuedBatchVerbs, Async):
    """What async code has of a batch that it enqueued."""


def _finished(seam: Seam, batch: Id, org: str | None, timeout: Span) -> Work[Batch]:
    deadline = time.monotonic() + span_of("timeout", timeout).total_seconds()
    for pause in looks():
        found = yield from seam.ask(batches.get(seam.sql, batch, seam.who(org)))
        if found.state == "finished":
            return found
        if time.monotonic() >= deadline:
            text = f"batch {found.id} has not finished, it is {found.state}: {found.ended} of {found.total} jobs ended"
            raise ResultUnavailable(text, job_id=None, state=found.state)
        yield Wait(pause)
    raise AssertionError
