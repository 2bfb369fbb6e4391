"""What observing costs: the drain with logs, metrics, alerts and sampled traces on, against the same without."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased, TraceIdRatioBased

import mainspring as ms
from bench import ours
from mainspring.observe import Alerts, BatchHandler, JsonFormatter, Log, Metrics
from mainspring.observe.traces import Spans


class Nowhere(SpanExporter):
    """Takes spans as a collector would."""

    def export(self, spans: Any) -> SpanExportResult:
        return SpanExportResult.SUCCESS


@contextmanager
def everything() -> Iterator[dict[str, Any]]:
    """Metrics, JSON logs at info written to a file, alerts, and one trace in a hundred."""
    provider = TracerProvider(sampler=ParentBased(TraceIdRatioBased(0.01)))
    provider.add_span_processor(BatchSpanProcessor(Nowhere()))
    with tempfile.NamedTemporaryFile("w") as file:
        metrics = Metrics(ours.tasks)
        log, logger = Log(ours.tasks), logging.getLogger("mainspring")
        handler = BatchHandler(file)  # type: ignore[arg-type]  # a wrapper of a text file
        handler.setFormatter(JsonFormatter())
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        yield {"observers": [log, metrics, Alerts([log, metrics])], "trace": Spans(provider)}
        logger.removeHandler(handler)
        logger.setLevel(logging.NOTSET)
    provider.shutdown()


def traced(number: int) -> list[ms.NewJob]:
    """Jobs of as many requests, one in a hundred of which is sampled."""
    return [
        job.traced(traceparent=f"00-{n + 1:032x}-{n + 1:016x}-{n % 100 == 0:02x}")
        for n, job in enumerate(ours.noops(number))
    ]


async def drain(dsn: str, jobs: int) -> float:
    """Jobs/s with everything on."""
    with everything() as observed:
        return await ours.drain(dsn, jobs, traced, **observed)


async def drain_unseen(dsn: str, jobs: int) -> float:
    """Jobs/s of the same jobs with everything off."""
    return await ours.drain(dsn, jobs, traced)
