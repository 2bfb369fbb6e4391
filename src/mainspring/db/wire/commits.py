"""Learning that a caller's transaction has committed, where their library says so.

SQLAlchemy's sessions and Django have hooks. A driver's own connection has none: there we know only that a statement
outside a transaction has committed by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainspring.db.wire.adopt import origin

Then = Callable[[], None]
_KEY = "mainspring_committed"  # in a session's own dictionary: what to call, and on which connection it waits


def after_commit(conn: Any, then: Then) -> bool:
    """Call `then` once what was done on a caller's connection has committed; False where nobody would tell us.

    After a rollback it is not called, nor when a savepoint that may have held the work is rolled back.
    """
    match origin(conn):
        case "django", _:
            from django.db import transaction

            if not conn.in_atomic_block and not conn.get_autocommit():  # the caller commits by hand
                return False
            transaction.on_commit(then, using=conn.alias, robust=True)
            return True
        case "sqlalchemy", "Session" | "scoped_session":
            _after_session(conn() if callable(conn) else conn, then)
            return True
        case "sqlalchemy", "AsyncSession" | "async_scoped_session":
            _after_session((conn() if callable(conn) else conn).sync_session, then)
            return True
        case "psycopg" | "psycopg2", _ if conn.info.transaction_status == 0:  # idle
            then()
            return True
        case "asyncpg", _ if not conn.is_in_transaction():
            then()
            return True
    return False


def _after_session(session: Any, then: Then) -> None:
    from sqlalchemy import event

    if _KEY not in session.info:  # one set of listeners a session
        event.listen(session, "after_commit", _committed)
        event.listen(session, "after_soft_rollback", _rolled_back)
        event.listen(session, "after_transaction_end", _ended)
        session.info[_KEY] = []
    session.info[_KEY].append((session.connection(), then))


def _committed(session: Any) -> None:
    if session.in_nested_transaction():  # a savepoint was released
        return
    waiting, session.info[_KEY] = session.info[_KEY], []
    for conn, then in waiting:
        # Of an outer transaction, which is not the session's, we do not learn the end; a closed one was rolled back.
        if not conn.closed and not conn.in_transaction():
            then()


def _rolled_back(session: Any, _: Any) -> None:
    session.info[_KEY] = []


def _ended(session: Any, transaction: Any) -> None:
    if transaction.parent is None:  # without a commit: a session that is closed rolls back in silence
        session.info[_KEY] = []
