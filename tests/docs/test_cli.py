"""The page of commands says what the commands say."""

from __future__ import annotations

import re

import pytest
from tests.docs.pages import ROOT
from tools.cli_page import page

from mainspring.cli import app, main

PAGE = ROOT / "docs" / "cli.md"
NOUNS = [noun for noun in app if not noun.startswith("-")]
VERBS = {noun: [verb for verb in app[noun] if not verb.startswith("-")] for noun in NOUNS}
COMMANDS = [[noun, *path] for noun in NOUNS for path in ([[verb] for verb in VERBS[noun]] or [[]])]


def test_page_is_printed_from_the_commands() -> None:
    assert PAGE.read_text() == page(), "run `python -m tools.cli_page > docs/cli.md`"


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_every_option_of_a_command_explains_itself(path: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*path, "--help"]) == 0
    shown = capsys.readouterr().out
    assert f"Usage: mainspring {' '.join(path)}" in shown
    section = PAGE.read_text().partition("## Exit codes")[2]
    for option, meaning in re.findall(r"^\| `(--[\w-]+)`.*? \| (.*?) \|$", section, re.MULTILINE):
        assert meaning, option
