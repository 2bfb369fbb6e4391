"""How we connect: in both colours, with limits on how long a lost network can go unnoticed."""

from __future__ import annotations

from typing import Any

import psycopg
from psycopg_pool import AsyncConnectionPool, ConnectionPool

#: How long a caller waits for a connection: long enough for a database to restart.
PATIENCE = 10.0
#: Unless the DSN says otherwise.
OPTIONS: dict[str, Any] = {
    "connect_timeout": 5,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}


def options(dsn: str, name: str, *, prepare: bool = True) -> dict[str, Any]:
    """Connection arguments for a DSN; what it states itself wins. Autocommit: a statement is a transaction."""
    given = psycopg.conninfo.conninfo_to_dict(dsn)
    chosen = {key: value for key, value in OPTIONS.items() if key not in given}
    chosen |= {} if "application_name" in given else {"application_name": name}
    return chosen | {"autocommit": True, "prepare_threshold": 5 if prepare else None}


def pool(
    dsn: str, *, size: int, name: str, prepare: bool = True, timeout: float = PATIENCE
) -> ConnectionPool[psycopg.Connection[Any]]:
    """A small pool that opens on first use."""
    return ConnectionPool(dsn, **_pool_options(dsn, size, name, prepare, timeout))


def async_pool(
    dsn: str, *, size: int, name: str, prepare: bool = True, timeout: float = PATIENCE
) -> AsyncConnectionPool[psycopg.AsyncConnection[Any]]:
    """The same for asyncio."""
    return AsyncConnectionPool(dsn, **_pool_options(dsn, size, name, prepare, timeout))


def _pool_options(dsn: str, size: int, name: str, prepare: bool, timeout: float) -> dict[str, Any]:
    # A pool waits twice as long before each try to connect, for five minutes by default: it would not notice for a
    # minute that the database is back. When it gives up sooner, the next caller makes it try at once.
    return {
        "kwargs": options(dsn, name, prepare=prepare),
        "min_size": 0,
        "max_size": size,
        "open": False,
        "timeout": timeout,
        "reconnect_timeout": timeout,
        "name": name,
    }


def why_not(dsn: str) -> str:
    """Why a pool ran out of time, which it does not say itself: asks the database once more."""
    try:
        psycopg.connect(dsn, connect_timeout=2).close()
    except psycopg.Error as error:
        return str(error)
    return "no connection was free in time"
