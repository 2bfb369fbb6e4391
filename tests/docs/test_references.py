"""What pages point at exists: links, headings, files, functions."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.docs.pages import PAGES, ROOT, name, table

ARCHITECTURE = ROOT / "ARCHITECTURE.md"
WALK = table(ARCHITECTURE, "## How a job travels")
JOURNEY = [
    (file.strip("`"), function.strip("`"))
    for _, file, functions in [*WALK, *table(ARCHITECTURE, "### Ways round")]
    for function in functions.split(", ")
]
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


@pytest.mark.parametrize(("file", "function"), JOURNEY)
def test_function_on_the_way_of_a_job_is_where_the_page_says(file: str, function: str) -> None:
    assert re.search(rf"(?:def |function \{{schema\}}\.){function}\b", (ROOT / file).read_text())


def test_a_job_passes_through_at_most_sixteen_files_from_enqueue_to_completion() -> None:
    assert len({file for _, file, _ in WALK}) <= 16


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
