"""The breakers of a worker: asked at the entry of handlers, told how calls ended, in step with the database."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias

import msgspec
import psycopg

from mainspring.circuit import Breaker, Need, counts, fit
from mainspring.db import breakers
from mainspring.db.breakers import BreakerView, Change, Serves
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.errors import DeclarationError
from mainspring.events import BreakerClosed, BreakerOpened, Bus
from mainspring.job import Claim
from mainspring.outcome import BreakerOpen, Deferred, Failed, Outcome
from mainspring.text.sanitize import sanitize
from mainspring.text.texts import did_you_mean
from mainspring.worker.aside import judge
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.classify import classify
from mainspring.worker.local_breaker import BreakerId, LocalBreaker, Pass, whole
from mainspring.worker.service import Service, job_log

BREAKER_LOOK_S = 0.25  # seconds between looks
FAILURE_TOLD_S = 0.02  # seconds after a failure, so that many go out together; at once if it opens the breaker
_LOOKS_SHARE = 20  # a look takes at most this part of the time, however many keys are open
LET_GO_BATCH = 1000  # jobs that one statement lets go
ALL_GATES_S = 5.0  # seconds between looks at all gates at which jobs wait
TIDY_BREAKERS_S = 60.0  # seconds between looks for what nobody calls any more
LOOP_PATIENCE_S = 30.0  # seconds that a thread waits for the event loop

Use: TypeAlias = Callable[[Callable[[psycopg.AsyncConnection[Any]], Awaitable[Any]]], Awaitable[Any]]


class BreakerService(Service):
    """Every process decides by what it last saw; what it does not know costs a few calls, never a wrong state."""

    def __init__(
        self, use: Use, sql: Sql, rules: Mapping[str, Breaker], serves: Serves, bus: Bus, woke: Callable[[], None],
        speed: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(BREAKER_LOOK_S if rules else ALL_GATES_S)
        self._use, self._sql, self._rules, self._bus, self._woke = use, sql, rules, bus, woke
        self._serves = serves
        self._event_loop = asyncio.get_running_loop()
        self._speed = speed  # of the database's clock, which the windows and pauses of breakers are counted by
        self._locals: dict[BreakerId, LocalBreaker] = {}
        self._stopped: dict[str, set[str]] = {}  # dependencies that have stopped jobs of late, and of which tasks
        self._closed: set[str] = set()  # gates that have opened, and at which jobs may still wait
        self._declared = False
        self._all_gates_at = self._tidy_at = float("-inf")

    # -- at the entry

    async def enter(self, attempt: LiveAttempt) -> Deferred | None:
        """Let a job through whose task needs something, or say until when it waits. Asks nobody while all is well."""
        needs, job = attempt.task.needs, attempt.claim
        payload = _fields(job.payload) if any(need.template is not None for need in needs) else {}
        attempt.passes = []
        try:
            for need in needs:
                attempt.passes += await self._let(job, need.name, need.key(payload))
        except BreakerOpen as error:
            if error.need in self._rules:  # the dependency itself: whoever needs it is stopped
                self._stopped.setdefault(error.need, set()).add(attempt.task.name)
            return Deferred(error.after, f"breaker:{error.need}")
        return None

    async def _let(self, job: Claim, name: str, key: str) -> list[Pass]:
        """The passes for one call; of a key, the dependency itself must be closed as well."""
        if name not in self._rules:
            raise DeclarationError(f"no breaker is called {name!r}{did_you_mean(name, self._rules)}")
        clock, last = self._clock, BreakerId(job.org_id, name, key) if key else whole(name)
        above = self._locals.get(whole(name)) if key else None
        passes: list[Pass] = []
        try:
            if above is not None and not above.closed and await self._may_try(above, job):
                passes.append(above.enter(clock(), job.epoch))
            local = self._locals.get(last) or self._local(last)
            if local.crowded(clock()):
                await local.see(clock)
            probe = not local.closed and await self._may_try(local, job)
            passes.append(local.enter(clock(), job.epoch if probe else None))
        except BaseException:
            self.leave(passes, None)
            raise
        return passes

    async def _may_try(self, local: LocalBreaker, job: Claim) -> bool:
        """Whether this call is a probe; False: the breaker has closed meanwhile."""
        now = self._clock()
        if not local.may_ask(now, job.claimed_at):
            raise local.put_off(now, job.claimed_at)
        local.asking += 1
        try:
            answer, wait, at = await self._do(breakers.probe(self._sql, *local.id, job.epoch))
        except Exception:  # the database is away: nobody knows, and nobody is harmed by waiting
            answer, wait, at = "open", 0.0, None
        finally:
            local.asking -= 1
        if answer == "open":
            local.refused(self._clock(), wait, at)
            raise local.put_off(self._clock(), at or job.claimed_at)
        self.wake()
        return bool(answer == "probe")

    # -- at the end

    def judge(self, attempt: LiveAttempt, outcome: Outcome, error: BaseException) -> tuple[Outcome, bool | None]:
        """What becomes of an attempt that raised, and whether it failed by what it called (None: that is not known)."""
        if attempt.blamed is not None and attempt.blamed[0] is error:  # one call of it has been blamed already
            return attempt.blamed[1] or outcome, None
        failed = attempt.why in (None, "timeout") and counts(outcome, error)
        return (_spared(attempt.passes, outcome) if failed else None) or outcome, failed or None

    def leave(self, passes: list[Pass], failed: bool | None) -> None:
        """Calls ended."""
        now = self._clock()
        for call in passes:
            if call.local.leave(call, failed, now):
                at_once = call.probe is not None or not call.local.closed
                self._event_loop.call_later(0.0 if at_once else FAILURE_TOLD_S, self.wake)

    # -- around one call

    @asynccontextmanager
    async def guard(self, attempt: LiveAttempt, need: str) -> AsyncIterator[None]:
        """Around one call of an async handler."""
        passes = await self._let(attempt.claim, *_named(need))
        failed: bool | None = None
        try:
            yield
            failed = False
        except BaseException as error:
            failed = _blamed(attempt, passes, error, await judge(error))
            raise
        finally:
            self.leave(passes, failed)

    @contextmanager
    def guard_in_thread(self, attempt: LiveAttempt, need: str) -> Iterator[None]:
        """Around one call of a plain handler: the event loop decides."""
        asked = asyncio.run_coroutine_threadsafe(self._let(attempt.claim, *_named(need)), self._event_loop)
        passes = asked.result(LOOP_PATIENCE_S)

        failed: bool | None = None
        try:
            yield
            failed = False
        except BaseException as error:
            failed = _blamed(attempt, passes, error, classify(error))
            raise
        finally:
            with suppress(RuntimeError):  # the worker has ended
                self._event_loop.call_soon_threadsafe(self.leave, passes, failed)

    # -- with the database

    async def first(self) -> None:
        """Look before the first job is claimed: one that is open is not called by who has just started."""
        with suppress(psycopg.Error):  # then the next tick
            await self.tick()

    async def tick(self, *, thorough: bool = False, all_gates: bool = False) -> None:
        """Report, look, and let go who waited for what has closed.

        `thorough`: say also what may wait, before we go. `all_gates`: look at all of them, though it is not time.
        """
        if all_gates:
            self._all_gates_at = float("-inf")
        if self._rules:
            await self._exchange(thorough)
            await self._park()
        await self._release()

    async def _exchange(self, thorough: bool) -> None:
        began, now = self._event_loop.time(), self._clock()
        calls = [call for local in self._locals.values() if local.unreported(thorough) for call in local.take(now)]
        try:
            if not self._declared:
                await self._do(breakers.declare(self._sql, self._rules.values()))
                self._declared = True
            changes: list[Change] = await self._do(breakers.report(self._sql, calls)) if calls else []
        except BaseException:
            for call in calls:
                self._local(BreakerId(call.org_id, call.name, call.key)).put_back(call, now)
            raise
        self._told(changes)
        self._learn(await self._do(breakers.look(self._sql, list(self._rules))))
        self.interval = max(BREAKER_LOOK_S, _LOOKS_SHARE * (self._event_loop.time() - began))
        if began >= self._tidy_at:
            self._tidy_at = began + TIDY_BREAKERS_S
            await self._tidy()

    async def stop(self) -> None:
        """End; what is not reported yet is reported."""
        await super().stop()
        if self._declared and any(local.unreported(thorough=True) for local in self._locals.values()):
            with suppress(Exception):
                await self.tick(thorough=True)

    def _learn(self, rows: list[BreakerView]) -> None:
        now = self._clock()
        seen = {BreakerId(*row[:3]): row for row in rows}
        self._declared = all(whole(name) in seen for name in self._rules)
        for id in seen.keys() - self._locals.keys():
            self._local(id)
        for id, local in self._locals.items():
            if local.learn(seen.get(id), now):
                self._closed.add(id.gate)

    async def _park(self) -> None:
        """Let jobs wait that would be claimed only to be stopped, in bounded portions."""
        stopped, self._stopped = self._stopped, {}
        for name, tasks in stopped.items():
            serves = self._serves[0], list(tasks)
            while await self._do(breakers.park(self._sql, name, serves, LET_GO_BATCH)) == LET_GO_BATCH:
                pass

    async def _release(self) -> None:
        """Let go who waits for what has closed, in bounded portions, and who may be a probe.

        Now and then at all gates at which jobs wait, whatever we know: a breaker may have closed while nobody looked,
        or be forgotten, or be one that our application declares no longer.
        """
        began, now = self._event_loop.time(), self._clock()
        all_of_them = began >= self._all_gates_at
        half_open = [local.id.gate for local in self._locals.values() if local.half_open(now)]
        gates = None if all_of_them else [*self._closed, *half_open]
        count = LET_GO_BATCH
        while count >= LET_GO_BATCH and gates != []:
            count = await self._do(breakers.release(self._sql, gates, self._serves, LET_GO_BATCH))
            if count:
                self._woke()
        self._closed.clear()
        if all_of_them:
            self._all_gates_at = began + max(ALL_GATES_S, _LOOKS_SHARE * (self._event_loop.time() - began))

    async def _tidy(self) -> None:
        """Forget what nobody calls any more."""
        await self._do(breakers.forget(self._sql))
        now = self._clock()
        self._locals = {id: local for id, local in self._locals.items() if not local.idle(now)}

    def _told(self, changes: list[Change]) -> None:
        for org, name, key, change, failures, pause in changes:
            about = (name, sanitize(key, 200) or None, org)
            self._bus.emit(BreakerOpened(*about, failures, pause) if change == "opened" else BreakerClosed(*about))

    def _local(self, id: BreakerId) -> LocalBreaker:
        local = self._locals.get(id)
        if local is None:
            local = self._locals[id] = LocalBreaker(id, self._rules[id.name])
        return local

    def _clock(self) -> float:
        """Ours, in seconds of the database's."""
        return self._event_loop.time() * self._speed

    async def _do(self, dialogue: Dialogue[Any]) -> Any:
        async def do(conn: psycopg.AsyncConnection[Any]) -> Any:
            return await run_async(async_psycopg_door(conn), dialogue)

        return await self._use(do)


def _blamed(attempt: LiveAttempt, passes: list[Pass], error: BaseException, outcome: Outcome) -> bool | None:
    """Whether a call that raised failed by what it called (None: that is not known); then the attempt knows of it."""
    late = issubclass(type(error), asyncio.CancelledError) and attempt.why == "timeout"
    if not late and not (issubclass(type(error), Exception) and counts(outcome, error)):
        return None
    attempt.blamed = error, _spared(passes, outcome)
    return True


def _spared(passes: list[Pass], outcome: Outcome) -> Deferred | None:
    """What becomes of a job that failed while the breaker was open: as a probe, or as one that was under way then.

    It lost nothing: the failure tells about what it called. A probe was due when it was let go, which is later than
    those that wait were: so the next one is another job's.
    """
    local = next((call.local for call in passes if call.probe is not None or not call.local.closed), None)
    if local is None or not isinstance(outcome, Failed) or outcome.error.error_class == "permanent":
        return None
    job_log.warning("deferred, as %s does not answer: %s: %s", local.id.need, outcome.error.code, outcome.error.message)
    return Deferred(local.rule.pause, f"breaker:{local.id.need}", started=True)


def _fields(payload: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.json.decode(payload)
    except (msgspec.MsgspecError, RecursionError, ValueError):  # its own attempt says what is wrong
        return {}
    return found


def _named(need: str) -> tuple[str, str]:
    """The dependency and the key that a handler names: `sms`, or `webhook:7`."""
    found = Need.read(str(need))
    return found.name, fit(found.template) if found.template is not None else ""
