"""What stands before every route: limits, ids, headers, one log line, and no stack trace for anybody."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import replace

from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mainspring.checks import clean_traceparent
from mainspring.declare.caller import Caller, calling, current
from mainspring.errors import MainspringError
from mainspring.uuid7 import uuid7
from mainspring.web.answers import answer_to, broken, refusal, refused
from mainspring.web.origin import HEALTH_PATHS, AllowedHosts, OriginCheck, scope_path, stopped
from mainspring.web.paces import RequestPaces, RequestRates
from mainspring.web.places import BODY_S, Places
from mainspring.web.proxies import TrustedProxies

log = logging.getLogger("mainspring.web")

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
LONGEST_PATH, LONGEST_QUERY = 2048, 8192
MOST_REQUEST_HEADERS, LONGEST_HEADERS = 100, 32 * 1024
HTTP_HUNG_UP = 499  # the caller hung up before it could be answered; only in the log
#: Asked every few seconds by machines: said when it is not well.
QUIET_PATHS = HEALTH_PATHS | {"/metrics"}
#: On every answer, unless a route says otherwise.
ANSWER_HEADERS = {"referrer-policy": "no-referrer", "cache-control": "no-store"}
#: What a page may do at the most. A route that has a policy of its own has both, and a browser keeps to both.
CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "object-src 'none'; form-action 'self'; frame-ancestors 'none'"
)
#: On every answer, whatever a route says.
FLOOR_HEADERS = {
    "x-content-type-options": "nosniff",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",  # nor may a page include what it cannot read
}
HSTS = "max-age=31536000"

NO_PROXIES = TrustedProxies()
UNHURRIED = RequestPaces(RequestRates(0, 0, 0))

_ID = re.compile(r"[\w.:/+=@-]{1,128}", re.ASCII)
_CONTROL = re.compile("[\x00-\x1f\x7f]")


class Guard:
    """The middleware around everything that is served."""

    def __init__(
        self,
        app: ASGIApp,
        *,
        largest: int,
        hosts: AllowedHosts,
        proxies: TrustedProxies = NO_PROXIES,
        paces: RequestPaces = UNHURRIED,
        uncounted: frozenset[str] = frozenset(),
    ) -> None:
        self._app, self._largest, self._hosts, self._places = app, largest, hosts, Places()
        self._proxies, self._paces, self._uncounted = proxies, paces, uncounted | HEALTH_PATHS
        self._origin_check = OriginCheck(app, hosts=hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let a request in, if it is one."""
        if scope["type"] != "lifespan":
            self._proxies.see_through(scope)
        if scope["type"] != "http":  # a websocket has no body and no answer of its own: only its origin is checked
            return await self._origin_check(scope, receive, send)
        headers = Headers(scope=scope)
        caller = caller_of(headers)
        with calling(caller):
            passage = _Passage(scope, receive, send, caller, self._largest, self._places)
            odd = oddity(scope, headers, self._largest) or stopped(scope, self._hosts)
            return await passage.through(self._app, odd or self._too_fast(scope))

    def _too_fast(self, scope: Scope) -> Response | None:
        return None if scope_path(scope) in self._uncounted else self._paces.of_address(scope)


class _Passage:
    """One request on its way."""

    def __init__(
        self, scope: Scope, receive: Receive, send: Send, caller: Caller, largest: int, places: Places
    ) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self._caller, self._left, self._places = caller, largest, places
        self._deadline, self._arrived = 0.0, False
        self._largest, self._status = largest, 0

    async def through(self, app: ASGIApp, odd: Response | None) -> None:
        """Answer, whatever happens, and say so in the log; what is odd has its answer already."""
        began, outer = time.monotonic(), self._scope.get("route")
        try:
            await self._pass(app, odd)
        finally:
            self._say(time.monotonic() - began, outer)

    async def _pass(self, app: ASGIApp, odd: Response | None) -> None:
        try:
            if odd is not None:
                return await odd(self._scope, self._receive, self._answer)
            if scope_path(self._scope) in HEALTH_PATHS:  # it needs no place, and reads no body
                return await app(self._scope, self._receive, self._answer)
            if not self._places.take():
                answer = refusal(503, "BUSY", "Too many requests are under way; try again.")
                return await answer(self._scope, self._receive, self._answer)
            try:
                return await app(self._scope, self._limited, self._answer)
            finally:
                self._places.leave()
        except ClientDisconnect:
            self._status = self._status or HTTP_HUNG_UP
        except Exception as error:
            if self._status:  # half an answer is out: the server must break it off
                raise
            answer = self._answer_to(error)
            await answer(self._scope, self._receive, self._answer)

    def _answer_to(self, error: Exception) -> Response:
        answer = answer_to(error) if isinstance(error, MainspringError) else None
        if isinstance(error, HTTPException):
            answer = refused(Request(self._scope), error)
        if answer is None:
            log.error("a request failed", exc_info=error, extra={"action": "fail"})
            answer = broken()
        return answer

    async def _limited(self) -> Message:
        if self._arrived:  # what is still to come is that the caller hangs up
            return await self._receive()
        self._deadline = self._deadline or asyncio.get_running_loop().time() + BODY_S
        message = await self._places.arriving(self._receive, self._deadline)
        self._arrived = not message.get("more_body", False)
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise HTTPException(413, f"The body is larger than {self._largest} bytes")
        return message

    async def _answer(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            headers = MutableHeaders(raw=list(message.get("headers", ())))
            for name, value in ANSWER_HEADERS.items():
                headers.setdefault(name, value)
            for name, value in FLOOR_HEADERS.items():
                headers[name] = value
            if CONTENT_POLICY not in headers.getlist("content-security-policy"):
                headers.append("content-security-policy", CONTENT_POLICY)
            if self._scope.get("scheme") == "https":
                headers.setdefault("strict-transport-security", HSTS)
            headers["x-request-id"] = self._caller.request_id or ""
            message = {**message, "headers": headers.raw}
        await self._send(message)

    def _say(self, seconds: float, outer: object) -> None:
        """One line a request: the route's own words where one matched, never a query."""
        route, method = self._scope.get("route"), self._scope["method"]
        own = None if route is outer else getattr(route, "path", None)
        path = self._scope["path"][:200] if own is None else f"{self._scope.get('root_path', '')}{own}"
        well = 0 < self._status < 400
        level = (
            logging.DEBUG
            if well and own in QUIET_PATHS
            else logging.ERROR
            if self._status in (0, 500)
            else logging.INFO
        )
        fields = {"action": "request", "method": method, "path": path, "status": self._status}
        fields["duration_ms"] = round(seconds * 1000)
        fields["client"] = (self._scope.get("client") or ("unknown",))[0]  # the caller's, where a named proxy says it
        log.log(level, "%s %s %d", method[:20], path, self._status, extra=fields)


def caller_of(headers: Headers) -> Caller:
    """Who calls: the ids that they bring, or new ones; what an outer middleware has said stays."""
    outer = current()
    request = outer.request_id or _id(headers.get("x-request-id")) or str(uuid7())
    correlation = outer.correlation_id or _id(headers.get("x-correlation-id")) or request
    trace = outer.traceparent or clean_traceparent(headers.get("traceparent"))
    return replace(outer, request_id=request, correlation_id=correlation, traceparent=trace)


def _id(given: str | None) -> str | None:
    return given if given and _ID.fullmatch(given) else None


def oddity(scope: Scope, headers: Headers, largest: int) -> Response | None:
    """The answer to a request that no route should see; None to all others."""
    path = scope["path"]
    if scope["method"] not in METHODS:
        return refusal(405, "METHOD_NOT_ALLOWED", "Method Not Allowed.", {"allow": "GET, POST"})
    if len(path) > LONGEST_PATH or len(scope.get("query_string", b"")) > LONGEST_QUERY:
        return refusal(414, "URI_TOO_LONG", "The address is too long.")
    if (
        len(headers.raw) > MOST_REQUEST_HEADERS
        or sum(len(name) + len(value) for name, value in headers.raw) > LONGEST_HEADERS
    ):
        return refusal(431, "REQUEST_HEADER_FIELDS_TOO_LARGE", "There are too many headers.")
    if not {"..", "."}.isdisjoint(re.split(r"[/\\]", path)) or _CONTROL.search(path):
        return refusal(404, "NOT_FOUND", "Not Found.")
    if "transfer-encoding" in headers and "content-length" in headers:  # where one ends, a proxy may see otherwise
        return refusal(400, "BAD_REQUEST", "content-length: goes with no transfer-encoding.", {"connection": "close"})
    length = headers.get("content-length", "0")
    if not (length.isascii() and length.isdigit()):
        return refusal(400, "BAD_REQUEST", "content-length: is not a number.")
    if int(length[:20]) > largest:
        return refusal(413, "PAYLOAD_TOO_LARGE", f"The body is larger than {largest} bytes.")
    return None
