"""Where `mainspring up` prints: lines stay, and how things stand is written over or rarely said."""

from __future__ import annotations

import io
import sys

import pytest

from mainspring.cli.live import Screen


class Paper(io.StringIO):
    """A terminal, or a file."""

    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def test_in_a_terminal_how_things_stand_is_one_line_that_never_mixes_with_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    paper = Paper(terminal=True)
    monkeypatch.setattr(sys, "stdout", paper)
    monkeypatch.setenv("COLUMNS", "20")
    monkeypatch.setenv("NO_COLOR", "1")
    screen = Screen()
    screen.status("12:00:00  1 done · 2 later")
    screen.status("12:00:01  1 done · 2 later")
    screen.say("a line")
    screen.clear()
    clear = "\r\x1b[K"
    plain = paper.getvalue().replace("\x1b[2m", "").replace("\x1b[0m", "")
    assert plain == f"12:00:00  1 done · {clear}12:00:01  1 done · {clear}a line\n"


def test_in_a_file_it_is_said_when_nothing_else_was_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    paper = Paper(terminal=False)
    monkeypatch.setattr(sys, "stdout", paper)
    clock = [100.0]
    monkeypatch.setattr("mainspring.cli.live.time.monotonic", lambda: clock[0])
    screen = Screen()
    screen.say("a line")
    for second in range(25):
        clock[0] += 1
        screen.status(f"quiet for {second + 1} s")
    assert paper.getvalue() == "a line\nquiet for 11 s\nquiet for 22 s\n"


def test_who_wants_json_hears_nothing_else(capsys: pytest.CaptureFixture[str]) -> None:
    screen = Screen(silent=True)
    screen.say("a line")
    screen.status("how things stand")
    assert capsys.readouterr().out == ""
