"""Who hears of alerts."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from mainspring.events import Observer


class Audience:
    """Who is told, for tasks that hold it from the beginning: a program may bring its own observers afterwards."""

    __slots__ = ("_observers",)

    def __init__(self, observers: Iterable[Observer] = ()) -> None:
        self._observers = tuple(observers)

    def __iter__(self) -> Iterator[Observer]:
        return iter(self._observers)

    def become(self, observers: Iterable[Observer]) -> None:
        """From now on these are told, and no others."""
        self._observers = tuple(observers)
