"""Connections whose waits end: in both colours, each answer within `answered_within` seconds.

A server that is frozen, or whose disk hangs, gives no error: the kernel goes on acknowledging what we send. So after
that time we hang up, and whether the server did what it was asked is unknown. What may rightly take longer is `long`:
then the server is asked by another connection whether it still works on it, and only one that does not is given up.

Unknown is also what a commit is whose wait for a synchronous standby was broken off: PostgreSQL only warns.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Self, TypeVar

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import make_conninfo
from psycopg.errors import Diagnostic
from psycopg.pq import TransactionStatus

from mainspring.config import ANSWERED_WITHIN

T = TypeVar("T")

#: Whoever is asked a question on the side has so long to connect, and so long to answer.
SIDE_QUESTION_S = 5
#: What is already on its way while we ask may still arrive.
STRAGGLING_PATIENCE_S = 1.0
#: Whether a session is at work; through a pooler nobody knows which one it is.
_WORKS = "select %s or exists (select from pg_stat_activity where pid = %s and state is distinct from 'idle')"


class Silent(psycopg.OperationalError):
    """The server did not answer in time; whether it did what it was asked is unknown."""


class Unconfirmed(psycopg.OperationalError):
    """It was committed, but the wait for the standby was broken off: it may be lost together with the server."""

    def __init__(self) -> None:
        super().__init__("the wait for a synchronous standby was broken off: whether the commit lasts is unknown")


def is_broken_off(notice: Diagnostic) -> bool:
    """Whether a notice says that a commit did not wait for its standby; by its place in the server, in any language."""
    return notice.source_function == "SyncRepWaitForLSN"


class _Waiting:
    """What both colours know."""

    answered_within: float | None = None
    long = False
    pooled = False  # a pooler stands between: no state of a session outlives a transaction
    _dsn = ""
    _broken_off: Sequence[Diagnostic] = ()

    def _begin(self, dsn: str, answered_within: float | None) -> list[Diagnostic]:
        said: list[Diagnostic] = []
        self._dsn, self.answered_within, self._broken_off = dsn, answered_within, said
        return said

    def _works(self, pid: int) -> bool:
        """Whether the server still works on what we wait for; through a pooler, whether it answers at all."""
        try:
            dsn = make_conninfo(self._dsn, connect_timeout=SIDE_QUESTION_S)
            with Answered.connect(dsn, answered_within=SIDE_QUESTION_S, autocommit=True) as other:
                return other.execute(_WORKS, [self.pooled, pid], prepare=False).fetchone() == (True,)
        except psycopg.Error:
            return False


class Answered(_Waiting, psycopg.Connection[Any]):
    """A connection that hangs up on a server that takes too long to answer."""

    @classmethod
    def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Connect; `answered_within` is among the arguments."""
        answered_within = kwargs.pop("answered_within", ANSWERED_WITHIN)
        conn = super().connect(conninfo, **kwargs)
        conn.add_notice_handler(_collector(conn._begin(conninfo, answered_within)))
        return conn

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Wait for an answer. Whoever says how long, as `notifies()` does, waits for none, and has their own limit."""
        try:
            if args or kwargs or self.answered_within is None:
                answer = super().wait(gen, *args, **kwargs)
            else:
                try:
                    answer = super().wait(_limited(gen, self.answered_within))
                except Silent as silent:
                    answer = self._go_on(gen, self.answered_within, silent)
        except psycopg.OperationalError:
            if self._broken_off:  # and then the server stopped
                raise Unconfirmed from None
            raise
        if self._broken_off:
            self.pgconn.finish()
            raise Unconfirmed
        return answer

    def _go_on(self, gen: PQGen[T], within: float, silent: Silent) -> T:
        gone = not self.long
        while not gone:
            gone = not self._works(self.pgconn.backend_pid)
            with suppress(Silent):
                return super().wait(_limited(gen, STRAGGLING_PATIENCE_S if gone else within, again=True))
        self.pgconn.finish()
        raise silent


class AsyncAnswered(_Waiting, psycopg.AsyncConnection[Any]):
    """The same for asyncio."""

    @classmethod
    async def connect(cls, conninfo: str = "", **kwargs: Any) -> Self:
        """Connect; `answered_within` is among the arguments."""
        answered_within = kwargs.pop("answered_within", ANSWERED_WITHIN)
        conn = await super().connect(conninfo, **kwargs)
        conn.add_notice_handler(_collector(conn._begin(conninfo, answered_within)))
        return conn

    async def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        """Wait for an answer."""
        try:
            if args or kwargs or self.answered_within is None:
                answer = await super().wait(gen, *args, **kwargs)
            else:
                try:
                    answer = await super().wait(_limited(gen, self.answered_within))
                except Silent as silent:
                    answer = await self._go_on(gen, self.answered_within, silent)
        except psycopg.OperationalError:
            if self._broken_off:
                raise Unconfirmed from None
            raise
        if self._broken_off:
            self.pgconn.finish()
            raise Unconfirmed
        return answer

    async def _go_on(self, gen: PQGen[T], within: float, silent: Silent) -> T:
        gone = not self.long
        while not gone:
            gone = not await asyncio.to_thread(self._works, self.pgconn.backend_pid)
            with suppress(Silent):
                return await super().wait(_limited(gen, STRAGGLING_PATIENCE_S if gone else within, again=True))
        self.pgconn.finish()
        raise silent


@contextmanager
def confirmed(conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Iterator[None]:
    """The same for a caller's connection, where each statement commits; nothing of ours stays with it."""
    if not conn.autocommit or conn.info.transaction_status != TransactionStatus.IDLE:
        yield  # the commit is theirs, and so is the warning
        return
    broken_off: list[Diagnostic] = []
    collect = _collector(broken_off)
    conn.add_notice_handler(collect)
    try:
        yield
    finally:
        conn.remove_notice_handler(collect)
    if broken_off:
        raise Unconfirmed


@contextmanager
def taking_long(conn: object) -> Iterator[None]:
    """Inside the block an answer may take as long as the server works on it; a caller's connection is left alone."""
    if not isinstance(conn, _Waiting):
        yield
        return
    before, conn.long = conn.long, True
    try:
        yield
    finally:
        conn.long = before


def _limited(gen: PQGen[T], within: float, *, again: bool = False) -> PQGen[T]:
    """The same wait, which raises when it has lasted so long: psycopg comes by ten times a second with nothing."""
    until = time.monotonic() + within
    try:
        want = gen.send(0) if again else next(gen)  # 0: nothing is ready
        while True:
            ready = yield want
            if not ready and time.monotonic() >= until:
                raise Silent(f"the server has not answered within {within:g} s: whether it was done is unknown")
            want = gen.send(ready)
    except StopIteration as done:
        return done.value  # type: ignore[no-any-return]  # a generator's return value is untyped here


def _collector(found: list[Diagnostic]) -> Callable[[Diagnostic], None]:
    """Collects what tells of a commit without its standby. No method of the connection, which would hold itself."""
    return lambda notice: found.append(notice) if is_broken_off(notice) else None
