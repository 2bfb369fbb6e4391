"""The exchange with the database: outcomes go out, claimed jobs come in, one durable commit a turn.

Two exchanges, each on its own connection, take turns over the same state, so that one talks while the handlers of the
other's batch run (measured: one alone is 30 % slower). Completing the last batch and claiming the next share a
transaction. Truth is the table: a hint only makes the next claim come sooner.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

import msgspec
import psycopg
from psycopg.rows import tuple_row

from mainspring.config import WorkerConfig
from mainspring.db.connect import options
from mainspring.db.schema import Sql
from mainspring.db.translate import is_transient
from mainspring.job import Claim
from mainspring.worker.crew import Crew
from mainspring.worker.outbox import Letter, Outbox
from mainspring.worker.service import backoff, log

SHORTEST_POLL = 0.05
LATEST_FLUSH = 0.005  # an outcome waits so long for company
SOONEST_TIMER = 0.002  # timers closer together than this are claimed together
FLOOD = 20  # so many jobs in one poll are a flood: polls are enough
EVERY_OLDEST = 8  # every eighth claim takes the oldest job whatever its priority

_json = msgspec.json.Encoder().encode


class Exchange:
    """State shared by the turns: what to send, what to ask for, when."""

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
        lost: Callable[[set[int]], None],
        known: Callable[[], set[int]],
        counts: Counter[str],
    ) -> None:
        self._dsn, self._sql, self._worker, self._config = dsn, sql, worker, config
        self._crews = list(crews)
        self._accept, self._lost, self._known = accept, lost, known
        self.counts = counts
        self._event = asyncio.Event()
        self.outbox = outbox
        outbox.wake = self._event.set
        for crew in self._crews:
            crew.freed = self._event.set  # something ended: there may be something to write, and there is room
        self._poll = SHORTEST_POLL
        self._poll_at = 0.0
        self._flooded = False  # the last poll found so much that hints are not needed
        self._flush_at = 0.0
        self._rescued_in_flight = 0  # held, or being asked for
        self._rescuers = list(crews)  # whose turn it is to ask for a rescued job
        self._talking = 0
        self._quiet = asyncio.Event()  # nobody talks
        self._quiet.set()
        self._alone = False  # the last turn failed: outcomes go out without a claim, in case the claim was at fault
        self._singly = 0  # so many outcomes go out one by one, because the database refused one among them
        self.idle = asyncio.Event()  # nothing is due, nothing is held
        self._empty = 0  # so many polls in a row found nothing
        self._looked: set[Crew] = set()  # who looked from the beginning in them
        self._unsure = False  # a claim may have committed whose answer was lost: nobody claims until that is cleared up
        self._recovery = asyncio.Lock()
        self._claiming = True
        self._closing = False
        self._tasks: list[asyncio.Task[None]] = []
        self._loop = asyncio.get_running_loop()

    # -- life ---------------------------------------------------------------------------------------------------

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
        """A hint: there is work. It asks for a bare claim: a poll would say more, and be slower."""
        for crew in self._crews:
            crew.hungry = True
        self._poll = SHORTEST_POLL  # hints are coalesced: what committed a moment later sent none, a poll finds it
        self._poll_at = min(self._poll_at, self._loop.time() + SHORTEST_POLL)
        self._event.set()

    def rescued_ended(self) -> None:
        """The one rescued job that this worker ran has ended."""
        self._rescued_in_flight -= 1
        self._poll_at = 0.0

    # -- the loop of one connection -------------------------------------------------------------------------------

    async def _serve(self) -> None:
        failures = 0
        while not self._closing or self.outbox or self._unsure:
            try:
                arguments = options(self._dsn, f"mainspring worker {self._worker}", prepare=self._config.prepare)
                async with await psycopg.AsyncConnection.connect(self._dsn, **arguments) as conn:
                    await self._recover(conn)
                    self._open(True)
                    while await self._reason():
                        if self._unsure:
                            await self._recover(conn)
                        await self._turn(conn)
                        failures = 0
                    return
            except Exception as error:  # whatever it is, the worker goes on
                failures += 1
                if self._closing and failures > 3:
                    return
                if is_transient(error):
                    self._open(False)
                    self._unsure = True  # what we gave up meanwhile is given back when the database is here again
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
            cursor = await conn.execute(
                self._sql["orphans"], [self._worker, list(self._known() | self.outbox.epochs())]
            )
            orphans = [row[0] for row in await cursor.fetchall()]
            if orphans:
                moves = [{"epoch": epoch, "verb": "release"} for epoch in orphans]
                await conn.execute(self._sql["settle"], [self._worker, _json(moves).decode()])
                self.counts["orphaned"] += len(orphans)
            self._unsure = False
            self.wake()

    def _open(self, is_open: bool) -> None:
        for crew in self._crews:
            crew.open = is_open
            crew.fill()

    async def _reason(self) -> bool:
        """Wait until there is something to say: outcomes enough or old enough, room for work that is known, or time."""
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
            pause = self._flush_at - now if size else 60.0
            if self._claiming:
                if self._asks(now, enough=True):
                    return True
                if self._poll_at > now:
                    pause = min(pause, self._poll_at - now)
                if self._asks(now, enough=False):  # some room, but more is worth waiting for
                    pause = min(pause, LATEST_FLUSH)
            await self._sleep(pause)
            late = self._loop.time() >= now + pause
            if late and self._claiming and self._asks(self._loop.time(), enough=False):
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

    def _asks(self, now: float, *, enough: bool) -> list[tuple[Crew, int]]:
        """Which crews should claim now, and how much: those that know of work and have room, or all when it is time."""
        batch, polling = self._config.batch, now >= self._poll_at
        asks = []
        for crew in self._crews:
            want = min(crew.want(), batch) if polling or crew.hungry else 0
            if want and (polling or not enough or want >= min(batch, crew.size) // 2):
                asks.append((crew, want))
        return asks

    def _rescuer(self, asking: Sequence[Crew]) -> Crew | None:
        """The crew that asks for a rescued job as well: in turn, and none while the worker holds one."""
        for crew in self._rescuers if not self._rescued_in_flight else ():
            if crew in asking:
                self._rescuers.remove(crew)
                self._rescuers.append(crew)
                return crew
        return None

    # -- one turn -------------------------------------------------------------------------------------------------

    async def _turn(self, conn: psycopg.AsyncConnection[Any]) -> None:
        now = self._loop.time()
        polling = now >= self._poll_at
        asks = self._asks(now, enough=False) if self._claiming and not self._unsure else []
        letter = self.outbox.take_one() if self._singly else self.outbox.take()
        if letter and (self._alone or self._singly):
            asks = []
        polling = polling and bool(asks)
        was_flooded = self._flooded
        was_still = self._still()
        self._flush_at = 0.0
        if not letter and not asks:
            return
        for crew, _ in asks:
            crew.hungry = False  # until this claim says otherwise, so that the other exchange does not ask as well
        if polling:
            self._poll_at = float("inf")  # until its answer is here, or a hint comes: two polls at once find no more
        rescuer = self._rescuer([crew for crew, _ in asks])
        self._rescued_in_flight += rescuer is not None  # until the answer is here, so that the other asks for none
        self._talking += 1
        self._quiet.clear()
        try:
            alive, found, due = await self._talk(conn, letter, asks, rescuer, polling, now)
        except BaseException as error:
            if letter and isinstance(error, Exception) and not is_transient(error):
                letter = self._without_poison(letter, error)
            self.outbox.put_back(letter)
            self._poll_at = 0.0
            self._alone = True
            self._unsure = self._unsure or bool(asks)
            self._event.set()
            raise
        finally:
            self._rescued_in_flight -= rescuer is not None
            self._talking -= 1
            if not self._talking:
                self._quiet.set()
        self._alone = False
        self._singly = max(0, self._singly - len(letter)) if self.outbox else 0
        if letter:
            self.counts["succeeded"] += len(letter.done) + len(letter.results)
            if len(alive) != len(letter):
                self._lost(letter.epochs() - alive)
        ended = self._loop.time()
        for claim in found:
            self._learn(claim, due, now, ended)
        if polling:
            self._flooded = sum(len(claim.jobs) for claim in found) >= FLOOD
            self._rest(any(claim.jobs for claim in found), due, ended)
            self._look_idle(found, was_still)
        for claim in found:
            if claim.jobs:
                self._accept(claim.jobs, claim.crew, now)
        if polling and self._flooded and not was_flooded and self._config.wakeups:
            await self._say(conn, [("lower_idle", [])])

    async def _talk(
        self,
        conn: psycopg.AsyncConnection[Any],
        letter: Letter,
        asks: Sequence[tuple[Crew, int]],
        rescuer: Crew | None,
        polling: bool,
        now: float,
    ) -> tuple[set[int], list[_Found], tuple[timedelta | None, datetime] | None]:
        """Outcomes, then claims, in one transaction. A poll also raises the idle flag and asks for timers."""
        worker = self._worker
        asked: list[_Found] = []
        say: list[tuple[str, list[Any]]] = []
        if letter.done:
            say.append(("complete", [worker, letter.done]))
        if letter.results:
            epochs, results = zip(*letter.results, strict=True)
            say.append(("complete_with", [worker, list(epochs), list(results)]))
        if letter.moves:
            say.append(("settle", [worker, _json(letter.moves).decode()]))
        if polling and self._config.wakeups and not self._flooded:
            # While much keeps coming, polls find it, and hints would only cost.
            # The flag first, then the claim: a job that comes between is seen by one of them.
            longest = min(self._poll * 2, self._config.poll_interval.total_seconds())
            say.append(("raise_idle", [int(longest * 1200) + 500]))  # until the next poll at the latest
        for crew, want in asks:
            queues, limits = crew.shares.ask(want)
            low, bounded = crew.bounds.of(queues, now)
            crew.claims += 1
            oldest, rescued = crew.claims % EVERY_OLDEST == 0, crew is rescuer
            asked.append(_Found(crew, want, queues, limits, bounded))
            say.append(("claim", [worker, self._config.lease, want, queues, limits, *low, crew.tasks, oldest, rescued]))
        if polling:
            say.append(("next_due", [asked[0].queues]))

        answers = await self._say(conn, say)
        alive: set[int] = set()
        due: tuple[timedelta | None, datetime] | None = None
        claims = iter(asked)
        for (name, _), rows in zip(say, answers, strict=True):
            if name == "claim":
                next(claims).jobs = [Claim(*row) for row in rows]
            elif name == "next_due":
                due = rows[0]
            elif name != "raise_idle":
                alive.update(row[0] for row in rows)
        return alive, asked, due

    async def _say(
        self, conn: psycopg.AsyncConnection[Any], statements: Sequence[tuple[str, list[Any]]]
    ) -> list[list[Any]]:
        """Execute statements in one transaction and one round trip; a single one is a transaction by itself."""
        cursors = [conn.cursor(binary=True, row_factory=tuple_row) for _ in statements]
        sql, prepare = self._sql, self._config.prepare
        if len(statements) == 1:
            await cursors[0].execute(sql[statements[0][0]], statements[0][1], prepare=prepare)
        else:
            async with conn.pipeline():
                await conn.execute("begin")
                for cursor, (name, parameters) in zip(cursors, statements, strict=True):
                    await cursor.execute(sql[name], parameters, prepare=prepare)
                await conn.execute("commit")
        return [await cursor.fetchall() for cursor in cursors]

    def _learn(
        self, found: _Found, due: tuple[timedelta | None, datetime] | None, started: float, ended: float
    ) -> None:
        """What a claim says about where more is."""
        jobs, crew = found.jobs, found.crew
        full = len(jobs) >= found.want
        at = jobs[0].claimed_at if jobs else due[1] if due else None
        crew.bounds.learn(jobs, bounded=found.bounded, full=full, now=at, started=started, ended=ended)
        crew.shares.got(found.queues, found.limits, Counter(job.queue for job in jobs), short=not full)
        self.counts["claimed"] += len(jobs)
        self._rescued_in_flight += sum(1 for job in jobs if job.crashes)
        if jobs:
            self.idle.clear()
        if full:
            crew.hungry = True
            self._event.set()
        elif jobs:
            self._poll = SHORTEST_POLL
            self._poll_at = min(self._poll_at, ended + self._poll)
        if found.bounded and not full and crew.bounds.hiding:  # look below the bounds as soon as that is allowed
            self._poll_at = min(self._poll_at, max(crew.bounds.scan_at, ended))

    def _rest(self, any_found: bool, due: tuple[timedelta | None, datetime] | None, now: float) -> None:
        """When to poll again: soon after work, later and later without, exactly when the next timer is due."""
        longest = self._config.poll_interval.total_seconds()
        self._poll = min(SHORTEST_POLL if any_found else self._poll * 2, longest)
        pause = self._poll * random.uniform(0.8, 1.2)  # noqa: S311 (spreads polls, no secret)
        if due is not None and due[0] is not None:
            pause = min(pause, max(due[0].total_seconds(), SOONEST_TIMER))
        self._poll_at = min(self._poll_at, now + pause)

    def _still(self) -> bool:
        """Whether nothing is held, to be written or being talked about."""
        return not self.outbox and not self._talking and not any(crew.held for crew in self._crews)

    def _look_idle(self, found: Sequence[_Found], was_still: bool) -> None:
        """Say so when each crew has looked from the beginning, and had its turn to ask for a rescued job, in vain."""
        if not was_still or not self._still() or any(claim.jobs for claim in found):
            self._empty, self._looked = 0, set()
            return
        self._empty += 1
        self._looked.update(claim.crew for claim in found if not claim.bounded)
        if self._empty >= len(self._crews) == len(self._looked):
            self.idle.set()

    def _without_poison(self, letter: Letter, error: Exception) -> Letter:
        """What is left to write of a letter that the database refused: one outcome must not hold up the others."""
        if len(letter) > 1:
            self._singly = len(letter)
            return letter
        (epoch,) = letter.epochs()
        log.error("the outcome of epoch %d cannot be written: %s", epoch, error)
        if any(move["verb"] == "reject" for move in letter.moves):
            return Letter([], [], [])  # not even that: the lease ends it
        problem = {"code": "INTERNAL_ERROR", "class": "permanent", "message": "The outcome could not be written."}
        return Letter([], [], [{"epoch": epoch, "verb": "reject", "error": problem}])


class _Found:
    """One claim of a turn: what was asked, and what came."""

    __slots__ = ("bounded", "crew", "jobs", "limits", "queues", "want")

    def __init__(self, crew: Crew, want: int, queues: list[str], limits: list[int], bounded: bool) -> None:
        self.crew, self.want, self.queues, self.limits, self.bounded = crew, want, queues, limits, bounded
        self.jobs: list[Claim] = []
