"""What pages point at exists: links, headings, files, functions."""

from __future__ import annotations

import asyncio
import re
import sys
from pathlib import Path
from types import FrameType

import pytest
from tests.databases import Database
from tests.docs.pages import PAGES, ROOT, name, table

from mainspring import Client, Registry
from mainspring.worker import Worker

ARCHITECTURE = ROOT / "ARCHITECTURE.md"


def steps(heading: str) -> list[tuple[str, str]]:
    """The functions of a table, each with its file."""
    rows = table(ARCHITECTURE, heading)
    return [(file.strip("`"), name.strip("`")) for _, file, functions in rows for name in functions.split(", ")]


STEPS = steps("## How a job travels")
#: Where pages say that files are: in the project, or in a room of the engine.
PLACES = (ROOT, ROOT / "src" / "mainspring")
FOLDERS = "|".join(sorted(path.name for place in PLACES for path in place.iterdir() if path.name.isalpha()))
ADRS = sorted((ROOT / "docs" / "adr").glob("0*.md"))


def anchors(page: Path) -> set[str]:
    """The names that headings get on the web."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text()):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        if not there.exists() or (anchor and anchor not in anchors(there)):
            broken.append(target)

    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    paths = re.findall(rf"`((?:{FOLDERS})/[\w/.-]+\.\w+)`", page.read_text())

    generated = {"bench/results/latest.json"}
    assert [path for path in paths if path not in generated and not any((p / path).exists() for p in PLACES)] == []


@pytest.mark.parametrize(("file", "function"), [*STEPS, *steps("### Ways round")])
def test_function_on_the_way_of_a_job_is_where_the_page_says(file: str, function: str) -> None:
    assert re.search(rf"(?:def |function \{{schema\}}\.|-- name: ){function}\b", (ROOT / file).read_text())


def test_a_plain_job_enters_each_function_of_the_walk_and_the_walk_is_sixteen_files_to_read(database: Database) -> None:
    """Those of SQL, which no profile sees, are held to where they stand by the test above."""
    entered: set[tuple[str, str]] = set()

    def enters(frame: FrameType, event: str, _: object) -> None:
        if event == "call":
            entered.add((frame.f_code.co_filename, frame.f_code.co_name))

    tasks, said = Registry("shop"), list[str]()

    @tasks.task
    async def greet(*, name: str) -> None:
        said.append(name)

    sys.setprofile(enters)
    try:
        with Client(database.dsn) as client:
            client.enqueue(greet.job(name="Ada"))
        asyncio.run(Worker(database.dsn, tasks).drain())
    finally:
        sys.setprofile(None)

    python = {(file, name) for file, name in STEPS if file.endswith(".py")}
    assert said == ["Ada"]
    assert [step for step in sorted(python) if (str(ROOT / step[0]), step[1]) not in entered] == []
    assert len({file for file, _ in STEPS}) <= 16


def test_decisions_are_numbered_without_gaps_and_listed() -> None:
    listed = re.findall(r"\]\((0[\w-]+\.md)\)", (ROOT / "docs" / "adr" / "README.md").read_text())

    assert [int(adr.name[:4]) for adr in ADRS] == list(range(1, len(ADRS) + 1))
    assert listed == [adr.name for adr in ADRS]


@pytest.mark.parametrize("adr", ADRS, ids=name)
def test_decision_fits_on_a_page_and_says_why_what_and_at_what_cost(adr: Path) -> None:
    text = adr.read_text()

    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == ["Context", "Decision", "Consequences"]
    assert text.startswith(f"# {adr.name[:4]} ")
    assert len(text.splitlines()) <= 80
