"""A connection that collects statements and sends them as one message when an answer is wanted.

It looks like psycopg's async one, as far as scheduler and worker use it, and does not wait by the loop: in a simulation
nobody else has anything to do meanwhile. Measured: a third of the time that one statement after another takes.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import asynccontextmanager
from datetime import datetime, timedelta
from itertools import count
from typing import Any

import psycopg
from psycopg import generators
from psycopg.adapt import Transformer
from psycopg.errors import error_from_result
from psycopg.pq import Escaping, ExecStatus
from psycopg.pq.abc import PGresult

from mainspring.db.wire.run import AsyncDoor
from mainspring.db.wire.statement import Row, Statement

_PLACE = re.compile(r"%(?:\((\w+)\))?s")
_FINE = {ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK, ExecStatus.EMPTY_QUERY}


class StatementResult:
    """What a statement answers, once somebody asks."""

    def __init__(self, messages: Messages) -> None:
        self._messages = messages
        self.rows: list[Any] | None = None

    async def execute(self, query: str, params: Any = None, **_: Any) -> StatementResult:
        """As a cursor: put a statement into the message."""
        self.rows = None
        self._messages.add(query, params, self)
        return self

    async def fetchall(self) -> list[Any]:
        """Every row."""
        if self.rows is None:
            self._messages.send()
        assert self.rows is not None
        return self.rows

    async def fetchone(self) -> Any:
        """The first row, or None."""
        rows = await self.fetchall()
        return rows[0] if rows else None


class Messages:
    """As much of psycopg's AsyncConnection as scheduler and worker use, on a plain connection of its own."""

    prepare_threshold = 0

    def __init__(self, conn: psycopg.Connection[Any], same: Container[str]) -> None:
        self._same = same  # statements that are asked with the same parameters again and again
        self._conn, self._quote = conn, Escaping(conn.pgconn).escape_literal
        self._reader = Transformer(conn)
        self._message: list[tuple[str, StatementResult | None]] = []
        self._known: dict[str, tuple[str, list[str | None]]] = {}  # statement → its name, and those of its parameters
        self._texts: dict[Any, str] = {}
        self._numbers = count(1)
        # Planning again and again would take longer than the statements themselves.
        conn.execute(
            "select set_config('plan_cache_mode', 'force_generic_plan', false), set_config('jit', 'off', false)"
        )

    def cursor(self, **_: Any) -> StatementResult:
        """What statements can be put in by."""
        return StatementResult(self)

    async def execute(self, query: str, params: Any = None, **_: Any) -> StatementResult:
        """Put a statement into the message."""
        answer = StatementResult(self)
        self.add(query, params, answer)
        return answer

    @asynccontextmanager
    async def pipeline(self) -> AsyncIterator[None]:
        """Everything is one already."""
        yield

    @asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        """A transaction; its commit goes out with what follows."""
        self.add("begin")
        try:
            yield
        except BaseException:
            self._message.clear()
            self.add("rollback")
            self.send()
            raise
        self.add("commit")

    def door(self) -> AsyncDoor:
        """How flows reach it."""

        async def execute(statement: Statement[Any]) -> Sequence[Row]:
            return await (await self.execute(statement.sql, statement.params)).fetchall()

        return execute

    def add(self, query: str, params: Any = None, answer: StatementResult | None = None) -> None:
        """Put a statement into the message: by a name under which the server keeps its plan, with literals."""
        if not params:
            self._message.append((query, answer))
        elif query in self._same:
            self._message.append((f"execute {self._said_again(query, params)}", answer))
        else:
            if query not in self._known:
                self._known[query] = self._prepared(query), [found[1] for found in _PLACE.finditer(query)]
            name, names = self._known[query]
            values = params if isinstance(params, list) else [params[of] for of in names]
            self._message.append((f"execute {name}({', '.join(map(self._literal, values))})", answer))

    def _said_again(self, query: str, params: Any) -> str:
        """The name of a statement with these very parameters: nothing is read, sent and planned twice."""
        values = params if isinstance(params, list) else list(params.values())
        key = (query, *(tuple(value) if isinstance(value, list) else value for value in values))
        name = self._texts.get(key)
        if name is None:
            places = iter(params) if isinstance(params, list) else None
            name = self._texts[key] = self._prepared(
                query, lambda found: self._literal(next(places) if places else params[found[1]])
            )
        return name

    def _prepared(self, query: str, value: Callable[[re.Match[str]], str] | None = None) -> str:
        """Have the server prepare a statement, with values in their places or numbers for them."""
        name, numbers = f"said_{next(self._numbers)}", count(1)
        text = _PLACE.sub(value or (lambda _: f"${next(numbers)}"), query).replace("%%", "%")
        self._message.append((f"prepare {name} as {text}", None))
        return name

    def send(self) -> None:
        """Send what was collected, and read every answer."""
        message, self._message = self._message, []
        if not message:
            return
        self._conn.pgconn.send_query(";".join(text for text, _ in message).encode())
        results = self._conn.wait(generators.execute(self._conn.pgconn))
        for (_, answer), result in zip(message, results, strict=False):
            if result.status not in _FINE:
                raise error_from_result(result)
            if answer is not None:
                answer.rows = self._read(result)

    def _read(self, result: PGresult) -> list[Any]:
        self._reader.set_pgresult(result)
        return self._reader.load_rows(0, result.ntuples, tuple)

    def _literal(self, value: Any) -> str:
        if value is None:
            return "null"
        if isinstance(value, list):
            return self._quoted(f"{{{','.join(map(_element, value))}}}")
        return self._quoted(_text(value))

    def _quoted(self, text: str) -> str:
        return self._quote(text.encode()).decode()


def _text(value: Any) -> str:
    if isinstance(value, timedelta):
        return f"{value.days} days {value.seconds} seconds {value.microseconds} microseconds"
    return value.isoformat() if isinstance(value, datetime) else str(value)


def _element(value: Any) -> str:
    if value is None:
        return "null"
    escaped = _text(value).replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
