"""The engine as a test drives it: its named statements on one connection, without client and worker around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import psycopg

from mainspring.db.jobs import Attempt
from mainspring.db.wire.sql import Sql
from mainspring.job import Claim, Enqueued, Job
from mainspring.outcome import CRASH_BUDGET
from mainspring.uuid7 import uuid7
from mainspring.virtual.clock import Clock

LEASE = timedelta(seconds=60)
ERROR = {"code": "INTERNAL_ERROR", "class": "retryable", "message": "no answer"}
ALL = ("succeeded", "failed", "dead", "cancelled")
TABLES = ("job", "waiting", "running", "finished", "attempt", "idempotency", "resolution", "audit", "queue")

_job = msgspec.json.Decoder(Job).decode
_attempt = msgspec.json.Decoder(Attempt).decode


class Engine:
    """One method a verb; parameters have the values that most tests want."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self.conn = conn
        self.sql = Sql()
        self.clock = Clock(conn)

    def ask(self, name: str, params: Mapping[str, Any] | Sequence[Any] = ()) -> list[Any]:
        """The rows that a named statement answers."""
        return self.conn.execute(self.sql[name], params).fetchall()

    def value(self, name: str, params: Mapping[str, Any] | Sequence[Any] = ()) -> Any:
        """The one value that a named statement answers."""
        return self.ask(name, params)[0][0]

    def rows(self, query: str, *params: Any) -> list[Any]:
        """The rows of a query of the test's own."""
        return self.conn.execute(query.encode(), params).fetchall()

    # -- enqueue

    def enqueue(self, task: str = "t", **fields: Any) -> Enqueued:
        return self.enqueue_many([{"task": task, **fields}])[0]

    def enqueue_many(self, jobs: Sequence[Mapping[str, Any]]) -> list[Enqueued]:
        """Enqueue jobs given by the fields of their wire format."""
        full = [{"id": uuid7(), "task": "t", "payload": {}, **job} for job in jobs]
        return [Enqueued(*row) for row in self.ask("enqueue_many", {"jobs": msgspec.json.encode(full).decode()})]

    # -- a worker's verbs

    def claim(
        self,
        worker: str = "w1",
        n: int = 100,
        *,
        queues: Sequence[str] = ("q:default",),
        limits: Sequence[int] | None = None,
        tasks: Sequence[str] = ("t",),
        lease: timedelta = LEASE,
        low: str = "-infinity",
        oldest: bool = False,
        rescued: int = 1,
        alone: bool = False,
        told: str | None = None,
    ) -> list[Claim]:
        lows = [[low] * len(queues)] * 4
        params = [
            worker,
            lease,
            n,
            list(queues),
            list(limits or [n] * len(queues)),
            *lows,
            list(tasks),
            oldest,
            int(rescued),
            alone,
            told,
        ]
        return [Claim(*row) for row in self.ask("claim", params)]

    def started(self, worker: str = "w1", **fields: Any) -> Claim:
        """One job, enqueued and claimed."""
        job = self.enqueue(**fields)
        queue = fields.get("queue", "q:default")
        (found,) = [c for c in self.claim(worker, queues=[queue], tasks=[fields.get("task", "t")]) if c.id == job.id]
        return found

    def complete(self, worker: str, *epochs: int) -> list[int]:
        return [row[0] for row in self.ask("complete", [worker, list(epochs)])]

    def complete_with(self, worker: str, results: Mapping[int, Any]) -> list[int]:
        texts = [msgspec.json.encode(result).decode() for result in results.values()]
        return [row[0] for row in self.ask("complete_with", [worker, list(results), texts])]

    def settle(self, worker: str, *moves: Mapping[str, Any]) -> list[int]:
        return [row[0] for row in self.ask("settle", [worker, msgspec.json.encode(moves).decode()])]

    def end(self, claim: Claim, verb: str, worker: str = "w1", **fields: Any) -> bool:
        """End an attempt by a verb; whether the lease was still ours."""
        if verb == "complete":
            return self.complete(worker, claim.epoch) == [claim.epoch]
        error = ERROR if verb in {"fail", "reject", "bury"} else None
        return self.settle(worker, {"epoch": claim.epoch, "verb": verb, "error": error, **fields}) == [claim.epoch]

    def renew(self, worker: str, *epochs: int, lease: timedelta = LEASE) -> dict[int, bool]:
        return {epoch: cancel for epoch, cancel, _ in self.ask("renew", [worker, lease, list(epochs)])}

    def rescue(
        self, limit: int = 1000, budget: int = CRASH_BUDGET, patience: timedelta = timedelta(0)
    ) -> list[tuple[UUID, str, str]]:
        return [row[:3] for row in self.ask("rescue", [limit, budget, patience])]

    # -- people's verbs

    def cancel(self, job: UUID, *, org: str | None = None, reason: str | None = None) -> str:
        return str(self.value("cancel", self._named(job, org) | {"reason": reason}))

    def reschedule(self, job: UUID, at: datetime, *, org: str | None = None) -> str | None:
        answer: str | None = self.value(
            "reschedule", self._named(job, org) | {"at": at.isoformat(), "delay": None, "reason": None}
        )
        return answer

    def prioritize(self, job: UUID, priority: int, *, org: str | None = None) -> int | None:
        answer: int | None = self.value("prioritize", self._named(job, org) | {"priority": priority, "reason": None})
        return answer

    def replay(self, job: UUID, *, org: str | None = None, reason: str = "again") -> tuple[bool, UUID | None]:
        moved, in_the_way = self.ask("replay", self._named(job, org) | {"reason": reason})[0]
        return moved, in_the_way

    def discard(self, job: UUID, *, org: str | None = None, reason: str = "not needed") -> bool:
        return bool(self.value("discard", self._named(job, org) | {"reason": reason}))

    def prune(self, states: Sequence[str] = ALL, *, age: str = "0 s", limit: int = 1000) -> int:
        return int(self.value("prune", {"states": "{" + ",".join(states) + "}", "age": age, "limit": limit}))

    def pause(self, queue: str = "q:default", reason: str | None = None) -> None:
        self.ask("pause", {"queue": queue, "actor_type": "user", "actor_id": "ada", "reason": reason})
        self.ask("claims_seen")

    def resume(self, queue: str = "q:default") -> bool:
        return bool(self.value("resume", {"queue": queue, "actor_type": "user", "actor_id": "ada", "reason": None}))

    # -- what is seen

    def job(self, job: UUID) -> Job:
        return _job(self.value("get_job", {"id": str(job), "org": None}))

    def state(self, job: UUID) -> str | None:
        rows = self.rows("select state from mainspring.jobs where id = %s", job)
        return rows[0][0] if rows else None

    def attempts(self, job: UUID) -> list[Attempt]:
        return [_attempt(row[0]) for row in self.ask("attempts", {"org": self.job(job).org_id, "id": str(job)})]

    def events(self, job: UUID) -> list[str]:
        """The trail of a job, oldest first."""
        return [row[0] for row in self.rows("select event from mainspring.trail where job_id = %s order by place", job)]

    def status(self, key: str, org: str = "default") -> tuple[Any, ...]:
        """Status, expiry, result and error reference of a key."""
        query = "select status, expires_at, result_ref, error_ref from mainspring.keys where org_id = %s and key = %s"
        (row,) = self.rows(query, org, key)
        return tuple(row)

    def everything(self) -> dict[str, list[Any]]:
        """Every row of every table, to be compared before and after."""
        texts = "select x::text from mainspring.{} x order by 1"
        return {table: self.rows(texts.format(table)) for table in TABLES}

    def clear(self) -> None:
        """Forget all jobs, as if the database were new."""
        tables = ", ".join(f"mainspring.{table}" for table in TABLES if table != "queue")
        self.conn.execute("alter table mainspring.audit disable trigger user")  # it refuses to be emptied
        self.conn.execute(f"truncate {tables}".encode())
        self.conn.execute("alter table mainspring.audit enable trigger user")
        self.conn.execute("update mainspring.queue set paused_at = null, paused_by = null, pause_reason = null")

    @staticmethod
    def _named(job: UUID, org: str | None) -> dict[str, Any]:
        return {"id": str(job), "org": org, "actor_type": "user", "actor_id": "ada"}
