"""What the stand-ins share: the ledger, the faults, the clock."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from mainspring_sandbox.faults import Faults
from mainspring_sandbox.ledger import Ledger

PartT = TypeVar("PartT")


@dataclass(slots=True)
class World:
    """One sandbox: what happened in it, and what goes wrong."""

    ledger: Ledger
    faults: Faults = field(default_factory=Faults)
    url: str = ""  # where it listens, known once it does
    parts: dict[Callable[..., Any], Any] = field(default_factory=dict)

    def part(self, make: Callable[[World], PartT]) -> PartT:
        """The one of its kind in this world, such as `world.part(Stripe)`; made when it is first asked for."""
        if make not in self.parts:
            self.parts[make] = make(self)
        part: PartT = self.parts[make]
        return part

    def now(self) -> datetime:
        """Its time."""
        return self.ledger.clock()

    def new_id(self, prefix: str) -> str:
        """An id such as Stripe's: readable, and the same in every run that does the same.

        >>> World(Ledger()).new_id("pi")
        'pi_sandbox_000001'
        """
        return f"{prefix}_sandbox_{self.ledger.number():06}"
