"""Webhooks that came from providers, as dialogues."""

from __future__ import annotations

from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Statement, ask, scalar
from mainspring.declare.block import Received
from mainspring.job import DEFAULT_ORG, NewJob


def receive(sql: Sql, provider: str, event: Received, job: NewJob | None) -> Dialogue[bool]:
    """Record an event; False when it came before, and then the job must not be enqueued."""
    params: Params = {"org": event.org_id or DEFAULT_ORG, "provider": provider, "event": event.event_id}
    params |= {"type": event.type, "body": event.body, "job": None if job is None else str(job.id)}
    new: bool = yield from ask(Statement(sql["receive"], params, scalar))
    return new


def received(sql: Sql, org: str, provider: str, event_id: str) -> Dialogue[Received | None]:
    """An event as it came, for the job that acts on it."""
    params: Params = {"org": org, "provider": provider, "event": event_id}
    return (
        yield from ask(
            Statement(
                sql["received"],
                params,
                lambda rows: Received(event_id, rows[0][0], rows[0][1], org) if rows else None,
            )
        )
    )
