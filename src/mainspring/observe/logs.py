"""Events as records of `logging`, so that its levels, filters, handlers and formatters apply to them.

`job.failed` is a record of the logger `mainspring.job`, `worker.started` one of `mainspring.worker`, and so on.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any
from uuid import UUID

import msgspec

from mainspring.declare.registry import Registry
from mainspring.events import Alert, Event, JobEnqueued, JobEvent, JobFailed, JobStarted, JobSucceeded
from mainspring.observe.formatters import RECORD_FIELDS, EventLine, head_of
from mainspring.observe.handlers import batched, straight_to

#: What is not plain information.
LEVELS = {
    "job.deadlettered": logging.ERROR,
    "job.failed_late": logging.ERROR,
    "job.late": logging.WARNING,
    "job.lease_expired": logging.WARNING,
    "job.lease_lost": logging.WARNING,
    "job.stale": logging.WARNING,
    "sweep.found": logging.WARNING,
    "breaker.opened": logging.WARNING,
    "worker.stuck": logging.ERROR,
    "wakeups.lost": logging.WARNING,
    "database.away": logging.WARNING,
    "alert": logging.ERROR,
}
#: What tasks with `camel_logs` call their lines, where it is not the event's name with a colon.
CAMEL_NAMES = {"job.enqueued": "jobs:created", "job.started": "job:processing", "job.succeeded": "job:completed"}
#: Fields of a job's event, and what they are called in its line.
JOB = {
    "request_id": "request_id",
    "correlation_id": "correlation_id",
    "job_id": "job_id",
    "task": "job_type",
    "org_id": "org_id",
    "project_id": "project_id",
    "queue": "queue",
    "attempt": "attempts",
}
MILLISECONDS = {"duration": "duration_ms", "lateness": "late_ms", "delay": "delay_ms"}
MOST_LINE_IDS = 20  # job ids in one line
_OFTEN = (JobStarted, JobSucceeded)

_encode_lines = msgspec.json.Encoder().encode_lines


class Log:
    """An observer that makes each event a record of the logger `mainspring.job`, `mainspring.worker` and so on.

    ::

        app = ms.App(dsn, tasks, observers=[Log(tasks)])

    Each field is an attribute of the record, `record.event` its name. Tasks declared with `camel_logs` get camelCase
    names beside the others.
    """

    def __init__(self, tasks: Registry | None = None) -> None:
        self._camel = {name for name in tasks.names() if tasks.get(name).camel_logs} if tasks else set[str]()

    def __call__(self, batch: Sequence[Event]) -> None:
        """Log a batch; jobs that were created together are one line."""
        created: list[JobEnqueued] = []
        records = EventRecords()
        with batched():
            straight = StraightLines()
            for event in batch:
                if straight.open:
                    if self._is_plain(event):
                        straight.add(event)  # type: ignore[arg-type] # it is one of them
                        continue
                    straight.flush()
                logger, level = logger_of(event.name), _level(event)
                if not logger.isEnabledFor(level):
                    continue
                if isinstance(event, JobEnqueued):
                    created.append(event)
                else:
                    logger.handle(records.make(logger, level, self._fields(event)))
            straight.flush()
            for group in _groups(created):
                logger = logger_of(group[0].name)
                logger.handle(records.make(logger, logging.INFO, self._created(group)))

    def _fields(self, event: Event) -> dict[str, Any]:
        """The fields of an event under the names that lines have."""
        if self._is_plain(event):
            return _often(event)  # type: ignore[arg-type] # it is one of them
        fields: dict[str, Any] = msgspec.to_builtins(event)
        name = fields.pop("event")
        if not isinstance(event, JobEvent):
            return {"event": name} | fields
        subject = fields.pop("subject") or {}
        line = {"event": name} | {new: fields.pop(old) for old, new in JOB.items()} | _measures(fields)
        return self._styled(subject | line, event)

    def _is_plain(self, event: Event) -> bool:
        """Whether it happens to every job, and its line has nothing that others have not."""
        return type(event) in _OFTEN and not event.subject and event.task not in self._camel  # type: ignore[attr-defined] # they have both

    def _created(self, group: list[JobEnqueued]) -> dict[str, Any]:
        """One line for jobs that were created together."""
        first = group[0]
        line = {
            "event": first.name,
            "types": list(dict.fromkeys(event.task for event in group)),
            "request_id": first.request_id,
            "correlation_id": first.correlation_id,
            "org_id": first.org_id,
            "project_id": None if first.project_id is None else str(first.project_id),
            "count": len(group),
            "job_ids": [str(event.job_id) for event in group[:MOST_LINE_IDS]],
        }
        if len(group) == 1:
            line |= {"job_id": str(first.job_id), "job_type": first.task}
        return self._styled((first.subject or {}) | line, first)

    def _styled(self, line: dict[str, Any], event: JobEvent) -> dict[str, Any]:
        """The line as its task asks for it."""
        if event.task not in self._camel:
            return line
        line["event"] = CAMEL_NAMES.get(event.name, event.name.replace(".", ":"))
        return line | {camel(key): value for key, value in line.items()} | {"type": event.task}


@lru_cache
def logger_of(event: str) -> logging.Logger:
    """Where an event is logged.

    >>> logger_of("job.failed")
    <Logger mainspring.job (WARNING)>
    """
    return logging.getLogger(f"mainspring.{event.partition('.')[0]}")


@lru_cache(1000)
def camel(name: str) -> str:
    """A name as 001 writes it.

    >>> camel("job_id")
    'jobId'
    """
    return re.sub(r"_(\w)", lambda match: match[1].upper(), name)


class EventRecords:
    """The records of a batch. Measured: to copy the first of a kind takes a fifth of the time of making each."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, int], dict[str, Any]] = {}
        self._copies = logging.getLogRecordFactory() is logging.LogRecord  # another one may do anything

    def make(self, logger: logging.Logger, level: int, fields: dict[str, Any]) -> logging.LogRecord:
        """A record; every field is an attribute of it, but for the names of `logging` itself."""
        first = self._first.get((logger.name, level))
        if first is None:
            record = logger.makeRecord(logger.name, level, "(event)", 0, "", (), None)
            if self._copies:
                self._first[logger.name, level] = dict(record.__dict__)
        else:
            record = logging.LogRecord.__new__(logging.LogRecord)
            record.__dict__.update(first)
        record.msg = line = EventLine(fields)
        if not RECORD_FIELDS.isdisjoint(fields):
            fields = {name: value for name, value in fields.items() if name not in RECORD_FIELDS}
        record.__dict__.update(fields)
        line.attributes = len(record.__dict__) if self._copies else 0
        return record


class PlainLine(msgspec.Struct, gc=False):
    """The line of what happens to every job, as a record's formatter would write it."""

    at: str
    level: str
    logger: str
    pid: int | None
    event: str
    request_id: str
    correlation_id: str
    job_id: UUID
    job_type: str
    org_id: str
    project_id: UUID | None
    queue: str
    attempts: int


class StartedLine(PlainLine, gc=False):
    """The line of a start."""

    late_ms: int


class SucceededLine(PlainLine, gc=False):
    """The line of a success."""

    duration_ms: int


class StraightLines:
    """The lines of a batch where only our own handlers see them: to make records would be most of the work."""

    def __init__(self) -> None:
        logger = logger_of("job.started")
        self._lines: list[PlainLine] = []
        self._handlers = straight_to(logger, logging.INFO) if logger.isEnabledFor(logging.INFO) else []
        self.open = bool(self._handlers)
        if self.open:
            record = logger.makeRecord(logger.name, logging.INFO, "(event)", 0, "", (), None)
            at, level, name, pid = head_of(record).values()
            self._head = (at, level, name, pid)

    def add(self, event: JobStarted | JobSucceeded) -> None:
        """Write a line of it, soon."""
        line: Any = StartedLine if type(event) is JobStarted else SucceededLine
        millis = _millis(event.lateness if isinstance(event, JobStarted) else event.duration)
        self._lines.append(line(
            *self._head, event.name, event.request_id, event.correlation_id, event.job_id, event.task, event.org_id,
            event.project_id, event.queue, event.attempt, millis,
        ))  # fmt: skip

    def flush(self) -> None:
        """Write what there is, before anything else is."""
        if self._lines:
            text = _encode_lines(self._lines).decode()
            for handler in self._handlers:
                handler.hold(text)
            self._lines = []


def _millis(seconds: float) -> int:
    return max(0, round(seconds * 1000))


def _often(event: JobStarted | JobSucceeded) -> dict[str, Any]:
    """The fields of what happens to every job, without the detour."""
    line: dict[str, Any] = {
        "event": event.name,
        "request_id": event.request_id,
        "correlation_id": event.correlation_id,
        "job_id": str(event.job_id),
        "job_type": event.task,
        "org_id": event.org_id,
        "project_id": None if event.project_id is None else str(event.project_id),
        "queue": event.queue,
        "attempts": event.attempt,
    }
    if isinstance(event, JobStarted):
        line["late_ms"] = _millis(event.lateness)
    else:
        line["duration_ms"] = _millis(event.duration)
    return line


def _measures(fields: dict[str, Any]) -> dict[str, Any]:
    """Times in whole milliseconds; a message is what 001 calls the error; a stack has no place in a line."""
    found = {MILLISECONDS[k]: max(0, round(v * 1000)) for k, v in fields.items() if k in MILLISECONDS}
    found |= {k: v for k, v in fields.items() if k not in MILLISECONDS and k not in ("message", "stack")}
    return found | ({"error": fields["message"]} if "message" in fields else {})


def _level(event: Event) -> int:
    if isinstance(event, JobFailed):
        return logging.ERROR if event.final else logging.WARNING
    if isinstance(event, Alert) and not event.firing:
        return logging.INFO
    return LEVELS.get(event.name, logging.INFO)


def _groups(created: Iterable[JobEnqueued]) -> Iterable[list[JobEnqueued]]:
    """Jobs of one request about one subject; those that came without a request belong together as well."""
    groups: dict[Any, list[JobEnqueued]] = {}
    for event in created:
        request = None if event.request_id == str(event.job_id) else (event.request_id, event.correlation_id)
        subject = tuple(event.subject.items()) if event.subject else None
        groups.setdefault((event.org_id, event.project_id, request, subject), []).append(event)
    return groups.values()
