"""Names with a slash in an address: `%2F` is a letter of a name, and `/` ends it.

Servers decode an address before they hand it on, so that the two look alike. The raw address still tells them apart: in
between a slash of a name is a character that no address has, as the checks before refuse control characters.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote, unquote_to_bytes

from starlette.types import Scope

_HELD: Final = "\x1f"
_ENCODED: Final = re.compile(rb"%2f", re.IGNORECASE)


def held_path(scope: Scope) -> str:
    r"""The path with the slashes of names held back; as it is, where an outer application has made it another.

    >>> held_path({"path": "/queues/a/b/pause", "raw_path": b"/queues/a%2Fb/pause"}).encode()
    b'/queues/a\x1fb/pause'
    """
    path: str = scope["path"]
    raw: bytes = (scope.get("raw_path") or b"").partition(b"?")[0]
    held, count = _ENCODED.subn(b"%1f", raw)
    if not count or unquote_to_bytes(raw).decode("utf-8", "replace") != path:
        return path
    return unquote(held.decode("ascii", "replace"))


def with_slashes(name: str) -> str:
    """A name as it was meant."""
    return name.replace(_HELD, "/")
