"""Business events: whoever causes one is checked against the table of parts, then it happens in their name.

::

    @event
    def clock_in(desk: Desk, conn: Conn, time_log_id: int, *, by: By) -> None:

An event joins its caller's transaction. Its first parameter says what it is about, and so in which booking or company
`by` must play a part; its last, `by`, is who causes it: a user of the marketplace, or `SYSTEM`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, Concatenate, Final, Literal, ParamSpec, TypeVar, get_args

from mainspring.errors import ConfigurationError
from mainspring_apps.staffing import people
from mainspring_apps.staffing.desk import Desk, acting
from mainspring_apps.staffing.people import SYSTEM, By
from mainspring_apps.staffing.rules import parts
from mainspring_apps.staffing.rules.dispute import Option
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn, missing

P = ParamSpec("P")
T = TypeVar("T")
#: Every event by its name, as it was declared.
EVENTS: Final[dict[str, Callable[..., Any]]] = {}


def event(act: Callable[Concatenate[Desk, Conn, P], T]) -> Callable[Concatenate[Desk, Conn, P], T]:
    """Declare a business event: from now on only the parts of its lines in `rules/parts.py` can cause it."""
    name, signature = act.__name__, inspect.signature(act)
    known, first = parts.lines(name), list(signature.parameters)[2]
    if not known or name in EVENTS:
        raise ConfigurationError(f"{name}: {'is declared twice' if known else 'has no line in rules/parts.py'}")
    if "by" not in signature.parameters or signature.parameters["by"].default is not inspect.Parameter.empty:
        raise ConfigurationError(f"{name}: by is missing, or has a default: who acts is always said")
    if first not in people.SUBJECTS and any(parts.MAY[line] - {"Platform Operator", SYSTEM} for line in known):
        raise ConfigurationError(f"{name}: nobody has a part in a {first}: see SUBJECTS in people.py")

    @wraps(act)
    def checked(desk: Desk, conn: Conn, /, *args: P.args, **kwargs: P.kwargs) -> T:
        said = signature.bind(desk, conn, *args, **kwargs).arguments
        by: By = said["by"]
        line = name if known == [name] else f"{name} {_option(said)}"
        played = people.parts_of(conn, by, first, said[first])
        if not played and first in people.SUBJECTS:  # else a stranger could count what there is
            raise missing(first, said[first])
        parts.check(line, played)
        with acting(None if by == SYSTEM else by):
            return act(desk, conn, *args, **kwargs)

    EVENTS[name] = checked
    return checked


def _option(said: Mapping[str, Any]) -> Literal["A", "B"]:
    option: Option = said["option"]
    if option not in get_args(Option):
        raise Refused("option: is A or B", field="option")
    return option
