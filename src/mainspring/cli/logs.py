"""How a command's process logs: as the application has set up, else words on a terminal and JSON elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from typing import Literal, get_args

from mainspring.errors import ConfigurationError

LogFormat = Literal["json", "text", "none"]

#: What a worker says of jobs where nobody logs its events; a command does.
ECHOES = "mainspring.worker.job"


def asked_format(json: bool) -> LogFormat | None:
    """The format that MAINSPRING_LOG or an option asks for; None leaves it to the application, or to us."""
    said = os.environ.get("MAINSPRING_LOG") or ("json" if json else None)
    if said is not None and said not in get_args(LogFormat):
        raise ConfigurationError("MAINSPRING_LOG: is not json, text or none")
    return said  # type: ignore[return-value] # one of them


def set_up() -> bool:
    """Whether the application has set up logging itself."""
    return bool(logging.getLogger().handlers or logging.getLogger("mainspring").handlers)


def log_to_stderr(*, json: bool = False) -> None:
    """Send the log of this process to stderr, unless the application has set up `logging` or nobody wants it."""
    from mainspring.observe.formatters import JsonFormatter, TerminalFormatter
    from mainspring.observe.handlers import BatchHandler

    asked = asked_format(json)
    logging.getLogger(ECHOES).disabled = True
    if asked == "none" or (asked is None and set_up()):
        return
    handler = BatchHandler(sys.stderr)
    plain = asked == "text" or (asked is None and sys.stderr.isatty())
    handler.setFormatter(TerminalFormatter() if plain else JsonFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
