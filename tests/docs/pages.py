"""The pages that people read, and the code blocks in them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Not docs/rules: the ledgers are held to the tests by tests/test_rules.py.
PAGES = sorted(page for page in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")) if page.parent.name != "rules")
#: `text` and `mermaid` are for pictures and printed output: nothing there can be run. The commands inside `ini` (of
#: systemd) and `dockerfile` are checked like those of `bash`; `yaml` is for the files of other programs. A script in
#: `sh` is run whole by the test of its page.
LANGUAGES = {"python", "sql", "bash", "sh", "text", "mermaid", "ini", "dockerfile", "yaml"}

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """One fenced block of a page."""

    page: Path
    line: int
    language: str
    code: str

    def __str__(self) -> str:
        return f"{name(self.page)}:{self.line}"


def name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[Block]:
    """The blocks of a page, in order."""
    text = page.read_text()
    return [
        Block(page, text.count("\n", 0, match.start()) + 2, match["language"].strip(), match["code"])
        for match in _FENCE.finditer(text)
    ]


def table(page: Path, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading, without its two head lines."""
    below = page.read_text().split(f"\n{heading}\n", 1)[1]
    lines = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert lines is not None, f"{name(page)}: no table below {heading}"
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[0].splitlines()[2:]]
