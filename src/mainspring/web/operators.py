"""What is for operators alone, the API and the console: who asks is looked at before anything else of a request."""

from __future__ import annotations

from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring.declare.principal import PRINCIPAL
from mainspring.web.answers import nobody, refusal
from mainspring.web.authenticator import Authenticator
from mainspring.web.guarded_route import answer_of
from mainspring.web.origin import deny


class OperatorsOnly:
    """Answers 401 to whom we do not know and 403 to a member, whatever the address; all others get through."""

    def __init__(self, inside: ASGIApp, access: Authenticator) -> None:
        self._inside, self._access = inside, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let an operator through, or somebody who may look."""
        answer = await answer_of(scope, self._refused(scope))
        if answer is not None:
            return await deny(answer, scope, receive, send)
        return await self._inside(scope, receive, send)

    async def _refused(self, scope: Scope) -> Response | None:
        principal = await self._access.principal(HTTPConnection(scope))
        if principal is None:
            return nobody()
        if not principal.may("viewer"):
            return refusal(403, "FORBIDDEN", "This is for operators.")
        scope[PRINCIPAL] = principal
        return None
