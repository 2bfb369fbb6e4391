"""Credentials: what somebody shows to come in over HTTP. We keep their SHA-256, and show them once."""

from __future__ import annotations

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from datetime import timedelta
from hashlib import sha256
from typing import Literal

AccessRole = Literal["member", "viewer", "operator", "admin"]
#: Each may do what those before it may. A member is somebody of an application: the API and the console are for others.
ACCESS_ROLES: tuple[AccessRole, ...] = ("member", "viewer", "operator", "admin")
TOKEN_LIFETIME = timedelta(days=90)  # unless somebody says otherwise

#: A one-time code, or the value of a session's cookie: 256 bits as `new_secret` writes them.
_SECRET = re.compile(r"[\w-]{43}", re.ASCII)
_TOKEN = re.compile(r"mst_([0-9a-f]{12})\.([\w-]{43})", re.ASCII)


@dataclass(frozen=True, slots=True)
class AccessToken:
    """A token: an id that may be shown to everybody, and a secret of 256 bits.

    >>> token = AccessToken.parse("mst_00c0ffee0000." + 43 * "A")
    >>> token.id, token == AccessToken.parse(token.text), AccessToken.parse("mst_00c0ffee0000.short")
    ('00c0ffee0000', True, None)
    """

    id: str
    secret: str = field(repr=False)

    @classmethod
    def new(cls) -> AccessToken:
        """One that nobody can guess."""
        return cls(secrets.token_hex(6), new_secret())

    @classmethod
    def parse(cls, text: str) -> AccessToken | None:
        """What somebody shows; None: it has not the form of one."""
        found = _TOKEN.fullmatch(text)
        return cls(*found.groups()) if found else None

    @property
    def text(self) -> str:
        """As it is shown, once."""
        return f"mst_{self.id}.{self.secret}"


def new_secret() -> str:
    """256 random bits."""
    return secrets.token_urlsafe(32)


def is_secret(text: str) -> bool:
    """Whether a text has the form of what `new_secret` makes."""
    return _SECRET.fullmatch(text) is not None


def secret_digest(secret: str) -> str:
    """What we keep of a secret. It has 256 bits, so that nothing slower is needed.

    >>> secret_digest("abc")[:16]
    'ba7816bf8f01cfea'
    """
    return sha256(secret.encode("utf-8", "surrogatepass")).hexdigest()


def sign_in_link(url: str, code: str) -> str:
    """Where somebody signs in by a code. A fragment is sent to no server, so that no log has it.

    >>> sign_in_link("https://jobs.example/", "abc")
    'https://jobs.example/sign-in#abc'
    """
    return f"{url.rstrip('/')}/sign-in#{code}"


def csrf_token(session: str, salt: str | None = None) -> str:
    """A token that only a page of the session knows; each is another, so that a compressed page tells nothing of it."""
    salt = salt or secrets.token_urlsafe(9)
    proof = hmac.new(session.encode(), b"csrf " + salt.encode("utf-8", "surrogatepass"), sha256).digest()
    return f"{salt}.{urlsafe_b64encode(proof).decode().rstrip('=')}"


def csrf_fits(session: str, given: str) -> bool:
    """Whether a token is one of the session's.

    >>> csrf_fits("s" * 43, csrf_token("s" * 43)), csrf_fits("s" * 43, csrf_token("t" * 43)), csrf_fits("s" * 43, "")
    (True, False, False)
    """
    salt = given.partition(".")[0]
    wanted = csrf_token(session, salt or "-")
    return hmac.compare_digest(wanted.encode(), given.encode("utf-8", "surrogatepass"))
