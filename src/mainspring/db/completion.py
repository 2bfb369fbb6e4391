"""Completing a job in a transaction that is its handler's own: an ORM's session, or a driver's connection."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Row, Statement, ask, nothing, scalar
from mainspring.errors import ConfigurationError
from mainspring.health.situation import Lock
from mainspring.job import Claim

#: What became of such a transaction: it committed, it was rolled back, it is still open, or the lease was lost before.
End = Literal["committed", "undone", "open", "lost"]


class Place(NamedTuple):
    """Where a connection leads, and what kind of transaction it is in."""

    server: str | None  # system, timeline and database; None where a server does not tell
    isolation: str
    began: str
    pid: int  # of the session


def place(sql: Sql, job: Claim) -> Dialogue[Place]:
    """Ask a connection where it leads; on a secured schema its transaction is then the job's organisation's."""

    def read(rows: Sequence[Row]) -> Place:
        return Place(*rows[0][:4])

    return (yield from ask(Statement(sql["completion_place"], {"org": job.org_id}, read)))


def joined(sql: Sql, job: Claim, own: Place) -> Dialogue[Place]:
    """The place where a job of a worker whose database is `own` can be completed; refused with the reason, if not."""
    found = yield from place(sql, job)
    if found.server != own.server:
        raise ConfigurationError("conn: leads to another database, server or timeline than the worker's")
    if found.isolation != "read committed":
        raise ConfigurationError(
            f"conn: its transaction is {found.isolation}, where a lease that is renewed meanwhile would be a conflict: "
            "use READ COMMITTED"
        )
    if found.began != (yield from ask(Statement(sql["completion_began"], {}, scalar))):
        raise ConfigurationError(
            "conn: is in autocommit mode, or in no transaction: begin one, and commit it afterwards"
        )
    return found


def complete_in(sql: Sql, worker: str, job: Claim, result: str | None) -> Dialogue[None]:
    """Complete the job with the transaction that this is a part of; LeaseLost without the lease."""
    params: Params = {"worker": worker, "epoch": job.epoch, "result": result}
    yield from ask(Statement(sql["complete_in"], params, nothing))


def end(sql: Sql, worker: str, job: Claim) -> Dialogue[End]:
    """What became of the transaction in which the job was completed."""
    params: Params = {"id": str(job.id), "worker": worker, "epoch": job.epoch}
    found: End = yield from ask(Statement(sql["completion_end"], params, scalar))
    return found


def session(sql: Sql, pid: int) -> Dialogue[Lock]:
    """The session that has a transaction open, as far as the worker's role may see it."""

    def read(rows: Sequence[Row]) -> Lock:
        name, state, seconds = rows[0] if rows else (None, None, None)
        return Lock(pid=pid, name=name, state=state, seconds=seconds)

    return (yield from ask(Statement(sql["completion_session"], {"pid": pid}, read)))


def end_session(sql: Sql, worker: str, job: Claim, pid: int) -> Dialogue[None]:
    """End a session whose transaction has completed a job and does not end."""
    params: Params = {"pid": pid, "epoch": job.epoch, "worker": worker}
    yield from ask(Statement(sql["end_completion_session"], params, nothing))
