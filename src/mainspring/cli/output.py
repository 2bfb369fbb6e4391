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

from mainspring.text.sanitize import mask, masked
from mainspring.text.span import ago, span
from mainspring.text.texts import UNSEEN
from mainspring.text.texts import line as line

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

#: In a JSON document the encoder has escaped the first of them already, and wrote the line breaks between its values.
_UNFIT_JSON: Final = re.compile(UNSEEN.pattern.replace("\x00-\x1f", "", 1))


#: A table's last column has at least so much room, or as much as it needs.
_FOLDED_WIDTH: Final = 30
#: Lines of a pipe are not folded.
PIPE_WIDTH: Final = 100_000


def as_json(value: Any, *, compact: bool = False, secrets: bool = True) -> None:
    """Print one JSON document, in one line if `compact`; `secrets` is false for what holds nobody's data."""
    raw = msgspec.json.encode(masked(value) if secrets else value)
    document = (raw if compact else msgspec.json.format(raw)).decode()
    print(_UNFIT_JSON.sub(lambda found: json.dumps(found[0])[1:-1], document), flush=True)


def say(*lines: str, secrets: bool = True) -> None:
    """Print lines for people, each fit for a terminal; `secrets` is false where nobody's are in them."""
    for one in lines:
        print(line(mask(one) if secrets else one))


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str, *, now: datetime | None = None) -> None:
    """Print rows for people, the longest texts last. With `now`, instants are shown by distance.

    In a pipe lines are as long as they need. On a terminal a row that has no room in one line takes several: an id is
    never broken, so that it can be copied.
    """
    cells = [[line(text(value, now)) for value in row] for row in rows]
    if not cells:
        return print(empty)
    screen = console()
    if screen.is_terminal and _width(columns, cells) > screen.width:
        used = [number for number in range(len(columns)) if any(row[number] for row in cells)]
        columns, cells = [columns[n] for n in used], [[row[n] for n in used] for row in cells]
        if _width(columns, cells) > screen.width:
            return _stacked(screen, columns, cells)
    from rich import box
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        grid.add_column(name, overflow="fold", no_wrap=name != columns[-1])
    for row in cells:
        grid.add_row(*map(Text, row))
    return draw(screen, grid)


def _width(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """How wide a table must be; its last column may fold."""
    from rich.cells import cell_len

    *firm, last = (max(map(cell_len, column)) for column in zip(columns, *cells, strict=True))
    return sum(firm) + min(last, _FOLDED_WIDTH) + 3 * len(firm) + 2


def _stacked(screen: Console, columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    """Each row below its first value, with the names of the others."""
    from rich.padding import Padding
    from rich.text import Text

    for first, *others in cells:
        about = (f"{name.lower()} {cell}" for name, cell in zip(columns[1:], others, strict=True) if cell)
        screen.print(Text(first, "bold"))
        screen.print(Padding(Text(" · ".join(about)), (0, 0, 0, 2)))


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


def console(pipe: int = PIPE_WIDTH) -> Console:
    """Where pictures go: a terminal, or a pipe of this width."""
    from rich.console import Console

    return Console(width=None if sys.stdout.isatty() else pipe, highlight=False)


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
