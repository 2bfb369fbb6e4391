"""What an event answers instead of happening, and which status may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import mainspring as ms

#: For each table the statuses of its rows, and those that may follow.
Transitions: TypeAlias = Mapping[str, Mapping[str, frozenset[str]]]


class Refused(ms.ValidationError):
    """A business event that the rules do not allow now; its text says why, its field what it is about."""


class NotAllowed(Refused):
    """A business event that is for others to cause."""


class NotThere(Refused):
    """What does not exist, or has nothing to do with who asks: which of them, nobody is told."""


def missing(field: str, value: object) -> NotThere:
    """What is told of something that is not there.

    >>> missing("booking_id", 7)
    NotThere('booking_id: there is no booking 7')
    """
    return NotThere(f"{field}: there is no {field.removesuffix('_id').replace('_', ' ')} {value}", field=field)


def check_transition(table: Transitions, entity: str, before: str, after: str) -> None:
    """Raise unless the one status may follow the other.

    >>> check_transition({"doors": {"Open": frozenset({"Shut"})}}, "doors", "Shut", "Open")
    Traceback (most recent call last):
    mainspring_apps.frame.refusal.Refused: status: doors cannot go from Shut to Open
    """
    if after not in table[entity].get(before, frozenset()):
        raise Refused(f"status: {entity} cannot go from {before} to {after}", field="status")
