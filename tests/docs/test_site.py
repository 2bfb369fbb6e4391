"""The documentation as a static site."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from pathlib import Path

import pytest
from tests.docs.pages import ROOT
from tools.site import INDEX, PAGES, build, place


class Links(HTMLParser):
    """The links and anchors of one page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.loaded: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        if tag == "a":
            self.links.append(found["href"])
        if "id" in found:
            self.anchors.add(found["id"])
        if tag in {"script", "img", "link"}:
            self.loaded.append(found.get("src") or found.get("href") or "")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    build(folder)
    return folder


def test_every_page_of_the_repository_is_in_the_site(site: Path) -> None:
    assert {path.relative_to(site) for path in site.rglob("*.html")} == {place(page) for page in PAGES}


def test_links_inside_the_site_lead_to_a_page_and_its_heading(site: Path) -> None:
    pages = {path.resolve(): Links(path.read_text()) for path in site.rglob("*.html")}
    broken = []
    for path, page in pages.items():
        for link in page.links:
            target, _, anchor = link.partition("#")
            there = pages.get((path.parent / target).resolve()) if target else page
            if "://" in link or (target and not target.endswith(".html")):
                continue  # elsewhere, or a file of the repository that is no page
            if there is None or (anchor and anchor not in there.anchors):
                broken.append(f"{path.relative_to(site.resolve())}: {link}")

    assert broken == []


def test_nothing_is_loaded_from_elsewhere(site: Path) -> None:
    loaded = {resource for path in site.rglob("*.html") for resource in Links(path.read_text()).loaded}

    assert {resource.rpartition("../")[2] for resource in loaded} == {"site.css"}


def test_table_of_contents_lists_every_page_of_the_documentation() -> None:
    listed = {(INDEX.parent / link).resolve() for link in re.findall(r"\]\(([^)#]+)\)", INDEX.read_text())}
    apart = {"adr", "rules"}  # these have tables of contents of their own

    assert {page for page in PAGES if page.parent.name not in apart and page != INDEX} <= listed
    assert [page for page in listed if not page.exists()] == []
    assert ROOT / "README.md" in listed


def test_ledgers_of_rules_are_not_offered_to_readers(site: Path) -> None:
    offered = re.findall(r'<nav id="contents">(.*?)</nav>', (site / "index.html").read_text(), re.DOTALL)

    assert (site / "docs" / "rules" / "engine.html").exists()  # other pages link to it
    assert "docs/adr/README.html" in offered[0]
    assert "rules/" not in offered[0]
