"""What the handlers of one worker share: how they reach the database, its keys and its breakers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool

from mainspring.db.cipher import Keyring
from mainspring.db.wire.sql import Sql
from mainspring.worker.breakers import BreakerService
from mainspring.worker.reporter import Reports
from mainspring.worker.transactions import Transactions


@dataclass(frozen=True, slots=True)
class Resources:
    """Every context of a handler has them."""

    sql: Sql
    worker: str  # its id
    transactions: Transactions  # for async handlers
    pool: ConnectionPool[Connection[Any]]  # for plain functions, in threads
    breakers: BreakerService
    ring: Keyring
    reports: Reports

    @property
    def encrypts(self) -> bool:
        """Whether what jobs carry, return, raise and keep is encrypted."""
        return self.ring.cipher is not None

    def close(self) -> None:
        """Forget the keys."""
        self.ring.close()
