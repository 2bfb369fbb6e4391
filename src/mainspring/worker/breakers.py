"""The breakers of a worker: asked at the entry of handlers, told how calls ended, in step with the database."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, TypeAlias

import msgspec
import psycopg

from mainspring.breaker import Breaker, Need, counts, fit
from mainspring.db import breakers
from mainspring.db.breakers import Change, Seen
from mainspring.db.run import async_psycopg_door, run_async
from mainspring.db.schema import Sql
from mainspring.db.statement import Flow
from mainspring.errors import DeclarationError
from mainspring.events import BreakerClosed, BreakerOpened, Bus
from mainspring.job import Claim
from mainspring.outcome import BreakerOpen, Failed, Outcome, PutOff
from mainspring.sanitize import sanitize
from mainspring.texts import did_you_mean
from mainspring.worker.classify import classify
from mainspring.worker.gate import Gate, Id, Pass, whole
from mainspring.worker.run import Run
from mainspring.worker.service import Service, job_log

EVERY = 0.25  # seconds between looks
SOON = 0.02  # seconds after a failure, so that many go out together; at once if it opens the breaker
SHARE = 20  # a look takes at most this part of the time, however many keys are open
FREEING = 2.0  # seconds for which jobs are fetched after a breaker closed: some are still on their way to their ticket
BATCH = 1000  # jobs that are fetched by one statement
TIDY = 60.0  # seconds between looks for what was missed
PATIENCE = 30.0  # seconds that a thread waits for the event loop

Use: TypeAlias = Callable[[Callable[[psycopg.AsyncConnection[Any]], Awaitable[Any]]], Awaitable[Any]]


class Breakers(Service):
    """Every process decides by what it last saw; what it does not know costs a few calls, never a wrong state."""

    def __init__(
        self, use: Use, sql: Sql, rules: Mapping[str, Breaker], bus: Bus, woke: Callable[[], None],
        speed: float = 1.0,
    ) -> None:  # fmt: skip
        super().__init__(EVERY)
        self._use, self._sql, self._rules, self._bus, self._woke = use, sql, rules, bus, woke
        self._event_loop = asyncio.get_running_loop()
        self._speed = speed  # of the database's clock, which the windows and pauses of breakers are counted by
        self._gates: dict[Id, Gate] = {}
        self._freeing: dict[Id, float] = {}  # what has closed, and until when jobs of it are fetched
        self._declared = False
        self._tidy_at = float("-inf")

    # -- at the entry

    async def enter(self, run: Run) -> PutOff | None:
        """Let a job through whose task needs something, or say until when it waits. Asks nobody while all is well."""
        needs, job = run.task.needs, run.claim
        payload = _fields(job.payload) if any(need.template is not None for need in needs) else {}
        run.passes = []
        try:
            for need in needs:
                run.passes += await self._let(job, need.name, need.key(payload))
        except BreakerOpen as error:
            return PutOff(error.after, f"breaker:{error.need}")
        return None

    async def _let(self, job: Claim, name: str, key: str) -> list[Pass]:
        """The passes for one call; of a key, the dependency itself must be closed as well."""
        if name not in self._rules:
            raise DeclarationError(f"no breaker is called {name!r}{did_you_mean(name, self._rules)}")
        clock, last = self._clock, Id(job.org_id, name, key) if key else whole(name)
        above = self._gates.get(whole(name)) if key else None
        passes: list[Pass] = []
        try:
            if above is not None and not above.closed and await self._may_try(above, job):
                passes.append(above.enter(clock(), job.epoch))
            gate = self._gates.get(last) or self._gate(last)
            if gate.crowded(clock()):
                await gate.see(clock)
            probe = not gate.closed and await self._may_try(gate, job)
            passes.append(gate.enter(clock(), job.epoch if probe else None))
        except BaseException:
            self.leave(passes, None)
            raise
        return passes

    async def _may_try(self, gate: Gate, job: Claim) -> bool:
        """Whether this call is a probe; False: the breaker has closed meanwhile."""
        now = self._clock()
        if not gate.may_ask(now, job.claimed_at):
            raise gate.put_off(now, job.claimed_at)
        gate.asking += 1
        try:
            answer, wait, at = await self._do(breakers.probe(self._sql, *gate.id, job.epoch))
        except Exception:  # the database is away: nobody knows, and nobody is harmed by waiting
            answer, wait, at = "open", 0.0, None
        finally:
            gate.asking -= 1
        if answer == "open":
            gate.refused(self._clock(), wait, at)
            raise gate.put_off(self._clock(), at or job.claimed_at)
        self.wake()
        return bool(answer == "probe")

    # -- at the end

    def judge(self, run: Run, outcome: Outcome, error: BaseException) -> tuple[Outcome, bool | None]:
        """What becomes of an attempt that raised, and whether it failed by what it called (None: that is not known)."""
        if run.blamed is not None and run.blamed[0] is error:  # one call of it has been blamed already
            return run.blamed[1] or outcome, None
        failed = run.why in (None, "timeout") and counts(outcome, error)
        return (_spared(run.passes, outcome) if failed else None) or outcome, failed or None

    def leave(self, passes: list[Pass], failed: bool | None) -> None:
        """Calls ended."""
        now = self._clock()
        for call in passes:
            if call.gate.leave(call, failed, now):
                at_once = call.probe is not None or not call.gate.closed
                self._event_loop.call_later(0.0 if at_once else SOON, self.wake)

    # -- around one call

    @asynccontextmanager
    async def guard(self, run: Run, need: str) -> AsyncIterator[None]:
        """Around one call of an async handler."""
        passes = await self._let(run.claim, *_named(need))
        with self._watch(run, passes, self.leave):
            yield

    @contextmanager
    def guard_in_thread(self, run: Run, need: str) -> Iterator[None]:
        """Around one call of a plain handler: the event loop decides."""
        asked = asyncio.run_coroutine_threadsafe(self._let(run.claim, *_named(need)), self._event_loop)
        passes = asked.result(PATIENCE)

        def leave(passes: list[Pass], failed: bool | None) -> None:
            with suppress(RuntimeError):  # the worker has ended
                self._event_loop.call_soon_threadsafe(self.leave, passes, failed)

        with self._watch(run, passes, leave):
            yield

    @contextmanager
    def _watch(self, run: Run, passes: list[Pass], leave: Callable[[list[Pass], bool | None], None]) -> Iterator[None]:
        failed: bool | None = None
        try:
            yield
            failed = False
        except BaseException as error:
            late = isinstance(error, asyncio.CancelledError) and run.why == "timeout"
            if late or (isinstance(error, Exception) and counts(classify(error), error)):
                failed, run.blamed = True, (error, _spared(passes, classify(error)))
            raise
        finally:
            leave(passes, failed)

    # -- with the database

    async def first(self) -> None:
        """Look before the first job is claimed: one that is open is not called by who has just started."""
        with suppress(psycopg.Error):  # then the next tick
            await self.tick()

    async def tick(self, *, thorough: bool = False) -> None:
        """Report, look, and fetch the jobs of what has closed. `thorough`: also what may wait, before we go."""
        if not self._rules:
            return
        began, now = self._event_loop.time(), self._clock()
        calls = [call for gate in self._gates.values() if gate.unsaid(thorough) for call in gate.take(now)]
        try:
            if not self._declared:
                await self._do(breakers.declare(self._sql, self._rules.values()))
                self._declared = True
            changes: list[Change] = await self._do(breakers.report(self._sql, calls)) if calls else []
        except BaseException:
            for call in calls:
                self._gate(Id(call.org_id, call.name, call.key)).put_back(call, now)
            raise
        self._told(changes)
        self._learn(await self._do(breakers.look(self._sql, list(self._rules))))
        self.interval = max(EVERY, SHARE * (self._event_loop.time() - began))
        await self._free()
        if began >= self._tidy_at:
            self._tidy_at = began + TIDY
            await self._tidy()

    async def stop(self) -> None:
        """End; what is not said yet is said."""
        await super().stop()
        if self._declared and any(gate.unsaid(thorough=True) for gate in self._gates.values()):
            with suppress(Exception):
                await self.tick(thorough=True)

    def _learn(self, rows: list[Seen]) -> None:
        now = self._clock()
        seen = {Id(*row[:3]): row for row in rows}
        self._declared = all(whole(name) in seen for name in self._rules)
        for id in seen.keys() - self._gates.keys():
            self._gate(id)
        for id, gate in self._gates.items():
            if gate.learn(seen.get(id), now):
                self._freeing[id] = self._event_loop.time() + FREEING

    async def _free(self) -> None:
        """Fetch what waits for breakers that have closed, in bounded portions."""
        for id, until in list(self._freeing.items()):
            while (count := await self._do(breakers.free(self._sql, id.gate, BATCH))) == BATCH:
                self._woke()
            if count:
                self._woke()
            if self._event_loop.time() >= until:
                del self._freeing[id]

    async def _tidy(self) -> None:
        """Fetch what waits for a breaker that closed while nobody looked, and forget what nobody calls any more."""
        if await self._do(breakers.free_all(self._sql, BATCH)):
            self._woke()
        await self._do(breakers.forget(self._sql))
        now = self._clock()
        self._gates = {id: gate for id, gate in self._gates.items() if not gate.idle(now)}

    def _told(self, changes: list[Change]) -> None:
        for org, name, key, change, failures, pause in changes:
            about = (name, sanitize(key, 200) or None, org)
            self._bus.emit(BreakerOpened(*about, failures, pause) if change == "opened" else BreakerClosed(*about))

    def _gate(self, id: Id) -> Gate:
        gate = self._gates.get(id)
        if gate is None:
            gate = self._gates[id] = Gate(id, self._rules[id.name])
        return gate

    def _clock(self) -> float:
        """Ours, in seconds of the database's."""
        return self._event_loop.time() * self._speed

    async def _do(self, flow: Flow[Any]) -> Any:
        async def talk(conn: psycopg.AsyncConnection[Any]) -> Any:
            return await run_async(async_psycopg_door(conn), flow)

        return await self._use(talk)


def _spared(passes: list[Pass], outcome: Outcome) -> PutOff | None:
    """What becomes of a job that failed while the breaker was open: as a probe, or as one that was under way then.

    It lost nothing: the failure tells about what it called. It goes to the end of those that wait, so that the next
    probe is another job's.
    """
    gate = next((call.gate for call in passes if call.probe is not None or not call.gate.closed), None)
    if gate is None or not isinstance(outcome, Failed) or outcome.error.error_class == "permanent":
        return None
    job_log.warning("put off, as %s does not answer: %s: %s", gate.id.need, outcome.error.code, outcome.error.message)
    return PutOff(gate.rule.pause * (1 + random.random()), gate.id.gate, started=True)  # noqa: S311 (no secret)


def no_breakers(sql: Sql) -> Breakers:
    """For who declares none: every name is unknown, and nobody is asked."""

    async def use(talk: object) -> None:
        raise AssertionError

    return Breakers(use, sql, {}, Bus(), lambda: None)


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
