"""Lines that programs write by `logging`, each with the ids of the job or request that it was written for."""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any

import msgspec

from mainspring.caller import log_fields
from mainspring.sanitize import MASK, names_secret, sanitize

#: What every record has; the rest is the caller's `extra`.
_USUAL = {*logging.makeLogRecord({}).__dict__, "message", "asctime", "taskName"}


class JsonLines(logging.Formatter):
    """One line a record, whatever it holds, with the ids of the job or request that it was written for."""

    def format(self, record: logging.LogRecord) -> str:
        """The record as a JSON object."""
        line: dict[str, Any] = {
            "at": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "pid": record.process,
            "message": sanitize(record.getMessage()),
            **log_fields(),
        }
        for name, value in record.__dict__.items():
            if name not in _USUAL:
                line[name] = _safe(name, value)
        if record.exc_info:
            line["exception"] = sanitize(self.formatException(record.exc_info))
        return msgspec.json.encode(line).decode()


class Words(logging.Formatter):
    """One line a record for a terminal, without secrets."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(message)s", "%H:%M:%S")

    def format(self, record: logging.LogRecord) -> str:
        """The record in words."""
        fields = log_fields()
        job = f" [{fields['job_type']} {fields['job_id']}]" if "job_id" in fields else ""
        return sanitize(super().format(record)) + job


def _safe(name: str, value: object) -> object:
    if names_secret(name):
        return MASK
    return value if value is None or isinstance(value, bool | int | float) else sanitize(str(value), 1000)
