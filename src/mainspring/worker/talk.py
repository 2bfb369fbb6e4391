"""What is said in one turn: outcomes, then claims, in one transaction and one round trip."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import msgspec
import psycopg
from psycopg.rows import tuple_row

from mainspring.config import WorkerConfig
from mainspring.db.schema import Sql
from mainspring.job import Claim
from mainspring.worker.crew import Crew
from mainspring.worker.outbox import Letter, row

#: What a verb leaves in the history of an attempt; None is success.
VERBS = {"succeeded": None, "retried": "fail", "failed": "reject", "dead": "bury", "cancelled": "stop"}
EVERY_OLDEST = 8  # every eighth claim takes the oldest job whatever its priority

_json = msgspec.json.Encoder().encode


def _array(values: Iterable[str]) -> str:
    """An array as PostgreSQL reads it: psycopg asks every element for its type, which was a third of a claim's work."""
    return f"{{{','.join(values)}}}"


@cache
def _quoted(name: str) -> str:
    return '"' + name.replace("\\", "\\\\").replace('"', '\\"') + '"'


class Found:
    """One claim of a turn: what was asked, and what came."""

    __slots__ = ("bounded", "crew", "jobs", "limits", "queues", "want")

    def __init__(self, crew: Crew, want: int, queues: list[str], limits: list[int], bounded: bool) -> None:
        self.crew, self.want, self.queues, self.limits, self.bounded = crew, want, queues, limits, bounded
        self.jobs: list[Claim] = []


class Answer(NamedTuple):
    """What came back: the outcomes that were accepted, with the verb where there is a choice, the jobs, the timer."""

    accepted: dict[int, str | None]
    found: list[Found]
    due: tuple[timedelta | None, datetime] | None


class Talk:
    """Puts a turn into statements, and its answers into values."""

    def __init__(self, sql: Sql, worker: str, config: WorkerConfig) -> None:
        self._sql, self._worker, self._lease = sql, worker, config.lease_there

    async def turn(
        self,
        conn: psycopg.AsyncConnection[Any],
        letter: Letter,
        asks: Sequence[tuple[Crew, int]],
        rescuer: Crew | None,
        now: float,
        polling: bool,
        idle_for: float | None,
    ) -> Answer:
        """Say it. A poll also asks for timers and, with `idle_for`, says that somebody sleeps so long at most."""
        worker = self._worker
        asked: list[Found] = []
        say: list[tuple[str, list[Any]]] = []
        if letter.done:
            say.append(("complete", [worker, [run.claim.epoch for run in letter.done]]))
        if letter.results:
            epochs = [run.claim.epoch for run, _ in letter.results]
            say.append(("complete_with", [worker, epochs, [result for _, result in letter.results]]))
        if letter.moves:
            say.append(("settle", [worker, _json([row(run, move) for run, move in letter.moves]).decode()]))
        if idle_for is not None:
            # The flag first, then the claim: a job that comes between is seen by one of them.
            say.append(("raise_idle", [int(idle_for * 1200) + 500]))  # until the next poll at the latest
        if polling:
            say.append(("tie_up", []))  # what it frees is there for the claim
        for crew, want in asks:
            queues, limits = crew.shares.ask(want, free=crew.free)
            low, bounded = crew.bounds.of(queues, now)
            crew.claims += 1
            oldest, rescued = crew.claims % EVERY_OLDEST == 0, crew is rescuer
            asked.append(Found(crew, want, queues, limits, bounded))
            shares = _array(map(_quoted, queues)), _array(map(str, limits))
            lows, tasks = (_array(map(str, lane)) for lane in low), _array(map(_quoted, crew.tasks))
            say.append(("claim", [worker, self._lease, want, *shares, *lows, tasks, oldest, rescued]))
        if polling:
            say.append(("next_due", [asked[0].queues]))

        accepted: dict[int, str | None] = {}
        due: tuple[timedelta | None, datetime] | None = None
        claims = iter(asked)
        for (name, _), rows in zip(say, await self.say(conn, say), strict=True):
            match name:
                case "claim":
                    next(claims).jobs = [Claim(*values) for values in rows]
                case "next_due":
                    due = rows[0]
                case "settle":
                    accepted.update(rows)
                case "complete" | "complete_with":
                    accepted.update(dict.fromkeys(values[0] for values in rows))
        return Answer(accepted, asked, due)

    async def say(
        self, conn: psycopg.AsyncConnection[Any], statements: Sequence[tuple[str, list[Any]]]
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

    async def recorded(self, conn: psycopg.AsyncConnection[Any], jobs: Sequence[Claim]) -> dict[int, str | None]:
        """The verbs that were done for attempts whose outcome was refused: some, if only an answer was lost.

        What is put off or given back leaves no trace of its attempt, so of these we cannot tell.
        """
        ids = [[job.id for job in jobs], [job.org_id for job in jobs], [job.epoch for job in jobs]]
        cursor = await conn.execute(self._sql["recorded"], [*ids, self._worker])
        return {epoch: VERBS[state] for epoch, state in await cursor.fetchall() if state in VERBS}
