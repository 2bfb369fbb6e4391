"""Sentry: jobs that failed for good, sanitised. Needs `pip install mainspring[sentry]`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sentry_sdk

from mainspring.events import Event, JobDeadlettered, JobFailed, JobLeaseExpired


class SentryObserver:
    """Sends final failures to Sentry; what is tried again is not news.

    ::

        sentry_sdk.init(dsn=...)
        app = ms.App(tasks, dsn=dsn, observers=[SentryObserver()])
    """

    def __init__(self, client: sentry_sdk.Scope | None = None) -> None:
        self._scope = client  # None: the program's own

    def __call__(self, batch: Sequence[Event]) -> None:
        """Send what a batch holds of them."""
        crashed = {event.job_id for event in batch if isinstance(event, JobLeaseExpired)}
        for event in batch:
            if isinstance(event, JobFailed) and event.final:
                self._send(event, event.stack)
            elif isinstance(event, JobDeadlettered) and event.job_id in crashed:  # without a failure of its own
                self._send(event, None)

    def _send(self, event: JobFailed | JobDeadlettered, stack: str | None) -> None:
        (self._scope or sentry_sdk.get_current_scope()).capture_event(report(event, stack))


def report(event: JobFailed | JobDeadlettered, stack: str | None) -> Any:
    """The event as Sentry reads it: grouped by task and code, never with the payload."""
    return {
        "level": "error",
        "logger": "mainspring",
        "message": f"{event.task}: {event.code}: {event.message}",
        "fingerprint": ["mainspring", event.task, event.code],
        "tags": {
            "job_type": event.task,
            "queue": event.queue,
            "error_code": event.code,
            "org_id": event.org_id,
            "attempt": str(event.attempt),
        },
        "contexts": {
            "job": {
                "job_id": str(event.job_id),
                "project_id": str(event.project_id) if event.project_id else None,
                "request_id": event.request_id,
                "correlation_id": event.correlation_id,
                "stack": stack,
            }
        },
    }
