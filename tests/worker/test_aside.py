"""What a handler raises is read beside the event loop wherever reading it may take long."""

from __future__ import annotations

import asyncio
import os
import sys
import threading
import types
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy.exc
from tests.worker.stage import Stage

from mainspring import Permanent, Registry, RetryAfter, Snooze, fixed
from mainspring.outcome import Failed, Failure, Snoozed
from mainspring.text.sanitize import sanitize
from mainspring.text.stack import stack_of
from mainspring.worker import aside, classify

pytestmark = pytest.mark.anyio

ONCE = fixed(60, attempts=1)


def error_of(stage: Stage) -> str:
    return str(stage.one("select error ->> 'message' from mainspring.finished where state = 'dead'"))


@pytest.mark.rule("ENG-16.05")
async def test_an_exception_without_an_end_fails_its_job_and_nothing_else(stage: Stage, tasks: Registry) -> None:
    @tasks.task(retry=ONCE)
    async def circular() -> None:
        error = ValueError("round")
        error.__cause__ = error
        error.orig = error  # type: ignore[attr-defined]  # as SQLAlchemy names it
        raise error

    @tasks.task
    async def next_one() -> None: ...

    job, other = await stage.enqueue(circular.job()), await stage.enqueue(next_one.job())
    await stage.drain(tasks)

    assert (await stage.state(job), await stage.state(other)) == ("dead", "succeeded")
    assert error_of(stage) == "ValueError: round"


@pytest.mark.rule("ENG-16.05")
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_an_exception_that_takes_long_to_be_read_does_not_stand_on_the_event_loop(
    stage: Stage, tasks: Registry, kind: str
) -> None:
    loop_is_free = threading.Event()

    class Slow(Exception):
        def __str__(self) -> str:
            return "the loop was free" if loop_is_free.wait(30) else "the loop stood still"

    @tasks.task(retry=ONCE)
    async def slow() -> None:
        raise Slow

    @tasks.task(retry=ONCE)
    def slow_in_thread() -> None:
        raise Slow

    @tasks.task(priority=3)
    async def afterwards() -> None:
        loop_is_free.set()

    await stage.enqueue(slow.job() if kind == "async" else slow_in_thread.job())
    async with stage.work(tasks) as worker:
        await stage.until(lambda: any(_aside()))
        await stage.enqueue(afterwards.job())
        await stage.until(lambda: worker.counts["dead"])

    assert error_of(stage) == "Slow: the loop was free"


async def test_an_exception_that_is_never_read_leaves_its_name_and_no_busy_thread(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "ASIDE_PATIENCE_S", 0.1)

    class Endless(Exception):
        def __str__(self) -> str:
            while True:
                pass

    @tasks.task(retry=ONCE)
    async def endless() -> None:
        raise Endless

    await stage.enqueue(endless.job())
    await stage.drain(tasks)

    assert error_of(stage) == "Endless: its text could not be read in time"
    await stage.until(lambda: not any(_aside()))


async def test_an_attempt_that_is_stopped_while_its_exception_is_read_has_ended_all_the_same() -> None:
    begun, over = threading.Event(), threading.Event()

    class Waits(Exception):
        def __str__(self) -> str:
            begun.set()
            over.wait(30)
            return "at last"

    judging = asyncio.create_task(aside.judge(Waits()))
    await asyncio.to_thread(begun.wait, 10)
    judging.cancel()
    outcome = await judging
    over.set()

    assert isinstance(outcome, Failed)
    assert outcome.error.message == "Waits: its text could not be read in time"


async def test_threads_that_hang_in_what_they_read_are_few_and_said_to_be(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(aside, "ASIDE_PATIENCE_S", 0.1)
    monkeypatch.setattr(aside, "MOST_HANGING_THREADS", 2)
    over = threading.Event()

    class Waits(Exception):
        def __str__(self) -> str:
            over.wait(30)
            return "at last"

    for _ in range(5):
        await aside.judge(Waits())
    count = sum(_aside())
    over.set()

    assert count == 2
    assert [line.levelname for line in caplog.records if "hang" in line.message] == ["ERROR"]
    await stage.until(lambda: not any(_aside()))


class Reads:
    """Counts those that are being read, as foreign code may: a loop without an end, or one that waits."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.now += 1
            self.most = max(self.most, self.now)

    def __exit__(self, *what: object) -> None:
        with self._lock:
            self.now -= 1


@pytest.mark.rule("ENG-16.05")
async def test_many_exceptions_without_an_end_are_not_read_together() -> None:
    reads = Reads()

    class Endless(Exception):
        def __str__(self) -> str:
            with reads:
                while True:
                    pass

    outcomes = await asyncio.gather(*(aside.judge(Endless()) for _ in range(30)))

    assert reads.most <= 2  # the next, and one that is about to end
    assert {outcome.error.message for outcome in outcomes if isinstance(outcome, Failed)} == {
        "Endless: its text could not be read in time"
    }


async def test_an_exception_that_loops_whatever_it_is_asked_for_leaves_no_busy_thread(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "ASIDE_PATIENCE_S", 0.1)

    class Trap(Exception):
        def __getattr__(self, name: str) -> Any:
            while True:
                pass

    await aside.judge(Trap())

    await stage.until(lambda: not any(_aside()))


@pytest.mark.parametrize("raised", [KeyboardInterrupt, SystemExit, GeneratorExit])
async def test_what_an_exception_raises_when_it_is_read_ends_no_thread(
    monkeypatch: pytest.MonkeyPatch, raised: type[BaseException]
) -> None:
    monkeypatch.setattr(aside, "ASIDE_PATIENCE_S", 60.0)  # it is not waited for
    ended: list[object] = []
    monkeypatch.setattr(threading, "excepthook", ended.append)

    class Odd(Exception):
        def __str__(self) -> str:
            raise raised

    outcome = await asyncio.wait_for(aside.judge(Odd("the words")), 20)

    assert isinstance(outcome, Failed)
    assert outcome.error.message == "Odd: the words"
    assert not ended


class Never:
    """Whatever is asked of it, nobody has the time."""

    def __str__(self) -> str:
        raise AssertionError("it ran code of the exception's own")


class Later(Snooze, Never):
    __str__ = Never.__str__


class Soon(RetryAfter, Never):
    __str__ = Never.__str__


class No(Permanent, Never):
    __str__ = Never.__str__


class Busy(Failure):
    __str__ = Never.__str__


class Odd(Exception):
    __str__ = Never.__str__


def read_only() -> Exception:
    origin = psycopg.errors.ReadOnlySqlTransaction("cannot execute INSERT in a read-only transaction")
    return sqlalchemy.exc.OperationalError("insert", {"a": Never()}, origin)


def unique() -> Exception:
    origin = psycopg.errors.UniqueViolation("duplicate key")
    return sqlalchemy.exc.IntegrityError("insert", {"a": Never()}, origin)


async def test_what_needs_no_code_of_an_exception_is_known_without_its_text(monkeypatch: pytest.MonkeyPatch) -> None:
    await aside.judge(raised(ValueError()))  # so that this file is known
    monkeypatch.setattr(aside, "MOST_HANGING_THREADS", 0)  # as if so many hung
    before = aside.counts["unread"]

    assert await aside.judge(Later(5000)) == Snoozed(timedelta(seconds=5000))
    assert isinstance(await aside.judge(read_only()), Snoozed)
    soon = await aside.judge(Soon(5000, longest=timedelta(hours=2)))
    assert isinstance(soon, Failed)
    assert (soon.after, soon.longest) == (timedelta(seconds=5000), timedelta(hours=2))
    failures = {
        Soon(1): ("RATE_LIMITED", "retryable", "Soon: its text could not be read in time"),
        No("never", code="CONFIG"): ("CONFIG", "permanent", "No: its text could not be read in time"),
        Busy(code="BUSINESS_RULE"): ("BUSINESS_RULE", "permanent", "Busy: its text could not be read in time"),
        Busy(): ("INTERNAL_ERROR", "retryable", "Busy: its text could not be read in time"),
        Odd("never"): ("INTERNAL_ERROR", "retryable", "Odd: its text could not be read in time"),
        unique(): ("INTERNAL_ERROR", "retryable", "IntegrityError: duplicate key"),
        ValueError({"order": 7}): ("INTERNAL_ERROR", "retryable", "ValueError: {'order': 7}"),
    }
    for error, expected in failures.items():
        try:
            raise error
        except Exception as caught:
            outcome = await aside.judge(caught)
        assert isinstance(outcome, Failed)
        assert (outcome.error.code, outcome.error.error_class, outcome.error.message) == expected
        assert "raise error" in (outcome.error.stack or "")
    assert aside.counts["unread"] == before + 9


def raised(error: Exception, path: str | None = None, **names: object) -> Exception:
    """The same, raised here or in the code of such a file."""
    try:
        if path is None:
            raise error
        exec(compile("raise error", path, "exec"), {"error": error, **names})
    except Exception as caught:
        return caught
    raise AssertionError("it was raised")


@pytest.mark.rule("ENG-16.05")
async def test_sources_are_read_beside_the_event_loop_and_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read_in: list[str] = []

    class Loader:
        def get_source(self, name: str) -> str:
            read_in.append(threading.current_thread().name)
            return "from an archive"

    path = str(tmp_path / "archive.zip" / "module.py")
    for _ in range(2):
        outcome = await aside.judge(raised(ValueError(), path, __name__="module", __loader__=Loader()))
        assert isinstance(outcome, Failed)
        assert str(outcome.error.stack).endswith(f'  File "{path}", line 1, in <module>\n    from an archive\n')
    assert read_in == ["mainspring aside"]


async def test_a_source_that_is_no_file_is_not_opened(tmp_path: Path) -> None:
    path = str(tmp_path / "pipe.py")
    os.mkfifo(path)
    before = aside.counts["unread"]

    outcome = await aside.judge(raised(ValueError("the words"), path))

    assert isinstance(outcome, Failed)
    assert outcome.error.message == "ValueError: the words"
    assert f'File "{path}", line 1' in str(outcome.error.stack)
    assert aside.counts["unread"] == before


async def test_a_source_that_never_comes_hangs_one_thread_and_leaves_the_text(
    stage: Stage, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(aside, "ASIDE_PATIENCE_S", 0.1)
    over = threading.Event()

    class Loader:
        def get_source(self, name: str) -> str:
            over.wait(30)
            return ""

    path = str(tmp_path / "nowhere.py")
    for _ in range(3):
        outcome = await aside.judge(raised(ValueError("the words"), path, __name__="module", __loader__=Loader()))
        assert isinstance(outcome, Failed)
        assert outcome.error.message == "ValueError: the words"
    assert sum(_aside()) == 1
    over.set()
    await stage.until(lambda: not any(_aside()))


async def test_of_a_traceback_without_an_end_only_so_many_frames_are_looked_at() -> None:
    error = raised(ValueError())
    await aside.judge(error)
    frame = error.__traceback__
    assert frame is not None
    for _ in range(1_000_000):
        frame = types.TracebackType(frame, frame.tb_frame, frame.tb_lasti, frame.tb_lineno)
    steps = 0

    def count(*what: object) -> Any:
        nonlocal steps
        steps += 1
        return count

    sys.settrace(count)
    try:
        stack = stack_of(error.with_traceback(frame), reading=False)
    finally:
        sys.settrace(None)

    assert stack.count("raise error") == 12
    assert steps < 100_000


async def test_a_huge_text_is_masked_beside_the_event_loop(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    masked_in: list[str] = []

    def watched(text: str, limit: int) -> str:
        masked_in.append(threading.current_thread().name)
        return sanitize(text, limit)

    monkeypatch.setattr(classify, "sanitize", watched)

    @tasks.task(retry=ONCE)
    async def verbose() -> None:
        raise ValueError("password='x' " * 10_000)

    await stage.enqueue(verbose.job())
    await stage.drain(tasks)

    assert set(masked_in) == {"mainspring aside"}
    assert error_of(stage).startswith("ValueError: password=***")


def _aside() -> list[bool]:
    return [thread.name == "mainspring aside" for thread in threading.enumerate()]
