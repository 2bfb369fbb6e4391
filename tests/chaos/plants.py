"""Planted bugs."""

from __future__ import annotations

from collections.abc import Sequence


def in_process(names: Sequence[str]) -> None:
    """Plant bugs into this process."""
