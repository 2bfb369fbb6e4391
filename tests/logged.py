"""What the engine logs inside a block, as a handler of the reader's own would write it."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mainspring.observe import JsonFormatter


@contextmanager
def logged(formatter: logging.Formatter | None = None, *, logger: str = "mainspring") -> Iterator[io.StringIO]:
    """Everything that is logged below a logger, from INFO on."""
    stream, to = io.StringIO(), logging.getLogger(logger)
    handler, level = logging.StreamHandler(stream), to.level
    handler.setFormatter(formatter or JsonFormatter())
    to.addHandler(handler)
    to.setLevel(logging.INFO)
    try:
        yield stream
    finally:
        to.removeHandler(handler)
        to.setLevel(level)


def lines(stream: io.StringIO, event: str | None = None) -> list[dict[str, Any]]:
    """The lines that tell of events, or of one kind of them."""
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in found if "event" in line and (event is None or line["event"] == event)]
