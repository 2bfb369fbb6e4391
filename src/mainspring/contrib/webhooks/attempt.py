"""One attempt of a delivery: read, call, record.

Reading and recording are fenced transactions, the call is in neither. A worker that dies or loses its lease between the
call and the record has delivered without knowing: the next attempt sends the same bytes under the same id once more.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, Final
from uuid import UUID

from psycopg import AsyncConnection

from mainspring.cipher import SEALED, OrgKeys
from mainspring.contrib.webhooks import request, vault, verdict
from mainspring.contrib.webhooks.endpoint import read_headers
from mainspring.contrib.webhooks.target import TargetRefused
from mainspring.contrib.webhooks.transport import Transport
from mainspring.db import jobs, webhooks
from mainspring.db.jobs import Who
from mainspring.db.webhooks import AttemptRecord, Begun, Endpoint
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.declare.caller import NOBODY
from mainspring.declare.context import Context
from mainspring.declare.envelope import complete
from mainspring.errors import UnknownName
from mainspring.events import EndpointDisabled, Observer, tell
from mainspring.job import NewJob
from mainspring.outcome import Failure, Permanent, Withheld
from mainspring.text.sanitize import sanitize

#: What makes the job that tells an organisation.
Notice = Callable[[Endpoint], NewJob | None]
REASON: Final = "the receiver answered 410 Gone"


@dataclass(frozen=True, slots=True)
class WebhookSender:
    """What attempts share."""

    sql: Sql
    transport: Transport
    timeout: float
    disabled: Notice | None
    observers: Sequence[Observer]

    async def attempt(self, ctx: Context, delivery: UUID) -> None:
        """Deliver, or raise what decides about the next attempt."""
        async with ctx.transaction() as conn:
            begun = await run_async(async_psycopg_door(conn), webhooks.begin(self.sql, ctx.job.org_id, delivery))
        if begun is not None and begun.delivered:  # by an attempt that could not say so, or by a replay
            return
        if begun is None or begun.state in (None, "disabled"):
            raise Permanent(code="WebhookDisabled")
        if begun.state == "paused":
            raise Withheld(f"endpoint:{begun.endpoint}")  # until it is resumed
        await self._call(ctx, begun)

    async def _call(self, ctx: Context, begun: Begun) -> None:
        org, seam = ctx.job.org_id, ctx.client.seam
        assert begun.url is not None
        assert begun.prefix is not None
        keys = await seam.do(vault.to_read(seam, org, begun.body, begun.headers, *begun.secrets))
        body = vault.opened(keys, org, "body", begun.event_id, begun.body).encode()
        custom = begun.headers and vault.opened(keys, org, "headers", begun.endpoint, begun.headers)
        headers = request.headers(
            delivery=begun.id,
            event_type=begun.event_type,
            body=body,
            prefix=begun.prefix,
            secrets=[vault.opened(keys, org, "secret", begun.endpoint, secret) for secret in begun.secrets],
            now=begun.now,
            custom=read_headers(custom),
        )
        try:
            answer = await self.transport.post(begun.url, headers, body, timeout=self.timeout)
        except (Failure, TargetRefused) as error:
            await self._failed(ctx, begun, AttemptRecord(error=verdict.words(error)))
            raise
        problem = verdict.failure(answer, begun.now + timedelta(seconds=answer.seconds))
        kept = _sealed(verdict.kept(answer, problem), keys if begun.body.startswith(SEALED) else None, org, begun.id)
        if problem is not None:
            await self._failed(ctx, begun, kept, gone=answer.status == verdict.HTTP_GONE)
            raise problem
        async with ctx.complete() as conn:  # delivered and completed in one commit
            dialogue = webhooks.record(self.sql, org, begun.id, kept, delivered=True)
            await run_async(async_psycopg_door(conn), dialogue)

    async def _failed(self, ctx: Context, begun: Begun, kept: AttemptRecord, *, gone: bool = False) -> None:
        """Keep how the call ended; a receiver that is gone gets nothing more."""
        org, was = ctx.job.org_id, False
        async with ctx.transaction() as conn:
            door = async_psycopg_door(conn)
            await run_async(door, webhooks.record(self.sql, org, begun.id, kept, delivered=False))
            if gone:
                with suppress(UnknownName):  # it was removed meanwhile
                    was = await run_async(
                        door, webhooks.set_state(self.sql, begun.endpoint, Who(org), "disabled", REASON)
                    )
                if was and self.disabled is not None:
                    await self._notice(ctx, conn, begun.endpoint, self.disabled)
        if was:
            tell(self.observers, [EndpointDisabled(begun.endpoint, org, REASON)])

    async def _notice(self, ctx: Context, conn: AsyncConnection[Any], endpoint: UUID, make: Notice) -> None:
        """Enqueue the job that tells the organisation; where it cannot be, the receiver is gone all the same."""
        org, door = ctx.job.org_id, async_psycopg_door(conn)
        try:
            async with conn.transaction():
                job = make(await run_async(door, webhooks.endpoint_of(self.sql, endpoint, Who(org))))
                if job is not None:
                    await run_async(door, jobs.enqueue_many(self.sql, complete([job.for_org(org)], NOBODY)))
        except Exception as error:
            ctx.log.error("nobody is told that endpoint %s is gone: %s", endpoint, sanitize(repr(error), 500))


def _sealed(kept: AttemptRecord, keys: OrgKeys | None, org: str, delivery: UUID) -> AttemptRecord:
    """What is kept of an answer, encrypted where the body of its delivery is."""
    if keys is None or kept.headers is None or kept.body is None:
        return kept
    body = vault.closed(keys, org, "answer", delivery, kept.body)
    headers = vault.closed(keys, org, "answer headers", delivery, kept.headers)
    return replace(kept, headers=headers, body=base64.b64encode(body.encode()).decode())
