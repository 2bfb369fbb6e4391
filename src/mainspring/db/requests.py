"""What stands around a request of the HTTP API, as dialogues."""

from __future__ import annotations

from typing import NamedTuple

from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Statement, ask, nothing


class KeptAnswer(NamedTuple):
    """What was asked under a key, and answered."""

    fingerprint: str
    status: int
    etag: str | None
    body: str


def bind(sql: Sql, org: str | None, *, writes: bool) -> Dialogue[None]:
    """Bind the transaction to an organisation, and to reading where nothing shall be written."""
    params: Params = {"org": org, "read_only": "off" if writes else "on"}
    yield from ask(Statement(sql["bind_request"], params, nothing))


def begin(sql: Sql, org: str, actor: str, key: str, fingerprint: str) -> Dialogue[KeptAnswer | None]:
    """Take a key for this request; None: it is ours."""
    params: Params = {"org": org, "actor": actor, "key": key, "fingerprint": fingerprint}
    statement = Statement(sql["begin_request"], params, lambda rows: KeptAnswer(*rows[0]) if rows else None)
    return (yield from ask(statement))


def end(sql: Sql, org: str, actor: str, key: str, answer: KeptAnswer) -> Dialogue[None]:
    """Keep the answer under its key."""
    params: Params = {"org": org, "actor": actor, "key": key, "status": answer.status, "etag": answer.etag}
    yield from ask(Statement(sql["end_request"], params | {"body": answer.body}, nothing))


def lock_for_change(sql: Sql, kind: str, org: str | None, name: str) -> Dialogue[None]:
    """Let a thing stay as it is until the transaction ends."""
    yield from ask(Statement(sql["lock_for_change"], {"kind": kind, "org": org, "name": name}, nothing))
