"""How one claim is shared between queues: by weight, in turn, and without giving room to the empty ones."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class _Lane:
    name: str
    weight: int
    credit: int = 0
    empty: bool = False


class Shares:
    """Weighted queues without starvation.

    Each claim asks every queue for its share and names the queues in an order that turns by weight, because a claim
    for few jobs is filled by the first ones. A queue that gave less than its share is asked for one job, as a probe,
    until it has jobs again; its room goes to the others.

    >>> shares = Shares({"a": 3, "b": 1})
    >>> shares.ask(8)
    (['a', 'b'], [6, 2])
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._lanes = [_Lane(name, weight) for name, weight in weights.items()]

    @property
    def names(self) -> list[str]:
        """The queues, in the order given."""
        return [lane.name for lane in self._lanes]

    def ask(self, total: int) -> tuple[list[str], list[int]]:
        """The queues in the order of this claim, and how many jobs each may give."""
        if len(self._lanes) == 1:
            return [self._lanes[0].name], [total]
        for lane in self._lanes:
            lane.credit += lane.weight
        ordered = sorted(self._lanes, key=lambda lane: -lane.credit)
        ordered[0].credit -= sum(lane.weight for lane in self._lanes)
        full = [lane for lane in ordered if not lane.empty]
        if not full:
            return [lane.name for lane in ordered], [total] * len(ordered)
        weights = sum(lane.weight for lane in full)
        limits = [1 if lane.empty else max(1, -(-total * lane.weight // weights)) for lane in ordered]
        return [lane.name for lane in ordered], limits

    def got(self, queues: Sequence[str], limits: Sequence[int], counts: Mapping[str, int], *, short: bool) -> None:
        """Learn from a claim; one that was filled by the first queues says nothing about the others."""
        asked = dict(zip(queues, limits, strict=True))
        for lane in self._lanes:
            count = counts.get(lane.name, 0)
            if count >= asked[lane.name]:
                lane.empty = False
            elif short:
                lane.empty = True
