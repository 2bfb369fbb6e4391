"""An application that spills secrets wherever a handler can: in errors, causes, logs, notes, results and spans."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Sequence

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExporter, SpanExportResult

import mainspring as ms

tasks = ms.Registry("leaky")
log = logging.getLogger("leaky")
SPILLS: dict[str, str] = json.loads(os.environ.get("LEAKY_SPILLS", "{}"))  # place → text with secrets


class ToFile(SpanExporter):
    """Writes each span as a line."""

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        with open(os.environ["LEAKY_SPANS"], "a") as file:
            file.writelines(span.to_json(indent=None) + "\n" for span in spans)
        return SpanExportResult.SUCCESS


if "LEAKY_SPANS" in os.environ:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ToFile()))
    trace.set_tracer_provider(provider)


@tasks.task(retry=ms.fixed(0, attempts=2))
async def raises(*, n: int) -> None:
    """Fail with a provider's answer in the message, and another in the cause."""
    try:
        raise ValueError(SPILLS["cause"])
    except ValueError as error:
        raise ConnectionError(SPILLS["error"]) from error


@tasks.task(retry=ms.fixed(0, attempts=1))
def raises_in_thread(*, n: int) -> None:
    """Fail in a thread."""
    local = SPILLS["local"]
    raise RuntimeError("in a thread: " + SPILLS["thread"] + " " * bool(local))


@tasks.task(cpu=True, retry=ms.fixed(0, attempts=1))
def raises_in_process(*, n: int) -> None:
    """Fail in a process."""
    raise RuntimeError("in a process: " + SPILLS["process"])


@tasks.task
async def permanent(*, n: int) -> None:
    """Fail for good."""
    raise ms.Permanent(SPILLS["permanent"])


@tasks.task(retry=ms.fixed(0, attempts=2))
async def asked_to_wait(*, n: int) -> None:
    """Fail with what a provider answered to a call that came too soon."""
    raise ms.RetryAfter(0, SPILLS["provider"])


@tasks.task
async def chatters(ctx: ms.Context, *, n: int) -> dict[str, str]:
    """Succeed, and talk too much."""
    log.info("calling: %s", SPILLS["log"])
    log.warning("with extra", extra={"api_key": SPILLS["extra"], "answer": SPILLS["answer"]})
    try:
        raise KeyError(SPILLS["logged exception"])
    except KeyError:
        log.exception("caught")
    await ctx.progress(1, 2, note=SPILLS["note"][:200])
    return {"answer": SPILLS["result"]}


app = ms.App(tasks, config=ms.WorkerConfig(processes=1))
