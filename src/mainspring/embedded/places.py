"""Where root keeps what the server's account could not reach at its own place."""

from __future__ import annotations

import hashlib
from pathlib import Path

SHARED_FOLDER = Path("/var/lib/mainspring")


def shared() -> Path:
    """The directory, made where it is missing."""
    SHARED_FOLDER.mkdir(parents=True, exist_ok=True)
    SHARED_FOLDER.chmod(0o755)
    return SHARED_FOLDER


def digest(*parts: object) -> str:
    """A short name for something long."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()[:12]
