"""How one claim is shared between queues: by weight, in turn, and without giving room to the empty ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class _LaneWeights:
    name: str
    weight: int
    credit: int = 0
    empty: bool = False


class Weights:
    """Weighted queues without starvation.

    Each claim asks every queue for its share and names the queues in an order that turns by weight, because a claim
    for few jobs is filled by the first ones. A queue that gave less than its share is asked for one job, as a probe,
    until it has jobs again; its room goes to the others.

    >>> weights = Weights({"a": 3, "b": 1})
    >>> weights.ask(8)
    (['a', 'b'], [6, 2])
    >>> weights.got(["a", "b"], [6, 2], {"a": 6}, short=True)
    {'b'}
    >>> weights.ask(8)
    (['a', 'b'], [8, 1])
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._lanes = [_LaneWeights(name, weight) for name, weight in weights.items()]

    @property
    def names(self) -> list[str]:
        """The queues, in the order given."""
        return [lane.name for lane in self._lanes]

    def ask(self, total: int) -> tuple[list[str], list[int]]:
        """The queues in the order of this claim, and how many jobs each may give."""
        ordered, limits = self._shared(total)
        return [lane.name for lane in ordered], limits

    def _shared(self, total: int) -> tuple[list[_LaneWeights], list[int]]:
        if len(self._lanes) == 1:
            return self._lanes, [total]
        for lane in self._lanes:
            lane.credit += lane.weight
        ordered = sorted(self._lanes, key=lambda lane: -lane.credit)
        ordered[0].credit -= sum(lane.weight for lane in self._lanes)
        full = [lane for lane in ordered if not lane.empty]
        if not full:
            return ordered, [total] * len(ordered)
        weights = sum(lane.weight for lane in full)
        return ordered, [1 if lane.empty else max(1, -(-total * lane.weight // weights)) for lane in ordered]

    def got(self, queues: Sequence[str], limits: Sequence[int], counts: Mapping[str, int], *, short: bool) -> set[str]:
        """Learn from a claim; one that was filled by the first queues says nothing about the others.

        Which queues are dry: they gave less than they were asked for, though there was room.
        """
        asked = dict(zip(queues, limits, strict=True))
        dry: set[str] = set()
        for lane in self._lanes:
            count = counts.get(lane.name, 0)
            if count >= asked[lane.name]:
                lane.empty = False
            elif short:
                lane.empty = True
                dry.add(lane.name)
        return dry
