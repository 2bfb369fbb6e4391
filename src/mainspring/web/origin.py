"""Hosts and origins: under which names this server answers, and which pages in a browser may change something here.

A browser sends requests for any page that somebody visits. Names are checked against pages whose own name suddenly
leads here, origins against pages that post to us. Programs send neither `Origin` nor `Sec-Fetch-Site`, and pass.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable

from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from mainspring.errors import ConfigurationError
from mainspring.web.answers import refusal

#: Always allowed: no page of somebody else can have these names.
LOOPBACK_NAMES = ("localhost", "127.0.0.1", "::1")
HEALTH_PATHS = frozenset({"/v1/health/live", "/v1/health/ready"})
SCOPE_KINDS = frozenset({"http", "websocket", "lifespan"})
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
POLICY_VIOLATION = 1008  # the code by which a websocket is closed

_HOST = re.compile(r"(?:\[([0-9a-f:.]+)\]|([a-z0-9._-]+))(?::\d{1,5})?", re.IGNORECASE | re.ASCII)
_NAME = re.compile(r"\*|(?:\*\.)?[a-z0-9_-]+(?:\.[a-z0-9_-]+)*", re.ASCII)


class AllowedHosts:
    """The names that a `Host` header may have, whatever its port.

    >>> hosts = AllowedHosts(["shop.example", "*.shop.example"])
    >>> [hosts.knows(host) for host in ("shop.example:443", "eu.shop.example", "127.0.0.1:8080", "[::1]", "evil.test")]
    [True, True, True, True, False]

    `*` allows all, for an application whose proxy or outer application has checked them. With `probe_by_ip` the health
    addresses answer under any IP address and without a name, as the probes of Kubernetes and of load balancers ask.
    """

    def __init__(self, names: Iterable[str] = (), *, probe_by_ip: bool = False) -> None:
        self._names = {*LOOPBACK_NAMES, *map(_checked, names)}
        self._parents = tuple(name[1:] for name in self._names if name.startswith("*."))
        self._probe_by_ip = probe_by_ip

    def knows(self, host: str) -> bool:
        """Whether the value of a `Host` header is one of ours."""
        name = _name_of(host)
        return name is not None and ("*" in self._names or name in self._names or name.endswith(self._parents))

    def answers_probe(self, scope: Scope, given: list[str]) -> bool:
        """Whether a request is a probe of our health that knows us by address only."""
        return (
            self._probe_by_ip
            and scope_path(scope) in HEALTH_PATHS
            and scope.get("method") in SAFE_METHODS
            and (not given or (len(given) == 1 and _is_address(_name_of(given[0]))))
        )


class OriginCheck:
    """The check alone, before an ASGI application that has its own answers to everything else."""

    def __init__(self, app: ASGIApp, *, hosts: AllowedHosts) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass on what comes under our name and from no foreign page."""
        if scope["type"] not in SCOPE_KINDS:
            raise ValueError(f"scope: {scope['type']!r} is no kind of request")
        if scope["type"] != "lifespan" and (answer := stopped(scope, self._hosts)) is not None:
            return await deny(answer, scope, receive, send)
        return await self._app(scope, receive, send)


def scope_path(scope: Scope) -> str:
    """The path below the prefix under which an application is mounted."""
    path: str = scope["path"].removeprefix(scope.get("root_path", ""))
    return path


def stopped(scope: Scope, hosts: AllowedHosts) -> Response | None:
    """The answer to a request under a foreign name or for a foreign page; None to all others."""
    headers = Headers(scope=scope)
    given = headers.getlist("host")
    if not (len(given) == 1 and hosts.knows(given[0])) and not hosts.answers_probe(scope, given):
        return refusal(400, "HOST_NOT_ALLOWED", "This server does not answer under this name; see --allowed-host.")
    if (scope["type"] == "websocket" or scope["method"] not in SAFE_METHODS) and not _from_here(scope, headers):
        return refusal(403, "CROSS_ORIGIN", "A page of another origin may not change anything here.")
    return None


async def deny(answer: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Answer; a websocket that cannot be answered is closed before it opens."""
    if scope["type"] == "websocket" and "websocket.http.response" not in scope.get("extensions", {}):
        return await send({"type": "websocket.close", "code": POLICY_VIOLATION})
    return await answer(scope, receive, send)


def _from_here(scope: Scope, headers: Headers) -> bool:
    """Whether a program asks, or a page that we have served ourselves.

    What comes by TLS is asked by a page that came by TLS. What does not may have come so to a proxy that nobody named.
    """
    if headers.get("sec-fetch-site", "none") not in ("none", "same-origin"):
        return False
    origin, host = headers.get("origin"), headers.get("host", "").lower()
    schemes = ("https",) if scope.get("scheme") in ("https", "wss") else ("http", "https")
    return origin is None or origin.lower() in [f"{scheme}://{host}" for scheme in schemes]


def _checked(name: str) -> str:
    known = name.strip().lower().strip("[]")
    if not (_NAME.fullmatch(known) or _is_address(known)):
        raise ConfigurationError("allowed-host: is not a name such as shop.example, *.shop.example or 10.0.0.5")
    return known


def _name_of(host: str) -> str | None:
    found = _HOST.fullmatch(host)
    return (found[1] or found[2]).lower() if found else None


def _is_address(name: str | None) -> bool:
    try:
        return bool(ipaddress.ip_address(name or ""))
    except ValueError:
        return False
