"""What fails again and again is told calmly."""

from __future__ import annotations

import logging
import time

import pytest

from mainspring.health.trouble import MOST_REASONS, Trouble

log, edges = logging.getLogger("tests.trouble"), logging.getLogger("tests.trouble.edges")


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    return now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    found = [record.getMessage() for record in caplog.records if record.name.startswith("tests.trouble")]
    caplog.clear()
    return found


def test_it_is_told_once_then_every_minute_and_at_its_end(clock: list[float], caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(log, "it is away", "it is back")
    for _ in range(1250):
        trouble.failed("refused")
        clock[0] += 0.1
    trouble.over()
    trouble.over()

    assert lines(caplog) == [
        "it is away: refused",
        "it is away, for 60 s now: refused",
        "it is away, for 120 s now: refused",
        "it is back after 125.0 s",
    ]
    trouble.failed("refused")
    assert lines(caplog) == ["it is away: refused"]


def test_another_reason_is_told_but_not_another_number_and_not_without_end(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    trouble = Trouble(log, "it is away", "it is back")
    for n in range(100):
        trouble.failed(f'connection to "10.0.0.{n}", port {5432 + n} refused')
    assert len(lines(caplog)) == 1
    for n in range(100):
        trouble.failed("refused" + "!" * n)
    assert len(lines(caplog)) == MOST_REASONS - 1


def test_what_is_over_soon_or_explained_by_something_else_is_not_told(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    away = True
    trouble = Trouble(log, "it fails", "it works", after=10, excused=lambda: away)
    for _ in range(30):
        trouble.failed("refused")
        clock[0] += 1
    away = False
    trouble.failed("refused")
    clock[0] += 8
    trouble.failed("refused")  # counted from the end of the excuse
    assert lines(caplog) == []
    clock[0] += 3
    trouble.failed("refused")
    trouble.over()
    assert lines(caplog) == ["it fails: refused", "it works after 12.0 s"]


def test_a_bug_is_told_at_once_and_begin_and_end_go_where_they_are_told(caplog: pytest.LogCaptureFixture) -> None:
    trouble = Trouble(log, "it fails", "it works", after=10, excused=lambda: True, edges=edges)
    trouble.failed("why", bug=KeyError("x"))
    trouble.failed("another", bug=KeyError("y"))
    trouble.over()

    assert [record.name for record in caplog.records] == [edges.name, log.name, edges.name]
    assert [record.levelno for record in caplog.records] == [logging.ERROR, logging.ERROR, logging.WARNING]
