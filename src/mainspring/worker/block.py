"""The block of a handler's context that is open: `ctx.transaction()` or `ctx.complete()`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from mainspring.errors import MainspringError


@dataclass(slots=True)
class OpenBlock:
    """A block while it is open. A task that it began, and that outlives it, has the same one, and sees its end."""

    conn: Any = None
    middle: bool = False  # it is one of `ctx.transaction()`


_block: ContextVar[OpenBlock] = ContextVar("mainspring_block", default=OpenBlock())  # noqa: B039 (nobody opens it)


def open_connection() -> Any:
    """The connection of the open block; None outside of blocks."""
    return _block.get().conn


@contextmanager
def block(conn: Any, *, middle: bool = False) -> Iterator[None]:
    """What is done here through the context's client is done on this connection."""
    own = OpenBlock(conn, middle)
    _block.set(own)
    try:
        yield
    finally:
        own.conn, own.middle = None, False  # not by a token: the block may be left in another context


def is_inside_transaction() -> bool:
    """Whether this context is inside a block of `ctx.transaction()`."""
    return _block.get().middle


def refuse_inside_transaction(what: str) -> None:
    """Refuse what needs a second connection: as many jobs as there are connections would wait for each other."""
    if is_inside_transaction():
        raise MainspringError(
            f"{what} comes before or after, not inside the block of ctx.transaction(): it holds a connection"
        )
