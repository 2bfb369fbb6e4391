"""Runs one attempt: ask, decode, call, and say how it ended."""

from __future__ import annotations

import asyncio
import contextvars
import inspect
from collections import Counter
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

from msgspec.structs import replace
from psycopg import Connection
from psycopg_pool import ConnectionPool

from mainspring.caller import running
from mainspring.chunk import fails, halved
from mainspring.cipher import SEALED, Seal, hidden, key_of
from mainspring.codes import CODES
from mainspring.db.cipher import Keyring
from mainspring.db.schema import Sql
from mainspring.db.translate import first_words
from mainspring.errors import MainspringError
from mainspring.job import Claim
from mainspring.outcome import Cancelled, Complete, Error, Failed, Interrupted, Move, Outcome, Permanent, decide
from mainspring.registry import ENGINE
from mainspring.worker.breakers import no_breakers
from mainspring.worker.classify import classify
from mainspring.worker.context import JobContext
from mainspring.worker.crew import Crew
from mainspring.worker.held import encode_result
from mainspring.worker.news import News
from mainspring.worker.outbox import Outbox
from mainspring.worker.processes import Children, Late
from mainspring.worker.reporter import Unsaid
from mainspring.worker.run import NEVER, Run, Trace
from mainspring.worker.service import job_log, log
from mainspring.worker.thread_context import ThreadContext
from mainspring.worker.transactions import Transactions

#: (organisation, project, actor, task) → None to allow, or the reason why not. Async or not.
Authorize = Callable[[Claim], "str | Awaitable[str | None] | None"]


#: Why a chunk whose worker died is halved before it is run again.
CRASHED: Final = Failed(Error("LEASE_EXPIRED", "retryable", "A worker died while it ran this chunk."))


class Executor:
    """Runs handlers: async ones in the loop, plain functions in threads, CPU-bound ones in processes."""

    def __init__(
        self,
        sql: Sql,
        worker: str,
        outbox: Outbox,
        runs: dict[int, Run],
        transactions: Transactions,
        sync_pool: ConnectionPool[Connection[Any]],
        threads: int,
        authorize: Authorize | None,
        counts: Counter[str],
        rescued_ended: Callable[[], None],
        news: News | None = None,
        trace: Trace | None = None,
    ) -> None:
        self._sql, self._worker, self._outbox, self._runs = sql, worker, outbox, runs
        self._transactions, self._sync_pool = transactions, sync_pool
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="mainspring")
        self._children = Children()
        self._authorize, self.counts, self._rescued_ended = authorize, counts, rescued_ended
        self._news, self._trace = news, trace
        self._loop = asyncio.get_running_loop()
        self.crews: dict[str, Crew] = {}
        self.unsaid: Unsaid = {}
        self.breakers = no_breakers(sql)
        self._ring: Keyring | None = None
        self._encrypts = False

    def begin(self, run: Run) -> None:
        """Start an attempt."""
        run.began = now = self._loop.time()
        run.deadline = now + run.task.limit
        run.handle = self._loop.create_task(self._attempt(run))

    async def _attempt(self, run: Run) -> None:
        claim, task = run.claim, run.task
        busy: asyncio.Future[Any] | None = None
        failed: bool | None = None  # by what it called, where its task needs something
        running(claim)
        try:
            if run.cancelled:  # while it was held
                raise Cancelled
            if claim.payload.startswith(SEALED) or (self._encrypts and task.encrypt):
                claim = await self._unsealed(run)
            if task.halve is not None and claim.crashes and await self._halved(run, CRASHED):
                return self._has_committed(run)
            if task.needs and (put_off := await self.breakers.enter(run)) is not None:
                return self._ended(run, put_off)
            if run.start_by < self._loop.time():
                raise Late
            if self._trace is not None:
                run.span = self._trace.begin(claim)
            if self._news is not None:
                self._news.started(run)
            if self._authorize is not None and task.app != ENGINE:
                await self._ask(claim)
                if run.start_by < self._loop.time():
                    raise Late
            if task.runs == "async":
                arguments = task.codec.decode(claim.payload)
                if task.wants_ctx:
                    result = await self._with_context(run, arguments)
                else:
                    result = await task.fn(**arguments)
            elif task.runs == "thread":
                busy = self._in_thread(run)
                result = await asyncio.shield(busy)
            else:
                result = await self._children.call(task, claim.payload, run.start_by)
            failed = False
            if run.settled:  # by its own transaction, or lost
                self._has_committed(run)
            elif result is None:
                run.settled = True
                self._outbox.done.append(run)
            else:
                self._succeeded(run, result)
        except Late:
            self.counts["late"] += 1
            self.crews[task.runs].late()
            self._ended(run, Interrupted(started=False))
        except BaseException as error:
            interrupted = run.why is not None or isinstance(error, asyncio.CancelledError)
            outcome = self._interrupted(run) if interrupted else self._classified(run, error)
            if run.passes or run.blamed is not None:
                outcome, failed = self.breakers.judge(run, outcome, error)
            if task.halve is not None and not run.settled and await self._halved(run, outcome):
                self._has_committed(run)
            else:
                self._ended(run, outcome)
        finally:
            self._runs.pop(claim.epoch, None)
            run.ended = self._loop.time()
            if run.passes:
                self.breakers.leave(run.passes, failed)
            run.handle = None  # what waits to be written holds no task: it would outlive many collections
            if run.span is not None and self._trace is not None:
                self._trace.end(run.span)
                run.span = None
            crew = self.crews[task.runs]
            if claim.permit is not None:  # its slot may be what another job waits for
                crew.hungry = True
            if busy is not None and not busy.done():  # the thread goes on, and so it keeps its slot
                busy.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody waits for it
                busy.add_done_callback(lambda _: crew.ended(self._loop.time() - run.began))
            else:
                crew.ended(run.ended - run.began)
            if claim.crashes:
                self._rescued_ended()

    def take_keys(self, ring: Keyring) -> None:
        """From here on it can read what is encrypted, and with a cipher encrypts what jobs return, raise and keep."""
        self._ring, self._encrypts = ring, ring.cipher is not None

    async def _unsealed(self, run: Run) -> Claim:
        """The job with its payload decrypted; from here on what it returns, raises and remembers is encrypted."""
        claim, ring = run.claim, self._ring
        assert ring is not None
        key = key_of(claim.payload)
        keys = ring.known(claim.org_id, key)
        if keys is None or keys.current is None:
            ask = ring.to_write if key is None else ring.to_read
            keys = await asyncio.to_thread(ask, claim.org_id, key)
        seal = Seal(keys, claim)
        run.claim = replace(claim, payload=seal.open("payload", claim.payload))
        run.seal = seal
        return run.claim

    def _classified(self, run: Run, error: BaseException) -> Outcome:
        outcome = classify(error)
        if run.seal is not None and isinstance(outcome, Failed):
            return Failed(hidden(outcome.error, run.seal), outcome.after, outcome.longest)
        return outcome

    async def _ask(self, claim: Claim) -> None:
        assert self._authorize is not None
        answer = self._authorize(claim)
        reason = await answer if inspect.isawaitable(answer) else answer
        if reason is not None:
            raise Permanent(reason, code="OWNERSHIP_VIOLATION")

    async def _with_context(self, run: Run, arguments: dict[str, Any]) -> Any:
        context = self._context(run)
        try:
            result = await run.task.fn(context, **arguments)
        finally:
            if self.unsaid:
                await context.last_word()
        if context.unwritten and not run.settled:
            context.result = result if context.result is None else context.result
            async with context.transaction():
                pass
        return context.result if result is None else result

    async def _halved(self, run: Run, outcome: Outcome) -> bool:
        """Whether two jobs, each with half of what is left of a chunk that failed, have taken its place."""
        field, decision = run.task.halve, decide(run.claim, outcome, run.task.retry)
        if field is None or not isinstance(outcome, Failed) or not isinstance(decision, Move):
            return False
        run.deadline = NEVER  # its time is over, ours is not
        context = self._context(run)
        try:
            done, moved_on = await context.done()
            parts = halved(run.claim.payload, field, done) if fails(outcome, decision, moved_on) else None
            if parts is None:
                return False
            await context.split([run.task.half(part, run.claim) for part in parts], done, outcome.error)
        except (Exception, asyncio.CancelledError) as error:  # then it is tried again as it is; the fence knows better
            log.warning("job %s of %s could not be halved: %s", run.claim.id, run.claim.task, first_words(error))
            return run.settled and run.why != "lost"
        self.counts["split"] += 1
        job_log.warning(
            "job %s of %s: split %s: %s", run.claim.id, run.claim.task, outcome.error.code, outcome.error.message
        )
        return True

    def _context(self, run: Run) -> JobContext:
        context = JobContext(run, self._sql, self._worker, self.unsaid, self._transactions)
        context.ring = self._ring if self._encrypts else None
        context.breakers = self.breakers
        return context

    def _in_thread(self, run: Run) -> asyncio.Future[Any]:
        def call() -> Any:
            try:
                return work()
            except StopIteration as error:  # a future cannot carry it, and would never end
                raise RuntimeError("the handler raised StopIteration") from error

        def work() -> Any:
            arguments = run.task.codec.decode(run.claim.payload)
            if run.start_by < self._loop.time():  # while it waited for a thread
                raise Late
            if not run.task.wants_ctx:
                return run.task.fn(**arguments)
            context = ThreadContext(run, self._sql, self._worker, self.unsaid, self._sync_pool)
            context.breakers = self.breakers
            context.ring = self._ring if self._encrypts else None
            try:
                result = run.task.fn(context, **arguments)
            finally:
                context.last_word()
            if context.unwritten and not run.settled:
                context.result = result if context.result is None else context.result
                with context.transaction():
                    pass
            return context.result if result is None else result

        return self._loop.run_in_executor(self._threads, contextvars.copy_context().run, call)

    def _succeeded(self, run: Run, result: Any) -> None:
        run.settled = True
        try:
            text = encode_result(result, run.seal)
        except MainspringError as error:  # the work is done: running it again would be worse than losing a value
            log.error("job %s of %s succeeded, but its result is lost: %s", run.claim.id, run.claim.task, error)
            text = None
        self._outbox.complete(run, text)

    def _has_committed(self, run: Run) -> None:
        """Its own transaction was its success, unless it was lost."""
        if run.why != "lost":
            self.counts["succeeded"] += 1
            run.ended = self._loop.time()
            if self._news is not None:
                self._news.succeeded([run])

    def _interrupted(self, run: Run) -> Outcome:
        match run.why:
            case "timeout":
                text = f"The attempt took longer than {run.task.timeout.total_seconds():g} s."
                return Failed(Error("TIMEOUT", CODES["TIMEOUT"].error_class, text))
            case "stop":
                return Interrupted(started=True)
            case _:
                return Failed(Error("INTERNAL_ERROR", "retryable", "The handler was cancelled from inside."))

    def _ended(self, run: Run, outcome: Outcome) -> None:
        """Record an end that is not a plain success, unless it is recorded already or not ours to record."""
        if run.settled:
            if isinstance(outcome, Failed) and run.why is None:
                log.error(
                    "job %s of %s failed after its success: %s", run.claim.id, run.claim.task, outcome.error.message
                )
            self._has_committed(run)
            return
        run.settled = True
        decision = decide(run.claim, outcome, run.task.retry, snooze_limit=run.task.snooze_limit)
        if isinstance(decision, Complete):
            raise AssertionError("a success is recorded by _succeeded")
        self.counts[decision.verb] += 1
        if decision.error is not None:
            error = decision.error
            if run.span is not None and self._trace is not None:
                self._trace.failed(run.span, error)
            job_log.warning(
                "job %s of %s: %s %s: %s", run.claim.id, run.claim.task, decision.verb, error.code, error.message
            )
        run.ended = self._loop.time()
        self._outbox.move(run, decision)

    def give_back(self, run: Run) -> None:
        """Return a job that has not started, or that a stop interrupts, without burning its attempt."""
        self._runs.pop(run.claim.epoch, None)
        if run.claim.crashes and run.handle is None and not run.settled:
            self._rescued_ended()
        if not run.settled:
            self._ended(run, Interrupted(started=run.handle is not None))
            run.why = "lost"  # whatever its handler still does is done for nobody

    def close(self) -> None:
        """Let go of threads, processes and keys."""
        if self._ring is not None:
            self._ring.close()
        self._children.close()
        self._threads.shutdown(wait=False, cancel_futures=True)
