"""What a job has to do with others: whose follow-up it is, what it waits for, what waits for it, and its batch."""

from __future__ import annotations

from uuid import UUID

import msgspec

from mainspring.db.jobs import Who, check_id
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, scalar
from mainspring.errors import JobNotFound
from mainspring.job import Id


class RelatedJob(msgspec.Struct, frozen=True, kw_only=True):
    """Another job, as far as it is still there; `met`: where one waits for the other, whether that is over."""

    id: UUID
    task: str | None
    state: str | None
    met: bool | None = None


class BatchOfJob(msgspec.Struct, frozen=True, kw_only=True):
    """The batch that a job is a member of, or that it finishes."""

    id: UUID
    name: str
    finishes: bool  # it runs when the others have ended


class Related(msgspec.Struct, frozen=True, kw_only=True):
    """What a job has to do with others; of a flow at most fifty each way."""

    parent: RelatedJob | None  # whose handler enqueued it
    behind: RelatedJob | None  # under the same key, and still running
    waits_for: list[RelatedJob]
    awaited_by: list[RelatedJob]
    batch: BatchOfJob | None


_decode_related = msgspec.json.Decoder(Related).decode


def related(sql: Sql, job_id: Id, who: Who) -> Dialogue[Related]:
    """What a job has to do with others, or JobNotFound."""
    params = {"id": str(check_id(job_id)), "org": who.org_id}
    text: str | None = yield from ask(Statement(sql["related_jobs"], params, scalar))
    if text is None:
        raise JobNotFound(f"there is no job {job_id}", job_id=check_id(job_id))
    return _decode_related(text)
