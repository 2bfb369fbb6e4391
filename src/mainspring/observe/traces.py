"""Traces: a span for every attempt, in the trace of the enqueue and linked to it.

The OpenTelemetry of the user's program decides what is sampled and where spans go. Attributes follow its conventions
for messaging; payloads are never among them, and errors are sanitised.
"""

from __future__ import annotations

import sys
from typing import Any

from opentelemetry import context as contexts
from opentelemetry import trace as api
from opentelemetry.trace import Link, NonRecordingSpan, Span, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from mainspring.declare.trace import MESSAGING_SYSTEM
from mainspring.job import Claim
from mainspring.outcome import Error

EMPTY_CONTEXT = contexts.Context()
CONSUMER = SpanKind.CONSUMER


class Spans:
    """Makes the span of an attempt current while its handler runs, so that outgoing calls and follow-ups carry it on.

    ::

        worker = Worker(dsn, tasks, trace=Spans())
    """

    def __init__(self, provider: api.TracerProvider | None = None) -> None:
        self._tracer = api.get_tracer("mainspring", tracer_provider=provider)
        self._follows = follows_parent(provider or api.get_tracer_provider())

    def begin(self, claim: Claim) -> Span | None:
        """Start a span, in the context of the attempt: that context ends with it, so nothing is put back."""
        parent, links = EMPTY_CONTEXT, None
        if claim.traceparent is not None and (creation := parsed(claim.traceparent)) is not None:
            parent = api.set_span_in_context(NonRecordingSpan(creation), EMPTY_CONTEXT)
            if self._follows and not creation.trace_flags.sampled:  # no span would come of it, so none is asked for
                contexts.attach(parent)
                return None
            links = [Link(creation)]
        span = self._tracer.start_span(f"process {claim.task}", parent, CONSUMER, None, links)
        contexts.attach(api.set_span_in_context(span, parent))
        if span.is_recording():
            span.set_attributes(attributes(claim))
        return span

    def failed(self, span: Span, error: Error) -> None:
        """Record why the attempt failed."""
        if span.is_recording():
            span.set_attribute("error.type", error.code)
            span.add_event("exception", {"exception.type": error.code, "exception.message": error.message})
            span.set_status(Status(StatusCode.ERROR, error.message))

    def end(self, span: Span) -> None:
        """End the span."""
        span.end()


def attributes(claim: Claim) -> dict[str, Any]:
    """What a span says of its job."""
    said: dict[str, Any] = {
        "messaging.system": MESSAGING_SYSTEM,
        "messaging.operation.type": "process",
        "messaging.operation.name": "run",
        "messaging.destination.name": claim.queue,
        "messaging.message.id": str(claim.id),
        "messaging.message.conversation_id": claim.correlation_id,
        "mainspring.task": claim.task,
        "mainspring.attempt": claim.attempt,
        "mainspring.max_attempts": claim.max_attempts,
        "mainspring.request_id": claim.request_id,
        "mainspring.org_id": claim.org_id,
    }
    return said | ({"mainspring.project_id": str(claim.project_id)} if claim.project_id else {})


def parsed(traceparent: str) -> SpanContext | None:
    """The context that a traceparent names; it was checked at the enqueue, so only its version may surprise."""
    try:
        _, trace_id, span_id, flags = traceparent.split("-")[:4]
        context = SpanContext(int(trace_id, 16), int(span_id, 16), True, TraceFlags(int(flags, 16) & 1))
    except ValueError:
        return None
    return context if context.is_valid else None


def follows_parent(provider: api.TracerProvider) -> bool:
    """Whether the sampler, by its own description, drops whatever the enqueue had not sampled: as most do."""
    sampler = getattr(provider, "sampler", None)
    description = sampler.get_description() if sampler is not None else ""
    return description.startswith("ParentBased{") and "remoteParentNotSampled:AlwaysOffSampler" in description


def in_use() -> bool:
    """Whether this program has set OpenTelemetry up: an SDK is here and is the provider."""
    if "opentelemetry.sdk.trace" not in sys.modules:
        return False
    return not isinstance(api.get_tracer_provider(), api.ProxyTracerProvider | api.NoOpTracerProvider)
