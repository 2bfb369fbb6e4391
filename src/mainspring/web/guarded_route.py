"""A route of the application behind its check: asked before anything of the request is read."""

from __future__ import annotations

from collections.abc import Awaitable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from typing import Any, Final

from starlette.datastructures import Headers, URLPath
from starlette.exceptions import HTTPException
from starlette.requests import HTTPConnection
from starlette.responses import Response
from starlette.routing import BaseRoute, Match
from starlette.types import Receive, Scope, Send

from mainspring.declare.caller import calling, current
from mainspring.declare.principal import PRINCIPAL, Principal
from mainspring.declare.route import DeclaredRoute
from mainspring.errors import ConfigurationError, MainspringError
from mainspring.web.answers import failed, nobody, refusal, refused
from mainspring.web.authenticator import Authenticator
from mainspring.web.origin import SAFE_METHODS, deny
from mainspring.web.secret import HeaderSecret, known_token

NO_TOKENS: Final[Mapping[str, str]] = {}


class GuardedRoute(BaseRoute):
    """Answers 401, 403 or 404 to whom it is not for, and 415 to another kind of body; else it is the route."""

    def __init__(
        self, declared: DeclaredRoute, tokens: Mapping[str, str] = NO_TOKENS, access: Authenticator | None = None
    ) -> None:
        self._route, self._declared, self._access = declared.route, declared, access
        self.path: str = getattr(declared.route, "path", "")
        self._token: HeaderSecret | None = None
        if declared.setting is not None:
            self._token = known_token(declared.setting, tokens, self.path, needed=declared.access == "token")

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
        answer = await answer_of(scope, self._refused(scope))
        if answer is not None:
            return await deny(answer, scope, receive, send)
        with self._calling(scope):
            await self._route.handle(scope, receive, send)
        return None

    async def _refused(self, scope: Scope) -> Response | None:
        headers, needed = Headers(scope=scope), self._declared
        if needed.access != "public":
            principal = await self._principal(scope, headers)
            if principal is None:
                return nobody()
            if not principal.sees(needed.org):
                raise HTTPException(404)
            if not principal.may(needed.role):
                return refusal(403, "FORBIDDEN", f"This needs the role {needed.role}.")
            scope[PRINCIPAL] = principal
        if scope["type"] == "http" and scope["method"] not in SAFE_METHODS and not takes(headers, needed.accepts):
            return refusal(415, "UNSUPPORTED_MEDIA_TYPE", f"The body must be {' or '.join(needed.accepts)}.")
        return None

    async def _principal(self, scope: Scope, headers: Headers) -> Principal | None:
        if self._token is not None and self._token.matches(bearer(headers)):
            setting = self._declared.setting
            return Principal(setting or "", "admin", self._declared.org, actor_type="api_key", program=setting)
        if self._access is None or self._declared.access != "role":
            return None
        return await self._access.principal(HTTPConnection(scope))

    def _calling(self, scope: Scope) -> AbstractContextManager[None]:
        """What a route enqueues is by who asks for it; a program with a token of its own says that itself."""
        if self._declared.access != "role":
            return nullcontext()
        who: Principal = scope[PRINCIPAL]
        org = self._declared.org or current().org_id
        return calling(replace(current(), org_id=org, actor_type=who.actor_type, actor_id=who.name))


def guarded(
    routes: Sequence[Any], tokens: Mapping[str, str] = NO_TOKENS, access: Authenticator | None = None
) -> list[GuardedRoute]:
    """The routes of an application behind their checks; one that declares none stops the start."""
    for route in routes:
        if not isinstance(route, DeclaredRoute):
            name = getattr(route, "path", None) or repr(route)
            raise ConfigurationError(
                f"routes: {name} does not say who may come in: public(route), by_role(route, 'viewer') or"
                " by_token(route, 'SHOP_TOKEN')"
            )
    return [GuardedRoute(route, tokens, access) for route in routes]


async def answer_of(scope: Scope, check: Awaitable[Response | None]) -> Response | None:
    """What a check answers, also where it raises that; None: nothing is wrong."""
    try:
        return await check
    except HTTPException as error:
        return refused(HTTPConnection(scope), error)
    except MainspringError as error:
        return failed(HTTPConnection(scope), error)


def bearer(headers: Headers) -> str | None:
    """The token that a request shows."""
    scheme, _, token = headers.get("authorization", "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def takes(headers: Headers, accepts: Sequence[str]) -> bool:
    """Whether a body, if there is one, is of a kind that is wanted."""
    length, kind = headers.get("content-length"), headers.get("content-type")
    empty = length == "0" or (length is None and kind is None and "transfer-encoding" not in headers)
    return empty or not accepts or (kind or "").partition(";")[0].strip().lower() in accepts
