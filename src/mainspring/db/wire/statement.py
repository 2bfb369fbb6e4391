"""A question to the database as a value, and a dialogue as a generator.

Everything a client does is "ask the database a few questions". A `Statement` is one question; a `Dialogue` is a
generator that yields statements and receives their answers. Two small drivers (`mainspring.db.wire.run`) run a dialogue
on a sync or an async connection, so that every operation is written once.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, LiteralString, TypeAlias, TypeVar

T = TypeVar("T")
Row: TypeAlias = Sequence[Any]
#: What a function of this package gathers for a statement.
Params: TypeAlias = dict[str, str | int | None]


@dataclass(frozen=True, slots=True)
class Statement(Generic[T]):
    """One question to the database: text, parameters, and how to read the answer.

    Parameters are text, numbers or null, cast in the SQL, so that every driver understands them.
    """

    sql: LiteralString
    params: Mapping[str, str | int | None]
    read: Callable[[Sequence[Row]], T]
    alone: bool = False  # in a transaction of its own, after what came before has committed; else left out
    long: bool = False  # may take as long as the server works on it
    org: str | None = None  # the organisation that it concerns, where its parameters do not say

    @property
    def organisation(self) -> str | None:
        """The one organisation that it concerns; None: any, or none."""
        return self.org or str(self.params.get("org") or "") or None


Dialogue: TypeAlias = Generator[Statement[Any], Any, T]


def ask(statement: Statement[T]) -> Dialogue[T]:
    """Yield one statement and return its answer, typed."""
    answer: T = yield statement
    return answer


def nothing(rows: Sequence[Row]) -> None:
    """Read no answer."""


def scalar(rows: Sequence[Row]) -> Any:
    """Read the one value of the one row, or None."""
    return rows[0][0] if rows else None
