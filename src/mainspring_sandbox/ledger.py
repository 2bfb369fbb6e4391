"""What the sandbox remembers, in SQLite, so that it outlives a stop: every mail, charge, webhook and the rest."""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

LedgerClock = Callable[[], datetime]

LEDGER_TABLES = """
create table if not exists entry (
  serial   integer primary key,
  kind     text not null,
  id       text not null,
  at       text not null,
  body     text not null,
  unique (kind, id)
);
create table if not exists number (one integer primary key check (one = 1), n integer not null);
insert or ignore into number values (1, 0);
create table if not exists answer (
  provider text not null,
  key      text not null,
  at       text not null,
  request  text not null,
  status   integer not null,
  body     text not null,
  primary key (provider, key)
);
"""


def real_time() -> datetime:
    """The clock of who has no other."""
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class LedgerEntry:
    """One thing that a provider did or holds."""

    serial: int
    kind: str
    id: str
    at: datetime
    body: dict[str, Any]


@dataclass(frozen=True, slots=True)
class IdempotentAnswer:
    """What was answered under an idempotency key, and to which request."""

    request: str
    status: int
    body: str
    at: datetime


class Ledger:
    """Entries by kind and id, in the order in which they came; safe from several threads."""

    def __init__(self, path: Path | None = None, clock: LedgerClock = real_time) -> None:
        self._db = sqlite3.connect(path or ":memory:", check_same_thread=False, isolation_level=None)
        self._db.executescript(LEDGER_TABLES)
        if path is not None:
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = normal")
        self._lock = threading.RLock()
        self._number: int = self._db.execute("select n from number").fetchone()[0]
        self.clock = clock

    @contextmanager
    def together(self) -> Iterator[None]:
        """What is written inside is kept whole or not at all, and nobody else writes meanwhile.

        >>> ledger = Ledger()
        >>> with ledger.together():
        ...     entry = ledger.add("charge", "ch_1", {"amount": 5})
        ...     entry = ledger.change("charge", "ch_1", amount=7)
        >>> ledger.get("charge", "ch_1").body
        {'amount': 7}
        """
        with self._lock:  # one inside another is undone alone; the outermost commits
            self._db.execute("savepoint together")
            try:
                yield
            except BaseException:
                self._db.execute("rollback to together")
                self._db.execute("release together")
                raise
            self._db.execute("release together")

    def add(self, kind: str, id: str, body: dict[str, Any]) -> LedgerEntry:
        """Record something new."""
        at = self.clock()
        with self._lock:
            serial = self._db.execute(
                "insert into entry (kind, id, at, body) values (?, ?, ?, ?)",
                [kind, id, at.isoformat(), json.dumps(body)],
            ).lastrowid
        assert serial is not None
        return LedgerEntry(serial, kind, id, at, body)

    def get(self, kind: str, id: str) -> LedgerEntry | None:
        """One entry."""
        return next(iter(self._select("where kind = ? and id = ?", [kind, id])), None)

    def change(self, kind: str, id: str, /, **changes: Any) -> LedgerEntry:
        """Set some fields of an entry."""
        with self._lock:
            found = self.get(kind, id)
            assert found is not None, f"{kind} {id} does not exist"
            body = found.body | changes
            self._db.execute("update entry set body = ? where kind = ? and id = ?", [json.dumps(body), kind, id])
        return LedgerEntry(found.serial, kind, id, found.at, body)

    def find(self, *kinds: str, limit: int = 1_000_000, before: int | None = None, **fields: Any) -> list[LedgerEntry]:
        """Entries of these kinds, newest first, whose top-level fields have these values."""
        marks = ", ".join("?" * len(kinds))
        query, values = f"where kind in ({marks})" if kinds else "where true", list(kinds)
        if before is not None:
            query, values = f"{query} and serial < ?", [*values, before]  # type: ignore[list-item] # SQLite takes both
        for name, value in fields.items():
            query, values = f"{query} and json_extract(body, ?) is ?", [*values, f'$."{name}"', value]
        return self._select(f"{query} order by serial desc limit {limit:d}", values)

    def count(self, kind: str) -> int:
        """How many there are of a kind."""
        with self._lock:
            return int(self._db.execute("select count(*) from entry where kind = ?", [kind]).fetchone()[0])

    def number(self) -> int:
        """A number that was never given before, not even to something that was undone."""
        with self._lock:
            self._number += 1
            self._db.execute("update number set n = ?", [self._number])
            return self._number

    def answer(self, provider: str, key: str) -> IdempotentAnswer | None:
        """What was answered under an idempotency key."""
        query = "select request, status, body, at from answer where provider = ? and key = ?"
        with self._lock:
            row = self._db.execute(query, [provider, key]).fetchone()
        return row and IdempotentAnswer(row[0], row[1], row[2], datetime.fromisoformat(row[3]))

    def answered(self, provider: str, key: str, request: str, status: int, body: str) -> None:
        """Keep what was answered under an idempotency key."""
        values = [provider, key, self.clock().isoformat(), request, status, body]
        with self._lock:
            self._db.execute("insert or replace into answer values (?, ?, ?, ?, ?, ?)", values)

    def forget_answers(self, provider: str) -> None:
        """Forget the idempotency keys of a provider, as real ones do after a day."""
        with self._lock:
            self._db.execute("delete from answer where provider = ?", [provider])

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._db.executescript("delete from entry; delete from answer")

    def reset(self) -> None:
        """Forget everything, and give numbers from 1 again."""
        with self._lock:
            self.clear()
            self._number = 0
            self._db.execute("update number set n = 0")

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            self._db.close()

    def _select(self, query: str, values: list[Any]) -> list[LedgerEntry]:
        with self._lock:
            rows = self._db.execute(f"select serial, kind, id, at, body from entry {query}", values).fetchall()  # noqa: S608 (our own text)
        return [LedgerEntry(row[0], row[1], row[2], datetime.fromisoformat(row[3]), json.loads(row[4])) for row in rows]
