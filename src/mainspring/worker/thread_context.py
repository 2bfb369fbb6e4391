"""The context that a plain function in a thread really gets."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import (
    AbstractContextManager,
    contextmanager,
    suppress,
)
from typing import Any, TypeVar

from psycopg import Connection

from mainspring.client.sync import Client
from mainspring.db import batches, completion, steps
from mainspring.db.batches import Together
from mainspring.db.completion import End
from mainspring.db.wire.adopt import adopt
from mainspring.db.wire.bound import bound, bound_door
from mainspring.db.wire.connect import refuse_stale
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.session import driver_of, roll_back
from mainspring.db.wire.statement import Dialogue
from mainspring.db.wire.translate import unavailable
from mainspring.declare.context import SyncContext
from mainspring.errors import DatabaseUnavailable, MainspringError, ValidationError
from mainspring.job import SYSTEM, Job, NewJob
from mainspring.text.document import MAX_BYTES
from mainspring.together.batch import Batch
from mainspring.together.chunk import EACH_CHECKPOINT
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.commit import tell_commit
from mainspring.worker.job_seam import SyncJobSeam
from mainspring.worker.joined_context import OPEN_SESSION_PAUSES, JoinedContext
from mainspring.worker.promise import SyncBlock
from mainspring.worker.resources import KEEP_PAUSES, Resources
from mainspring.worker.steps import inside, kept, read, type_of, written

T = TypeVar("T")
BLOCK_IN_THREAD = "ctx.complete() is a block: write `with ctx.complete(result=…) as conn:`"


class ThreadContext(JoinedContext, SyncContext):
    """The context of a plain function in a thread."""

    _client: Client | None = None  # made when it is asked for

    def __init__(self, attempt: LiveAttempt, resources: Resources) -> None:
        super().__init__(attempt, resources)
        self._pool = resources.pool

    @property
    def client(self) -> Client:
        """See SyncContext."""
        if self._client is None:
            self._client = Client.over(SyncJobSeam(self, self._resources))
        return self._client

    def enqueue(self, *jobs: NewJob | Together) -> None:
        """See SyncContext."""
        self._look_back()
        single, groups = self._sorted(jobs)
        self.follow_ups += self._sealed(single)
        self.groups += [(self._sealed(wanted), write) for wanted, write in groups]

    def add(self, *jobs: NewJob) -> None:
        """See SyncContext."""
        self._look_back()
        wanted, write = self._joining(jobs)
        self.groups.append((self._sealed(wanted), write))

    def _sealed(self, wanted: list[NewJob]) -> list[NewJob]:
        return wanted if self.ring is None else self.ring.sealed(wanted)

    def batch(self) -> Batch | None:
        """See SyncContext."""
        return self._do(batches.of_job(self._sql, self.job))

    def parents(self) -> list[Job]:
        """See SyncContext."""
        found = self._do(batches.parents(self._sql, self.job))
        key = self._parents_key(found)
        if key is None or self.ring is None:
            return found
        return self._parents_shown(found, self.ring.to_read(self.job.org_id, key))

    def complete(self, result: object = None) -> AbstractContextManager[Connection[Any]]:
        """See SyncContext."""
        self._check_result(result)
        return self._promise(SyncBlock(self._complete(result), BLOCK_IN_THREAD))

    def complete_in(self, conn: Any, *, result: object = None) -> None:
        """See SyncContext."""
        self._look_back()
        with self._ours(), self._joining_elsewhere(result), unavailable():
            own = self._do(completion.place(self._sql, self.job))
            door = adopt(conn, self._sql["wake"])
            run(door, self._complete_elsewhere(own), joined=True)
            self._joined, self._driver = conn, driver_of(conn)

    def audit(self, event: str, *, subject: str | None = None, **detail: object) -> None:
        """See Context."""
        self._look_back()
        super().audit(event, subject=subject, **detail)

    def _look_back(self) -> None:
        """Where a transaction of the handler's own has completed the job: ask what became of it, without waiting."""
        if self._elsewhere == "done" and not self._attempt.settled:
            self._take_in(self._do(self._end_of_it()))

    def learn_end(self) -> None:
        """Ask what became of a transaction of the handler's own."""
        if (end := self._end_soon()) == "open":
            self._left_open(self._do(completion.session(self._sql, self._attempt.session)))
            with self._ending_it():
                roll_back(self._joined)
            if (end := self._end_soon()) == "open":
                with self._ending_it():
                    self._do(completion.end_session(self._sql, self._worker, self.job, self._attempt.session))
                if (end := self._end_soon()) == "open":
                    with self._ending_it():
                        self._do(self._cannot_end())
        self._ended_elsewhere(end)

    def _end_soon(self) -> End:
        for pause in OPEN_SESSION_PAUSES:
            if (end := self._do(self._end_of_it())) != "open":
                return end
            time.sleep(pause)
        return self._do(self._end_of_it())

    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        """See SyncContext."""
        return self._transaction()

    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, type: Any = None, **kwargs: Any) -> Any:
        """See Context."""
        memory = self._begin_step(name)
        wanted = type_of(fn) if type is None else type
        if memory.recalled is None:
            memory.recalled = self._do(steps.recall(self._sql, self.job))
        if name in memory.recalled:
            return read(f"step {name!r}", self._opened(f"step {name}", memory.recalled[name]), wanted)
        with inside(name):
            value = fn(*args, **kwargs)
        if inspect.iscoroutine(value):
            value.close()
            raise ValidationError(f"step {name!r}: a plain handler's steps are plain functions", field="step")
        text, value = kept(name, value, wanted)
        text = self._closed(f"step {name}", text)
        self._keep(lambda: steps.remember(self._sql, self._worker, self.job, name, text))
        return value

    def checkpoint(self, value: object) -> None:
        """See Context."""
        self._begin("a checkpoint")
        text = self._closed("checkpoint", written("checkpoint", value, MAX_BYTES))
        self._keep(lambda: steps.save(self._sql, self._worker, self.job, text))
        self.check()

    def resume_from(self, default: T, *, type: Any = None) -> T:
        """See Context."""
        found: T = self._saved(self._do(steps.resume(self._sql, self.job)), default, type)
        return found

    def each(self, items: Sequence[T], *, every: int = 1) -> Iterator[T]:
        """See SyncContext."""
        start = self._start_each(self._do(steps.resume(self._sql, self.job)), every)
        for done, item in enumerate(items[start:], start + 1):
            self.check()
            yield item
            self._report(done, len(items), None)
            if done % every == 0 or done == len(items):
                self.checkpoint({EACH_CHECKPOINT: done})

    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """See Context."""
        self._report(done, total, note)

    def breaker(self, name: str) -> AbstractContextManager[None]:
        """See SyncContext."""
        self._refuse_if_settled()
        return self._resources.breakers.guard_in_thread(self._attempt, name)

    def write_last_report(self) -> None:
        """Write the last report before the attempt's end is recorded; without it the job does no worse."""
        if (dialogue := self._last_report()) is not None:
            with suppress(MainspringError):
                self._do(dialogue)

    def _keep(self, dialogue: Callable[[], Dialogue[bool]]) -> None:
        for pause in (*KEEP_PAUSES, None):
            try:
                self._learn(self._do(dialogue()))
                break
            except DatabaseUnavailable:
                if pause is None:
                    raise
                time.sleep(pause)

    def _do(self, dialogue: Dialogue[T]) -> T:
        """By a connection beside the handler's own."""
        self._pool.open()
        with self._ours(), unavailable(), self._pool.connection() as conn:
            return run(psycopg_door(conn), dialogue)

    @contextmanager
    def _transaction(self) -> Iterator[Connection[Any]]:
        self._look_back()
        self._begin("ctx.transaction()")
        self._pool.open()
        with (
            self._pool.connection() as conn,
            self._ours(conn),
            self._middle(conn) as created,
            bound(conn, self.job.org_id, self.job.project_id),
        ):
            yield conn
            self._refuse_if_settled()
            self._refuse_unkept()
            with unavailable():
                refuse_stale(conn)
                self._learn(run(psycopg_door(conn), self._write_middle()))
            tell_commit(self.job, "before", ends_job=False)
        tell_commit(self.job, "after", ends_job=False)
        self._tell_committed(created)

    @contextmanager
    def _complete(self, result: object = None) -> Iterator[Connection[Any]]:
        self._look_back()
        self._begin_complete()
        self._pool.open()
        self._completing = True
        try:
            with self._pool.connection() as conn:
                with self._ours(conn), self._block(conn), bound(conn, self.job.org_id, self.job.project_id):
                    yield conn
                    self._refuse_if_settled()
                    self._refuse_unkept()
                    self.result = self.result if result is None else result
                    with unavailable(sent=False):
                        refuse_stale(conn)
                    self._attempt.committing = True
                    if self.follow_ups or self.groups:
                        self._follow(conn)
                    if self._notes:
                        run(psycopg_door(conn), self._write_notes())
                    if (report := self._last_report()) is not None:
                        run(psycopg_door(conn), report)
                    with unavailable():
                        conn.execute(self._sql["complete_one"], self._ending())
                    tell_commit(self.job, "before", ends_job=True)
                tell_commit(self.job, "after", ends_job=True)
                self._attempt.settled = True
        finally:
            self._attempt.committing = self._completing = False

    def _follow(self, conn: Connection[Any]) -> None:
        if self.job.org_id != SYSTEM:
            run(psycopg_door(conn), self._write_follow_ups())
            return
        run(bound_door(conn, lambda: None), self._write_follow_ups())
        with bound(conn, SYSTEM):  # see JobContext
            pass
