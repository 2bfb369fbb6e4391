"""Metrics for Prometheus: the same as a worker's."""

from __future__ import annotations

import asyncio

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from starlette.requests import Request
from starlette.responses import Response

from mainspring.web.answers import unauthorized
from mainspring.web.backend import Backend


class Scrape:
    """Shows what was counted here, and the state of the database; one look at a time, however many ask."""

    def __init__(self, backend: Backend) -> None:
        self._backend, self._one = backend, asyncio.Lock()
        self._registry = CollectorRegistry()
        self._registry.register(backend.metrics)

    async def answer(self, request: Request) -> Response:
        """Answer in Prometheus' text."""
        if not self._backend.may_look(request):
            return unauthorized()
        async with self._one:
            text = await asyncio.to_thread(generate_latest, self._registry)
        return Response(text, headers={"content-type": CONTENT_TYPE_LATEST})
