"""Webhooks of providers: verified, recorded once together with the job that acts on them, answered after the commit."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import psycopg
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from mainspring.db.inbound import receive
from mainspring.db.wire.bound import async_bound
from mainspring.db.wire.connect import AsyncConnection
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.declare.block import Inbound, Received, SignatureRefused
from mainspring.declare.envelope import complete
from mainspring.errors import ConfigurationError
from mainspring.events import JobEnqueued, enqueued, tell
from mainspring.job import DEFAULT_ORG, NewJob
from mainspring.web.answers import Json
from mainspring.web.backend import Backend

log = logging.getLogger("mainspring.web")

LARGEST_INBOUND_BODY = 1024 * 1024  # bytes of a body: what its table takes


class InboundReceiver:
    """Takes the webhooks of every provider that the blocks know."""

    def __init__(self, backend: Backend, sources: Sequence[Inbound]) -> None:
        self._backend = backend
        self._sources: dict[str, Inbound] = {}
        for source in sources:
            if self._sources.setdefault(source.name, source) is not source:
                raise ConfigurationError(f"inbound: two providers are called {source.name}")

    async def answer(self, request: Request) -> Response:
        """Answer 200 once the event is recorded, whether now or before; 503 makes the provider send it again."""
        provider = request.path_params["provider"]
        self._source(provider)  # before a body is read for nobody
        headers = {name: ", ".join(request.headers.getlist(name)) for name in request.headers}
        await self.receive(provider, headers, await self._body(request))
        return Json({"received": True})

    async def receive(self, provider: str, headers: Mapping[str, str], body: bytes) -> None:
        """Verify an event by the database's time, and record it once with its job; `headers` have lower-case names."""
        source = self._source(provider)
        received = self._verified(source, headers, body, await self._backend.now())
        job = self._job(source, received)
        if job is not None and job.org_id is not None:
            received = replace(received, org_id=job.org_id)  # where the job looks for it
        async with self._backend.connection() as conn:
            told = await self._keep(conn, source.name, received, job)
        tell(self._backend.observers, told)  # after the commit

    def _source(self, provider: str) -> Inbound:
        source = self._sources.get(provider)
        if source is None:
            raise HTTPException(404)
        return source

    async def _body(self, request: Request) -> bytes:
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > LARGEST_INBOUND_BODY:
                raise HTTPException(413, f"The body is larger than {LARGEST_INBOUND_BODY} bytes")
        return bytes(body)

    def _verified(self, source: Inbound, headers: Mapping[str, str], body: bytes, now: datetime) -> Received:
        try:
            received = source.verify(headers, body, now)
        except SignatureRefused as refused:
            log.warning("webhook of %s refused: %s", source.name, refused, extra={"action": "refuse"})
            raise
        except Exception as error:  # what came cannot be read; nobody's 500
            log.warning("webhook of %s cannot be read", source.name, exc_info=error, extra={"action": "refuse"})
            raise HTTPException(400, "The webhook cannot be read") from None
        org = received.org_id or self._backend.app.caller.org_id or DEFAULT_ORG
        return replace(received, org_id=org)

    def _job(self, source: Inbound, received: Received) -> NewJob | None:
        job = source.job(received)
        if job is None:
            return None
        assert received.org_id is not None
        job = job if job.org_id is not None else job.for_org(received.org_id)
        return complete([job], self._backend.app.caller)[0]

    async def _keep(
        self, conn: AsyncConnection, provider: str, received: Received, job: NewJob | None
    ) -> list[JobEnqueued]:
        """Record the event and enqueue its job, both or none; returns what is to be told."""
        try:
            async with async_bound(conn, received.org_id):
                flow = receive(self._backend.sql, provider, received, job)
                if not await run_async(async_psycopg_door(conn), flow) or job is None:
                    return []
                answer = await self._backend.client.enqueue(job, conn=conn)
        except (psycopg.DataError, UnicodeError):  # a NUL or half a surrogate: the database has no room for it
            raise HTTPException(400, "The webhook cannot be stored") from None
        return [enqueued(job, answer.state)] if answer.answer == "created" else []
