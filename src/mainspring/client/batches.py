"""`client.batches`: each verb is written once, over a dialogue of `mainspring.db`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.db import batches
from mainspring.job import Enqueued, Id, Job, NewJob
from mainspring.together.batch import Batch

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
        before: Id | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[BatchList]:
        """Batches, newest first; `before` continues after the last one seen."""
        seam = self.seam
        return seam.ask(batches.listing(seam.sql, seam.who(org), state=state, before=before, limit=limit), conn)

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
