"""The cookie of a session, and where it may travel: by TLS, or on this machine."""

from __future__ import annotations

from typing import Literal

from starlette.requests import HTTPConnection
from starlette.responses import Response

from mainspring.declare.credential import is_secret
from mainspring.web.proxies import is_direct

#: The prefix is the browser's word that no other site and no plain HTTP has set it.
SESSION_COOKIE = "__Host-mainspring"
#: Browsers take the other one by TLS only. On this machine nobody listens in between, so there it has a plain name.
LOCAL_SESSION_COOKIE = "mainspring"
OIDC_SUFFIX = "-oidc"


def cookie_name(request: HTTPConnection, suffix: str = "") -> str | None:
    """What the cookie is called where this request comes from; None: beyond loopback and without TLS there is none."""
    if request.scope.get("scheme") in ("https", "wss"):
        return SESSION_COOKIE + suffix
    return LOCAL_SESSION_COOKIE + suffix if is_direct(request.scope) else None


def secret_in(request: HTTPConnection, suffix: str = "") -> str | None:
    """What a request shows as its cookie."""
    name = cookie_name(request, suffix)
    found = None if name is None else request.cookies.get(name)
    return found if found is not None and is_secret(found) else None


def give_cookie(answer: Response, name: str, secret: str, samesite: Literal["strict", "lax"] = "strict") -> None:
    """Let a browser keep a secret, out of reach of every script and of other sites."""
    answer.set_cookie(
        name, secret, secure=_secure(name), httponly=True, samesite=samesite, max_age=600 if samesite == "lax" else None
    )


def take_cookie(answer: Response, name: str) -> None:
    """Let a browser forget it."""
    answer.delete_cookie(name, secure=_secure(name), httponly=True, samesite="strict")


def _secure(name: str) -> bool:
    return name.startswith("__Host-")
