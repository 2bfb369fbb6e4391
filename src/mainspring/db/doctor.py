"""The facts that `mainspring doctor` looks at: two connections, three statements, one notification."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import psycopg
from psycopg.sql import SQL, Identifier

from mainspring.config import ANSWERED_WITHIN
from mainspring.db.schema.status import Status, check, status
from mainspring.db.wire.answer import Answered
from mainspring.db.wire.connect import options
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, scalar
from mainspring.errors import SchemaError
from mainspring.health.doctor.facts import Engine, Facts, ServerFacts, Tickets
from mainspring.uuid7 import uuid7

_TICKETS_SAMPLE = 1000  # so many of the newest tickets are looked at, unless all are asked for
NOTIFICATION_PATIENCE_S = 2.0  # seconds to wait for a notification


class _Told(ServerFacts, frozen=True, kw_only=True):
    """The server, and its clock when it answered."""

    at: datetime


def examine(
    dsn: str,
    schema: str,
    gone_after: timedelta,
    *,
    deep: bool = False,
    listen_dsn: str | None = None,
    answered_within: float = ANSWERED_WITHIN,
) -> Facts:
    """Look at a database as a worker would meet it; it is only read, but for one notification on a channel of its own.

    Plain connections: what a worker would refuse, such as a standby, is looked at as well.
    """
    about = {"prepare_threshold": None, "answered_within": answered_within}
    sql, given = Sql(schema), options(dsn, "mainspring doctor") | about
    given.pop("target_session_attrs", None)
    with Answered.connect(dsn, **given) as conn, Answered.connect(dsn, **given) as second:
        round_trip, (server, skew) = _round_trip(conn), _server(conn, sql)
        pids, others = [], []
        for _ in range(2):
            pids.append(_pid(conn))
            others.append(_pid(second))
        heard, deaf = _listen(listen_dsn or dsn, given, conn)
        found = status(conn, schema=schema)
        problem = _problem(found)
        door = psycopg_door(conn)
        return Facts(
            round_trip_ms=round_trip,
            skew_s=skew,
            pooled=conn.info.backend_pid != pids[0],
            shared=len({*pids, *others}) != 2 or pids[0] != pids[1],
            listen_ms=heard,
            listen_error=deaf,
            server=server,
            schema_problem=problem,
            later_edition=found.verbs.edition if found.verbs.edition > found.verbs.ours else None,
            engine=None if problem else run(door, engine(sql, gone_after)),
            tickets=None if problem else run(door, tickets(sql, None if deep else _TICKETS_SAMPLE)),
        )


def engine(sql: Sql, gone_after: timedelta) -> Dialogue[Engine]:
    """What the engine's tables say."""
    params = {"gone_after": f"{gone_after.total_seconds()} s", "clock": f'"{sql.schema}".clock'}
    text: str = yield from ask(Statement(sql["doctor_engine"], params, scalar))
    return msgspec.json.decode(text, type=Engine)


def tickets(sql: Sql, sample: int | None) -> Dialogue[Tickets]:
    """Whether each job stands in exactly one place; of all jobs, or of the newest."""
    params = {"sample": None if sample is None else str(sample)}
    text: str = yield from ask(Statement(sql["doctor_tickets"], params, scalar, long=True))
    return msgspec.json.decode(text, type=Tickets)


def _round_trip(conn: psycopg.Connection[Any]) -> float:
    """The shortest of a few, in milliseconds."""

    def once() -> float:
        began = time.perf_counter()
        conn.execute("select 1")
        return (time.perf_counter() - began) * 1000

    return min(once() for _ in range(5))


def _server(conn: psycopg.Connection[Any], sql: Sql) -> tuple[ServerFacts, float]:
    """The server, and how many seconds our clock is ahead of its."""
    began = datetime.now(UTC)
    row = conn.execute(sql["doctor_server"]).fetchone()
    assert row is not None
    told = msgspec.json.decode(row[0], type=_Told)
    middle = began + (datetime.now(UTC) - began) / 2
    return told, (middle - told.at).total_seconds()


def _pid(conn: psycopg.Connection[Any]) -> int:
    """The backend that answers; two connections with the same one, or one with two, meet a transaction-mode pooler."""
    row = conn.execute("select pg_backend_pid()").fetchone()
    assert row is not None
    pid: int = row[0]
    return pid


def _listen(dsn: str, given: dict[str, Any], sender: psycopg.Connection[Any]) -> tuple[float | None, str | None]:
    """How long a notification takes, in milliseconds, or why none arrives."""
    channel = f"mainspring doctor {uuid7()}"
    try:
        with Answered.connect(dsn, **given) as conn:
            conn.execute(SQL("listen {}").format(Identifier(channel)))
            began = time.perf_counter()
            sender.execute("select pg_notify(%s, '')", [channel])
            for _ in conn.notifies(timeout=NOTIFICATION_PATIENCE_S, stop_after=1):
                return (time.perf_counter() - began) * 1000, None
    except psycopg.Error as error:
        return None, str(error).partition("\n")[0]
    return None, None


def _problem(found: Status) -> str | None:
    try:
        check(found)
    except SchemaError as error:
        return str(error)
    return None
