"""The log events of jobs, as the source names them, told by what the engine tells (RENT-8.03)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, get_args

from mainspring.events import Event, JobEvent, JobFailed, JobStarted, JobSucceeded
from mainspring_apps.rental.desk import log
from mainspring_apps.rental.rounds import JobKind


def told(batch: Sequence[Event]) -> None:
    """Log what happened to jobs of bookings."""
    for event in batch:
        if not isinstance(event, JobEvent) or event.task not in get_args(JobKind) or event.subject is None:
            continue
        match event:
            case JobStarted():
                _say("job:processing", event, attempts=event.attempt)
            case JobSucceeded(duration=duration):
                _say("job:completed", event, durationMs=round(duration * 1000))
            case JobFailed(message=message):
                _say("job:failed", event, error=message, attempts=event.attempt)


def _say(name: str, event: JobEvent, **about: Any) -> None:
    subject = event.subject or {}
    said = {"jobId": str(event.job_id), "bookingId": subject.get("booking_id"), "type": event.task, **about}
    log.info(name, extra={"event": name, **said})
