"""What a worker whose event loop stands still hands over: by a connection of its own, from a thread of its own."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import msgspec
import psycopg

from mainspring.config import WorkerConfig
from mainspring.db.wire.connect import Connection, options
from mainspring.db.wire.sql import Sql
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.outbox import Outbox, Outcomes, settle_row
from mainspring.worker.tracker import trust

_json = msgspec.json.Encoder().encode


class Handover:
    """Writes in place of the event loop: renews what does not run on it, and at the end gives all of that back."""

    def __init__(
        self, dsn: str, sql: Sql, worker: str, config: WorkerConfig, attempts: Mapping[int, LiveAttempt], outbox: Outbox
    ) -> None:
        self._dsn, self._sql, self._worker, self._config = dsn, sql, worker, config
        self._attempts, self._outbox = attempts, outbox

    def keep(self, attempts: Sequence[LiveAttempt]) -> None:
        """Renew these leases: they would end before it is clear whether the event loop goes on."""
        epochs, sent_at = [attempt.claim.epoch for attempt in attempts], time.monotonic()  # the loop's clock
        with self._connect() as conn:
            found = self._execute(conn, "renew", [self._worker, self._config.lease_there, epochs])
        alive = {epoch for epoch, _, renewed in found if renewed}
        for attempt in attempts:
            if attempt.claim.epoch in alive:
                attempt.trusted_until = trust(self._config, sent_at)

    def give_back(self, left: Sequence[LiveAttempt]) -> int:
        """Write what has ended and give the rest back unburnt, except these; returns how many were given back."""
        outbox = self._outbox
        outcomes = Outcomes(list(outbox.done), list(outbox.results), list(outbox.moves))
        attempts = dict(self._attempts)
        # The end of one that is about to commit is its own transaction's business, which may hold its row.
        stay = [attempt.claim.epoch for attempt in (*left, *attempts.values()) if attempt in left or attempt.committing]
        with self._connect() as conn:
            self._write(conn, outcomes)
            held = [epoch for (epoch,) in self._execute(conn, "orphans", [self._worker, stay])]
            moves = [
                {"epoch": epoch, "verb": "release", "started": epoch in attempts and attempts[epoch].handle is not None}
                for epoch in held
            ]
            try:
                return len(self._settle(conn, moves))
            except psycopg.Error:  # somebody holds one of the rows: it must not keep the others
                return sum(len(self._try_one(conn, move)) for move in moves)

    def _write(self, conn: Connection, outcomes: Outcomes) -> None:
        with suppress(psycopg.Error):  # then they are given back with the others, as good as never run
            if outcomes.done:
                self._execute(conn, "complete", [self._worker, [attempt.claim.epoch for attempt in outcomes.done]])
            if outcomes.results:
                epochs, results = (
                    [attempt.claim.epoch for attempt, _ in outcomes.results],
                    [text for _, text in outcomes.results],
                )
                self._execute(conn, "complete_with", [self._worker, epochs, results])
            if outcomes.moves:
                self._settle(conn, [settle_row(attempt, move) for attempt, move in outcomes.moves])

    def _try_one(self, conn: Connection, move: dict[str, Any]) -> list[Any]:
        with suppress(psycopg.Error):
            return self._settle(conn, [move])
        return []

    def _settle(self, conn: Connection, moves: Sequence[dict[str, Any]]) -> list[Any]:
        return self._execute(conn, "settle", [self._worker, _json(moves).decode()]) if moves else []

    def _connect(self) -> Connection:
        given = options(self._dsn, f"mainspring worker {self._worker}", prepare=False)
        return Connection.connect(self._dsn, **given | ({"connect_timeout": 2} if "connect_timeout" in given else {}))

    def _execute(self, conn: Connection, name: str, parameters: list[Any]) -> list[Any]:
        with conn.transaction():
            conn.execute("set local lock_timeout = '500ms'")
            return conn.execute(self._sql[name], parameters).fetchall()
