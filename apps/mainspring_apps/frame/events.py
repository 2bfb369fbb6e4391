"""Business events: whoever causes one is checked against the application's table of parts, then it happens.

::

    events = Events[Desk](MAY, parts_of, about={"booking_id"}, at_large={"Operator", SYSTEM})

    @events.event
    def cancel(desk: Desk, conn: Conn, booking_id: int, *, reason: str, by: By) -> None:

An event joins its caller's transaction. Its first parameter says what it is about, and so towards what `by` must play
a part; `by` is who causes it.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar

import mainspring as ms
from mainspring.errors import ConfigurationError
from mainspring_apps.frame.parts import SYSTEM, PartsTable, check, lines
from mainspring_apps.frame.refusal import Refused, missing
from mainspring_apps.frame.store import Conn

D = TypeVar("D")
P = ParamSpec("P")
T = TypeVar("T")


class PartsOf(Protocol):
    """Which parts somebody plays towards what a parameter names; what it names must exist."""

    def __call__(self, conn: Conn, by: Any, name: str, value: object, /) -> Sequence[str]:
        """The parts, of which one is enough."""


@contextmanager
def acting(by: object) -> Iterator[None]:
    """Inside the block a user acts; the application itself is who acts wherever nobody else is named."""
    if by == SYSTEM:
        yield
        return
    with ms.calling(ms.Caller(actor_type="user", actor_id=str(by))):
        yield


class Events(Generic[D]):
    """The events of one application, whose handlers are handed a desk.

    `about` are the names of parameters towards which somebody plays a part; in what they do not name only those of
    `at_large` have one.
    """

    def __init__(
        self, table: PartsTable, parts_of: PartsOf, *, about: Collection[str], at_large: Collection[str]
    ) -> None:  # fmt: skip
        self.table, self._parts_of, self._about, self._at_large = table, parts_of, about, frozenset(at_large)
        #: Every event by its name, as it was declared.
        self.declared: dict[str, Callable[..., Any]] = {}

    def event(self, act: Callable[Concatenate[D, Conn, P], T]) -> Callable[Concatenate[D, Conn, P], T]:
        """Declare a business event: only the parts of its lines in the table can cause it."""
        name, signature = act.__name__, inspect.signature(act)
        known, first = lines(self.table, name), list(signature.parameters)[2]
        if not known or name in self.declared:
            raise ConfigurationError(f"{name}: {'is declared twice' if known else 'has no line in the table of parts'}")
        if "by" not in signature.parameters or signature.parameters["by"].default is not inspect.Parameter.empty:
            raise ConfigurationError(f"{name}: by is missing, or has a default: who acts is always said")
        if first not in self._about and any(frozenset(self.table[line]) - self._at_large for line in known):
            raise ConfigurationError(f"{name}: nobody has a part in a {first}: say what its parts are")

        @wraps(act)
        def checked(desk: D, conn: Conn, /, *args: P.args, **kwargs: P.kwargs) -> T:
            said = signature.bind(desk, conn, *args, **kwargs).arguments
            line = name if known == [name] else _optional(name, known, said["option"])
            played = self._parts_of(conn, said["by"], first, said[first])
            if not played and first in self._about:  # else a stranger could count what there is
                raise missing(first, said[first])
            check(self.table, line, played)
            with acting(said["by"]):
                return act(desk, conn, *args, **kwargs)

        self.declared[name] = checked
        return checked


def _optional(name: str, known: Sequence[str], option: object) -> str:
    """The line of an event with this option."""
    if (line := f"{name} {option}") not in known:
        raise Refused(f"option: is {' or '.join(one.partition(' ')[2] for one in known)}", field="option")
    return line
