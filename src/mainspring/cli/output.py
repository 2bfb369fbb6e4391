"""What commands print: a table or a few lines for people, one JSON document for machines.

Names, payloads and errors come from anybody. What would drive a terminal is shown escaped, and what looks like a secret
is masked, wherever something is printed.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final

import msgspec

from mainspring.sanitize import mask, masked
from mainspring.span import ago, span

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: Control characters, lone surrogates, and what is invisible or turns the direction of writing: an escape code in a
#: name must not clear an operator's screen, and a text must not read otherwise than it is.
_UNFIT: Final = re.compile(
    "[\x00-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e\u2060-\u206f"
    "\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0000-\U000e0fff]"
)
#: In a JSON document the encoder has escaped the first of them already, and wrote the line breaks between its values.
_UNFIT_JSON: Final = re.compile(_UNFIT.pattern.replace("\x00-\x1f", "", 1))


def line(value: str) -> str:
    r"""A text in one line that cannot drive a terminal.

    >>> print(line("a\x1b[2Jb\nc"))
    a\x1b[2Jb\nc
    """
    return _UNFIT.sub(lambda found: found[0].encode("unicode_escape", "surrogatepass").decode(), value)


def as_json(value: Any, *, compact: bool = False, secrets: bool = True) -> None:
    """Print one JSON document, in one line if `compact`; `secrets` is false for what holds nobody's data."""
    raw = msgspec.json.encode(masked(value) if secrets else value)
    document = (raw if compact else msgspec.json.format(raw)).decode()
    print(_UNFIT_JSON.sub(lambda found: json.dumps(found[0])[1:-1], document), flush=True)


def say(*lines: str) -> None:
    """Print lines for people, each fit for a terminal."""
    for one in lines:
        print(line(mask(one)))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str, *, now: datetime | None = None) -> None:
    """Print rows for people; in a pipe they are as wide as they need. With `now`, instants are shown by distance."""
    rows = list(rows)
    if not rows:
        print(empty)
        return
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        grid.add_column(name, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(line(text(value, now))) for value in row))
    draw(console(), grid)


def fields(values: Mapping[str, Any], *, now: datetime | None = None, secrets: bool = True) -> None:
    """Print names and values, one a line; what is empty is left out."""
    values = {name: value for name, value in values.items() if value not in (None, "", [], {}, ())}
    width = max(map(len, values), default=0)
    for name, value in values.items():
        shown = text(value, secrets=secrets)
        if now is not None and isinstance(value, datetime):
            shown += f" ({ago(value, now)})"
        first, *more = map(line, shown.splitlines() or [""])
        print(f"{name:{width}}  {first}", *(f"{'':{width}}  {one}" for one in more), sep="\n")


#: How a finding or a check is marked, and its colour on a terminal.
MARKS: Final = {"ok": ("✓", "green"), "warn": ("!", "yellow"), "problem": ("✗", "red"), "note": ("·", "dim")}


def marked(findings: Iterable[tuple[str, str, str, str]]) -> None:
    """Print findings, (level, name, what, what to do), each with its mark; long ones go on beneath themselves."""
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for level, name, what, todo in findings:
        mark, colour = MARKS[level]
        grid.add_row(Text(mark, colour), line(name), Text(line(mask(what))))
        if todo:
            grid.add_row("", "", Text(f"→ {line(mask(todo))}", "bold" if level == "problem" else ""))
    draw(console(), grid)


def console() -> Console:
    """Where pictures go: a terminal, or a pipe that is as wide as they need."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else 1000, highlight=False)


def draw(console: Console, picture: RenderableType) -> None:
    """Print a picture; for a pipe without the blanks that fill its lines."""
    if console.is_terminal:
        return console.print(picture)
    with console.capture() as drawn:
        console.print(picture)
    return print("\n".join(one.rstrip() for one in drawn.get().strip("\n").splitlines()))


def block(value: str) -> None:
    """Print a text of several lines, such as a stack."""
    say(*value.rstrip().splitlines())


def text(value: Any, now: datetime | None = None, *, secrets: bool = True) -> str:
    """A value as people read it."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return ago(value, now) if now else value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        case timedelta():
            return span(value)
        case float():
            return f"{value:.1f}"
        case dict():
            return msgspec.json.encode(masked(value) if secrets else value).decode()
        case list() | tuple():
            return ", ".join(text(inner, now, secrets=secrets) for inner in value)
        case _:
            return mask(str(value)) if secrets else str(value)
