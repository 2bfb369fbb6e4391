"""Planted bugs: known mistakes, put into a test database or a process at run time, never into the source.

A bug in SQL is a function of the migrations with one piece replaced; the piece must stand there exactly so often, so
that a plant cannot miss silently. A bug in Python replaces a method, in the processes of the run that name it.
"""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from typing import Any

import psycopg
from msgspec.structs import replace
from psycopg.sql import SQL, Identifier

from mainspring.client import AsyncClient
from mainspring.config import DEFAULT_SCHEMA
from mainspring.db import jobs
from mainspring.db.migrate import engine_line
from mainspring.db.schema import Sql, render
from mainspring.errors import DatabaseUnavailable
from mainspring.job import Claim, Enqueued, NewJob
from mainspring.uuid7 import uuid7
from mainspring.worker.bounds import MARGIN, Bounds
from mainspring.worker.context import JobContext
from mainspring.worker.executor import Executor
from mainspring.worker.run import Run
from mainspring.worker.thread_context import ThreadContext

Conn = psycopg.Connection[Any]


def altered(conn: Conn, function: str, *changes: tuple[str, str, int]) -> None:
    """Replace a function of the engine by its own text with pieces changed: (old, new, how often it stands there)."""
    text = "\n".join(migration.text for migration in engine_line().migrations)
    found = re.findall(rf"create function \{{schema\}}\.{function}\(.*?\n(?:end )?\$\$;\n", text, re.DOTALL)
    assert len(found) == 1, f"{len(found)} functions are named {function}"
    body: str = found[0].replace("create function", "create or replace function", 1)
    for old, new, times in changes:
        assert body.count(old) == times, f"{function}: {old!r} stands there {body.count(old)} times, not {times}"
        body = body.replace(old, new)
    conn.execute(render(body, DEFAULT_SCHEMA))


# -- in the database -------------------------------------------------------------------------------------------------


def unfenced_effect(conn: Conn) -> None:
    """A handler's transaction commits though its completion found nothing to complete."""
    lost = "raise exception 'the lease of epoch % is lost', p_epoch using errcode = 'MS005';"
    altered(conn, "complete_one", (lost, "return;", 1))


def completion_by_job(conn: Conn) -> None:
    """Completion looks for the job, not for (worker, epoch): a late writer ends its successor's attempt."""
    by_job = (
        "r.id = any(array(select a.job_id from {schema}.attempt a where a.epoch = any(p_epochs) "
        "union all select x.id from {schema}.running x where x.epoch = any(p_epochs)))"
    )
    altered(conn, "complete", ("r.epoch = any(p_epochs) and r.worker = p_worker", by_job, 1))


def epoch_without_worker(conn: Conn) -> None:
    """Completion trusts the epoch alone, which a crashed database may issue twice."""
    altered(conn, "complete", (" and r.worker = p_worker", "", 1))


def late_settlement(conn: Conn) -> None:
    """A failure is written for the job, whoever holds it by now."""
    by_job = (
        "x.id in (select a.job_id from {schema}.attempt a where a.epoch = m.epoch "
        "union all select y.id from {schema}.running y where y.epoch = m.epoch)"
    )
    altered(conn, "settle", ("x.epoch = m.epoch and x.worker = p_worker", by_job, 1))


def select_then_insert(conn: Conn) -> None:
    """A key is looked up, then written: two enqueues at once both find it free."""
    conn.execute("alter table mainspring.idempotency drop constraint idempotency_pkey")
    free = "not exists (select from {schema}.idempotency i where i.org_id = x.org_id and i.key = x.key)"
    altered(
        conn,
        "enqueue_many",
        ("where key is not null order by", f"where key is not null and {free} order by", 1),
        ("on conflict do nothing returning job_id", "returning job_id", 1),
    )


def rescue_of_the_living(conn: Conn) -> None:
    """Rescue does not look at the lease."""
    altered(conn, "rescue", ("y.lease_expires_at <= {schema}.now()", "true", 1))


def rescue_without_limit(conn: Conn) -> None:
    """Rescue looks neither at the attempts left nor at the crashes."""
    altered(conn, "rescue", ("r.attempt >= max_attempts or r.crashes + 1 >= p_crash_budget", "false", 1))


def claim_without_skipping(conn: Conn) -> None:
    """A claim selects tickets without locking them, so that two claims go for the same ones."""
    altered(conn, "claim", ("limit q.n for update of w skip locked", "limit q.n", 1))


def early_claim(conn: Conn) -> None:
    """A claim takes jobs that are due within a second."""
    altered(conn, "claim", ("w.due_at <= {schema}.now() and w.due_at >= p.low",
                            "w.due_at <= {schema}.now() + interval '1 s' and w.due_at >= p.low", 2))  # fmt: skip


def cancel_in_two_steps(conn: Conn) -> None:
    """Cancel looks whether the job waits, then takes its ticket, without asking whether it was still there."""
    take = "delete from {schema}.waiting x where x.id = p_id"
    asked = "perform {schema}.record('job.cancel_requested', p_id, w.attempt, who);"
    altered(
        conn,
        "cancel",
        (f"{take} returning * into w;", "select * into w from {schema}.waiting x where x.id = p_id;", 1),
        (asked, f"{take}; {asked}", 1),
    )


def hasty_pause(conn: Conn) -> None:
    """A pause does not wait for claims that began before it."""
    altered(conn, "claims_seen", ("select pg_advisory_xact_lock({claim_lock})", "select", 1))


def careless_commit(conn: Conn) -> None:
    """Commits are acknowledged before they are on disk."""
    conn.execute(SQL("alter database {} set synchronous_commit = off").format(Identifier(conn.info.dbname)))


# -- in processes ----------------------------------------------------------------------------------------------------


def effect_first(dsn: str) -> None:
    """The effect commits, then the completion, in two transactions."""
    complete, complete_in_thread = JobContext.transaction, ThreadContext.transaction

    @asynccontextmanager
    async def two(self: JobContext) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            yield conn
        async with complete(self):
            pass

    @contextmanager
    def two_in_thread(self: ThreadContext) -> Iterator[Any]:
        with psycopg.connect(dsn) as conn:
            yield conn
        with complete_in_thread(self):
            pass

    _put(JobContext, "transaction", two)
    _put(ThreadContext, "transaction", two_in_thread)


def lease_by_clock(_: str) -> None:
    """A lease ends by the clock of the worker, which goes wrong; the engine asks only the database's."""
    skew = time.time() - time.clock_gettime(time.CLOCK_REALTIME)
    text = Sql.__getitem__

    def skewed(self: Sql, name: str) -> str:
        sql = text(self, name)
        if name in ("claim", "renew"):
            assert sql.count("(%s, %s,") == 1
            sql = sql.replace("(%s, %s,", f"(%s, %s + interval '{skew} s',")
        return sql

    _put(Sql, "__getitem__", skewed)


def completed_before_run(_: str) -> None:
    """A job is completed as it starts: what runs when the worker dies is gone."""
    begin = Executor.begin

    def hasty(self: Executor, run: Run) -> None:
        if run.task.name == "plain":
            run.settled = True
            self._outbox.complete(run)
        begin(self, run)

    _put(Executor, "begin", hasty)


def no_rescan(_: str) -> None:
    """The lower bound of the claims only rises: what commits late below it is never seen."""

    def of(self: Bounds, queues: Sequence[str], _: float) -> tuple[list[list[Any]], bool]:
        low, floor = self._low.get, self._floor
        return [[low((queue, priority), floor) for queue in queues] for priority in range(4)], True

    def learn(self: Bounds, claims: Sequence[Claim], *, full: bool, now: datetime | None, **_: Any) -> None:
        self.scan_at = float("inf")
        if now is not None and not full:
            self._floor = max(self._floor, now - MARGIN)
        for claim in claims:
            self._low[claim.queue, claim.priority] = claim.due_at - MARGIN

    _put(Bounds, "of", of)
    _put(Bounds, "learn", learn)


def new_id_on_retry(_: str) -> None:
    """An enqueue whose answer was lost is sent again as another job."""

    async def send(self: AsyncClient, wanted: list[NewJob]) -> list[Enqueued]:
        for _ in range(5):
            try:
                return await self._run(jobs.enqueue_many(self._sql, wanted))
            except DatabaseUnavailable:
                wanted = [replace(job, id=uuid7()) for job in wanted]
                await asyncio.sleep(0.1)
        raise DatabaseUnavailable

    _put(AsyncClient, "_send", send)


#: What was there before, to be put back.
_before: list[tuple[type, str, Any]] = []


def _put(owner: type, name: str, value: Any) -> None:
    assert hasattr(owner, name), f"{owner.__name__} has no {name}"
    _before.append((owner, name, owner.__dict__[name]))
    setattr(owner, name, value)


@contextmanager
def planted_here(plant: Callable[[str], None], dsn: str) -> Iterator[None]:
    """A bug in this process, for a while."""
    plant(dsn)
    try:
        yield
    finally:
        while _before:
            setattr(*_before.pop())


IN_PROCESS: Mapping[str, Callable[[str], None]] = {
    plant.__name__: plant for plant in (effect_first, lease_by_clock, completed_before_run, no_rescan, new_id_on_retry)
}


def in_process(names: Sequence[str], dsn: str) -> None:
    """Plant bugs into this process, which works in that database."""
    for name in names:
        IN_PROCESS[name](dsn)
