"""Who may cause what: a table with a line for each business event, and the parts that may cause it.

A part is played towards what an event is about, and never at large, unless an application says so. Where an event has
an option, each has a line of its own: `file_dispute A`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, TypeAlias

from mainspring_apps.frame.refusal import NotAllowed

#: Lines, and who may cause what they say.
PartsTable: TypeAlias = Mapping[str, Collection[str]]
#: The application itself, in a job or in a terminal.
SYSTEM: Final = "SYSTEM"


def lines(table: PartsTable, event: str) -> list[str]:
    """The lines of an event: one, or one for each of its options.

    >>> lines({"enter": {"Guest"}, "leave A": {"Guest"}, "leave B": {"Host"}}, "leave")
    ['leave A', 'leave B']
    """
    return [line for line in table if line.partition(" ")[0] == event]


def check(table: PartsTable, line: str, parts: Collection[str]) -> None:
    """Refuse whoever plays none of the parts that may cause this.

    >>> check({"enter": {"Guest"}}, "enter", ["Guest", "Neighbour"])
    >>> check({"enter": {"Guest"}}, "enter", ["Neighbour"])
    Traceback (most recent call last):
    mainspring_apps.frame.refusal.NotAllowed: by: a Neighbour may not enter
    """
    if set(table[line]).isdisjoint(parts):
        who = f"a {' and '.join(parts)}" if parts else "who has no part here"
        raise NotAllowed(f"by: {who} may not {line}", field="by")
