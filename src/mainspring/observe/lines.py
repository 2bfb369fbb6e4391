"""Lines that programs write by `logging`, each with the ids of the job or request that it was written for."""

from __future__ import annotations

import logging
import traceback
from datetime import UTC, datetime
from typing import Any

import msgspec

from mainspring.declare.caller import log_fields
from mainspring.text.raised import connected, name_of, said
from mainspring.text.sanitize import MASK, names_secret, sanitize
from mainspring.text.texts import line

#: What every record has; the rest is the caller's `extra`.
_USUAL = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}
MOST_LINKS = 50  # exceptions that hang together and are shown: each costs time


class JsonLines(logging.Formatter):
    """One line a record, whatever it holds, with the ids of the job or request that it was written for."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object."""
        ours: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": sanitize(_message(record)),
            **log_fields(),
        }
        if record.exc_info:
            ours["exception"] = sanitize(_traced(self, record.exc_info))
        theirs = {name: _safe(name, value) for name, value in record.__dict__.items() if name not in _USUAL}
        return msgspec.json.encode(ours | theirs | ours).decode()  # nobody writes in another's name


class Words(logging.Formatter):
    """One line a record for a terminal, without secrets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The record in words; what belongs to it but is no line of its own is indented."""
        fields = log_fields()
        job = f" [{fields['job_type']} {fields['job_id']}]" if "job_id" in fields else ""
        record.message, record.asctime = _message(record), self.formatTime(record, self.datefmt)
        more = _traced(self, record.exc_info) if record.exc_info else ""
        more += f"\n{self.formatStack(record.stack_info)}" if record.stack_info else ""
        below = (f"\n  {line(one.expandtabs())}" for one in sanitize(more).splitlines() if one)
        return line(sanitize(self.formatMessage(record))) + job + "".join(below)


def _traced(formatter: logging.Formatter, info: Any) -> str:
    """An exception with what it was raised from; of a chain without an end, only its last link."""
    error = info[1]
    if error is None or connected(error, MOST_LINKS) < MOST_LINKS:
        return formatter.formatException(info)
    stack = "".join(traceback.format_tb(info[2], limit=-MOST_LINKS))
    return f"(raised from at least {MOST_LINKS - 1} others, left out)\n{stack}{name_of(error)}: {said(error)}"


def _message(record: logging.LogRecord) -> str:
    """What was said; a mistake in its arguments must not print them elsewhere, as they are."""
    try:
        return record.getMessage()
    except Exception:
        return f"{record.msg} {_printed(record.args)}"


def _safe(name: str, value: object) -> object:
    if names_secret(name):
        return MASK
    return value if value is None or isinstance(value, bool | int | float) else sanitize(_printed(value), 1000)


def _printed(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"({type(value).__name__}, which cannot be printed)"
