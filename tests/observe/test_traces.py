from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Iterator

import pytest
from opentelemetry import trace as api
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF, ALWAYS_ON, ParentBased, Sampler
from opentelemetry.trace import SpanKind, StatusCode
from tests.observe.conftest import Theatre

from mainspring import Context, Registry, SyncContext, fixed
from mainspring.app import spans
from mainspring.declare.trace import ambient, traceparent
from mainspring.observe.traces import Spans

pytestmark = pytest.mark.anyio


@pytest.fixture
def exporter(monkeypatch: pytest.MonkeyPatch) -> Iterator[InMemorySpanExporter]:
    """OpenTelemetry as a program sets it up, for this test only."""
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(api, "_TRACER_PROVIDER", provider)
    yield exporter
    provider.shutdown()


def named(exporter: InMemorySpanExporter, name: str) -> list[ReadableSpan]:
    return [span for span in exporter.get_finished_spans() if span.name == name]


def ids(span: ReadableSpan) -> tuple[int, int]:
    assert span.context is not None
    return span.context.trace_id, span.context.span_id


@pytest.mark.rule("ENG-23.01", "ENG-23.02")
async def test_each_attempt_has_a_span_in_the_trace_of_the_request_linked_to_the_enqueue(
    stage: Theatre, tasks: Registry, exporter: InMemorySpanExporter
) -> None:
    @tasks.task(retry=fixed(0, attempts=2))
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("password=hunter2 is wrong")

    stage.trace = spans()
    tracer = api.get_tracer("web")
    with tracer.start_as_current_span("request") as request:
        job = await stage.enqueue(work.job().for_org("acme"))
    await stage.drain(tasks)

    (created,) = named(exporter, "enqueue work")
    first, second = named(exporter, "process work")
    assert (await stage.job(job)).traceparent == traceparent(created.context)
    assert created.kind is SpanKind.PRODUCER
    assert {span.kind for span in (first, second)} == {SpanKind.CONSUMER}
    assert {ids(span)[0] for span in (created, first, second)} == {request.get_span_context().trace_id}
    for span in (first, second):
        assert [link.context.span_id for link in span.links] == [ids(created)[1]]
        assert span.attributes is not None
        assert span.attributes["messaging.message.id"] == str(job)
        assert span.attributes["messaging.destination.name"] == "q:default"
    assert (first.status.status_code, second.status.status_code) == (StatusCode.ERROR, StatusCode.UNSET)
    assert first.attributes is not None
    assert first.attributes["error.type"] == "INTERNAL_ERROR"
    assert "hunter2" not in first.to_json()


@pytest.mark.rule("ENG-23.04")
@pytest.mark.parametrize("way", ["async", "thread"])
async def test_a_chain_of_follow_ups_and_their_outgoing_calls_are_one_trace(
    stage: Theatre, tasks: Registry, exporter: InMemorySpanExporter, way: str
) -> None:
    calls: list[int] = []

    @tasks.task
    async def last() -> None:
        calls.append(api.get_current_span().get_span_context().trace_id)

    if way == "async":

        @tasks.task
        async def first(ctx: Context) -> None:
            calls.append(api.get_current_span().get_span_context().trace_id)
            await ctx.enqueue(last.job())
    else:

        @tasks.task
        def first(ctx: SyncContext) -> None:
            calls.append(api.get_current_span().get_span_context().trace_id)
            ctx.enqueue(last.job())

    stage.trace = spans()
    with api.get_tracer("web").start_as_current_span("request") as request:
        await stage.enqueue(first.job())
    await stage.drain(tasks)

    assert calls == [request.get_span_context().trace_id] * 2
    (parent,), (child,) = named(exporter, "process first"), named(exporter, "process last")
    assert {ids(parent)[0], ids(child)[0]} == {request.get_span_context().trace_id}


@pytest.mark.rule("ENG-23.04")
async def test_without_spans_in_the_worker_the_trace_is_handed_on_all_the_same(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def last() -> None: ...

    @tasks.task
    async def first(ctx: Context) -> None:
        await ctx.enqueue(last.job())

    parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    await stage.enqueue(first.job().traced(traceparent=parent))
    await stage.drain(tasks)

    (child,) = await stage.client.jobs(task="last")
    assert child.traceparent == parent


@pytest.mark.rule("ENG-23.01")
async def test_a_traceparent_that_was_given_stays_what_it_is(
    stage: Theatre, tasks: Registry, exporter: InMemorySpanExporter
) -> None:
    @tasks.task
    async def work() -> None: ...

    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with api.get_tracer("web").start_as_current_span("request"):
        job = await stage.enqueue(work.job().traced(traceparent=given))

    assert (await stage.job(job)).traceparent == given


@pytest.mark.rule("ENG-23.03")
async def test_an_invalid_traceparent_is_dropped_and_the_job_runs_in_a_trace_of_its_own(
    stage: Theatre, tasks: Registry, exporter: InMemorySpanExporter
) -> None:
    @tasks.task
    async def work() -> None: ...

    stage.trace = spans()
    job = await stage.enqueue(work.job().traced(traceparent="x"))
    await stage.drain(tasks)

    assert (await stage.job(job)).traceparent is None
    (span,) = named(exporter, "process work")
    assert span.parent is None
    assert list(span.links) == []


async def test_what_is_not_sampled_is_handed_on_as_not_sampled(stage: Theatre, tasks: Registry) -> None:
    flags: list[int] = []

    @tasks.task
    async def work() -> None:
        flags.append(int(api.get_current_span().get_span_context().trace_flags))

    provider = TracerProvider(sampler=ALWAYS_OFF)
    stage.trace = Spans(provider)
    with provider.get_tracer("web").start_as_current_span("request") as request:
        job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert (await stage.job(job)).traceparent == traceparent(request.get_span_context())
    assert flags == [0]


@pytest.mark.parametrize(("sampler", "spans_made"), [(ParentBased(ALWAYS_ON), 0), (ALWAYS_ON, 1)])
async def test_the_sampler_decides_about_jobs_whose_request_was_not_sampled(
    stage: Theatre, tasks: Registry, sampler: Sampler, spans_made: int
) -> None:
    seen: list[str] = []

    @tasks.task
    async def work() -> None:
        seen.append(traceparent(api.get_current_span().get_span_context()))

    exporter, provider = InMemorySpanExporter(), TracerProvider(sampler=sampler)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    stage.trace = Spans(provider)
    given = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
    await stage.enqueue(work.job().traced(traceparent=given))
    await stage.drain(tasks)

    assert len(exporter.get_finished_spans()) == spans_made
    assert [text == given for text in seen] == [spans_made == 0]
    assert seen[0].split("-")[1] == given.split("-")[1]


async def test_jobs_side_by_side_have_each_their_own_span(
    stage: Theatre, tasks: Registry, exporter: InMemorySpanExporter
) -> None:
    seen: dict[int, set[int]] = {}

    @tasks.task
    async def work(*, n: int) -> None:
        mine = seen.setdefault(n, set())
        for _ in range(3):
            mine.add(api.get_current_span().get_span_context().span_id)
            await asyncio.sleep(0)

    stage.trace = spans()
    await stage.enqueue_many([work.job(n=n) for n in range(20)])
    await stage.drain(tasks)

    assert all(len(mine) == 1 for mine in seen.values())
    assert len(set.union(*seen.values())) == 20
    assert not api.get_current_span().get_span_context().is_valid


def test_outside_of_any_span_nothing_is_traced(tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    assert ambient([work.job()]) is None
    assert ambient([]) is None


def test_who_does_not_trace_pays_no_import() -> None:
    code = (
        "import sys, mainspring as ms\n"
        "from mainspring.declare.envelope import complete\n"
        "from mainspring.app import spans\n"
        "from mainspring.declare.caller import NOBODY\n"
        "tasks = ms.Registry('x')\n"
        "@tasks.task\n"
        "async def work() -> None: ...\n"
        "complete([work.job()], NOBODY)\n"
        "assert spans() is None\n"
        "import mainspring.worker\n"
        "found = [m for m in sys.modules if m.startswith(('opentelemetry', 'prometheus', 'sentry'))]\n"
        "assert not found, found\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
