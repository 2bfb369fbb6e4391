"""The trace that code runs in, where OpenTelemetry is in use. Where it is not, nothing is imported for it."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from mainspring.job import NewJob

MESSAGING_SYSTEM = "mainspring"  # messaging.system


def ambient(jobs: Sequence[NewJob]) -> str | None:
    """What jobs enqueued here carry on: the current span, or a span of their creation below it where it is recorded."""
    api = sys.modules.get("opentelemetry.trace")  # who has not imported it traces nothing
    if api is None or not jobs:
        return None
    span = api.get_current_span()
    if span.is_recording():
        span = _creation(api, jobs)
    context = span.get_span_context()
    return traceparent(context) if context.is_valid else None


def traceparent(context: Any) -> str:
    """A span's context as W3C writes it."""
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{int(context.trace_flags) & 1:02x}"


def _creation(api: Any, jobs: Sequence[NewJob]) -> Any:
    """A span that says which jobs were made; it ends at once, whether or not they are committed later."""
    tasks = list(dict.fromkeys(job.task for job in jobs))
    attributes: dict[str, Any] = {
        "messaging.system": MESSAGING_SYSTEM,
        "messaging.operation.type": "create",
        "messaging.operation.name": "enqueue",
        "messaging.destination.name": jobs[0].queue,
    }
    if len(jobs) > 1:
        attributes["messaging.batch.message_count"] = len(jobs)
    tracer = api.get_tracer("mainspring")
    name = f"enqueue {tasks[0] if len(tasks) == 1 else f'{len(tasks)} tasks'}"
    span = tracer.start_span(name, kind=api.SpanKind.PRODUCER, attributes=attributes)
    span.end()
    return span
