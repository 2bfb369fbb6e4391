"""The timeline fence: a server that was primary once is not written to after another was promoted.

Each promotion begins a new timeline. A process remembers the latest that it has seen of each system, and refuses a
server of an earlier one. Before it believes a server, it asks the other hosts of the DSN too.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

#: So long a host that did not answer in time is not asked again: it would cost each connection that time.
_SILENT_HOST_S = 30.0
#: For questions to them, which decide nothing if nobody answers.
ASKING: dict[str, Any] = {"target_session_attrs": "any", "connect_timeout": 2}
#: One that answers and is lost meanwhile is asked again, so often.
FENCE_TRIES = 3


class ServerRefused(psycopg.OperationalError):
    """A server that must not be written to: a standby, or a primary that was replaced."""


@dataclass(slots=True)
class System:
    """A PostgreSQL system: a primary, its standbys and whatever was copied from them."""

    timeline: int = 0  # the latest seen


@dataclass(frozen=True, slots=True)
class ServerIdentity:
    """What a server says of itself; without a system where it does not tell."""

    pid: int | None = None
    standby: bool = False
    system: System | None = None
    timeline: int = 0

    @property
    def stale(self) -> bool:
        """Whether the process has seen a later timeline."""
        return self.system is not None and self.timeline < self.system.timeline


@dataclass
class Fence:
    """What this process knows about timelines."""

    _systems: dict[int, System] = field(default_factory=dict)
    _silent: dict[str, float] = field(default_factory=dict)  # the DSN of one host → until when it is not asked
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def learn(self, row: tuple[int, bool, int, str | None]) -> ServerIdentity:
        """Take in what a server says."""
        pid, standby, identifier, text = row
        timeline = int(text, 16) if text else 0
        with self._lock:
            system = self._systems.setdefault(identifier, System())
            system.timeline = max(system.timeline, timeline)
        return ServerIdentity(pid, standby, system, timeline)

    def admit(self, server: ServerIdentity, place: Destination) -> None:
        """Refuse a server that must not be written to."""
        if server.standby:
            raise ServerRefused(f"{place} is a standby and read-only")
        if server.system is not None and server.stale:
            latest = server.system.timeline
            raise ServerRefused(f"{place} is on timeline {server.timeline}, but {latest} has begun: it was replaced")

    def is_silent(self, dsn: str) -> bool:
        """Whether a host did not answer in time a moment ago."""
        return time.monotonic() < self._silent.get(dsn, float("-inf"))

    def silent(self, dsn: str) -> None:
        """A host does not answer in time."""
        self._silent[dsn] = time.monotonic() + _SILENT_HOST_S

    def forget(self) -> None:
        """Know nothing, like a new process."""
        self._systems.clear()
        self._silent.clear()


FENCE = Fence()


class Destination(NamedTuple):
    """Where a connection leads."""

    host: str
    hostaddr: str
    port: int

    @classmethod
    def of(cls, conn: psycopg.Connection[Any] | psycopg.AsyncConnection[Any]) -> Destination:
        """The place of a connection that is open."""
        return cls(conn.info.host, conn.info.hostaddr, conn.info.port)

    def is_at(self, host: Mapping[str, str]) -> bool:
        """Whether it is this host of a DSN."""
        ours = {"host": self.host, "hostaddr": self.hostaddr, "port": str(self.port)}
        return all(ours[key] == value for key, value in host.items() if value)

    def __str__(self) -> str:
        return f"the server at {self.host}:{self.port}"


_only: str | None = None


@contextmanager
def confined(dsn: str) -> Iterator[None]:
    """Inside the block every connection of this process leads there, whatever it was made for."""
    global _only
    before, _only = _only, dsn
    try:
        yield
    finally:
        _only = before


class Route:
    """The way to a server: the hosts of a DSN that are left to try, and what was said against the others."""

    def __init__(self, dsn: str) -> None:
        self.dsn = self._whole = dsn = _only or dsn
        self._all = self._left = _hosts(dsn)
        self._refusals: list[str] = []

    def others(self, place: Destination) -> list[str]:
        """A DSN for each other host, which is asked before this one is believed."""
        if len(self._all) == 1:
            return []
        others = [make_conninfo(self._whole, **host, **ASKING) for host in self._all if not place.is_at(host)]
        return [dsn for dsn in others if not FENCE.is_silent(dsn)]

    def leave_out(self, place: Destination, refused: ServerRefused) -> None:
        """Go on without a host that was refused; raises the refusal when no other is left."""
        left = [host for host in self._left if not place.is_at(host)]
        if not left or len(left) == len(self._left):
            raise self.failed(refused) from None
        self._refusals.append(str(refused))
        self._left = left
        self.dsn = make_conninfo(self._whole, **{key: ",".join(host[key] for host in left) for key in left[0]})

    def failed(self, error: psycopg.Error) -> psycopg.Error:
        """The error of the last host, after the refusals of those before it."""
        return ServerRefused("; ".join([*self._refusals, str(error)])) if self._refusals else error


def _hosts(dsn: str) -> list[dict[str, str]]:
    """Host, address and port of each host, as far as the DSN states them."""
    given = conninfo_to_dict(dsn)
    lists = {key: str(given[key]).split(",") for key in ("host", "hostaddr", "port") if given.get(key) is not None}
    count = max((len(values) for values in lists.values()), default=1)
    return [{key: values[min(n, len(values) - 1)] for key, values in lists.items()} for n in range(count)]
