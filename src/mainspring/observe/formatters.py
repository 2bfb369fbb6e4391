"""Formatters for `logging`: one JSON object a line, or words for a terminal; of events, and of what programs say.

Each line has the ids of the job or request that it was written for, no secret, and no second line that somebody forged.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from mainspring.declare.caller import log_fields
from mainspring.text.raised import connected, name_of, said
from mainspring.text.sanitize import MASK, masked, names_secret, sanitize
from mainspring.text.texts import line

#: What every record has; the rest is the caller's `extra`.
RECORD_FIELDS = frozenset({*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"})
MOST_LINKS = 50  # exceptions that hang together and are shown: each costs time
LONGEST_EXTRA = 1000  # characters of one field of `extra`
#: What a person at a terminal need not read in every line.
_QUIET = {"event", "request_id", "correlation_id", "org_id", "project_id", "job_ids", "job_type"}

_encode = msgspec.json.Encoder().encode


class EventLine:
    """The message of a record that tells of an event: its fields, written out only where somebody formats it."""

    __slots__ = ("attributes", "fields")

    def __init__(self, fields: dict[str, Any]) -> None:
        self.fields = fields
        self.attributes = 0  # so many has its record, if nobody has added any

    def __str__(self) -> str:
        rest = (f"{key}={value}" for key, value in self.fields.items() if key not in _QUIET and value is not None)
        return " ".join(filter(None, (self.fields["event"], self.fields.get("job_type"), *rest)))


class JsonFormatter(logging.Formatter):
    """One JSON object a record, on one line; `extra` are fields of it.

    ::

        logging.config.dictConfig({
            "version": 1,
            "formatters": {"json": {"()": "mainspring.observe.JsonFormatter"}},
            "handlers": {"out": {"class": "logging.StreamHandler", "formatter": "json"}},
            "root": {"handlers": ["out"], "level": "INFO"},
        })
    """

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object."""
        ours = head_of(record)
        if isinstance(record.msg, EventLine):
            ours = {**ours, **record.msg.fields, **ours}
            if len(record.__dict__) == record.msg.attributes:
                return _encode(ours).decode()
        else:
            ours |= {"message": sanitize(_message(record)), **log_fields()}
        if record.exc_info:
            ours["exception"] = sanitize(_traced(self, record.exc_info))
        for name in record.__dict__.keys() - RECORD_FIELDS - ours.keys():  # nobody writes in another's name
            ours[name] = _safe(name, record.__dict__[name])
        return _encode(ours).decode()


def head_of(record: logging.LogRecord) -> dict[str, Any]:
    """What every line begins with."""
    return {
        "at": _at(record.created),
        "level": record.levelname.lower(),
        "logger": record.name,
        "pid": record.process,
    }


class TerminalFormatter(logging.Formatter):
    """One line a record for a terminal, without secrets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The record in words; what belongs to it but is no line of its own is indented."""
        fields = {} if isinstance(record.msg, EventLine) else log_fields()
        job = f" [{fields['job_type']} {fields['job_id']}]" if "job_id" in fields else ""
        record.message, record.asctime = _message(record), self.formatTime(record, self.datefmt)
        more = _traced(self, record.exc_info) if record.exc_info else ""
        more += f"\n{self.formatStack(record.stack_info)}" if record.stack_info else ""
        below = (f"\n  {line(one.expandtabs())}" for one in sanitize(more).splitlines() if one)
        return line(sanitize(self.formatMessage(record))) + job + "".join(below)


@lru_cache(4)
def _at(created: float) -> str:
    """The time of a record; those of a batch have the same."""
    return datetime.fromtimestamp(created, UTC).isoformat(timespec="milliseconds")


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
    """A field of `extra`: numbers and short documents as they are, anything else as its text; never a secret."""
    if names_secret(name):
        return MASK
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping | list | tuple):
        try:
            if len(raw := _encode(masked(value))) <= LONGEST_EXTRA:
                return msgspec.Raw(raw)
        except Exception:  # it holds what JSON does not, or itself
            return sanitize(_printed(value), LONGEST_EXTRA)
    return sanitize(_printed(value), LONGEST_EXTRA)


def _printed(value: object) -> str:
    try:
        return str(value)
    except Exception:
        return f"({type(value).__name__}, which cannot be printed)"
