"""Builds the documentation into a static site: `python -m tools.site [folder]`, or `make docs`.

Every page is the Markdown that people read in the repository; `docs/index.md` is the table of contents and becomes the
side bar. No script, no font and nothing else is loaded from anywhere, so the folder can be opened from a disk.
"""

from __future__ import annotations

import html
import re
import shutil
import sys
from itertools import pairwise
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_by_name
from pygments.util import ClassNotFound

ROOT = Path(__file__).parents[1]
STYLE = Path(__file__).with_name("site.css")
INDEX = ROOT / "docs" / "index.md"
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title} · Mainspring</title><link rel="stylesheet" href="{root}site.css"></head>
<body><nav id="contents">{nav}</nav><main><a class="menu" href="#contents">Contents</a>{body}</main></body></html>
"""


def _colour(code: str, language: str, _: str) -> str:
    try:
        lexer = get_lexer_by_name(language or "text", stripall=False)
    except ClassNotFound:
        lexer = get_lexer_by_name("text")
    return str(highlight(code, lexer, HtmlFormatter(nowrap=True)))


MARKDOWN = MarkdownIt("commonmark", {"html": False, "highlight": _colour}).enable("table")


def anchor(heading: str) -> str:
    """The name that a heading gets on the web.

    >>> anchor("Why is my job not running?")
    'why-is-my-job-not-running'
    """
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def place(page: Path) -> Path:
    """Where a page goes in the site."""
    inside = page.relative_to(ROOT)
    return Path("index.html") if page == INDEX else inside.with_suffix(".html")


def link(target: str, page: Path, seen_from: Path) -> str:
    """A link of a page as it works in the site: to the other page, or to nothing outside the documentation."""
    path, hash_, fragment = target.partition("#")
    if not path or "://" in target:
        return target
    there = (page.parent / path).resolve()
    if there.is_dir():
        there = there / "README.md"
    if there not in PAGES:
        return target
    up = "../" * (len(place(seen_from).parts) - 1)
    return f"{up}{place(there).as_posix()}{hash_}{fragment}"


def render(page: Path) -> str:
    """A page's Markdown as HTML."""
    tokens = _linked(page, page)
    for opened, inline in pairwise(tokens):
        if opened.type == "heading_open":
            opened.attrs["id"] = anchor(inline.content.replace("`", ""))
        if inline.type == "fence" and inline.info == "mermaid":
            inline.type, inline.content = "html_block", moves(inline.content)
    text = str(MARKDOWN.renderer.render(tokens, MARKDOWN.options, {}))
    return text.replace("<table>", '<div class="wide"><table>').replace("</table>", "</table></div>")


def side_bar(page: Path) -> str:
    """The table of contents beside a page: its links without what is said about them."""
    text = str(MARKDOWN.renderer.render(_linked(INDEX, page), MARKDOWN.options, {}))
    text = re.sub(r"(<li><a [^>]*>.*?</a>).*?</li>", r"\1</li>", text, flags=re.DOTALL)
    text = re.sub(r"<h1>(.*?)</h1>", rf'<h1><a href="{link(str(INDEX), INDEX, page)}">\1</a></h1>', text)
    here = link(str(page), page, page)
    return text.replace(f'href="{here}"', f'href="{here}" class="here"')


def moves(diagram: str) -> str:
    """A state diagram as a table from each state to each other: a browser draws none without a script.

    >>> moves("stateDiagram-v2\\n  a --> b: go")
    '<table><tr><th>from → to</th><th>b</th></tr><tr><th>a</th><td>go</td></tr></table>'
    """
    found = re.findall(r"(\S+) --> (\S+): (.*)", diagram.replace("[*]", "-"))
    verbs = {(one, other): html.escape(names) for one, other, names in found}
    ends = dict.fromkeys(other for _, other in verbs)
    lines = ["<th>from → to</th>" + "".join(f"<th>{other}</th>" for other in ends)]
    lines += [
        f"<th>{one}</th>" + "".join(f"<td>{verbs.get((one, other), '')}</td>" for other in ends)
        for one in dict.fromkeys(one for one, _ in verbs)
    ]
    return f"<table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table>"


def _linked(page: Path, seen_from: Path) -> list[Token]:
    """A page, with its links rewritten for the page in which it is seen."""
    tokens = MARKDOWN.parse(page.read_text())
    for token in _all(tokens):
        if token.type == "link_open":
            token.attrs["href"] = link(str(token.attrs["href"]), page, seen_from)
    return tokens


def _all(tokens: list[Token]) -> list[Token]:
    return [inner for token in tokens for inner in (token, *_all(token.children or []))]


def style() -> str:
    """The style sheet, with the colours of code for light and dark."""
    light, dark = (HtmlFormatter(style=name).get_style_defs("pre code") for name in ("friendly", "github-dark"))
    return f"{STYLE.read_text()}{light}\n@media (prefers-color-scheme: dark) {{\n{dark}\n}}\n"


def build(folder: Path) -> int:
    """Write the site and return the number of its pages."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    (folder / "site.css").write_text(style())
    for page in PAGES:
        to = folder / place(page)
        to.parent.mkdir(parents=True, exist_ok=True)
        title = re.search(r"^# (.*)$", page.read_text(), re.MULTILINE)
        root = "../" * (len(place(page).parts) - 1)
        name = html.escape(title[1].replace("`", "") if title else page.stem)
        to.write_text(PAGE.format(title=name, root=root, nav=side_bar(page), body=render(page)))
    return len(PAGES)


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "build" / "site"
    print(f"{build(target)} pages: {target / 'index.html'}")
