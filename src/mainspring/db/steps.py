"""One function a verb: what an attempt remembers for the next one, and how far it is."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from mainspring.db.jobs import Who, get
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Statement, ask, nothing, scalar
from mainspring.job import Claim, Id

_encode = msgspec.json.Encoder().encode


class Step(msgspec.Struct, frozen=True, kw_only=True):
    """A part of a job that is done, and what it returned."""

    name: str
    result: Any
    worker: str
    epoch: int
    done_at: datetime


_decode_step = msgspec.json.Decoder(Step).decode


class Report(msgspec.Struct, frozen=True):
    """How far the attempt of an epoch is; the serial orders its reports."""

    epoch: int
    serial: int
    done: float
    total: float | None
    note: str | None


def recall(sql: Sql, job: Claim) -> Dialogue[dict[str, str]]:
    """The steps that earlier attempts of a job have done: name and result, as JSON."""
    return (yield from ask(Statement(sql["recall"], _of(job), lambda rows: {row[0]: row[1] for row in rows})))


def remember(sql: Sql, worker: str, job: Claim, name: str, result: str) -> Dialogue[bool]:
    """Keep what a step returned; says whether the job's cancellation was asked for. LeaseLost without the lease."""
    params: Params = {"worker": worker, "epoch": job.epoch, "name": name, "result": result}
    cancelled: bool = yield from ask(Statement(sql["remember"], params, scalar))
    return cancelled


def fence(sql: Sql, worker: str, job: Claim) -> Dialogue[bool]:
    """Let what this transaction wrote commit only under the lease; answers like `remember`."""
    params: Params = {"worker": worker, "epoch": job.epoch}
    cancelled: bool = yield from ask(Statement(sql["fence"], params, scalar))
    return cancelled


def fail_late(sql: Sql, worker: str, job: Claim, error: dict[str, Any]) -> Dialogue[bool]:
    """Keep what a handler raised after it had completed its job; says whether it was recorded now."""
    params: Params = {"id": str(job.id), "worker": worker, "epoch": job.epoch, "error": _encode(error).decode()}
    recorded: bool = yield from ask(Statement(sql["fail_late"], params, scalar))
    return recorded


def save(sql: Sql, worker: str, job: Claim, value: str) -> Dialogue[bool]:
    """Keep a checkpoint in place of the last one; answers like `remember`."""
    params: Params = {"worker": worker, "epoch": job.epoch, "value": value}
    cancelled: bool = yield from ask(Statement(sql["save_checkpoint"], params, scalar))
    return cancelled


def resume(sql: Sql, job: Claim) -> Dialogue[str | None]:
    """The last checkpoint of a job, as JSON, or None."""
    text: str | None = yield from ask(Statement(sql["last_checkpoint"], _of(job), scalar))
    return text


def last(sql: Sql, job: Claim) -> Dialogue[tuple[str | None, int | None]]:
    """The last checkpoint of a job and the epoch that saved it."""
    found: tuple[str, int] | None = yield from ask(
        Statement(sql["saved_checkpoint"], _of(job), lambda rows: (rows[0][0], rows[0][1]) if rows else None)
    )
    return found or (None, None)


def report(sql: Sql, worker: str, reports: Sequence[Report]) -> Dialogue[None]:
    """Show how far jobs are; those that are no longer the worker's are left out."""
    params = {"worker": worker, "reports": _encode(reports).decode()}
    yield from ask(Statement(sql["report"], params, nothing))


def listing(sql: Sql, job_id: Id, who: Who) -> Dialogue[list[Step]]:
    """The steps that a job has done, in order."""
    job = yield from get(sql, job_id, who)
    params = {"org": job.org_id, "id": str(job.id)}
    return (yield from ask(Statement(sql["steps"], params, lambda rows: [_decode_step(row[0]) for row in rows])))


def _of(job: Claim) -> Params:
    return {"org": job.org_id, "id": str(job.id)}
