"""What commands print: a table or a few lines for people, one JSON document for machines."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec


def as_json(value: Any) -> None:
    """Print one JSON document."""
    print(msgspec.json.format(msgspec.json.encode(value)).decode())


def table(columns: Sequence[str], rows: Iterable[Sequence[Any]], empty: str) -> None:
    """Print rows for people; in a pipe they are as wide as they need."""
    rows = list(rows)
    if not rows:
        print(empty)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for name in columns:
        grid.add_column(name, overflow="fold")
    for row in rows:
        grid.add_row(*(Text(text(value)) for value in row))
    Console(width=None if sys.stdout.isatty() else 1000, highlight=False).print(grid)


def fields(values: Mapping[str, Any]) -> None:
    """Print names and values, one a line; what is empty is left out."""
    shown = {name: text(value) for name, value in values.items() if value not in (None, "", [], {}, ())}
    width = max(map(len, shown), default=0)
    for name, value in shown.items():
        first, *more = value.splitlines() or [""]
        print(f"{name:{width}}  {first}", *(f"{'':{width}}  {line}" for line in more), sep="\n")


def text(value: Any) -> str:
    """A value as people read it."""
    match value:
        case None:
            return ""
        case bool():
            return "yes" if value else "no"
        case datetime():
            return value.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")
        case timedelta():
            return f"{value.total_seconds():g} s"
        case float():
            return f"{value:.1f}"
        case dict():
            return msgspec.json.encode(value).decode()
        case list() | tuple():
            return ", ".join(map(text, value))
        case _:
            return str(value)
