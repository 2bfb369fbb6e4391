"""The exchange with the database: outcomes go out, claimed jobs come in, one durable commit a turn.

Two exchanges, each on its own connection, take turns over the same state, so that one talks while the handlers of the
other's batch run (measured: one alone is 30 % slower). Completing the last batch and claiming the next share a
transaction. Truth is the table: a hint only makes the next claim come sooner.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import psycopg

from mainspring.db.wire.connect import AsyncConnection, options, refuse_stale
from mainspring.db.wire.translate import is_transient
from mainspring.health.trouble import Trouble
from mainspring.job import Claim
from mainspring.outcome import Error, Move
from mainspring.worker.crew import SUSPECT_MARGIN_S, Crew
from mainspring.worker.outbox import Outcomes
from mainspring.worker.pace import Pace
from mainspring.worker.rates import gates_of
from mainspring.worker.service import backoff, log
from mainspring.worker.state import WorkerState
from mainspring.worker.statements import ExchangeReply, ExchangeRequest, ExchangeStatements
from mainspring.worker.tracker import Tracker

LATEST_FLUSH = 0.005  # an outcome waits so long for company


class Exchange:
    """Sends what has ended and asks for more, whenever there is a reason to."""

    def __init__(
        self,
        dsn: str,
        state: WorkerState,
        statements: ExchangeStatements,
        tracker: Tracker,
        pace: Pace,
        reachable: Callable[[Exception | None], None],  # told whether the database answers
        hears: Callable[[], bool],  # whether a hint would reach this worker
    ) -> None:
        self._dsn, self._worker, self._config = dsn, state.worker, state.config
        self._signal, self._rates, self._counts, self._outbox = state.signal, state.rates, state.counts, state.outbox
        self._attempts, self._tracker, self.pace = state.attempts, tracker, pace
        self._crews = list(tracker.crews.values())
        self._statements, self._send = statements, statements.send
        self._reachable, self._hears = reachable, hears
        self._patience = state.config.lease.total_seconds()  # after that the answer would come too late anyway
        self._flush_at = 0.0
        self._sending = 0
        self._quiet = asyncio.Event()  # nobody sends
        self._quiet.set()
        self._cautious = False  # the last turn failed: outcomes go out without a claim, in case the claim was at fault
        self._singly = 0  # so many outcomes go out one by one, because the database refused one among them
        self._away = False  # the database is away: nothing starts that could not be recorded
        self._unsure = False  # a claim may have committed whose answer was lost: nobody claims until that is cleared up
        self._twice = False  # it is cleared up once more a little later
        self._recovery = asyncio.Lock()
        self._trouble = Trouble(log, "an exchange fails, and is tried again", "exchanges work again")
        self._claiming = True
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    # -- life ---------------------------------------------------------------------------------------------------

    @property
    def idle(self) -> asyncio.Event:
        """Nothing is due, nothing is held."""
        return self.pace.idle

    def start(self) -> None:
        """Begin."""
        for number in range(self._config.exchanges):
            self._tasks.append(asyncio.create_task(self._serve(), name=f"exchange {number}"))

    def stop_claiming(self) -> None:
        """From now on only outcomes are written."""
        self._claiming = False
        self._signal.set()

    async def close(self, timeout: float) -> None:
        """Write what is left, then end."""
        self._closing = True
        self._rates.let_go()
        self._signal.set()
        _, late = await asyncio.wait(self._tasks, timeout=timeout) if self._tasks else (set(), set())
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    async def look_alone(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """Whether a job waits that must run alone; polls ask as well, but not while every slot is taken."""
        self.pace.solitude.look(await self._statements.alone_due(conn), self._loop.time())
        self._signal.set()

    @property
    def unsure(self) -> bool:
        """Whether something is to be cleared up with the database first."""
        return self._unsure or bool(self._tracker.doubtful)

    # -- the loop of one connection -------------------------------------------------------------------------------

    async def _serve(self) -> None:
        failures = 0
        while not self._closing or self._outbox or self.unsure or self._rates.leaving:
            try:
                async with await self._connect() as conn:
                    await self._recover(conn)
                    while await self._reason():
                        refuse_stale(conn)
                        if self.unsure:
                            await self._recover(conn)
                        if await self._turn(conn):  # not before: a server that answers may still be unable to write
                            failures = 0
                            self._trouble.over()
                            self._back()
                    return
            except Exception as error:  # whatever it is, the worker goes on
                failures += 1
                if self._closing and failures > 3:
                    return
                self._lost(error)
                await asyncio.sleep(backoff(failures))

    async def _connect(self) -> AsyncConnection:
        arguments = options(self._dsn, f"mainspring worker {self._worker}", prepare=self._config.prepare)
        arguments["answered_within"] = self._patience
        return await AsyncConnection.connect(self._dsn, **arguments)

    async def _recover(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """After a loss: give back jobs that a claim took whose answer never came."""
        async with self._recovery:
            if not self.unsure:
                return
            while self._sending:  # the other exchange may hold claims that we do not know yet
                await self._quiet.wait()
            known = set(self._attempts) | self._outbox.epochs()
            self._counts["orphaned"] += await self._statements.release(conn, known)
            if doubtful := list(self._tracker.doubtful):
                self._counts["taken_back"] += await self._statements.take_back(conn, doubtful)
                del self._tracker.doubtful[: len(doubtful)]
            self._unsure = False
            if self._twice:
                self._twice = False
                self._loop.call_later(self._patience / 3, self._look_again)
            self._signal.hint()

    def _look_again(self) -> None:
        """A claim that was under way on a lost connection may have committed after we looked for what it took."""
        self._unsure = True
        self._signal.set()

    def _lost(self, error: Exception) -> None:
        if is_transient(error):
            self._away = True
            self._open(False)
            self._unsure = self._twice = True  # what we gave up is given back when the database is here again
            self._reachable(error)
        else:
            self._trouble.failed(error, bug=error)

    def _back(self) -> None:
        if self._away:
            self._away = False
            self._reachable(None)
            self._open(True)

    def _open(self, is_open: bool) -> None:
        for crew in self._crews:
            if is_open:
                crew.open = True
                crew.fill()
            else:
                crew.close()
        if not is_open:
            self._rates.distrust()

    # -- when to send ---------------------------------------------------------------------------------------------

    async def _reason(self) -> bool:
        """Wait until there is something to send: outcomes enough or old enough, room for known work, or it is time."""
        pace = self.pace
        while True:
            now = self._loop.time()
            size = len(self._outbox)
            pace.heed(self._signal, now)
            if self.unsure:
                return True
            if size:
                self._flush_at = self._flush_at or now + LATEST_FLUSH
                if size >= self._config.batch // 2 or now >= self._flush_at or not self._busy():
                    return True
            elif self._closing:
                return self._rates.leaving
            elif not pace.room and self._still():
                pace.idle.set()
            pause = self._flush_at - now if size else 60.0
            if self._claiming:
                pause = min(pause, self._until_claim(now))
                if pause <= 0:
                    return True
            await self._signal.sleep(pause)
            late = self._loop.time() >= now + pause
            if late and self._claiming and pace.asks(self._loop.time(), enough=False):
                return True

    def _until_claim(self, now: float) -> float:
        """Seconds until there may be a reason to claim; 0: now there is one."""
        pace = self.pace
        if self._asks_alone(now):
            return 0.0
        pause = max(pace.solitude.wakes_at() - now, 0.01)
        if (report_at := self._rates.due(now)) <= now:
            return 0.0
        pause = min(pause, report_at - now)
        if pace.asks(now, enough=True):
            return 0.0
        if pace.poll_at > now:
            pause = min(pause, pace.poll_at - now)
        if pace.asks(now, enough=False):  # some room, but more is worth waiting for
            pause = min(pause, LATEST_FLUSH)
        return pause

    def _asks_alone(self, now: float) -> bool:
        """Whether to ask for a job that runs alone; what is to be written goes out with it."""
        if self.unsure or self._sending or not self.pace.room or any(crew.load for crew in self._crews):
            return False
        return self.pace.solitude.asks(polling=now >= self.pace.poll_at)

    def _busy(self) -> bool:
        return any(crew.running for crew in self._crews)

    def _still(self) -> bool:
        """Whether nothing is held, to be written or being sent."""
        return not self._outbox and not self._sending and not any(crew.load for crew in self._crews)

    # -- one turn -------------------------------------------------------------------------------------------------

    async def _turn(self, conn: psycopg.AsyncConnection[Any]) -> bool:
        """Send what there is to send; False when there was nothing."""
        request = self._request()
        if not request.outcomes and not request.asks and not request.alone:
            return False
        self._sending += 1
        self._quiet.clear()
        try:
            reply = await self._send(conn, request)
        except BaseException as error:
            self._failed(request, error)
            raise
        finally:
            self._sending -= 1
            if not self._sending:
                self._quiet.set()
        self._take_in(request, reply)
        if request.outcomes:
            await self._report(conn, request.outcomes, reply.accepted)
        if request.idle_for is not None and self.pace.flooded:
            await self._statements.execute(conn, [("lower_idle", [])])
        if reply.suspects:
            await self._time(conn, reply.suspects)
        return True

    async def _time(self, conn: psycopg.AsyncConnection[Any], suspects: list[Claim]) -> None:
        """A suspect that runs for longer than it had when its worker died is none any more."""
        for epoch, ran in (await self._statements.ran_before(conn, suspects)).items():
            if ran is not None and (attempt := self._attempts.get(epoch)) is not None:
                attempt.crew.clear_after(attempt, ran / self._config.speed + SUSPECT_MARGIN_S)

    def _request(self) -> ExchangeRequest:
        """What this turn sends; whom it asks for, nobody else asks for until its answer is here."""
        pace, now = self.pace, self._loop.time()
        outcomes, asks, alone = self._wishes(now)
        pace.rotate()
        reported, wanted = self._rates.report(now, alone=not self._sending) if asks else ("[]", {})
        polling = now >= pace.poll_at and bool(asks)
        self._flush_at = 0.0
        for crew, _ in asks:
            crew.wants_more = False  # until this claim says otherwise, so that the other exchange does not ask as well
        still = self._still()
        pace.asked(polling=polling, alone=alone)
        # While much keeps coming, polls find it, and hints would only cost.
        longest = self._config.poll_interval.total_seconds()
        sleeps = polling and self._hears() and not pace.flooded
        return ExchangeRequest(
            outcomes, asks, suspects={crew: crew.suspects.ask() for crew, want in asks if want}, at=now, alone=alone,
            polling=polling, idle_for=min(pace.poll * 2, longest) if sleeps else None, reported=reported, wanted=wanted,
            shares=self._rates.known and (bool(asks) or alone) and (reported != "[]" or not self._rates.calm(now)),
            still=still,
        )  # fmt: skip

    def _wishes(self, now: float) -> tuple[Outcomes, list[tuple[Crew, int]], bool]:
        """What is to be written, who claims how much, and whether a job is wanted that runs alone."""
        alone = self._claiming and self._asks_alone(now)
        asks = self.pace.asks(now, enough=False) if self._claiming and not self.unsure and not alone else []
        outcomes = self._outbox.take_one() if self._singly else self._outbox.take()
        if outcomes and (self._cautious or self._singly):
            return outcomes, [], False
        if not asks and not alone and not self.unsure:
            if self._claiming and self._rates.due(now) <= now:
                asks = self.pace.reporters()
            elif self._rates.leaving:
                asks = [(self._crews[0], 0)]
        return outcomes, asks, alone

    def _failed(self, request: ExchangeRequest, error: BaseException) -> None:
        """Nobody knows what became of it: outcomes go out again, and what was claimed is cleared up."""
        outcomes = request.outcomes
        # Beside a claim an outcome is not suspected: next it goes out alone.
        if outcomes and not request.asks and isinstance(error, Exception) and not is_transient(error):
            outcomes = self._without_poison(outcomes, error)
        self._outbox.put_back(outcomes)
        self._rates.unasked(request.wanted)
        for crew, asked in request.suspects.items():
            crew.suspects.answered(asked, 0)
        self.pace.unanswered(alone=request.alone)
        self._cautious = True
        self._unsure = self._unsure or bool(request.asks) or request.alone
        self._signal.set()

    def _take_in(self, request: ExchangeRequest, reply: ExchangeReply) -> None:
        """Learn from a reply, and take the claimed jobs in."""
        pace, ended = self.pace, self._loop.time()
        self._cautious = self._cautious and not request.outcomes
        self._singly = max(0, self._singly - len(request.outcomes)) if self._outbox else 0
        for claim in reply.found:
            self._counts["claimed"] += len(claim.jobs)
            if claim.want:
                came = [job for job in claim.jobs if job.crashes]
                claim.crew.suspects.answered(request.suspects[claim.crew], len(came))
                reply.suspects += came
                if pace.learn(claim, reply.due, request.at, ended):
                    self._signal.set()
        if request.alone:
            self._counts["claimed"] += len(reply.alone)
            pace.took_alone(len(reply.alone), ended)
        if request.polling:
            pace.solitude.look(reply.alone_due, ended)
            pace.rest(reply.found, reply.due, ended)
            pace.look_idle(reply.found, reply.due, still=request.still and self._still())
        self._tracker.accept(reply.alone, None, request.at)
        for claim in reply.found:
            self._tracker.accept(claim.jobs, claim.crew, request.at)
        if reply.shares is not None:
            self._share(request, reply)

    def _share(self, request: ExchangeRequest, reply: ExchangeReply) -> None:
        """What the database says about the shares of rates."""
        texts = {job.gates for claim in reply.found for job in claim.jobs if job.gates is not None}
        got = {gate for text in texts for gate in gates_of(text)}
        for share in self._rates.answered(reply.shares or [], request.wanted, got, request.at):
            self._tracker.give_back_gated(share)
        for crew in self._crews:
            crew.opened()

    async def _report(
        self, conn: psycopg.AsyncConnection[Any], outcomes: Outcomes, accepted: dict[int, str | None]
    ) -> None:
        """Tell what is written now; of what was refused, find out whether only an earlier answer was lost."""
        if len(accepted) != len(outcomes):
            refused = outcomes.without(accepted)
            try:
                accepted |= await self._statements.recorded(conn, [attempt.claim for attempt in refused.attempts])
            except BaseException:
                self._outbox.put_back(refused)  # nobody knows yet: they are refused again, and asked for again
                self._tracker.written(outcomes.without(refused.epochs()), accepted)
                raise
        self._tracker.written(outcomes, accepted)

    def _without_poison(self, outcomes: Outcomes, error: Exception) -> Outcomes:
        """What is left to write where the database refused some: one outcome must not hold up the others."""
        if len(outcomes) > 1:
            self._singly = len(outcomes)
            return outcomes
        (attempt,) = outcomes.attempts
        log.error("the outcome of epoch %d cannot be written: %s", attempt.claim.epoch, error)
        if any(move.verb == "reject" for _, move in outcomes.moves):
            return Outcomes()  # not even that: the lease ends it
        problem = Error("INTERNAL_ERROR", "permanent", "The outcome could not be written.")
        return Outcomes(moves=[(attempt, Move("reject", error=problem))])
