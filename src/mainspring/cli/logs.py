"""How a command's process logs: in plain words on a terminal, else one JSON object a line."""

from __future__ import annotations

import logging
import sys
from datetime import UTC, datetime

import msgspec


class JsonLines(logging.Formatter):
    """One line a record, whatever it holds."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object."""
        line = {
            "at": datetime.fromtimestamp(record.created, UTC),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return msgspec.json.encode(line).decode()


def log_to_stderr(*, json: bool = False) -> None:
    """Send the log of this process to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    words = logging.Formatter("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")
    handler.setFormatter(words if sys.stderr.isatty() and not json else JsonLines())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
