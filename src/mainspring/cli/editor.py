"""A payload in the user's own editor."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from mainspring.errors import ConfigurationError


def edited(payload: dict[str, Any]) -> str:
    """What the user makes of a payload, in the program that VISUAL or EDITOR names."""
    program = os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi"
    with tempfile.TemporaryDirectory(prefix="mainspring-") as folder:  # readable by its owner only
        file = Path(folder, "payload.json")
        file.write_bytes(msgspec.json.format(msgspec.json.encode(payload)))
        try:
            done = subprocess.run([*shlex.split(program), str(file)], check=False)  # noqa: S603  # the user's own choice
        except (OSError, ValueError) as error:  # the latter: a quote that is not closed
            why = getattr(error, "strerror", error)
            raise ConfigurationError(f"EDITOR: {program!r} cannot be started: {why}") from None
        if done.returncode:
            raise ConfigurationError(f"EDITOR: {program!r} ended with {done.returncode}; nothing was written")
        return file.read_text()
