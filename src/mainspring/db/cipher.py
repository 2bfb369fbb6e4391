"""The keys of organisations: kept wrapped in the database, for half a minute unwrapped in memory."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Sequence
from typing import Any, Final, TypeVar
from uuid import UUID

import msgspec
import psycopg
from psycopg_pool import ConnectionPool, PoolTimeout

from mainspring.cipher import Cipher, OrgKeys, seal_job
from mainspring.config import ANSWERED_WITHIN
from mainspring.db.jobs import Who, why
from mainspring.db.wire.connect import pool, why_not
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Row, Statement, ask, nothing, scalar
from mainspring.db.wire.translate import unavailable
from mainspring.errors import ConfigurationError, DatabaseUnavailable, ValidationError
from mainspring.job import DEFAULT_ORG, Job, NewJob
from mainspring.uuid7 import uuid7

T = TypeVar("T")

#: How long a key is remembered, and so how long an erased one may still be used, in seconds.
KEYS_LIFE_S: Final = 30.0
#: A key that is not known is asked for again, but no sooner than this.
KEY_ASKED_AGAIN_S: Final = 1.0
MOST_KEYRINGS: Final = 10_000  # organisations remembered at once


class Keyring:
    """The keys that this process may use.

    It has a connection of its own, made when the first key is needed: a key that was made in a caller's transaction
    would be lost with it. Its methods block; asynchronous code calls them in a thread where `known` has no answer.
    """

    def __init__(
        self,
        cipher: Cipher | None,
        dsn: str,
        sql: Sql,
        *,
        secured: bool = False,
        answered_within: float = ANSWERED_WITHIN,
    ) -> None:
        self.cipher, self._limit = cipher, answered_within
        self.dsn, self._sql, self._secured = dsn, sql, secured
        self._pool: ConnectionPool[psycopg.Connection[Any]] | None = None
        self._making = threading.Lock()
        self._keys: dict[str, tuple[float, OrgKeys]] = {}

    def known(self, org: str, key_id: str | None = None) -> OrgKeys | None:
        """The keys of an organisation, if they are in memory; with `key_id`, if that one is among them."""
        at, keys = self._keys.get(org, (0.0, None))
        age = time.monotonic() - at
        if keys is None or age > KEYS_LIFE_S or (key_id is not None and key_id not in keys and age > KEY_ASKED_AGAIN_S):
            return None
        return keys

    def to_read(self, org: str, key_id: str | None = None) -> OrgKeys:
        """The keys of an organisation; it may have none any more."""
        known = self.known(org, key_id)
        return known if known is not None else self._load(org, self._do(org, _rows(self._sql, org)))

    def to_write(self, org: str, key_id: str | None = None) -> OrgKeys:
        """The keys of an organisation; its first one is made here."""
        keys = self.to_read(org, key_id)
        if keys.current is None:
            assert self.cipher is not None
            key_id = str(uuid7())
            wrapped = self.cipher.new_key(org, key_id)
            keys = self._load(org, self._do(org, _add(self._sql, org, key_id, wrapped)))
        return keys

    def sealed(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Completed and checked jobs, as they are written."""
        return [seal_job(job, self.to_write(job.org_id or DEFAULT_ORG)) if job.encrypt else job for job in jobs]

    def sealed_again(self, job: Job, successor: UUID, payload: bytes) -> str:
        """Another payload for the successor of a job."""
        key = None if job.idempotency_key == str(job.id) else job.idempotency_key
        new = NewJob(task=job.task, payload=msgspec.Raw(payload), id=successor, org_id=job.org_id, key=key)
        return bytes(seal_job(new, self.to_write(job.org_id)).payload).decode()

    def ready(self, jobs: Sequence[NewJob]) -> bool:
        """Whether these can be sealed without asking the database."""
        known = (self.known(job.org_id or DEFAULT_ORG) for job in jobs if job.encrypt)
        return all(keys is not None and keys.current is not None for keys in known)

    def rotate(self, who: Who, reason: str) -> None:
        """Give an organisation a new key for new writes; what older ones encrypted stays readable."""
        params = _named(who, reason)
        org = str(params["org"])
        if self.cipher is None:
            raise ConfigurationError("a new key needs the master key: give the client a cipher")
        key_id = str(uuid7())
        self._do(org, _rotate(self._sql, params, key_id, self.cipher.new_key(org, key_id)))
        self._keys.pop(org, None)

    def forget(self, org: str) -> None:
        """Forget an organisation's keys."""
        self._keys.pop(org, None)

    def close(self) -> None:
        """Hang up, and forget every key."""
        self._keys.clear()
        if self._pool is not None:
            self._pool.close()

    def _load(self, org: str, rows: list[Row]) -> OrgKeys:
        secrets = {row[0]: self._unwrapped(org, row) for row in rows}
        keys = OrgKeys(org, secrets, next((row[0] for row in rows if row[2]), None))
        if len(self._keys) >= MOST_KEYRINGS:
            self._keys.clear()
        self._keys[org] = time.monotonic(), keys
        return keys

    def _unwrapped(self, org: str, row: Row) -> bytes | None:
        return None if self.cipher is None else self.cipher.unwrap(org, row[0], base64.b64decode(row[1]))

    def _do(self, org: str, dialogue: Dialogue[T]) -> T:
        with self._making:  # its callers are threads
            if self._pool is None:
                self._pool = pool(self.dsn, size=1, name="mainspring keys", answered_within=self._limit)
        self._pool.open()
        try:
            with unavailable(), self._pool.connection() as conn, conn.transaction():
                if self._secured:
                    conn.execute("select set_config('mainspring.org', %s, true)", [org])
                return run(psycopg_door(conn), dialogue)
        except PoolTimeout:
            raise DatabaseUnavailable(f"the database is unavailable: {why_not(self.dsn)}", sent=False) from None


def erase(sql: Sql, who: Who, reason: str) -> Dialogue[int]:
    """Delete the keys of an organisation: what they encrypted is unreadable from now on. Says how many there were."""
    count: int = yield from ask(Statement(sql["erase"], _named(who, reason), scalar))
    return count


def _named(who: Who, reason: str) -> dict[str, str | int | None]:
    if who.org_id is None:
        raise ValidationError("org: is missing", field="org")
    return {"org": who.org_id, "actor_type": who.actor_type, "actor_id": who.actor_id, "reason": why(reason)}


def _rows(sql: Sql, org: str) -> Dialogue[list[Row]]:
    return (yield from ask(Statement(sql["keys"], {"org": org}, list)))


def _add(sql: Sql, org: str, key_id: str, wrapped: bytes) -> Dialogue[list[Row]]:
    params = {"org": org, "id": key_id, "wrapped": base64.b64encode(wrapped).decode()}
    yield from ask(Statement(sql["add_key"], params, nothing))
    return (yield from _rows(sql, org))


def _rotate(sql: Sql, params: dict[str, str | int | None], key_id: str, wrapped: bytes) -> Dialogue[None]:
    params = params | {"id": key_id, "wrapped": base64.b64encode(wrapped).decode()}
    yield from ask(Statement(sql["rotate_key"], params, nothing))
