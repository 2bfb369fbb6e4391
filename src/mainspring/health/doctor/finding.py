"""What `doctor` answers."""

from __future__ import annotations

from typing import Literal

import msgspec

Level = Literal["ok", "warn", "problem"]


class Finding(msgspec.Struct, frozen=True):
    """One thing that was looked at: how it stands, and what to do."""

    name: str
    level: Level
    what: str
    todo: str = ""
