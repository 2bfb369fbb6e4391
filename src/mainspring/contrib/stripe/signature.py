"""Stripe's signatures: `t=1767225600,v1=<hex>`, an HMAC over the stamp and the body as it came."""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

from mainspring.declare.block import SignatureRefused

HEADER: Final = "stripe-signature"
STRIPE_TOLERANCE: Final = timedelta(minutes=5)  # both ways
LONGEST_SIGNATURE_HEADER: Final = 4096  # characters of a header; a signature has about 70
MOST_SIGNATURES: Final = 16  # signatures; Stripe sends one for each secret that is in use
_STAMP: Final = re.compile(r"\d{1,12}", re.ASCII)


def sign(body: bytes, secret: str, at: datetime) -> str:
    """The header that Stripe would send.

    >>> from datetime import UTC
    >>> sign(b"{}", "whsec_1", datetime(2026, 1, 1, tzinfo=UTC))[:26]
    't=1767225600,v1=849017716b'
    """
    stamp = int(at.timestamp())
    return f"t={stamp},v1={_digest(body, secret, stamp)}"


def check(header: str | None, body: bytes, secrets: Sequence[str], now: datetime) -> None:
    """Refuse what was not signed with one of the secrets within five minutes of now."""
    if not header:
        raise SignatureRefused("the header Stripe-Signature is missing")
    if len(header) > LONGEST_SIGNATURE_HEADER:
        raise SignatureRefused("the header Stripe-Signature is too long")
    parts = [part.strip().partition("=") for part in header.split(",")]
    stamps = [value for name, _, value in parts if name == "t"]
    given = [value for name, _, value in parts if name == "v1"]
    if len(stamps) != 1 or not _STAMP.fullmatch(stamps[0]) or not 0 < len(given) <= MOST_SIGNATURES:
        raise SignatureRefused("the header Stripe-Signature has no stamp, or no signature of scheme v1")
    stamp = int(stamps[0])
    expected = [_digest(body, secret, stamp).encode() for secret in secrets]
    # Every pair is compared, so that the time taken says nothing.
    equal = [hmac.compare_digest(mine, his.encode("utf-8", "replace")) for mine in expected for his in given]
    if not any(equal):
        raise SignatureRefused("the signature is not that of the body")
    if abs(now.timestamp() - stamp) > STRIPE_TOLERANCE.total_seconds():
        raise SignatureRefused("the stamp is more than five minutes away")


def _digest(body: bytes, secret: str, stamp: int) -> str:
    return hmac.new(secret.encode(), b"%d." % stamp + body, hashlib.sha256).hexdigest()
