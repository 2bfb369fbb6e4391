"""What people may ask for or not, and the signature of a link by which they say so. Pure."""

from __future__ import annotations

import hmac
from base64 import urlsafe_b64encode
from hashlib import sha256
from typing import Final, Literal

#: Messages of saved searches, by their kinds; an empty digest is one that has nobody in it.
Wish = Literal["digest", "instant_alert", "empty_digest"]
#: What a link in the message itself can end: all else is business, and comes.
LINKED: Final[tuple[Wish, ...]] = ("digest", "instant_alert")
#: Nothing depends on these: nobody need hear of it where they reach nobody (STAFF-20.18).
WISHED: Final = (*LINKED, "search_deactivated")


def signature(secret: str, user_id: int, wish: str) -> str:
    """What only who knows the secret can write: it holds for one user and one wish, for as long as the secret does.

    >>> signature("s", 7, "digest") == signature("s", 7, "digest")
    True
    >>> signature("s", 7, "digest") in (signature("t", 7, "digest"), signature("s", 7, "instant_alert"))
    False
    """
    said = f"staffing opt-out\n{user_id}\n{wish}"
    return urlsafe_b64encode(hmac.digest(secret.encode(), said.encode(), sha256)).decode().rstrip("=")


def signed(secret: str, user_id: int, wish: str, claimed: str) -> bool:
    """Whether a signature is ours; how long that takes tells nothing of it."""
    return hmac.compare_digest(signature(secret, user_id, wish).encode(), claimed.encode())
