"""`client.limits`: what may start, and how much at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.db import limits
from mainspring.db.limits import FairRow, LimitGate, LimitRow
from mainspring.db.queues import HeldJob
from mainspring.limit import Limit

LimitRows: TypeAlias = list[LimitRow]
Turns: TypeAlias = list[FairRow]
LimitGates: TypeAlias = list[LimitGate]
HeldJobs: TypeAlias = list[HeldJob]


class LimitVerbs(Verbs):
    """How many jobs may start, and run at once: what holds, and changes at run time, which win over the code.

    ::

        client.limits.set(ms.rate("weekly-payments", 20, per="1s"), reason="the bank asked for it")
        client.limits.reset("rate:weekly-payments", reason="the bank is well again")
    """

    @verb
    def list(self, *, org: str | None = None, conn: Any = None) -> Work[LimitRows]:
        """Every limit, what it has let in, and how many jobs wait because of it: of all, or of one organisation."""
        return self.seam.ask(limits.listing(self.seam.sql, org), conn)

    @verb
    def get(self, name: str, *, org: str | None = None, conn: Any = None) -> Work[LimitRow]:
        """One limit."""
        return self.seam.ask(limits.get(self.seam.sql, name, org), conn)

    @verb
    def gates(self, name: str, *, limit: int = 100, org: str | None = None, conn: Any = None) -> Work[LimitGates]:
        """What each key of a limit uses, the fullest first, and how many wait there."""
        return self.seam.ask(limits.gates(self.seam.sql, name, self.seam.who(org).org_id, limit), conn)

    @verb
    def holders(self, name: str, *, limit: int = 100, org: str | None = None, conn: Any = None) -> Work[HeldJobs]:
        """The jobs that hold the places of a limit, those that have run longest first."""
        return self.seam.ask(limits.holders(self.seam.sql, name, self.seam.who(org).org_id, limit), conn)

    @verb
    def set(self, limit: Limit, *, reason: str | None = None, conn: Any = None) -> Work[None]:
        """Let a limit hold from now on, also for what waits already."""
        return self.seam.ask(limits.put(self.seam.sql, limit, self.seam.who(), reason), conn)

    @verb
    def drop(self, name: str, *, reason: str | None = None, conn: Any = None) -> Work[None]:
        """Take a limit away; one that the code declares comes back when a worker starts."""
        return self.seam.ask(limits.drop(self.seam.sql, name, self.seam.who(), reason), conn)

    @verb
    def reset(self, name: str, *, reason: str | None = None, conn: Any = None) -> Work[bool]:
        """Let what the code declares hold again; False when nobody had said otherwise."""
        return self.seam.ask(limits.reset(self.seam.sql, name, self.seam.who(), reason), conn)

    @verb
    def fair(
        self, queue: str, *, weights: Mapping[str, int] | None = None, reason: str | None = None, conn: Any = None
    ) -> Work[None]:
        """Let the organisations of a queue take turns."""
        dialogue = limits.take_turns(self.seam.sql, queue, weights, self.seam.who(), reason)
        return self.seam.ask(dialogue, conn)

    @verb
    def unfair(self, queue: str, *, reason: str | None = None, conn: Any = None) -> Work[bool]:
        """Let the jobs of a queue start by their due time again; False when its organisations did not take turns."""
        return self.seam.ask(limits.by_due_time(self.seam.sql, queue, self.seam.who(), reason), conn)

    @verb
    def turns(self, *, conn: Any = None) -> Work[Turns]:
        """Every queue whose organisations take turns."""
        return self.seam.ask(limits.turns(self.seam.sql), conn)

    @verb
    def depth(self, queue: str, most: int | None, *, reason: str | None = None, conn: Any = None) -> Work[None]:
        """Refuse best-effort jobs of a queue while so many are ready; None: take them all."""
        return self.seam.ask(limits.limit_depth(self.seam.sql, queue, most, self.seam.who(), reason), conn)


class Limits(LimitVerbs, Sync):
    """Limits, for sync code."""


class AsyncLimits(LimitVerbs, Async):
    """Limits, for async code."""
