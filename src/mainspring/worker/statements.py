"""The statements of one turn: outcomes, then claims, in one transaction and one round trip."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from typing import Any, TypeAlias

import msgspec
import psycopg
from psycopg.rows import tuple_row

from mainspring.config import WorkerConfig
from mainspring.db.wire.sql import Sql
from mainspring.job import Claim
from mainspring.states import LEAVES_ATTEMPT, SETTLES, WORDS
from mainspring.worker.bounds import BEGINNING
from mainspring.worker.crew import Crew
from mainspring.worker.outbox import Outcomes, settle_row

#: The verb by what it leaves in the history of an attempt, where that was ours; None is success.
VERBS = {WORDS[verb]: verb if verb in SETTLES else None for verb in LEAVES_ATTEMPT if verb != "rescue"}
EVERY_OLDEST = 8  # every eighth claim takes the oldest job whatever its priority

#: When the next timer is due, if there is one, and the database's time at which that was asked.
NextDue: TypeAlias = "tuple[timedelta | None, datetime] | None"
PipelinedStatement: TypeAlias = tuple[str, list[Any]]  # its name, and its parameters

_json = msgspec.json.Encoder().encode


def _array(values: Iterable[str]) -> str:
    """An array as PostgreSQL reads it: psycopg asks every element for its type, which was a third of a claim's work."""
    return f"{{{','.join(values)}}}"


@cache
def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _again(reported: str) -> str:
    """What is reported about shares in a second claim of a turn: the first may have let jobs in."""
    return _json([share | {"let_in": None} for share in msgspec.json.decode(reported)]).decode()


class Claimed:
    """One claim of a turn: what was asked, and what came."""

    __slots__ = ("bounded", "crew", "jobs", "limits", "queues", "want")

    def __init__(self, crew: Crew, want: int, queues: list[str], limits: list[int], bounded: bool) -> None:
        self.crew, self.want, self.queues, self.limits, self.bounded = crew, want, queues, limits, bounded
        self.jobs: list[Claim] = []


@dataclass(frozen=True, slots=True)
class ExchangeRequest:
    """What one turn sends."""

    outcomes: Outcomes = field(default_factory=Outcomes)
    asks: Sequence[tuple[Crew, int]] = ()  # who claims, and how many
    suspects: Mapping[Crew, int] = field(default_factory=dict)  # how many of them may have crashed a worker
    at: float = 0.0  # by the clock of the loop
    alone: bool = False  # ask for one job that runs alone
    polling: bool = False  # ask for timers as well
    idle_for: float | None = None  # somebody sleeps for so many seconds at most, unless a hint comes
    reported: str | None = None  # about shares of rates; None where the worker keeps none
    wanted: Mapping[str, int] = field(default_factory=dict)  # jobs by the gate of the rate they are asked for
    shares: bool = False  # ask for the shares
    still: bool = False  # nothing is held, to be written or being sent beside it


@dataclass(slots=True)
class ExchangeReply:
    """What came back."""

    found: list[Claimed]
    accepted: dict[int, str | None] = field(default_factory=dict)  # by epoch; the verb, where there is a choice
    due: NextDue = None
    alone: list[Claim] = field(default_factory=list)  # the job that was asked for alone
    alone_due: bool = False  # there is one
    shares: list[Any] | None = None  # of rates, every one that this worker keeps
    suspects: list[Claim] = field(default_factory=list)  # of what was found


class ExchangeStatements:
    """Puts a turn into statements, and their rows into values."""

    def __init__(
        self, sql: Sql, worker: str, config: WorkerConfig, queues: Sequence[str], tasks: Sequence[str]
    ) -> None:
        self._sql, self._worker, self._lease = sql, worker, config.lease_there
        self.queues, self.tasks = list(queues), list(tasks)

    async def send(self, conn: psycopg.AsyncConnection[Any], request: ExchangeRequest) -> ExchangeReply:
        """Write outcomes and claim jobs."""
        reply = ExchangeReply([])
        statements = self._outcomes(request.outcomes)
        if request.idle_for is not None:
            # The flag first, then the claim: a job that comes between is seen by one of them.
            statements.append(("raise_idle", [int(request.idle_for * 1200) + 500]))  # until the next poll at the latest
        if request.polling:
            statements.append(("settle_leftovers", []))  # what it frees is there for the claim
        statements += self._claims(request, reply)
        if request.shares:
            statements.append(("shares", [self._worker]))
        if request.polling:
            statements.append(("next_due", [reply.found[0].queues]))
            statements.append(("alone_due", [self.queues, self.queues, self.tasks]))
        _read(reply, statements, await self.execute(conn, statements))
        return reply

    def _outcomes(self, outcomes: Outcomes) -> list[PipelinedStatement]:
        worker, statements = self._worker, list[PipelinedStatement]()
        if outcomes.done:
            statements.append(("complete", [worker, _array(str(attempt.claim.epoch) for attempt in outcomes.done)]))
        if outcomes.results:
            epochs = _array(str(attempt.claim.epoch) for attempt, _ in outcomes.results)
            statements.append(("complete_with", [worker, epochs, [result for _, result in outcomes.results]]))
        if outcomes.moves:
            moves = [settle_row(attempt, move) for attempt, move in outcomes.moves]
            statements.append(("settle", [worker, _json(moves).decode()]))
        return statements

    def _claims(self, request: ExchangeRequest, reply: ExchangeReply) -> Iterator[PipelinedStatement]:
        """One for each crew that asks, and one for a job that runs alone."""
        worker, lease, reported = self._worker, self._lease, request.reported
        for crew, want in request.asks:
            queues, limits = crew.weights.ask(want)
            low, bounded = crew.bounds.of(queues, request.at)
            crew.claims += 1
            oldest, rescued = crew.claims % EVERY_OLDEST == 0, request.suspects.get(crew, 0)
            reply.found.append(Claimed(crew, want, queues, limits, bounded))
            lanes = _array(map(_quoted, queues)), _array(map(str, limits))
            lows, tasks = (_array(map(str, lane)) for lane in low), _array(map(_quoted, crew.tasks))
            yield "claim", [worker, lease, want, *lanes, *lows, tasks, oldest, rescued, False, reported]
            if reported is not None and reported != "[]" and crew is not request.asks[-1][0]:
                reported = _again(reported)
        if request.alone:
            ones, start = [1] * len(self.queues), [BEGINNING] * len(self.queues)
            scope = [self.queues, ones, start, start, start, start, self.tasks]
            yield "claim", [worker, lease, 1, *scope, False, 0, True, reported]

    async def execute(
        self, conn: psycopg.AsyncConnection[Any], statements: Sequence[PipelinedStatement]
    ) -> list[list[Any]]:
        """Execute statements in one transaction and one round trip; a single one is a transaction by itself."""
        cursors = [conn.cursor(binary=True, row_factory=tuple_row) for _ in statements]
        sql, prepare = self._sql, conn.prepare_threshold is not None  # a pooler may have made it None
        if len(statements) == 1:
            await cursors[0].execute(sql[statements[0][0]], statements[0][1], prepare=prepare)
        else:
            async with conn.pipeline():
                await conn.execute("begin")
                for cursor, (name, parameters) in zip(cursors, statements, strict=True):
                    await cursor.execute(sql[name], parameters, prepare=prepare)
                await conn.execute("commit")
        return [await cursor.fetchall() for cursor in cursors]

    async def release(self, conn: psycopg.AsyncConnection[Any], known: set[int]) -> int:
        """Give back what this worker holds without knowing it, because the answer to a claim was lost."""
        cursor = await conn.execute(self._sql["orphans"], [self._worker, list(known)])
        moves = [{"epoch": epoch, "verb": "release"} for (epoch,) in await cursor.fetchall()]
        if moves:
            await conn.execute(self._sql["settle"], [self._worker, _json(moves).decode()])
        return len(moves)

    async def alone_due(self, conn: psycopg.AsyncConnection[Any]) -> bool:
        """Whether a job waits that must run alone."""
        cursor = await conn.execute(self._sql["alone_due"], [self.queues, self.queues, self.tasks])
        row = await cursor.fetchone()
        return bool(row and row[0])

    async def ran_before(self, conn: psycopg.AsyncConnection[Any], jobs: Sequence[Claim]) -> dict[int, float | None]:
        """For how many seconds at most suspects had run when their worker died, by epoch."""
        ids = [[job.epoch for job in jobs], [job.org_id for job in jobs], [job.id for job in jobs]]
        cursor = await conn.execute(self._sql["ran_before"], ids)
        return dict(await cursor.fetchall())

    async def take_back(self, conn: psycopg.AsyncConnection[Any], lost: Sequence[Claim]) -> int:
        """Say that we live: what others took back from us meanwhile was no crash."""
        ids = [[job.org_id for job in lost], [job.id for job in lost], [job.epoch for job in lost]]
        cursor = await conn.execute(self._sql["take_back_crashes"], [self._worker, *ids])
        row = await cursor.fetchone()
        return row[0] if row else 0

    async def recorded(self, conn: psycopg.AsyncConnection[Any], jobs: Sequence[Claim]) -> dict[int, str | None]:
        """The verbs that were done for attempts whose outcome was refused: some, if only an answer was lost.

        What is put off or given back leaves no trace of its attempt, so of these we cannot tell.
        """
        ids = [[job.id for job in jobs], [job.org_id for job in jobs], [job.epoch for job in jobs]]
        cursor = await conn.execute(self._sql["recorded"], [*ids, self._worker])
        return {epoch: VERBS[state] for epoch, state in await cursor.fetchall() if state in VERBS}


def _read(reply: ExchangeReply, statements: Sequence[PipelinedStatement], answers: Sequence[list[Any]]) -> None:
    """Put the rows of each statement where they belong."""
    claims = iter(reply.found)
    for (name, _), rows in zip(statements, answers, strict=True):
        match name:
            case "claim":
                jobs = [Claim(*values) for values in rows]
                if (claim := next(claims, None)) is not None:
                    claim.jobs = jobs
                else:
                    reply.alone = jobs
            case "alone_due":
                reply.alone_due = rows[0][0]
            case "next_due":
                reply.due = rows[0]
            case "shares":
                reply.shares = rows
            case "settle":
                reply.accepted.update(rows)
            case "complete" | "complete_with":
                reply.accepted.update(dict.fromkeys(values[0] for values in rows))
