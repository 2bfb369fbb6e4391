"""Secrets in payloads, in what handlers raise and in what providers answer reach no output."""

from __future__ import annotations

import io
import logging
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from prometheus_client import CollectorRegistry, generate_latest
from tests.observe.conftest import Theatre

from mainspring import Context, Permanent, Registry, RetryAfter, fixed
from mainspring.db.gauges import Reader
from mainspring.observe import Alerts, JsonFormatter, Log, Metrics
from mainspring.observe.sentry import SentryObserver
from mainspring.observe.traces import Spans

pytestmark = pytest.mark.anyio

CANARIES = {
    "payload": "canary-payload-7f3a",
    "password": "canary-password-81bc",
    "key": "sk_live_canarykey0123456789",
    "bearer": "canarybearertoken0123456789",
    "token": "eyJhbGciOiJIUzI1NiJ9.eyJjYW5hcnkiOjF9.canarysignature",
    "dsn": "canary-dsn-5d1e",
    "address": "canary.person",
}


def says(text: str) -> str:
    return text.format(**CANARIES)


async def test_no_canary_is_found_in_logs_metrics_spans_alerts_or_sentry(
    stage: Theatre, tasks: Registry, sent: list[dict[str, Any]]
) -> None:
    own = logging.getLogger("shop")

    @tasks.task(retry=fixed(0, attempts=2), allow_secrets=("password",), subject="to")
    async def call(ctx: Context, *, password: str, to: str, how: str) -> None:
        own.warning(says("calling with password={password} and Authorization: Bearer {bearer}"))
        ctx.log.warning("answer", extra={"api_key": CANARIES["key"], "body": says('{{"access_token": "{token}"}}')})
        match how:
            case "raise":
                raise ValueError(says("login as {address}@example.com password={password} failed"))
            case "provider":
                raise RetryAfter(1, says("429 for key {key}: Authorization: Bearer {bearer}"))
            case "database":
                raise ConnectionError(says("could not connect to postgresql://shop:{dsn}@db/shop"))
            case "permanent":
                raise Permanent(says("token {token} was refused"), code="VALIDATION_ERROR")

    spans, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(spans))
    stream, metrics = io.StringIO(), Metrics(tasks, gauges=Reader(stage.dsn))
    log = Log(tasks)
    handler = logging.StreamHandler(stream)
    handler.setFormatter(JsonFormatter())
    logging.getLogger().addHandler(handler)
    logging.getLogger("mainspring").setLevel(logging.INFO)
    stage.observers, stage.trace = [log, metrics, SentryObserver(), Alerts([log, metrics])], Spans(provider)
    try:
        for how in ("raise", "provider", "database", "permanent", "nothing"):
            job = call.job(password=CANARIES["payload"], to=says("{address}@example.com"), how=how)
            await stage.enqueue(job)
        await stage.drain(tasks)
        stage.clock.advance(hours=2)
        await stage.drain(tasks)
    finally:
        logging.getLogger().removeHandler(handler)
        logging.getLogger("mainspring").setLevel(logging.NOTSET)
    registry = CollectorRegistry()
    registry.register(metrics)
    outputs = {
        "log": stream.getvalue(),
        "metrics": generate_latest(registry).decode(),
        "spans": "".join(span.to_json() for span in spans.get_finished_spans()),
        "sentry": str(sent),
        "database": str(
            stage.rows("select error from mainspring.finished union all select error from mainspring.attempt")
        ),
    }

    assert len(sent) == 4
    assert len(spans.get_finished_spans()) == 8
    assert '"level":"warning"' in outputs["log"]
    hits = {(where, name) for where, text in outputs.items() for name, value in CANARIES.items() if value in text}
    assert hits == set()
