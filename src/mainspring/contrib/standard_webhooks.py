"""Signatures of webhooks: the Standard Webhooks scheme, and the plain one (`sha256=<hex>` of the body alone).

Pure: the caller says what time it is. Exactly the bytes that are sent are signed, and exactly the bytes that came are
verified: a body that was parsed and written again is another body.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets as _random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mainspring.errors import ConfigurationError, SignatureRefused
from mainspring.text.span import Span, span_of
from mainspring.uuid7 import uuid7

ID: Final = "webhook-id"
TIMESTAMP: Final = "webhook-timestamp"
SIGNATURE: Final = "webhook-signature"

WHSEC_PREFIX: Final = "whsec_"
WEBHOOK_TOLERANCE: Final = timedelta(seconds=300)
_SIGNATURES_TRIED: Final = 10  # signatures of one message; more are not looked at

# No dots: they stand between the parts that are signed, and one message could be read as another.
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,128}")
_ID_OF_OTHERS: Final = re.compile(r"[\x21-\x2d\x2f-\x7e]{1,256}")
_SECONDS: Final = re.compile(r"[0-9]{1,11}")


@dataclass(frozen=True, slots=True)
class Message:
    """What was verified."""

    id: str  # the same on every attempt
    sent_at: datetime  # of this attempt
    body: bytes


def new_secret() -> str:
    """A fresh secret of an endpoint: 32 random bytes.

    >>> new_secret()[:6]
    'whsec_'
    """
    return WHSEC_PREFIX + base64.b64encode(_random.token_bytes(32)).decode()


def new_id() -> str:
    """A fresh id of a message, without dots.

    >>> "." in new_id()
    False
    """
    return f"msg_{uuid7().hex}"


def standard(secrets: Sequence[str], id: str, timestamp: datetime, body: bytes) -> dict[str, str]:
    """The three headers of the Standard Webhooks scheme, with one signature for each secret.

    >>> headers = standard([new_secret(), new_secret()], "msg_1", datetime(2026, 1, 1, tzinfo=UTC), b"{}")
    >>> headers["webhook-timestamp"], len(headers["webhook-signature"].split())
    ('1767225600', 2)
    """
    if not _ID.fullmatch(id):
        raise ValueError("id: is not 1 to 128 letters, digits, _ or -")
    if timestamp.utcoffset() is None:
        raise ValueError("timestamp: has no time zone")
    if not 1 <= len(secrets) <= _SIGNATURES_TRIED:
        raise ValueError(f"secrets: are not 1 to {_SIGNATURES_TRIED}")
    seconds = str(int(timestamp.timestamp()))
    signatures = " ".join(f"v1,{_sign(secret, id, seconds, body)}" for secret in secrets)
    return {ID: id, TIMESTAMP: seconds, SIGNATURE: signatures}


def plain(secret: str, body: bytes) -> str:
    """The signature of the body alone, under the secret as it is written.

    >>> plain("secret", b"{}")[:15]
    'sha256=77325902'
    """
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def verify(
    headers: Mapping[str, str],
    body: bytes,
    secrets: Sequence[str],
    *,
    now: datetime,
    tolerance: Span = WEBHOOK_TOLERANCE,
) -> Message:
    """What came by the Standard Webhooks scheme, or SignatureRefused; any of the secrets will do."""
    given = {name.lower(): value for name, value in headers.items() if isinstance(name, str)}
    id, seconds, signatures = (str(given.get(name) or "") for name in (ID, TIMESTAMP, SIGNATURE))
    if not (id and seconds and signatures):
        raise SignatureRefused(f"{ID}, {TIMESTAMP} or {SIGNATURE} is missing")
    if not _ID_OF_OTHERS.fullmatch(id):
        raise SignatureRefused(f"{ID} is no id")
    if not _SECONDS.fullmatch(seconds):
        raise SignatureRefused(f"{TIMESTAMP} is not a whole number of seconds")
    sent_at = datetime.fromtimestamp(0, UTC) + timedelta(seconds=int(seconds))
    if abs(now - sent_at) > span_of("tolerance", tolerance):
        raise SignatureRefused(f"{TIMESTAMP} is too {'old' if sent_at < now else 'far in the future'}")
    expected = [_sign(secret, id, seconds, body).encode() for secret in secrets]
    for part in signatures.split(" ", _SIGNATURES_TRIED)[:_SIGNATURES_TRIED]:
        version, _, text = part.partition(",")
        if version == "v1" and any(hmac.compare_digest(text.encode(errors="replace"), one) for one in expected):
            return Message(id, sent_at, body)
    raise SignatureRefused(f"{SIGNATURE} does not fit")


def verify_plain(signature: str | None, body: bytes, secrets: Sequence[str]) -> None:
    """SignatureRefused unless `sha256=<hex>` is of this body under one of the secrets; it knows no age and no id."""
    given = (signature or "").encode(errors="replace")
    if not any(hmac.compare_digest(given, plain(secret, body).encode()) for secret in secrets):
        raise SignatureRefused("the signature is missing or does not fit")


def _sign(secret: str, id: str, seconds: str, body: bytes) -> str:
    content = f"{id}.{seconds}.".encode() + body
    return base64.b64encode(hmac.new(key(secret), content, hashlib.sha256).digest()).decode()


def key(secret: str) -> bytes:
    """The bytes of a secret, or ConfigurationError; the prefix may be missing, as it may in other libraries."""
    text = secret.removeprefix(WHSEC_PREFIX)
    try:
        data = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
    except ValueError:
        data = b""
    if not 24 <= len(data) <= 64:
        raise ConfigurationError("secret: is not whsec_ and 24 to 64 bytes in base64")
    return data
