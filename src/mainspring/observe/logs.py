"""The log of events: in plain words on a terminal, else one JSON object a line.

Events do not go through `logging`: a batch is encoded and written at once. The lines of programs, which do, are
formatted by `mainspring.observe.lines`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from typing import Any, TextIO

import msgspec

from mainspring.declare.registry import Registry
from mainspring.events import (
    Alert,
    DatabaseAway,
    Event,
    JobEnqueued,
    JobEvent,
    JobFailed,
    JobStarted,
    JobSucceeded,
)
from mainspring.text.texts import line as one_line

#: The ledger's names, where they are not the event's with a colon.
NAMES = {"job.enqueued": "jobs:created", "job.started": "job:processing", "job.succeeded": "job:completed"}
#: What is not plain information.
LEVELS = {
    "job.retried": "info",
    "job.deadlettered": "error",
    "job.late": "warning",
    "job.lease_expired": "warning",
    "job.lease_lost": "warning",
    "job.stale": "warning",
    "sweep.found": "warning",
    "breaker.opened": "warning",
    "worker.stuck": "error",
    "wakeups.lost": "warning",
    "database.away": "warning",
    "alert": "error",
}
MOST_LINE_IDS = 20  # job ids in one line
_encode_lines = msgspec.json.Encoder().encode_lines
_camel: dict[str, str] = {}


class Processing(msgspec.Struct, gc=False, tag_field="event", tag="job:processing"):
    """The line of an attempt that begins."""

    at: str
    request_id: str
    correlation_id: str
    job_id: Any
    job_type: str
    org_id: str
    project_id: Any
    queue: str
    attempts: int
    late_ms: int
    level: str = "info"


class Completed(msgspec.Struct, gc=False, tag_field="event", tag="job:completed"):
    """The line of a success."""

    at: str
    request_id: str
    correlation_id: str
    job_id: Any
    job_type: str
    org_id: str
    project_id: Any
    queue: str
    attempts: int
    duration_ms: int
    level: str = "info"


class Log:
    """An observer that writes a line for each event, a batch at a time.

    ::

        app = ms.App(tasks, dsn=dsn, observers=[Log(sys.stderr, tasks)])

    `plain` writes words for a terminal. Tasks declared with `camel_logs` get camelCase names beside the others.
    """

    def __init__(self, stream: TextIO | None = None, tasks: Registry | None = None, *, plain: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._camel = {name for name in tasks.names() if tasks.get(name).camel_logs} if tasks else set[str]()
        self._render = _words if plain else _json

    def __call__(self, batch: Sequence[Event]) -> None:
        """Write a batch."""
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        lines: list[Any] = []
        created: list[JobEnqueued] = []
        for e in batch:
            kind = type(e)
            if kind is JobEnqueued:
                created.append(e)  # type: ignore[arg-type]  # the kind says so; isinstance is slower
            elif kind is JobStarted and not e.subject and e.task not in self._camel:  # type: ignore[attr-defined] # the same
                lines.append(_processing(e, now))  # type: ignore[arg-type]  # the same
            elif kind is JobSucceeded and not e.subject and e.task not in self._camel:  # type: ignore[attr-defined] # the same
                lines.append(_completed(e, now))  # type: ignore[arg-type]  # the same
            else:
                lines.append(self._line(e, now))
        lines += [self._created(group, now) for group in _groups(created)]
        self._stream.write(self._render(lines))
        self._stream.flush()

    def _line(self, event: Event, now: str) -> dict[str, Any]:
        """Any event as a line: its fields, under the ledger's names."""
        fields = msgspec.to_builtins(event)
        name = fields.pop("event")
        line = {"event": NAMES.get(name, name.replace(".", ":")), "at": now, "level": _level(event)}
        if isinstance(event, JobEvent):
            subject = fields.pop("subject") or {}
            line |= {new: fields.pop(old) for old, new in JOB.items()}
            line |= _measures(fields) | subject
            if event.task in self._camel:
                line |= {camel(key): value for key, value in line.items()} | {"type": event.task}
        else:
            line |= fields
        return line

    def _created(self, group: list[JobEnqueued], now: str) -> dict[str, Any]:
        """One line for jobs that were created together."""
        first = group[0]
        line = {
            "event": NAMES[first.name],
            "at": now,
            "level": "info",
            "types": list(dict.fromkeys(event.task for event in group)),
            "request_id": first.request_id,
            "correlation_id": first.correlation_id,
            "org_id": first.org_id,
            "project_id": first.project_id,
            "count": len(group),
            "job_ids": [event.job_id for event in group[:MOST_LINE_IDS]],
        }
        if len(group) == 1:
            line |= {"job_id": first.job_id, "job_type": first.task}
        line |= first.subject or {}
        if first.task in self._camel:
            line |= {camel(key): value for key, value in line.items()}
        return line


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


def camel(name: str) -> str:
    """A name as 001 writes it.

    >>> camel("job_id")
    'jobId'
    """
    if name not in _camel:
        _camel[name] = re.sub(r"_(\w)", lambda match: match[1].upper(), name)
    return _camel[name]


def _processing(e: JobStarted, now: str) -> Processing:
    return Processing(
        now, e.request_id, e.correlation_id, e.job_id, e.task, e.org_id, e.project_id, e.queue, e.attempt,
        int(e.lateness * 1000),
    )  # fmt: skip


def _completed(e: JobSucceeded, now: str) -> Completed:
    return Completed(
        now, e.request_id, e.correlation_id, e.job_id, e.task, e.org_id, e.project_id, e.queue, e.attempt,
        int(e.duration * 1000),
    )  # fmt: skip


def _measures(fields: dict[str, Any]) -> dict[str, Any]:
    """Times in whole milliseconds; a message is what 001 calls the error; a stack has no place in a line."""
    found = {MILLISECONDS[k]: max(0, round(v * 1000)) for k, v in fields.items() if k in MILLISECONDS}
    found |= {k: v for k, v in fields.items() if k not in MILLISECONDS and k not in ("message", "stack")}
    return found | ({"error": fields["message"]} if "message" in fields else {})


def _level(event: Event) -> str:
    match event:
        case JobFailed(final=True):
            return "error"
        case JobFailed():
            return "warning"
        case Alert(firing=False):
            return "info"
        case DatabaseAway():
            return "warning"
        case _:
            return LEVELS.get(event.name, "info")


def _groups(created: Iterable[JobEnqueued]) -> Iterable[list[JobEnqueued]]:
    """Jobs of one request about one subject; those that came without a request belong together as well."""
    groups: dict[Any, list[JobEnqueued]] = {}
    for event in created:
        request = None if event.request_id == str(event.job_id) else (event.request_id, event.correlation_id)
        subject = tuple(event.subject.items()) if event.subject else None
        groups.setdefault((event.org_id, event.project_id, request, subject), []).append(event)
    return groups.values()


def _json(lines: list[Any]) -> str:
    return _encode_lines(lines).decode()


def _words(lines: list[Any]) -> str:
    return "".join(_sentence(line if isinstance(line, dict) else msgspec.to_builtins(line)) for line in lines)


#: What a person at a terminal need not read in every line.
_QUIET = {"event", "at", "level", "request_id", "correlation_id", "org_id", "project_id", "job_ids", "job_type"}


def _sentence(line: dict[str, Any]) -> str:
    clock = datetime.fromisoformat(line["at"]).astimezone().strftime("%H:%M:%S")
    rest = " ".join(f"{key}={value}" for key, value in line.items() if key not in _QUIET and value is not None)
    said = " ".join(filter(None, (f"{clock} {line['level'].upper():7}", line["event"], line.get("job_type"), rest)))
    return one_line(said) + "\n"  # names and messages come from anybody
