"""The HTTP API as one ASGI application, behind `OperatorsOnly`, which says who asks."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, Router
from starlette.types import Receive, Scope, Send

from mainspring.app import App
from mainspring.errors import MainspringError
from mainspring.web.answers import refusal
from mainspring.web.api.connections import Connections
from mainspring.web.api.openapi import document
from mainspring.web.api.perform import Performer
from mainspring.web.api.refused import refused_answer, refused_http
from mainspring.web.api.resources import OPERATIONS
from mainspring.web.api.slashes import held_path
from mainspring.web.origin import deny

API_PREFIX: Final = "/api/v1"
API_DOCUMENT: Final = "/openapi.json"


class HttpApi:
    """Finds the operation that is asked for."""

    def __init__(self, app: App) -> None:
        self.connections = Connections(app)
        routes = [
            Route(one.path, Performer(one, self.connections).answer, methods=[one.method], name=one.name)
            for one in OPERATIONS
        ]
        self._document = msgspec.json.encode(document(API_PREFIX))
        routes.append(Route(API_DOCUMENT, self._describe))
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer."""
        if scope["type"] != "http":
            return await deny(refusal(404, "NOT_FOUND", "There is nothing here."), scope, receive, send)
        try:
            return await self._route(scope, receive, send)
        except (HTTPException, MainspringError) as error:
            refused = refused_http(error) if isinstance(error, HTTPException) else refused_answer(error)
            if refused is None:
                raise
            return await refused(scope, receive, send)

    async def _route(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Find the operation, whatever slashes the names in its address have; the log has the address as it was."""
        path = scope["path"]
        scope["path"] = held_path(scope)
        try:
            await self._router(scope, receive, send)
        finally:
            scope["path"] = path

    async def _describe(self, _: Request) -> Response:
        return Response(self._document, media_type="application/json")

    async def close(self) -> None:
        """Let go of the connections."""
        await self.connections.close()
