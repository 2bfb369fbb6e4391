"""A handler for `logging` that writes the lines of a batch of events at once.

A worker tells hundreds of events at a time, and a write for each line would cost more than all the rest of it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from mainspring.observe.formatters import JsonFormatter


class _BatchOfThread(threading.local):
    """The handlers that hold lines of the batch that this thread logs; None where it logs none."""

    holders: list[BatchHandler] | None = None


_batch = _BatchOfThread()


class BatchHandler(logging.StreamHandler[TextIO]):
    """A `StreamHandler` that writes what is logged inside of `batched()` at its end, and anything else at once.

    ::

        handler = BatchHandler(sys.stderr)
        handler.setFormatter(JsonFormatter())
        logging.basicConfig(level=logging.INFO, handlers=[handler])
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        super().__init__(stream)
        self._held: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, or keep it until the batch ends."""
        if _batch.holders is None:
            return super().emit(record)
        try:
            self.hold(self.format(record) + self.terminator)
        except Exception:
            self.handleError(record)
        return None

    def hold(self, lines: str) -> None:
        """Keep lines until the batch ends."""
        assert _batch.holders is not None, "only inside of batched()"
        self._held.append(lines)
        if self not in _batch.holders:
            _batch.holders.append(self)

    def write_held(self) -> None:
        """Write what is kept."""
        self.acquire()
        try:
            text, self._held = "".join(self._held), []
            self.stream.write(text)
            self.flush()
        finally:
            self.release()


def straight_to(logger: logging.Logger, level: int) -> list[BatchHandler]:
    """The handlers that write a line of this logger as it is; none where anything else would look at its record."""
    here: logging.Logger | None = logger
    found: list[BatchHandler] = []
    if logger.filters or logger.disabled or logging.getLogRecordFactory() is not logging.LogRecord:
        return []
    while here is not None:
        for handler in here.handlers:
            if level < handler.level:
                continue
            if type(handler) is not BatchHandler or type(handler.formatter) is not JsonFormatter or handler.filters:
                return []
            if handler.terminator != "\n":
                return []
            found.append(handler)
        here = here.parent if here.propagate else None
    return found


@contextmanager
def batched() -> Iterator[None]:
    """What this thread logs in this block belongs together."""
    holders = _batch.holders = []
    try:
        yield
    finally:
        _batch.holders = None
        for holder in holders:
            holder.write_held()
