"""How we connect: in both colours, to a server that the fence admits, with limits on how long a loss goes unnoticed."""

from __future__ import annotations

import logging
import re
from typing import Any, Self

import psycopg
from psycopg.errors import ConnectionTimeout
from psycopg_pool import AsyncConnectionPool, ConnectionPool

from mainspring.config import ANSWERED_WITHIN
from mainspring.db.wire.answer import SIDE_QUESTION_S, Answered, AsyncAnswered, Silent
from mainspring.db.wire.fence import FENCE, FENCE_TRIES, Destination, Route, ServerIdentity, ServerRefused
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.translate import is_transient
from mainspring.errors import ConfigurationError

#: How long a caller waits for a connection: long enough for a database to restart.
CONNECT_PATIENCE_S = 10.0
#: Unless the DSN says otherwise.
CONNECT_OPTIONS: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


def options(dsn: str, name: str, *, prepare: bool = True) -> dict[str, Any]:
    """Connection arguments for a DSN; what it states itself wins. Autocommit: a statement is a transaction."""
    given = _read(dsn)
    wanted = CONNECT_OPTIONS | {"application_name": name}
    if "," in str(given.get("host", "")) + str(given.get("hostaddr", "")):
        wanted["target_session_attrs"] = "read-write"
    chosen = {key: value for key, value in wanted.items() if key not in given}
    # Every text of a database fits into UTF-8: one that did not would break the claim of all that is claimed beside it.
    return chosen | {"autocommit": True, "prepare_threshold": 5 if prepare else None, "client_encoding": "utf8"}


def _read(dsn: str) -> dict[str, Any]:
    """What a DSN states. What is wrong with it is said without its own words: they may be a part of the password."""
    if re.match(r"postgres(ql)?\+\w+://", dsn):
        raise ConfigurationError("dsn: names a driver, as SQLAlchemy's do: write postgresql:// in its place")
    try:
        given = psycopg.conninfo.conninfo_to_dict(dsn)
    except psycopg.ProgrammingError as error:
        said = re.match(r'(?:[^"]|"[=\]]")*', str(error))  # up to the first word in quotes
        raise ConfigurationError(f"dsn: {said and said[0]}…; write postgresql://user@host/database") from None
    hosts, ports = str(given.get("host") or "").split(","), str(given.get("port") or "").split(",")
    if any("@" in host and host[0] not in "/@" for host in hosts):
        raise ConfigurationError("dsn: its host holds an @: write %40 for one in the password")
    if not all(port.isdigit() or not port for port in ports):
        raise ConfigurationError("dsn: its port is not a number: write %2F for a / in the password, %3A for a :")
    return given


class _Met:
    """What a connection of ours knows of its server."""

    server = ServerIdentity()

    @property
    def stale(self) -> bool:
        """Whether it leads to a server that was replaced, as this process has learned since."""
        return self.server.stale


class Connection(_Met, Answered):
    """A connection to a server that may be written to."""

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Connect to the first host that is up and is not refused."""
        answered_within = kwargs.pop("answered_within", ANSWERED_WITHIN)
        route = Route(conninfo)
        while True:
            try:
                conn = super().connect(route.dsn, answered_within=SIDE_QUESTION_S, **kwargs)
            except psycopg.Error as error:
                raise route.failed(error) from None
            try:
                place = Destination.of(conn)
                _meet(conn, _ask(conn))
                for other in route.others(place):
                    _ask_other(other)
                FENCE.admit(conn.server, place)
            except ServerRefused as refused:
                conn.close()
                route.leave_out(place, refused)
            except BaseException:
                conn.close()
                raise
            else:
                conn.answered_within = answered_within
                return conn


class AsyncConnection(_Met, AsyncAnswered):
    """The same for asyncio."""

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Connect to the first host that is up and is not refused."""
        answered_within = kwargs.pop("answered_within", ANSWERED_WITHIN)
        route = Route(conninfo)
        while True:
            try:
                conn = await super().connect(route.dsn, answered_within=SIDE_QUESTION_S, **kwargs)
            except psycopg.Error as error:
                raise route.failed(error) from None
            try:
                place = Destination.of(conn)
                _meet(conn, await _ask_async(conn))
                for other in route.others(place):
                    await _ask_other_async(other)
                FENCE.admit(conn.server, place)
            except ServerRefused as refused:
                await conn.close()
                route.leave_out(place, refused)
            except BaseException:
                await conn.close()
                raise
            else:
                conn.answered_within = answered_within
                return conn


def _ask(conn: psycopg.Connection[Any]) -> ServerIdentity:
    try:
        row = conn.execute(Sql()["server"], prepare=False).fetchone()
    except psycopg.Error as error:
        return _untold(error)
    assert row is not None
    return FENCE.learn(row)


async def _ask_async(conn: psycopg.AsyncConnection[Any]) -> ServerIdentity:
    try:
        row = await (await conn.execute(Sql()["server"], prepare=False)).fetchone()
    except psycopg.Error as error:
        return _untold(error)
    assert row is not None
    return FENCE.learn(row)


def _ask_other(dsn: str) -> None:
    """Learn the timeline of another host, if somebody is there; one that is lost meanwhile is asked again."""
    for _ in range(FENCE_TRIES):
        try:
            with Answered.connect(dsn, answered_within=SIDE_QUESTION_S, autocommit=True) as other:
                _ask(other)
            break
        except ConnectionTimeout:
            FENCE.silent(dsn)
            break
        except psycopg.Error:
            continue


async def _ask_other_async(dsn: str) -> None:
    for _ in range(FENCE_TRIES):
        try:
            async with await AsyncAnswered.connect(dsn, answered_within=SIDE_QUESTION_S, autocommit=True) as other:
                await _ask_async(other)
            break
        except ConnectionTimeout:
            FENCE.silent(dsn)
            break
        except psycopg.Error:
            continue


def _untold(error: psycopg.Error) -> ServerIdentity:
    """A server that does not tell (some managed services) is believed; one that is lost is an error."""
    if isinstance(error, Silent):
        raise ConnectionTimeout(
            f"the server accepts connections, but has not answered within {SIDE_QUESTION_S} s"
        ) from None
    if is_transient(error):
        raise error
    return ServerIdentity()


def _meet(conn: Connection | AsyncConnection, server: ServerIdentity) -> None:
    conn.server = server
    # A pooler announces a process number of its own making. Prepared statements would be lost, or meet a stranger's.
    if server.pid is not None and server.pid != conn.pgconn.backend_pid:
        conn.pooled, conn.prepare_threshold = True, None


def pool(
    dsn: str,
    *,
    size: int,
    name: str,
    prepare: bool = True,
    timeout: float = CONNECT_PATIENCE_S,
    answered_within: float | None = ANSWERED_WITHIN,
) -> ConnectionPool[psycopg.Connection[Any]]:
    """A small pool that opens on first use."""
    given = _pool_options(dsn, size, name, prepare, timeout, answered_within)
    return ConnectionPool(dsn, connection_class=Connection, check=refuse_stale, **given)


def async_pool(
    dsn: str,
    *,
    size: int,
    name: str,
    prepare: bool = True,
    timeout: float = CONNECT_PATIENCE_S,
    answered_within: float | None = ANSWERED_WITHIN,
) -> AsyncConnectionPool[AsyncConnection]:
    """The same for asyncio."""
    given = _pool_options(dsn, size, name, prepare, timeout, answered_within)
    return AsyncConnectionPool(dsn, connection_class=AsyncConnection, check=_refuse_stale, **given)


def refuse_stale(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> None:
    """No question to the server: only whether we have learned since that it was replaced."""
    if isinstance(conn, _Met) and conn.stale:
        raise ServerRefused("the server was replaced")


async def _refuse_stale(conn: AsyncConnection) -> None:
    refuse_stale(conn)


def _pool_options(
    dsn: str, size: int, name: str, prepare: bool, timeout: float, answered_within: float | None
) -> dict[str, Any]:
    # A pool waits twice as long before each try to connect, for five minutes by default: it would not notice for a
    # minute that the database is back. When it gives up sooner, the next caller makes it try at once.
    return {
        "kwargs": options(dsn, name, prepare=prepare) | {"answered_within": answered_within},
        "min_size": 0,
        "max_size": size,
        "open": False,
        "timeout": timeout,
        "reconnect_timeout": timeout,
        "name": name,
    }


def _not_ours(record: logging.LogRecord) -> bool:
    """Keep what psycopg says of others' connections and pools.

    Of ours it would warn of each that is lost, and of each try to replace it. Who asked gets the reason as an error,
    and a worker says when the database goes and comes.
    """
    about = record.args if isinstance(record.args, tuple) else ()
    ours = (isinstance(getattr(one, "_conn", one), _Met) for one in about)  # a connection, or the pipeline of one
    return not any(ours) and not any(isinstance(one, str) and one.startswith("mainspring ") for one in about)


for _name in ("psycopg", "psycopg.pool"):
    logging.getLogger(_name).addFilter(_not_ours)


def why_not(dsn: str) -> str:
    """Why a pool ran out of time, which it does not say itself: asks the database once more."""
    try:
        Connection.connect(dsn, **options(dsn, "mainspring") | {"connect_timeout": 2}).close()
    except psycopg.Error as error:
        return str(error)
    return "no connection was free in time"
