"""A route of the application behind its check: asked before anything of the request is read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from starlette.datastructures import Headers, URLPath
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from mainspring.declare.route import DeclaredRoute
from mainspring.errors import ConfigurationError
from mainspring.web.answers import refusal
from mainspring.web.origin import SAFE_METHODS, deny
from mainspring.web.secret import HeaderSecret, known_token


class GuardedRoute(BaseRoute):
    """Answers 401 without the token and 415 to another kind of body; else it is the route."""

    def __init__(self, declared: DeclaredRoute, tokens: Mapping[str, str]) -> None:
        self._route, self._accepts = declared.route, declared.accepts
        self.path: str = getattr(declared.route, "path", "")
        self._token: HeaderSecret | None = None
        if declared.access == "token":
            self._token = known_token(declared.setting, tokens, self.path)

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        """As the route does."""
        found: tuple[Match, Scope] = self._route.matches(scope)
        return found

    def url_path_for(self, name: str, /, **path_params: Any) -> URLPath:
        """As the route does."""
        found: URLPath = self._route.url_path_for(name, **path_params)
        return found

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request through to its route."""
        headers = Headers(scope=scope)
        if (answer := self._refused(scope, headers)) is not None:
            return await deny(answer, scope, receive, send)
        await self._route.handle(scope, receive, send)
        return None

    def _refused(self, scope: Scope, headers: Headers) -> Response | None:
        if self._token is not None and not self._token.matches(bearer(headers)):
            return refusal(401, "UNAUTHORIZED", "This needs a token.", {"www-authenticate": "Bearer"})
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS and not takes(headers, self._accepts):
            return refusal(415, "UNSUPPORTED_MEDIA_TYPE", f"The body must be {' or '.join(self._accepts)}.")
        return None


def guarded(routes: Sequence[Any], tokens: Mapping[str, str]) -> list[GuardedRoute]:
    """The routes of an application behind their checks; one that declares none stops the start."""
    for route in routes:
        if not isinstance(route, DeclaredRoute):
            name = getattr(route, "path", None) or repr(route)
            raise ConfigurationError(
                f"routes: {name} does not say who may come in: public(route), or by_token(route, 'SHOP_TOKEN')"
            )
    return [GuardedRoute(route, tokens) for route in routes]


def bearer(headers: Headers) -> str | None:
    """The token that a request shows."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def takes(headers: Headers, accepts: Sequence[str]) -> bool:
    """Whether a body, if there is one, is of a kind that is wanted."""
    length, kind = headers.get("content-length"), headers.get("content-type")
    empty = length == "0" or (length is None and kind is None and "transfer-encoding" not in headers)
    return empty or not accepts or (kind or "").partition(";")[0].strip().lower() in accepts
