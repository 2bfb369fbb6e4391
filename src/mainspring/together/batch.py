"""Batches: jobs that are counted together, with a job that runs when all of them have ended."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Literal, get_args
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.errors import ValidationError
from mainspring.job import NewJob, no_job
from mainspring.text.texts import MAX_NAME, did_you_mean, text_problem
from mainspring.uuid7 import uuid7

#: What the first failed or dead member means: nothing to the others, or that what has not started is cancelled.
OnFailure = Literal["keep_going", "stop"]


class NewBatch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch that is not yet enqueued; its id is known already."""

    id: UUID
    name: str
    jobs: tuple[NewJob, ...]
    on_finish: NewJob | None = None
    on_failure: OnFailure = "keep_going"
    open: bool = False


def batch(
    name: str,
    jobs: Iterable[NewJob] = (),
    *,
    on_finish: NewJob | None = None,
    on_failure: OnFailure = "keep_going",
    open: bool = False,
) -> NewBatch:
    """Jobs that are counted together, to be enqueued in one transaction.

    ::

        jobs = [load.job(rows=some) for some in ms.chunks(rows, 100)]
        imports = client.enqueue(ms.batch("import", jobs, on_finish=tell.job()))
        imports.progress().percent

    `on_finish` runs once, when every job has ended, however it ended; `ctx.batch()` tells it how. `on_failure="stop"`
    cancels what has not started at the first job that fails for good. An `open` batch does not finish until
    `client.batches.close`, so that more can be added in many transactions.
    """
    if problem := text_problem(name, MAX_NAME):
        raise ValidationError(f"name: {problem}", field="name")
    if on_failure not in get_args(OnFailure):
        text = f"on_failure: is not keep_going or stop{did_you_mean(str(on_failure), get_args(OnFailure))}"
        raise ValidationError(text, field="on_failure")
    if isinstance(jobs, NewJob):
        raise ValidationError("jobs: takes a list of jobs", field="jobs")
    listed = tuple(jobs)
    for job in (*listed, *([] if on_finish is None else [on_finish])):
        if not isinstance(job, NewJob):
            raise no_job(job)
    new_id = uuid7()
    if on_finish is not None:  # under the batch's own key there is one that waits, and at most one that runs
        on_finish = replace(on_finish, key=f"batch:{new_id}", mode="reset_failed", by_payload=False, wait=None)
    return NewBatch(id=new_id, name=name, jobs=listed, on_finish=on_finish, on_failure=on_failure, open=open)


class Batch(msgspec.Struct, frozen=True, kw_only=True):
    """A batch as the view `mainspring.batches` shows it: its members are counted when somebody looks."""

    id: UUID
    org_id: str
    name: str
    state: Literal["open", "running", "stopping", "finished"]
    on_failure: OnFailure
    on_finish: UUID | None
    total: int
    succeeded: int
    failed: int
    dead: int
    cancelled: int
    running: int
    waiting: int
    created_at: datetime
    closed_at: datetime | None
    stopped_at: datetime | None
    stop_reason: str | None
    finished_at: datetime | None

    @property
    def ended(self) -> int:
        """How many of its jobs have ended."""
        return self.total - self.running - self.waiting

    @property
    def percent(self) -> float:
        """How much of it has ended; an empty one is done."""
        return 100 * self.ended / self.total if self.total else 100.0
