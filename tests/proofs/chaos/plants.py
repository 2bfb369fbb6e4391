"""Planted bugs: known mistakes, put into a test database or a process at run time, never into the source.

A bug in SQL is a function of the engine with one piece replaced; the piece must stand there exactly so often, so
that a plant cannot miss silently. A bug in Python replaces a method, in the processes of the run that name it.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime
from types import ModuleType
from typing import Any

import psycopg
from msgspec.structs import replace
from psycopg.sql import SQL, Identifier

from mainspring.client import enqueue
from mainspring.client.seam import Seam
from mainspring.config import DEFAULT_SCHEMA
from mainspring.db import jobs
from mainspring.db.schema.line import engine_line
from mainspring.db.wire import translate
from mainspring.db.wire.answer import Answered, AsyncAnswered
from mainspring.db.wire.sql import Sql, render
from mainspring.db.wire.statement import Dialogue
from mainspring.job import Claim, Enqueued, NewJob
from mainspring.text import raised
from mainspring.uuid7 import uuid7
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.bounds import BEGINNING, BOUND_MARGIN, Bounds
from mainspring.worker.context import JobContext
from mainspring.worker.executor import Executor
from mainspring.worker.rates import Rates
from mainspring.worker.share import Share
from mainspring.worker.thread_context import ThreadContext

Conn = psycopg.Connection[Any]


def altered(conn: Conn, function: str, *changes: tuple[str, str, int]) -> None:
    """Replace a function of the engine by its own text with pieces changed: (old, new, how often it stands there)."""
    found = [verb.text for verb in engine_line().verbs if verb.name == f"{{schema}}.{function}"]
    assert len(found) == 1, f"{len(found)} functions are named {function}"
    body = found[0]
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
    patient = " - case when y.crashes + 1 < p_crash_budget then interval '0' else p_patience end"
    lease = "y.lease_expires_at <= {schema}.now()"
    altered(conn, "rescue", (lease + patient, "true", 1), (lease, "true", 1))


def rescue_without_limit(conn: Conn) -> None:
    """Rescue looks neither at the attempts left nor at the crashes."""
    attempts = "max_attempts = 1 or (not shared and r.attempt >= max_attempts)"
    crashes = "or (not unseen and r.crashes + 1 >= p_crash_budget)"
    altered(conn, "rescue", (attempts, "false", 1), (crashes, "", 1))


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


def shared_crash_burns(conn: Conn) -> None:
    """A crash that several jobs shared costs each of them an attempt."""
    altered(
        conn, "rescue", ("shared := unseen or (r.crashes < 2 and r.worker = any(crowded));", "shared := unseen;", 1)
    )


def suspects_one_by_one(conn: Conn) -> None:
    """Jobs of a worker that died come back one at a time, whatever the next worker asks for."""
    altered(conn, "claim", ("limit least(p_total, p_rescued)", "limit least(p_total, 1)", 1))


def forgotten_breaker(conn: Conn) -> None:
    """What waits at the gate of a breaker is let go only while somebody remembers the breaker."""
    unknown = "(b.name is null and starts_with(p_gate, 'breaker:'))"
    altered(conn, "release_gate", ("if org is null or", f"if org is null or {unknown} or", 1))


# -- in processes ----------------------------------------------------------------------------------------------------


def effect_first(dsn: str) -> None:
    """The effect commits, then the completion, in two transactions."""
    complete, complete_in_thread = JobContext.complete, ThreadContext.complete

    @asynccontextmanager
    async def two(self: JobContext, result: object = None) -> AsyncIterator[Any]:
        async with await psycopg.AsyncConnection.connect(dsn) as conn:
            yield conn
        async with complete(self, result):
            pass

    @contextmanager
    def two_in_thread(self: ThreadContext, result: object = None) -> Iterator[Any]:
        with psycopg.connect(dsn) as conn:
            yield conn
        with complete_in_thread(self, result):
            pass

    _put(JobContext, "complete", two)
    _put(ThreadContext, "complete", two_in_thread)


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

    def hasty(self: Executor, run: LiveAttempt) -> None:
        if run.task.name == "plain":
            run.settled = True
            self._outbox.complete(run)
        begin(self, run)

    _put(Executor, "begin", hasty)


def no_rescan(_: str) -> None:
    """The lower bound of the claims only rises: what commits late below it is never seen."""

    def of(self: Bounds, queues: Sequence[str], _: float) -> tuple[list[list[Any]], bool]:
        low, floor = self._low.get, self._floor.get
        return [[low((queue, n), floor(queue, BEGINNING)) for queue in queues] for n in range(4)], True

    def learn(self: Bounds, claims: Sequence[Claim], dry: Collection[str], *, now: datetime | None, **_: Any) -> None:
        self.scan_at = float("inf")
        if now is not None:
            self._floor |= dict.fromkeys(dry, now - BOUND_MARGIN)
        for claim in claims:
            self._low[claim.queue, claim.priority] = claim.due_at - BOUND_MARGIN

    _put(Bounds, "of", of)
    _put(Bounds, "learn", learn)


def new_id_on_retry(_: str) -> None:
    """An enqueue whose answer was lost is sent again as another job."""

    def tries(seam: Seam, wanted: list[NewJob]) -> Iterator[tuple[Dialogue[list[Enqueued]], float | None]]:
        for pause in (0.1, 0.1, 0.1, 0.1, None):
            yield jobs.enqueue_many(seam.sql, wanted), pause
            wanted = [replace(job, id=uuid7()) for job in wanted]

    _put(enqueue, "_tries", tries)


def circles_of_causes(_: str) -> None:
    """Whoever reads what an error was caused by does not notice that it goes round in circles."""

    def links(error: BaseException, _: object = None) -> Iterator[BaseException]:
        one: BaseException | None = error
        while one is not None:
            yield one
            origin = getattr(one, "orig", None)
            one = origin if isinstance(origin, BaseException) else one.__cause__

    _put(raised, "links", links)
    _put(translate, "links", links)


def window_ignored(_: str) -> None:
    """A worker lets jobs through its share of a rate without looking at its window."""
    _put(Share, "opens_at", lambda self, now: now)


def permit_from_the_claim(_: str) -> None:
    """A job that a rate let in must be entered within 40 ms of its claim being sent, however far the database is."""
    take = Rates.take

    def hasty(self: Rates, run: LiveAttempt) -> float | None:
        opens = take(self, run)
        if run.passing:
            run.start_by = run.received_at + 0.04 - self.ahead / 2  # about the time of a turn before it came
        return opens

    _put(Rates, "take", hasty)


def one_dry_queue_for_all(_: str) -> None:
    """A claim that one queue left short counts as if all had run dry: what is older is not seen for a while."""
    learn = Bounds.learn

    def hasty(self: Bounds, claims: Sequence[Claim], dry: Collection[str], **how: Any) -> None:
        learn(self, claims, [*dry, *(claim.queue for claim in claims)] if dry else dry, **how)

    _put(Bounds, "learn", hasty)


def endless_wait(_: str) -> None:
    """A client waits for its answer as long as the kernel acknowledges."""
    _put(AsyncAnswered, "wait", psycopg.AsyncConnection.wait)
    _put(Answered, "wait", psycopg.Connection.wait)


#: What was there before, to be put back.
_before: list[tuple[Any, str, Any]] = []


def _put(owner: type | ModuleType, name: str, value: Any) -> None:
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
    plant.__name__: plant
    for plant in (
        effect_first, lease_by_clock, completed_before_run, no_rescan, new_id_on_retry, circles_of_causes,
        window_ignored, permit_from_the_claim, one_dry_queue_for_all, endless_wait,
    )
}  # fmt: skip


def in_process(names: Sequence[str], dsn: str) -> None:
    """Plant bugs into this process, which works in that database."""
    for name in names:
        IN_PROCESS[name](dsn)
