"""How one claim is shared between queues: by weight, in turn, and without giving room to the empty ones."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass


@dataclass(slots=True)
class _Lane:
    name: str
    weight: int
    credit: int = 0
    empty: bool = False
    hurried: bool = False  # its jobs must start at once, or their permits run out


class Shares:
    """Weighted queues without starvation.

    Each claim asks every queue for its share and names the queues in an order that turns by weight, because a claim
    for few jobs is filled by the first ones. A queue that gave less than its share is asked for one job, as a probe,
    until it has jobs again; its room goes to the others. A queue whose permits run out soon is asked
    for what can start now.

    >>> shares = Shares({"a": 3, "b": 1})
    >>> shares.ask(8)
    (['a', 'b'], [6, 2])
    >>> shares.got(["a", "b"], [6, 2], {"a": 6}, short=True, hurried={"a"})
    True
    >>> shares.ask(8, free=3)
    (['a', 'b'], [3, 1])
    """

    def __init__(self, weights: Mapping[str, int]) -> None:
        self._lanes = [_Lane(name, weight) for name, weight in weights.items()]

    @property
    def names(self) -> list[str]:
        """The queues, in the order given."""
        return [lane.name for lane in self._lanes]

    def ask(self, total: int, *, free: int | None = None) -> tuple[list[str], list[int]]:
        """The queues in the order of this claim, and how many jobs each may give; `free` slots are there now."""
        ordered, limits = self._shared(total)
        left = total if free is None else free
        for place, lane in enumerate(ordered):
            if lane.hurried:
                limits[place] = min(limits[place], left)
                left -= limits[place]
        return [lane.name for lane in ordered], limits

    def _shared(self, total: int) -> tuple[list[_Lane], list[int]]:
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

    def got(
        self,
        queues: Sequence[str],
        limits: Sequence[int],
        counts: Mapping[str, int],
        *,
        short: bool,
        hurried: Collection[str] = (),
    ) -> bool:
        """Learn from a claim; one that was filled by the first queues says nothing about the others.

        True where a queue gave all that could start at once: it may have more.
        """
        asked = dict(zip(queues, limits, strict=True))
        more = False
        for lane in self._lanes:
            count = counts.get(lane.name, 0)
            if count:
                lane.hurried = lane.name in hurried
                more = more or (lane.hurried and count >= asked[lane.name])
            if count >= asked[lane.name]:
                lane.empty = False
            elif short:
                lane.empty = True
        return more
