"""What monitoring reads from the database, in one bounded statement."""

from __future__ import annotations

import logging
import time
from threading import Lock
from typing import Any

import msgspec
import psycopg

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.queues import GONE_AFTER
from mainspring.db.wire.connect import Connection, options
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, nothing, scalar
from mainspring.errors import MainspringError
from mainspring.health.trouble import Trouble

log = logging.getLogger("mainspring.metrics")

#: So many jobs of a queue are counted; what is more is shown as that many.
COUNTING_CAP = 10_000


class LaneGauge(msgspec.Struct, frozen=True, kw_only=True):
    """What waits in a queue: due now and later, both counted up to the cap, and how old the oldest due job is."""

    name: str
    paused: bool
    target_s: float | None
    ready: int
    later: int
    oldest_s: float | None


class Dead(msgspec.Struct, frozen=True, kw_only=True):
    """Open dead letters, counted up to the cap, and the age of the oldest."""

    open: int
    oldest_s: float | None


class Fuse(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker: whether the dependency is held, for how long, how many of its keys are, and how many jobs wait for it.

    Both are counted up to the cap.
    """

    name: str
    open: bool
    open_s: float | None
    keys: int
    waiting: int


class Behind(msgspec.Struct, frozen=True, kw_only=True):
    """A limit, and how many jobs it has put off or holds; at most the cap is counted for all limits together."""

    name: str
    waiting: int


class HorizonHolder(msgspec.Struct, frozen=True, kw_only=True):
    """What holds the horizon of vacuum: a session, a prepared transaction, a slot or a standby."""

    holder: str
    seconds: float | None
    transactions: int | None


class TableGauge(msgspec.Struct, frozen=True, kw_only=True):
    """A table by PostgreSQL's own statistics."""

    name: str
    live: int
    dead: int
    bytes: int
    vacuumed_s: float | None


class Alarm(msgspec.Struct, frozen=True, kw_only=True):
    """How many alerts of a name are open; at most the cap is counted for all names together."""

    name: str
    severity: str
    open: int


class Gauges(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the engine at one moment."""

    lanes: list[LaneGauge]
    workers: int
    dead: Dead
    horizon: list[HorizonHolder]
    tables: list[TableGauge]
    breakers: list[Fuse] = []
    limits: list[Behind] = []
    alerts: list[Alarm] = []
    quarantined: list[str] = []  # tasks
    heartbeat_s: float | None = None  # since the last heartbeat job succeeded; None: there is none


_decode = msgspec.json.Decoder(Gauges).decode


def gauges(sql: Sql, *, cap: int = COUNTING_CAP, org: str | None = None) -> Dialogue[Gauges]:
    """Read them, of all jobs or those of an organisation; never longer than two seconds."""
    yield from ask(Statement("set local statement_timeout = '2 s'", {}, nothing))
    params: dict[str, Any] = {"cap": str(cap), "org": org, "gone_after": f"{GONE_AFTER.total_seconds()} s"}
    text: str = yield from ask(Statement(sql["gauges"], params, scalar))
    return _decode(text)


class Reader:
    """Reads the gauges, and keeps them for a few seconds, so that many who look cost no more than one."""

    def __init__(self, dsn: str, schema: str = DEFAULT_SCHEMA, *, keep: float = 5.0) -> None:
        self._dsn, self._sql, self._keep = dsn, Sql(schema), keep
        self._found: Gauges | None = None
        self._read_at = float("-inf")
        self._lock = Lock()
        self._trouble = Trouble(log, "the gauges cannot be read", "the gauges can be read again")

    def __call__(self) -> Gauges | None:
        """The gauges, or None while the database is away, or keeps them from this role."""
        with self._lock:
            if time.monotonic() >= self._read_at + self._keep:
                try:
                    self._found = self._read()
                    self._trouble.over()
                except (psycopg.Error, MainspringError) as error:
                    self._trouble.failed(error)
                    self._found = None
                self._read_at = time.monotonic()
            return self._found

    def _read(self) -> Gauges:
        """By a connection that is closed at once: monitoring holds nothing."""
        conn: psycopg.Connection[Any]
        with Connection.connect(self._dsn, **options(self._dsn, "mainspring metrics")) as conn, conn.transaction():
            return run(psycopg_door(conn), gauges(self._sql))
