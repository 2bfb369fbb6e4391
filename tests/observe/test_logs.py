from __future__ import annotations

import io
import json
import logging
from typing import Any
from uuid import UUID

import pytest
from tests.observe.conftest import Theatre

from mainspring import Caller, Context, Permanent, Registry, SyncContext, calling, fixed
from mainspring.events import JobEnqueued, JobStarted, WorkerStarted
from mainspring.observe import JsonLines, Log
from mainspring.observe.lines import Words

pytestmark = pytest.mark.anyio

JOB_FIELDS = {"request_id", "correlation_id", "job_id", "job_type", "org_id", "project_id"}
PROJECT = UUID(int=5)


@pytest.fixture
def stream() -> io.StringIO:
    return io.StringIO()


def lines(stream: io.StringIO, event: str | None = None) -> list[dict[str, Any]]:
    found = [json.loads(line) for line in stream.getvalue().splitlines()]
    return [line for line in found if event is None or line["event"] == event]


@pytest.mark.rule("ENG-21.01", "ENG-21.02", "ENG-21.04", "ENG-21.05", "ENG-21.06")
async def test_every_line_of_a_run_is_one_object_with_the_ledgers_name_and_the_ids_of_its_job(
    stage: Theatre, tasks: Registry, stream: io.StringIO
) -> None:
    @tasks.task(subject="booking_id", retry=fixed(0, attempts=2))
    async def book(*, booking_id: int, fails: bool) -> None:
        if fails:
            raise ValueError("no")

    stage.observers = [Log(stream, tasks)]
    await stage.enqueue(book.job(booking_id=7, fails=False).for_org("acme").in_project(PROJECT))
    await stage.enqueue(book.job(booking_id=8, fails=True))
    await stage.drain(tasks)

    jobs = [line for line in lines(stream) if line["event"].startswith("job")]
    assert all(line.keys() >= JOB_FIELDS | {"at", "level", "queue", "attempts", "booking_id"} for line in jobs)
    good = [line for line in jobs if line["booking_id"] == 7]
    assert [line["event"] for line in good] == ["job:processing", "job:completed"]
    assert (good[0]["attempts"], good[0]["org_id"], good[0]["project_id"]) == (1, "acme", str(PROJECT))
    assert isinstance(good[1]["duration_ms"], int)
    assert good[1]["duration_ms"] >= 0
    failed = [line for line in jobs if line["event"] == "job:failed"]
    assert [(line["attempts"], line["final"], line["level"]) for line in failed] == [
        (1, False, "warning"),
        (2, True, "error"),
    ]
    assert failed[1]["error"] == "ValueError: no"
    assert lines(stream)[0]["event"] == "worker:started"


@pytest.mark.rule("ENG-21.09")
async def test_tasks_that_ask_for_it_get_camel_case_names_beside_the_others(
    stage: Theatre, tasks: Registry, stream: io.StringIO
) -> None:
    @tasks.task(subject="booking_id", camel_logs=True)
    async def book(*, booking_id: int) -> None: ...

    @tasks.task
    async def other() -> None: ...

    stage.observers = [Log(stream, tasks)]
    job = await stage.enqueue(book.job(booking_id=7))
    await stage.enqueue(other.job())
    await stage.drain(tasks)

    (done,) = [line for line in lines(stream, "job:completed") if line["job_type"] == "book"]
    assert (done["job_id"], done["jobId"], done["bookingId"], done["type"]) == (str(job), str(job), 7, "book")
    assert done["durationMs"] == done["duration_ms"]
    (plain,) = [line for line in lines(stream, "job:completed") if line["job_type"] == "other"]
    assert "jobId" not in plain


@pytest.mark.rule("ENG-21.03")
def test_jobs_created_together_about_one_subject_are_one_line(stream: io.StringIO) -> None:
    def created(n: int, task: str, request: str | None, booking: int) -> JobEnqueued:
        job = UUID(int=n)
        about = {"booking_id": booking}
        return JobEnqueued(job, task, "q:default", "acme", None, request or str(job), "c", 0, about)

    Log(stream)([created(1, "a", "r", 7), created(2, "b", "r", 7), created(3, "c", "r", 7), created(4, "a", "r", 8)])

    first, second = lines(stream, "jobs:created")
    assert (first["types"], first["booking_id"], first["request_id"]) == (["a", "b", "c"], 7, "r")
    assert first["job_ids"] == [str(UUID(int=n)) for n in (1, 2, 3)]
    assert (second["types"], second["job_type"], second["job_id"]) == (["a"], "a", str(UUID(int=4)))


def test_jobs_created_without_a_request_are_one_line_a_batch(stream: io.StringIO) -> None:
    ids = [UUID(int=n) for n in range(1000)]

    Log(stream)([JobEnqueued(id, "a", "q:default", "acme", None, str(id), str(id), 0) for id in ids])

    (line,) = lines(stream)
    assert (line["types"], line["count"], len(line["job_ids"])) == (["a"], 1000, 20)


def test_a_batch_is_one_write() -> None:
    written: list[str] = []

    class Stream(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    event = JobStarted(UUID(int=1), "a", "q:default", "acme", None, "r", "c", 1)
    Log(Stream())([event] * 100)

    assert [text.count("\n") for text in written] == [100]


def test_on_a_terminal_it_speaks_in_words(stream: io.StringIO) -> None:
    event = JobStarted(UUID(int=1), "greet", "q:default", "acme", None, "r", "c", 1, None, 0.25)
    Log(stream, plain=True)([WorkerStarted("w", ["q:default"]), event])

    first, second = stream.getvalue().splitlines()
    assert first.endswith("INFO    worker:started worker=w queues=['q:default']")
    assert "job:processing greet" in second
    assert "late_ms=250" in second


@pytest.mark.rule("ENG-21.02")
@pytest.mark.parametrize("formatter", [JsonLines, Words])
async def test_a_handlers_own_lines_carry_the_ids_of_its_job(
    stage: Theatre, tasks: Registry, stream: io.StringIO, formatter: type[logging.Formatter]
) -> None:
    logger = logging.getLogger("shop")

    @tasks.task
    async def greet(ctx: Context) -> None:
        logger.warning("hello", extra={"n": 1, "api_token": "abc"})
        ctx.log.warning("by its context")

    @tasks.task
    def plain(ctx: SyncContext) -> None:
        logger.warning("from a thread")

    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter())
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        jobs = [await stage.enqueue(job.for_org("acme").in_project(PROJECT)) for job in (greet.job(), plain.job())]
        await stage.drain(tasks)
    finally:
        root.removeHandler(handler)

    text = stream.getvalue()
    if formatter is Words:
        assert f"hello [greet {jobs[0]}]" in text
        assert f"from a thread [plain {jobs[1]}]" in text
        return
    said = {line["message"]: line for line in map(json.loads, text.splitlines())}
    for message, job in (("hello", jobs[0]), ("by its context", jobs[0]), ("from a thread", jobs[1])):
        line = said[message]
        assert line.keys() >= JOB_FIELDS
        assert (line["job_id"], line["org_id"], line["project_id"]) == (str(job), "acme", str(PROJECT))
    assert (said["hello"]["n"], said["hello"]["api_token"]) == (1, "***")


@pytest.mark.rule("ENG-21.08")
def test_lines_of_a_request_carry_its_ids_and_no_secret_or_address(stream: io.StringIO) -> None:
    record = logging.makeLogRecord(
        {"name": "web", "levelname": "INFO", "msg": "sent to %s", "args": ("a@example.com",)}
    )
    with calling(Caller(org_id="acme", request_id="r")):
        line = json.loads(JsonLines().format(record))

    assert (line["org_id"], line["request_id"], line["message"]) == ("acme", "r", "sent to a***@example.com")


@pytest.mark.rule("ENG-21.08")
async def test_a_mail_address_in_an_error_or_a_subject_is_masked(
    stage: Theatre, tasks: Registry, stream: io.StringIO
) -> None:
    @tasks.task(subject="to")
    async def mail(*, to: str) -> None:
        raise Permanent(f"no such box: {to}")

    stage.observers = [Log(stream, tasks)]
    await stage.enqueue(mail.job(to="someone@example.com"))
    await stage.drain(tasks)

    assert "someone@example.com" not in stream.getvalue()
    assert lines(stream, "job:failed")[0]["to"] == "s***@example.com"
