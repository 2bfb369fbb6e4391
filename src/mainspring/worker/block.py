"""The block of a handler's context that is open: `ctx.transaction()` or `ctx.db()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mainspring.errors import MainspringError

#: The connection of the open block, and whether this context is inside one of `ctx.db()`.
_connection: ContextVar[Any] = ContextVar("mainspring_block", default=None)
_in_db: ContextVar[bool] = ContextVar("mainspring_db", default=False)


def open_connection() -> Any:
    """The connection of the open block; None outside of blocks."""
    return _connection.get()


@contextmanager
def block(conn: Any) -> Iterator[None]:
    """What is done here through the context's client is done on this connection."""
    _connection.set(conn)
    try:
        yield
    finally:
        _connection.set(None)  # not by a token: the block may be left in another context


@contextmanager
def inside_db() -> Iterator[None]:
    """A block of `ctx.db()`."""
    _in_db.set(True)
    try:
        yield
    finally:
        _in_db.set(False)


def refuse_inside_db(what: str) -> None:
    """Refuse what needs a second connection: as many jobs as there are connections would wait for each other."""
    if _in_db.get():
        raise MainspringError(f"{what} comes before or after, not inside the block of ctx.db(): it holds a connection")
