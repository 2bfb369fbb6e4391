"""The link to a document: a JSON Web Token for one booking and one purpose, by one algorithm (RENT-7.05 to 7.07).

It is written here because so little of the format is needed: one header, and whatever has another is refused.
"""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Final, Literal

import msgspec

PURPOSE: Final = "invoice-pdf"
CREDIT: Final = "credit-pdf"
Wrong = Literal["forged", "expired", "another"]


class _Head(msgspec.Struct, kw_only=True):
    alg: str
    typ: str = "JWT"


class _Claims(msgspec.Struct, kw_only=True):
    sub: str
    aud: str
    exp: int
    to: str  # a digest of the address that the link was sent to: one that was corrected ends older links


def token(
    secret: str, booking_id: int, now: datetime, life: timedelta, *, purpose: str = PURPOSE, to: str = ""
) -> str:  # fmt: skip
    """A token for the document of a booking."""
    claims = _Claims(sub=str(booking_id), aud=purpose, exp=int((now + life).timestamp()), to=_digest(to))
    said = ".".join(_packed(msgspec.json.encode(part)) for part in (_Head(alg="HS256"), claims))
    return f"{said}.{_signature(secret, said)}"


def wrong(
    secrets: Sequence[str], text: str, booking_id: int, now: datetime, *, purpose: str = PURPOSE, to: str = ""
) -> Wrong | None:  # fmt: skip
    """What is wrong with a token; None: it opens this document. Several secrets: one is being replaced.

    >>> from datetime import UTC
    >>> at = datetime(2026, 6, 1, tzinfo=UTC)
    >>> one = token("s", 42, at, timedelta(hours=72))
    >>> wrong(["s"], one, 42, at), wrong(["s"], one, 43, at), wrong(["t"], one, 42, at)
    (None, 'another', 'forged')
    """
    said, _, signature = text.rpartition(".")
    head, _, body = said.partition(".")
    known = any(hmac.compare_digest(_signature(secret, said).encode(), signature.encode()) for secret in secrets)
    try:
        algorithm = msgspec.json.decode(_unpacked(head), type=_Head).alg
        claims = msgspec.json.decode(_unpacked(body), type=_Claims)
    except (ValueError, msgspec.MsgspecError):
        return "forged"
    if not known or algorithm != "HS256":
        return "forged"
    if (claims.sub, claims.aud) != (str(booking_id), purpose):
        return "another"
    if claims.to != _digest(to):
        return "forged"
    return "expired" if now.timestamp() >= claims.exp else None


def _digest(address: str) -> str:
    return _packed(sha256(address.encode()).digest()[:12])


def _signature(secret: str, said: str) -> str:
    return _packed(hmac.digest(secret.encode(), said.encode(), sha256))


def _packed(part: bytes) -> str:
    return urlsafe_b64encode(part).decode().rstrip("=")


def _unpacked(part: str) -> bytes:
    return urlsafe_b64decode(part + "=" * (-len(part) % 4))
