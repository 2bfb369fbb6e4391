"""The exchange with the database: outcomes go out, claimed jobs come in, one durable commit a turn.

Two exchanges, each on its own connection, take turns over the same state, so that one talks while the handlers of the
other's batch run (measured: one alone is 30 % slower). Completing the last batch and claiming the next share a
transaction. Truth is the table: a hint only makes the next claim come sooner.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import psycopg

from mainspring.config import WorkerConfig
from mainspring.db.connect import AsyncConnection, answered_within, options, refuse_stale
from mainspring.db.schema import Sql
from mainspring.db.translate import is_transient
from mainspring.job import Claim
from mainspring.outcome import Error, Move
from mainspring.worker.crew import Crew
from mainspring.worker.outbox import Letter, Outbox
from mainspring.worker.pace import Pace
from mainspring.worker.service import backoff, log
from mainspring.worker.talk import Talk

LATEST_FLUSH = 0.005  # an outcome waits so long for company


class Exchange:
    """Sends what has ended and asks for more, whenever there is a reason to."""

    def __init__(
        self,
        dsn: str,
        sql: Sql,
        worker: str,
        config: WorkerConfig,
        crews: Sequence[Crew],
        outbox: Outbox,
        *,
        accept: Callable[[list[Claim], Crew, float], None],
        written: Callable[[Letter, dict[int, str | None]], None],
        reachable: Callable[[Exception | None], None],
        known: Callable[[], set[int]],
        counts: Counter[str],
    ) -> None:
        self._dsn, self._worker, self._config = dsn, worker, config
        self._crews = list(crews)
        self._accept, self._written, self._reachable, self._known = accept, written, reachable, known
        self.counts = counts
        self._event = asyncio.Event()
        self.outbox = outbox
        outbox.wake = self._event.set
        for crew in self._crews:
            crew.freed = self._event.set  # something ended: there may be something to write, and there is room
        self.pace = Pace(config, crews)
        self._voice = Talk(sql, worker, config)
        self._talk = self._voice.turn
        self._patience = config.lease.total_seconds()  # after that the answer would come too late anyway
        self._flush_at = 0.0
        self._talking = 0
        self._quiet = asyncio.Event()  # nobody talks
        self._quiet.set()
        self._alone = False  # the last turn failed: outcomes go out without a claim, in case the claim was at fault
        self._singly = 0  # so many outcomes go out one by one, because the database refused one among them
        self._away = False  # the database is away: nothing starts that could not be recorded
        self.hears: Callable[[], bool] = lambda: config.wakeups  # whether a hint would reach this worker
        self._unsure = False  # a claim may have committed whose answer was lost: nobody claims until that is cleared up
        self._recovery = asyncio.Lock()
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
        """Begin to talk."""
        for number in range(self._config.exchanges):
            self._tasks.append(asyncio.create_task(self._serve(), name=f"exchange {number}"))

    def stop_claiming(self) -> None:
        """From now on only outcomes are written."""
        self._claiming = False
        self._event.set()

    async def close(self, timeout: float) -> None:
        """Write what is left, then end."""
        self._closing = True
        self._event.set()
        _, late = await asyncio.wait(self._tasks, timeout=timeout) if self._tasks else (set(), set())
        for task in late:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    def wake(self) -> None:
        """A hint: there is work."""
        self.pace.hinted(self._loop.time())
        self._event.set()

    def rescued_ended(self) -> None:
        """The one rescued job that this worker ran has ended."""
        self.pace.rescued_in_flight -= 1
        self.pace.poll_at = 0.0

    # -- the loop of one connection -------------------------------------------------------------------------------

    async def _serve(self) -> None:
        failures = 0
        while not self._closing or self.outbox or self._unsure:
            try:
                arguments = options(self._dsn, f"mainspring worker {self._worker}", prepare=self._config.prepare)
                async with await AsyncConnection.connect(self._dsn, **arguments) as conn:
                    await self._recover(conn)
                    while await self._reason():
                        refuse_stale(conn)
                        if self._unsure:
                            await self._recover(conn)
                        with answered_within(self._patience, conn):
                            spoke = await self._turn(conn)
                        if spoke:  # not before: a server that answers may still be unable to write
                            failures = 0
                            self._back()
                    return
            except Exception as error:  # whatever it is, the worker goes on
                failures += 1
                if self._closing and failures > 3:
                    return
                if is_transient(error):
                    self._away = True
                    self._open(False)
                    self._unsure = True  # what we gave up meanwhile is given back when the database is here again
                    self._reachable(error)
                    log.warning("the database is away, trying again: %s", error)
                else:
                    log.error("exchange failed, trying again: %s", error, exc_info=True)
                await asyncio.sleep(backoff(failures))

    async def _recover(self, conn: psycopg.AsyncConnection[Any]) -> None:
        """After a loss: give back jobs that a claim took whose answer never came."""
        async with self._recovery:
            if not self._unsure:
                return
            while self._talking:  # the other exchange may hold claims that we do not know yet
                await self._quiet.wait()
            with answered_within(self._patience, conn):
                self.counts["orphaned"] += await self._voice.release(conn, self._known() | self.outbox.epochs())
            self._unsure = False
            self.wake()

    def _back(self) -> None:
        if self._away:
            self._away = False
            self._open(True)
            self._reachable(None)

    def _open(self, is_open: bool) -> None:
        for crew in self._crews:
            crew.open = is_open
            crew.fill()

    async def _reason(self) -> bool:
        """Wait until there is something to say: outcomes enough or old enough, room for work that is known, or time."""
        pace = self.pace
        while True:
            now = self._loop.time()
            size = len(self.outbox)
            if self._unsure:
                return True
            if size:
                self._flush_at = self._flush_at or now + LATEST_FLUSH
                if size >= self._config.batch // 2 or now >= self._flush_at or not self._busy():
                    return True
            elif self._closing:
                return False
            elif not pace.room and self._still():
                pace.idle.set()
            pause = self._flush_at - now if size else 60.0
            if self._claiming:
                if pace.asks(now, enough=True):
                    return True
                if pace.poll_at > now:
                    pause = min(pause, pace.poll_at - now)
                if pace.asks(now, enough=False):  # some room, but more is worth waiting for
                    pause = min(pause, LATEST_FLUSH)
            await self._sleep(pause)
            late = self._loop.time() >= now + pause
            if late and self._claiming and pace.asks(self._loop.time(), enough=False):
                return True

    async def _sleep(self, seconds: float) -> None:
        """Until something happens, or so long. Cheaper than asyncio.wait_for, which makes a task each time."""
        self._event.clear()
        timer = self._loop.call_later(seconds, self._event.set)
        try:
            await self._event.wait()
        finally:
            timer.cancel()

    def _busy(self) -> bool:
        return any(crew.running for crew in self._crews)

    def _still(self) -> bool:
        """Whether nothing is held, to be written or being talked about."""
        return not self.outbox and not self._talking and not any(crew.held for crew in self._crews)

    # -- one turn -------------------------------------------------------------------------------------------------

    async def _turn(self, conn: psycopg.AsyncConnection[Any]) -> bool:
        """Say what there is to say; False when there was nothing."""
        pace, now = self.pace, self._loop.time()
        polling = now >= pace.poll_at
        asks = pace.asks(now, enough=False) if self._claiming and not self._unsure else []
        letter = self.outbox.take_one() if self._singly else self.outbox.take()
        if letter and (self._alone or self._singly):
            asks = []
        polling = polling and bool(asks)
        hints = polling and self.hears()
        was_flooded, was_still = pace.flooded, self._still()
        self._flush_at = 0.0
        if not letter and not asks:
            return False
        for crew, _ in asks:
            crew.hungry = False  # until this claim says otherwise, so that the other exchange does not ask as well
        if polling:
            pace.poll_at = float("inf")  # until its answer is here, or a hint comes: two polls at once find no more
        rescuer = pace.rescuer([crew for crew, _ in asks])
        pace.rescued_in_flight += rescuer is not None  # until the answer is here, so that the other asks for none
        self._talking += 1
        self._quiet.clear()
        # While much keeps coming, polls find it, and hints would only cost.
        longest = self._config.poll_interval.total_seconds()
        idle_for = min(pace.poll * 2, longest) if hints and not was_flooded else None
        try:
            answer = await self._talk(conn, letter, asks, rescuer, now, polling, idle_for)
        except BaseException as error:
            # Beside a claim an outcome is not suspected: next it goes out alone.
            if letter and not asks and isinstance(error, Exception) and not is_transient(error):
                letter = self._without_poison(letter, error)
            self.outbox.put_back(letter)
            pace.poll_at = 0.0
            self._alone = True
            self._unsure = self._unsure or bool(asks)
            self._event.set()
            raise
        finally:
            pace.rescued_in_flight -= rescuer is not None
            self._talking -= 1
            if not self._talking:
                self._quiet.set()
        self._alone = self._alone and not letter
        self._singly = max(0, self._singly - len(letter)) if self.outbox else 0
        ended = self._loop.time()
        for claim in answer.found:
            self.counts["claimed"] += len(claim.jobs)
            if pace.learn(claim, answer.due, now, ended):
                self._event.set()
        if polling:
            pace.rest(answer.found, answer.due, ended)
            pace.look_idle(answer.found, answer.due, still=was_still and self._still())
        for claim in answer.found:
            if claim.jobs:
                self._accept(claim.jobs, claim.crew, now)
        if letter:
            await self._report(conn, letter, answer.accepted)
        if hints and pace.flooded and not was_flooded:
            await self._voice.say(conn, [("lower_idle", [])])
        return True

    async def _report(
        self, conn: psycopg.AsyncConnection[Any], letter: Letter, accepted: dict[int, str | None]
    ) -> None:
        """Say what is written now; of what was refused, find out whether only an earlier answer was lost."""
        if len(accepted) != len(letter):
            refused = letter.without(accepted)
            try:
                accepted |= await self._voice.recorded(conn, [run.claim for run in refused.runs])
            except BaseException:
                self.outbox.put_back(refused)  # nobody knows yet: they are refused again, and asked for again
                self._written(letter.without(refused.epochs()), accepted)
                raise
        self._written(letter, accepted)

    def _without_poison(self, letter: Letter, error: Exception) -> Letter:
        """What is left to write of a letter that the database refused: one outcome must not hold up the others."""
        if len(letter) > 1:
            self._singly = len(letter)
            return letter
        (run,) = letter.runs
        log.error("the outcome of epoch %d cannot be written: %s", run.claim.epoch, error)
        if any(move.verb == "reject" for _, move in letter.moves):
            return Letter([], [], [])  # not even that: the lease ends it
        problem = Error("INTERNAL_ERROR", "permanent", "The outcome could not be written.")
        return Letter([], [], [(run, Move("reject", error=problem))])
