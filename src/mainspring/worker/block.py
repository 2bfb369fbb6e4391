"""The block of a handler's context that is open: `ctx.transaction()` or `ctx.complete()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from mainspring.errors import MainspringError

#: The connection of the open block, and whether this context is inside one of `ctx.transaction()`.
_connection: ContextVar[Any] = ContextVar("mainspring_block", default=None)
_in_transaction: ContextVar[bool] = ContextVar("mainspring_transaction", default=False)


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
def inside_transaction() -> Iterator[None]:
    """A block of `ctx.transaction()`."""
    _in_transaction.set(True)
    try:
        yield
    finally:
        _in_transaction.set(False)


def is_inside_transaction() -> bool:
    """Whether this context is inside a block of `ctx.transaction()`."""
    return _in_transaction.get()


def refuse_inside_transaction(what: str) -> None:
    """Refuse what needs a second connection: as many jobs as there are connections would wait for each other."""
    if _in_transaction.get():
        raise MainspringError(
            f"{what} comes before or after, not inside the block of ctx.transaction(): it holds a connection"
        )
