"""A caller's session after its handler has ended: whether its connection is lost, and how it is rolled back."""

from __future__ import annotations

from typing import Any

from mainspring.db.wire.adopt import origin


def driver_of(conn: Any) -> Any:
    """The driver's own connection, below what was joined; of a transaction that is open."""
    match origin(conn):
        case "sqlalchemy", "Connection":
            return conn.connection.driver_connection
        case "sqlalchemy", "AsyncConnection":
            return driver_of(conn.sync_connection)
        case "sqlalchemy", _:
            session = conn() if callable(conn) else conn
            return driver_of(getattr(session, "sync_session", session).connection())
        case "django", _:
            return conn.connection
        case _:
            return conn


def is_lost_by(driver: Any) -> bool:
    """Whether a driver's connection no longer leads anywhere."""
    closed = getattr(driver, "closed", None)
    return bool(driver.is_closed() if closed is None else closed)


def roll_back(conn: Any) -> None:
    """Roll back what its handler left open, in the handler's thread: scoped sessions and Django's are of a thread."""
    if origin(conn)[0] == "django" and conn.in_atomic_block:
        conn.close()  # Django refuses a rollback inside of a block that nobody will leave
    else:
        conn.rollback()


async def roll_back_async(conn: Any) -> None:
    """The same for an async connection, in the handler's loop."""
    await (conn.reset() if origin(conn)[0] == "asyncpg" else conn.rollback())
