"""Runs attempts: resolve, authorise, call, decide, record."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable
from typing import Any

from msgspec.structs import replace

from mainspring.cipher import SEALED, Seal, hidden, key_of
from mainspring.codes import CODES
from mainspring.declare.caller import running
from mainspring.declare.registry import ENGINE_REGISTRY
from mainspring.job import Claim
from mainspring.outcome import Cancelled, Complete, Error, Failed, Interrupted, Outcome, Permanent, Stopped, decide
from mainspring.states import WORDS
from mainspring.worker.aside import judge
from mainspring.worker.attempt import LiveAttempt, Trace
from mainspring.worker.base_context import encode_result
from mainspring.worker.halving import CRASHED, halve
from mainspring.worker.handlers import Handlers
from mainspring.worker.processes import Late, RaisedInChild
from mainspring.worker.service import job_log, log
from mainspring.worker.state import WorkerState

#: (organisation, project, actor, task) → None to allow, or the reason why not. Async or not.
Authorize = Callable[[Claim], "str | Awaitable[str | None] | None"]


class Executor:
    """Runs each attempt in a task of its own, from its slot to the outbox."""

    def __init__(
        self, state: WorkerState, handlers: Handlers, authorize: Authorize | None = None, trace: Trace | None = None
    ) -> None:
        self._attempts, self._outbox, self._counts = state.attempts, state.outbox, state.counts
        self._rates, self._signal, self._announcer = state.rates, state.signal, state.announcer
        self._handlers, self._resources = handlers, handlers.resources
        self._breakers, self._encrypts = handlers.resources.breakers, handlers.resources.encrypts
        self._authorize, self._trace = authorize, trace
        self._observed = trace is not None or state.announcer is not None
        self._loop = asyncio.get_running_loop()

    def begin(self, attempt: LiveAttempt) -> None:
        """Start an attempt."""
        attempt.began = now = self._loop.time()
        attempt.deadline = now + attempt.task.limit
        attempt.handle = self._loop.create_task(self._run(attempt))

    async def _run(self, attempt: LiveAttempt) -> None:
        """One attempt. What most jobs do not need stands behind a plain question: it costs them no await."""
        claim, task = attempt.claim, attempt.task
        running(claim)
        try:
            if attempt.cancelled:  # while it waited
                raise Cancelled
            sealed = claim.payload.startswith(SEALED) or (self._encrypts and task.encrypt)
            if (sealed or task.needs or claim.crashes) and await self._resolved(attempt, sealed):
                return
            if attempt.start_by < self._loop.time():
                raise Late
            if self._observed:
                self._tell(attempt)
            if self._authorize is not None and task.app != ENGINE_REGISTRY:
                await self._authorise(attempt, self._authorize)
            result = await self._handlers.call(attempt)
            attempt.failed = False
            self._succeed(attempt, result)
        except Late:
            self._put_back(attempt)
        except BaseException as error:
            if attempt.committing and attempt.session:  # in a thread that goes on
                await self._handlers.end_transaction(attempt)
            await self._fail(attempt, error)
        finally:
            self._leave(attempt)

    # -- before the call

    async def _resolved(self, attempt: LiveAttempt, sealed: bool) -> bool:
        """Decrypt it, halve a chunk that killed a worker, ask its breakers; whether it has ended by that."""
        if sealed:
            await self._unseal(attempt)
        if attempt.task.halve is not None and attempt.claim.crashes and await self._halved(attempt, CRASHED):
            return True
        if attempt.task.needs and (put_off := await self._breakers.enter(attempt)) is not None:
            self._end(attempt, put_off)
            return True
        return False

    async def _unseal(self, attempt: LiveAttempt) -> None:
        """Decrypt its payload; from here on what it returns, raises and remembers is encrypted."""
        claim, ring = attempt.claim, self._resources.ring
        key = key_of(claim.payload)
        keys = ring.known(claim.org_id, key)
        if keys is None or keys.current is None:
            ask = ring.to_write if key is None else ring.to_read
            keys = await asyncio.to_thread(ask, claim.org_id, key)
        strict = attempt.task.encrypt and ring.cipher is not None and not ring.cipher.accept_plain
        seal = Seal(keys, claim, strict=strict)
        attempt.claim = replace(claim, payload=seal.open("payload", claim.payload))
        attempt.seal = seal  # not before: who cannot read it cannot hide an error by it either

    def _tell(self, attempt: LiveAttempt) -> None:
        if self._trace is not None:
            attempt.span = self._trace.begin(attempt.claim)
        if self._announcer is not None:
            self._announcer.started(attempt)

    async def _authorise(self, attempt: LiveAttempt, authorize: Authorize) -> None:
        answer = authorize(attempt.claim)
        reason = await answer if inspect.isawaitable(answer) else answer
        if reason is not None:
            raise Permanent(reason, code="OWNERSHIP_VIOLATION")
        if attempt.start_by < self._loop.time():
            raise Late

    # -- how it ended

    def _succeed(self, attempt: LiveAttempt, result: Any) -> None:
        if attempt.settled:  # by its own transaction, or lost
            return self._committed(attempt)
        text = encode_result(result, attempt.seal)  # what cannot be stored is the attempt's failure
        attempt.settled = True
        return self._outbox.complete(attempt, text)

    def _put_back(self, attempt: LiveAttempt) -> None:
        """Its share of a rate ended before its handler was entered."""
        attempt.entered = False
        self._counts["late"] += 1
        attempt.crew.late()
        self._end(attempt, Interrupted(started=False))

    async def _fail(self, attempt: LiveAttempt, error: BaseException) -> None:
        outcome = await self._decide(attempt, error)
        if attempt.settled:
            await self._failed_late(attempt, outcome, error)
        elif attempt.task.halve is None or not await self._halved(attempt, outcome):
            self._end(attempt, outcome, error)

    async def _failed_late(self, attempt: LiveAttempt, outcome: Outcome, raised: BaseException) -> None:
        """It failed after its success was committed: that stays, and what was raised is recorded beside it."""
        self._committed(attempt)
        if attempt.why not in (None, "timeout") or isinstance(outcome, Stopped | Interrupted):
            return
        text = "The handler asked to be deferred after it had completed its job."
        late = Error("AFTER_COMPLETION", CODES["AFTER_COMPLETION"].error_class, text)
        claim, error = attempt.claim, outcome.error if isinstance(outcome, Failed) else late
        self._counts["failed_after_completion"] += 1
        log.error("job %s of %s failed after its completion: %s %s", claim.id, claim.task, error.code, error.message)
        await self._resources.record_late(claim, error)
        if self._announcer is not None:
            self._announcer.failed_late(attempt, error)

    async def _decide(self, attempt: LiveAttempt, error: BaseException) -> Outcome:
        """What an attempt that raised, or was interrupted, comes to."""
        interrupted = attempt.why is not None or issubclass(type(error), asyncio.CancelledError)
        outcome = _interrupted(attempt) if interrupted else await self._classified(attempt, error)
        if attempt.passes or attempt.blamed is not None:
            outcome, attempt.failed = self._breakers.judge(attempt, outcome, error)
        return outcome

    async def _classified(self, attempt: LiveAttempt, error: BaseException) -> Outcome:
        outcome = error.outcome if type(error) is RaisedInChild else await judge(error)
        if attempt.seal is not None and isinstance(outcome, Failed):
            return Failed(hidden(outcome.error, attempt.seal), outcome.after, outcome.longest)
        return outcome

    async def _halved(self, attempt: LiveAttempt, outcome: Outcome) -> bool:
        if not await halve(attempt, outcome, self._resources):
            return False
        self._counts["split"] += 1
        self._committed(attempt)
        return True

    def _committed(self, attempt: LiveAttempt) -> None:
        """Its own transaction was its success, unless it was lost."""
        if attempt.why != "lost":
            self._counts["succeeded"] += 1
            attempt.ended = self._loop.time()
            if self._announcer is not None:
                self._announcer.succeeded([attempt])

    def _end(self, attempt: LiveAttempt, outcome: Outcome, error: BaseException | None = None) -> None:
        """Record an end that is not a plain success, unless it is recorded already or not ours to record."""
        claim, task = attempt.claim, attempt.task
        if attempt.settled:
            return self._committed(attempt)
        attempt.settled = True
        move = decide(claim, outcome, task.retry, snooze_limit=task.snooze_limit)
        if isinstance(move, Complete):
            raise AssertionError("a success is recorded by _succeed")
        self._counts[word := WORDS[move.verb]] += 1
        if (known := move.error) is not None:
            if attempt.span is not None and self._trace is not None:
                self._trace.failed(attempt.span, known)
            job_log.warning("job %s of %s: %s %s: %s", claim.id, claim.task, word, known.code, known.message)
        attempt.ended = self._loop.time()
        return self._outbox.move(attempt, move)

    # -- afterwards

    def _leave(self, attempt: LiveAttempt) -> None:
        """Its slot, its rates and its breakers are free, before its end is written."""
        claim, crew = attempt.claim, attempt.crew
        self._attempts.pop(claim.epoch, None)
        attempt.ended = self._loop.time()
        if attempt.shares:
            (self._rates.entered if attempt.entered else self._rates.give_back)(attempt)
        if attempt.passes:
            self._breakers.leave(attempt.passes, attempt.failed)
        if attempt.span is not None and self._trace is not None:
            self._trace.end(attempt.span)
            attempt.span = None
        if claim.gates is not None:  # its place may be what another job waits for, of whatever kind
            self._signal.freed = True
        if crew.left:
            crew.left.discard(attempt)
        thread, attempt.thread = attempt.thread, None
        attempt.handle = None  # what waits to be written holds no task: it would outlive many collections
        if thread is not None and not thread.done():  # it goes on, and so it keeps its slot
            thread.add_done_callback(lambda late: late.cancelled() or late.exception())  # nobody waits for it
            thread.add_done_callback(lambda _: self._left_at_last(attempt))
            crew.left.add(attempt)
        else:
            crew.ended(attempt.ended - attempt.began)
        if claim.crashes or attempt.alone:
            crew.suspect_ended(attempt, succeeded=attempt.failed is False)

    def _left_at_last(self, attempt: LiveAttempt) -> None:
        attempt.crew.left.discard(attempt)
        attempt.crew.ended(self._loop.time() - attempt.began)

    def time_out(self, attempt: LiveAttempt) -> None:
        """Record that its time is over, though its handler goes on: for a process that ends."""
        if not attempt.settled and not attempt.committing:
            attempt.why = "timeout"
            self._end(attempt, _interrupted(attempt))

    def give_back(self, attempt: LiveAttempt) -> None:
        """Return a job that has not started, or that a stop interrupts, without burning its attempt."""
        self._attempts.pop(attempt.claim.epoch, None)
        started = attempt.handle is not None
        if attempt.shares and not started:
            self._rates.give_back(attempt)
        if attempt.settled:
            return
        if attempt.committing:  # to write anything would wait for its own transaction, which decides
            attempt.settled, attempt.why = True, "lost"
            return
        if (attempt.claim.crashes or attempt.alone) and not started:
            attempt.crew.suspect_ended(attempt)
        self._end(attempt, Interrupted(started=started))
        attempt.why = "lost"  # whatever its handler still does is done for nobody

    def close(self) -> None:
        """Let go of threads, processes and keys."""
        self._handlers.close()


def _interrupted(attempt: LiveAttempt) -> Outcome:
    match attempt.why:
        case "timeout":
            text = f"The attempt took longer than {attempt.task.timeout.total_seconds():g} s."
            return Failed(Error("TIMEOUT", CODES["TIMEOUT"].error_class, text))
        case "stop":
            return Interrupted(started=True)
        case _:
            return Failed(Error("INTERNAL_ERROR", "retryable", "The handler was cancelled from inside."))
