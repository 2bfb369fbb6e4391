"""Who knows the people and programs that come in over HTTP."""

from __future__ import annotations

from typing import Protocol

from starlette.requests import HTTPConnection

from mainspring.declare.principal import Principal


class Authenticator(Protocol):
    """Who knows the people and programs that may ask: by a token, or by a session."""

    async def principal(self, request: HTTPConnection, /) -> Principal | None:
        """Who asks, by the head of the request alone; None: nobody that we know.

        A `MainspringError` or an `HTTPException` that it raises is the answer.
        """
