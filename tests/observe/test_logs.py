from __future__ import annotations

import io
import json
import logging
import logging.config
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
import pytest
from tests.declare.test_growth import handler
from tests.logged import lines, logged
from tests.observe.conftest import Theatre

from mainspring import Caller, Context, Permanent, Registry, SyncContext, calling, fixed
from mainspring.events import JobEnqueued, JobFailed, JobStarted, JobSucceeded, WorkerStarted
from mainspring.observe import BatchHandler, JsonFormatter, Log, TerminalFormatter

pytestmark = pytest.mark.anyio

JOB_FIELDS = {"request_id", "correlation_id", "job_id", "job_type", "org_id", "project_id"}
PROJECT = UUID(int=5)


@pytest.fixture
def stream() -> Iterator[io.StringIO]:
    with logged() as stream:
        yield stream


@pytest.mark.rule("ENG-21.01", "ENG-21.02")
async def test_every_line_of_a_run_is_one_object_with_the_events_name_and_the_ids_of_its_job(
    stage: Theatre, tasks: Registry, stream: io.StringIO
) -> None:
    @tasks.task(subject="booking_id", retry=fixed(0, attempts=2))
    async def book(*, booking_id: int, fails: bool) -> None:
        if fails:
            raise ValueError("no")

    stage.observers = [Log(tasks)]
    await stage.enqueue(book.job(booking_id=7, fails=False).for_org("acme").in_project(PROJECT))
    await stage.enqueue(book.job(booking_id=8, fails=True))
    await stage.drain(tasks)

    jobs = [line for line in lines(stream) if line["event"].startswith("job.")]
    assert all(
        line.keys() >= JOB_FIELDS | {"at", "level", "queue", "attempts", "booking_id", "logger"} for line in jobs
    )
    good = [line for line in jobs if line["booking_id"] == 7]
    assert [line["event"] for line in good] == ["job.started", "job.succeeded"]
    assert (good[0]["attempts"], good[0]["org_id"], good[0]["project_id"]) == (1, "acme", str(PROJECT))
    assert isinstance(good[1]["duration_ms"], int)
    assert good[1]["duration_ms"] >= 0
    failed = [line for line in jobs if line["event"] == "job.failed"]
    assert [(line["attempts"], line["final"], line["level"]) for line in failed] == [
        (1, False, "warning"),
        (2, True, "error"),
    ]
    assert failed[1]["error"] == "ValueError: no"
    assert (lines(stream)[0]["event"], lines(stream)[0]["logger"]) == ("worker.started", "mainspring.worker")
    assert {line["logger"] for line in jobs} == {"mainspring.job"}


@pytest.mark.rule("ENG-21.04", "ENG-21.05", "ENG-21.06", "ENG-21.09")
async def test_tasks_that_ask_for_it_get_the_ledgers_names_and_camel_case_beside_the_others(
    stage: Theatre, tasks: Registry, stream: io.StringIO
) -> None:
    @tasks.task(subject="booking_id", camel_logs=True, retry=fixed(0, attempts=2))
    async def book(*, booking_id: int) -> None:
        if booking_id == 8:
            raise ValueError("no")

    @tasks.task
    async def other() -> None: ...

    stage.observers = [Log(tasks)]
    job = await stage.enqueue(book.job(booking_id=7))
    await stage.enqueue(book.job(booking_id=8))
    await stage.enqueue(other.job())
    await stage.drain(tasks)

    (done,) = lines(stream, "job:completed")
    (begun,) = [line for line in lines(stream, "job:processing") if line["booking_id"] == 7]
    assert (begun["jobId"], begun["bookingId"], begun["type"], begun["attempts"]) == (str(job), 7, "book", 1)
    last = lines(stream, "job:failed")[-1]
    assert (last["bookingId"], last["type"], last["error"], last["attempts"]) == (8, "book", "ValueError: no", 2)
    assert (done["job_id"], done["jobId"], done["bookingId"], done["type"]) == (str(job), str(job), 7, "book")
    assert done["durationMs"] == done["duration_ms"]
    (plain,) = lines(stream, "job.succeeded")
    assert "jobId" not in plain


@pytest.mark.rule("ENG-21.03")
@pytest.mark.parametrize(("camel", "event"), [(True, "jobs:created"), (False, "job.enqueued")])
def test_jobs_created_together_about_one_subject_are_one_line(
    stream: io.StringIO, tasks: Registry, camel: bool, event: str
) -> None:
    for name in "abc":
        tasks.task(name=name, camel_logs=camel)(handler())

    def created(n: int, task: str, request: str | None, booking: int) -> JobEnqueued:
        job = UUID(int=n)
        about = {"booking_id": booking}
        return JobEnqueued(job, task, "q:default", "acme", None, request or str(job), "c", 0, about)

    Log(tasks)([created(1, "a", "r", 7), created(2, "b", "r", 7), created(3, "c", "r", 7), created(4, "a", "r", 8)])

    first, second = lines(stream, event)
    assert first.get("bookingId") == (7 if camel else None)
    assert (first["types"], first["booking_id"], first["request_id"]) == (["a", "b", "c"], 7, "r")
    assert first["job_ids"] == [str(UUID(int=n)) for n in (1, 2, 3)]
    assert (second["types"], second["job_type"], second["job_id"]) == (["a"], "a", str(UUID(int=4)))


def test_jobs_created_without_a_request_are_one_line_a_batch(stream: io.StringIO) -> None:
    ids = [UUID(int=n) for n in range(1000)]

    Log()([JobEnqueued(id, "a", "q:default", "acme", None, str(id), str(id), 0) for id in ids])

    (line,) = lines(stream)
    assert (line["types"], line["count"], len(line["job_ids"])) == (["a"], 1000, 20)


def test_on_a_terminal_it_speaks_in_words() -> None:
    event = JobStarted(UUID(int=1), "greet", "q:default", "acme", None, "r", "c", 1, None, 0.25)
    with logged(TerminalFormatter()) as stream:
        Log()([WorkerStarted("w", ["q:default"]), event])

    first, second = stream.getvalue().splitlines()
    assert first.endswith("INFO    worker.started worker=w queues=['q:default']")
    assert "job.started greet" in second
    assert "late_ms=250" in second


class Writes(io.StringIO):
    """A stream that counts its writes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[str] = []

    def write(self, text: str) -> int:
        self.written.append(text)
        return len(text)


def test_a_batch_is_one_write_and_any_other_line_is_written_at_once() -> None:
    stream, logger = Writes(), logging.getLogger("mainspring")
    handler = BatchHandler(stream)
    handler.setFormatter(JsonFormatter())
    with logged():
        logger.addHandler(handler)
        try:
            Log()([STARTED] * 100)
            logger.warning("beside it")
            logger.info("and again")
        finally:
            logger.removeHandler(handler)

    assert [text.count("\n") for text in stream.written if text.strip()] == [100, 1, 1]


def test_a_record_that_the_application_makes_otherwise_is_made_so(stream: io.StringIO) -> None:
    class Own(logging.LogRecord):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.release = "2026-1"

    before = logging.getLogRecordFactory()
    logging.setLogRecordFactory(Own)
    try:
        Log()([STARTED, STARTED])
    finally:
        logging.setLogRecordFactory(before)

    assert [line["release"] for line in lines(stream)] == ["2026-1"] * 2


def test_what_happens_to_every_job_has_the_fields_of_other_events(stream: io.StringIO) -> None:
    done = JobSucceeded(UUID(int=1), "greet", "q:default", "acme", PROJECT, "r", "c", 1, None, 0.25)
    Log()([done, msgspec.structs.replace(done, subject={"booking_id": 7})])

    plain, with_subject = lines(stream)
    assert plain | {"booking_id": 7} == with_subject
    assert (plain["duration_ms"], plain["project_id"]) == (250, str(PROJECT))


def test_lines_that_only_our_handlers_see_are_those_of_their_records_in_the_order_of_their_events() -> None:
    done = JobSucceeded(UUID(int=1), "greet", "q:default", "acme", PROJECT, "r", "c", 1, None, 0.25)
    batch = [STARTED, FAILED, done, msgspec.structs.replace(STARTED, lateness=-1.0), done, FAILED]
    logger, alone = logging.getLogger("mainspring"), io.StringIO()
    handler = BatchHandler(alone)
    handler.setFormatter(JsonFormatter())
    with logged() as beside:  # a handler of the application's own
        logger.addHandler(handler)
        Log()(batch)
        records = [line | {"at": ""} for line in lines(beside)]
    logger.propagate, level = False, logger.level  # as a process without pytest has it
    logger.setLevel(logging.INFO)
    try:
        alone.seek(alone.truncate(0))
        Log()(batch)
    finally:
        logger.propagate = True
        logger.setLevel(level)
        logger.removeHandler(handler)

    assert [line["event"] for line in records] == [event.name for event in batch]
    assert [line | {"at": ""} for line in lines(alone)] == records


STARTED = JobStarted(UUID(int=1), "greet", "q:default", "acme", None, "r", "c", 1)
FAILED = JobFailed(UUID(int=2), "greet", "q:default", "acme", None, "r", "c", 1, code="TIMEOUT", final=True)


def test_levels_filters_handlers_and_formatters_of_the_application_apply_to_events(tmp_path: Path) -> None:
    """By dictConfig: failures of one organisation in a file of their own, starts nowhere, and the rest as it likes."""
    before = logging.getLogger("mainspring.job").level
    logging.config.dictConfig({
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "json": {"()": "mainspring.observe.JsonFormatter"},
            "own": {"format": "%(levelname)s|%(name)s|%(event)s|%(job_id)s|%(message)s"},
        },
        "filters": {"acme": {"()": lambda: lambda record: getattr(record, "org_id", "") == "acme"}},
        "handlers": {
            "json": {
                "class": "logging.FileHandler", "filename": tmp_path / "json", "formatter": "json", "filters": ["acme"],
            },
            "own": {"class": "logging.FileHandler", "filename": tmp_path / "own", "formatter": "own"},
        },
        "loggers": {"mainspring.job": {"level": "WARNING", "handlers": ["json", "own"], "propagate": False}},
    })  # fmt: skip
    logger = logging.getLogger("mainspring.job")
    try:
        Log()([STARTED, FAILED, msgspec.structs.replace(FAILED, org_id="globex")])
    finally:
        for handler in list(logger.handlers):
            logger.removeHandler(handler)
            handler.close()
        logger.setLevel(before)
        logger.propagate = True

    (line,) = map(json.loads, (tmp_path / "json").read_text().splitlines())
    assert (line["event"], line["code"], line["org_id"], line["level"]) == ("job.failed", "TIMEOUT", "acme", "error")
    own = (tmp_path / "own").read_text().splitlines()
    assert len(own) == 2
    assert own[0].startswith(f"ERROR|mainspring.job|job.failed|{UUID(int=2)}|job.failed greet ")


def test_a_field_that_a_filter_adds_is_kept_and_nobodys_field_takes_the_place_of_another(stream: io.StringIO) -> None:
    def add(record: logging.LogRecord) -> bool:
        record.host, record.org_id_of = "web-1", {"token": "abc", "n": [1, 2]}
        return True

    forged = {
        "level": "debug",
        "name": "root",
        "event": "job.succeeded",
        "org_id": "globex",
        "message": "x",
        "exc_info": 1,
    }
    logging.getLogger("mainspring.job").addFilter(add)
    try:
        for name, value in forged.items():
            Log()([msgspec.structs.replace(FAILED, subject={name: value})])
    finally:
        logging.getLogger("mainspring.job").removeFilter(add)

    for line, name in zip(lines(stream), forged, strict=True):
        assert (line["event"], line["level"], line["org_id"]) == ("job.failed", "error", "acme")
        assert line["logger"] == "mainspring.job"
        assert line["host"] == "web-1"
        assert line["org_id_of"] == {"token": "***", "n": [1, 2]}
        assert line[name] == (forged[name] if name in ("name", "message", "exc_info") else line[name])


def test_an_event_that_nobody_wants_to_read_is_not_made_into_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logging.getLogger("mainspring.job"), "makeRecord", lambda *_: pytest.fail("it is not enabled"))
    monkeypatch.setattr(logging.getLogger("mainspring.job"), "level", logging.ERROR)
    logging.getLogger("mainspring.job").manager._clear_cache()  # type: ignore[attr-defined] # what is enabled

    Log()([STARTED])
    logging.getLogger("mainspring.job").manager._clear_cache()  # type: ignore[attr-defined] # the same


@pytest.mark.parametrize("extra", [{"order": {"id": 7, "card": {"cvc": 1}}}, {"tags": ["a", "b"]}, {"n": 1.5}])
def test_what_a_program_adds_to_its_lines_are_fields_of_them(stream: io.StringIO, extra: dict[str, Any]) -> None:
    logging.getLogger("mainspring.task.pay").warning("paid", extra=extra)

    line = json.loads(stream.getvalue())
    assert line.items() >= extra.items()


def test_what_is_too_large_or_holds_itself_is_shortened_to_its_text(stream: io.StringIO) -> None:
    loop: list[Any] = []
    loop.append(loop)
    logging.getLogger("mainspring.task.pay").warning("paid", extra={"loop": loop, "long": ["x" * 50] * 1000})

    line = json.loads(stream.getvalue())
    assert line["loop"] == "[[...]]"
    assert isinstance(line["long"], str)
    assert len(line["long"]) < 2000


@pytest.mark.rule("ENG-21.02")
@pytest.mark.parametrize("formatter", [JsonFormatter, TerminalFormatter])
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
    if formatter is TerminalFormatter:
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
        line = json.loads(JsonFormatter().format(record))

    assert (line["org_id"], line["request_id"], line["message"]) == ("acme", "r", "sent to a***@example.com")


@pytest.mark.rule("ENG-21.08")
async def test_a_mail_address_in_an_error_or_a_subject_is_masked(
    stage: Theatre, tasks: Registry, stream: io.StringIO
) -> None:
    @tasks.task(subject="to")
    async def mail(*, to: str) -> None:
        raise Permanent(f"no such box: {to}")

    stage.observers = [Log(tasks)]
    await stage.enqueue(mail.job(to="someone@example.com"))
    await stage.drain(tasks)

    assert "someone@example.com" not in stream.getvalue()
    assert lines(stream, "job.failed")[0]["to"] == "s***@example.com"
