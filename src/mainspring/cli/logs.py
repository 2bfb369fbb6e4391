"""How a command's process logs: in plain words on a terminal, else one JSON object a line."""

from __future__ import annotations

import logging
import os
import sys

from mainspring.errors import ConfigurationError


def speaks_json(json: bool) -> bool:
    """Whether to log JSON: asked for by an option or MAINSPRING_LOG, else where no person reads."""
    said = os.environ.get("MAINSPRING_LOG") or ("json" if json else "")
    if said not in ("", "json", "text"):
        raise ConfigurationError("MAINSPRING_LOG: is not json or text")
    return said == "json" or (said != "text" and not sys.stderr.isatty())


def log_to_stderr(*, json: bool = False) -> None:
    """Send the log of this process to stderr; every line carries the ids of the job or request it belongs to."""
    from mainspring.observe.lines import JsonLines, Words

    handler = logging.StreamHandler(sys.stderr)
    handler.addFilter(lambda record: record.name != "mainspring.job")  # an observer says it, with all its fields
    handler.setFormatter(JsonLines() if speaks_json(json) else Words())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)
