"""`client.breakers`: see and force circuit breakers."""

from __future__ import annotations

from typing import Any, TypeAlias

from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.db import breakers
from mainspring.db.breakers import BreakerRow, BreakerVerb
from mainspring.events import BreakerForced
from mainspring.job import DEFAULT_ORG, SYSTEM
from mainspring.text.sanitize import mask, sanitize

BreakerRows: TypeAlias = list[BreakerRow]  # the classes have a method of that name
_TO = {"open": "open", "close": "closed", "auto": "automatic"}


def forced(verb: BreakerVerb, name: str, key: str | None, org: str | None, by: str, reason: str) -> BreakerForced:
    """What observers are told of a breaker that somebody forced, or let go."""
    owner = SYSTEM if key is None else org or DEFAULT_ORG
    return BreakerForced(name, key and sanitize(key, 200), owner, _TO[verb], by, mask(reason))


class BreakerVerbs(Verbs):
    """Circuit breakers, for sync code.

    ::

        for breaker in client.breakers.list():
            print(breaker.name, breaker.state, breaker.next_probe)
    """

    @verb
    def list(self, *, org: str | None = None, limit: int = 100, conn: Any = None) -> Work[BreakerRows]:
        """Every breaker that is declared, and the keys of them that are open or forced."""
        return self.seam.ask(breakers.listing(self.seam.sql, self.seam.who(org), limit=limit), conn)

    @verb
    def show(
        self, name: str, *, key: str | None = None, org: str | None = None, limit: int = 100, conn: Any = None
    ) -> Work[BreakerRows]:
        """One breaker and the keys of it that are or were in trouble of late, or one of these keys."""
        dialogue = breakers.listing(self.seam.sql, self.seam.who(org), name=name, key=key, limit=limit)
        return self.seam.ask(dialogue, conn)

    @verb
    def open(
        self, name: str, *, reason: str, key: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[bool]:
        """Hold the jobs that need it, or need one key of it, until somebody says otherwise; False: so it was."""
        return self._force("open", name, reason, key, org, conn)

    @verb
    def close(
        self, name: str, *, reason: str, key: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[bool]:
        """Let all calls through, whatever they meet, until somebody says otherwise; False: so it was."""
        return self._force("close", name, reason, key, org, conn)

    @verb
    def auto(
        self, name: str, *, reason: str, key: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[bool]:
        """Let the calls decide again; False: nobody had forced it."""
        return self._force("auto", name, reason, key, org, conn)

    def _force(
        self, verb: BreakerVerb, name: str, reason: str, key: str | None, org: str | None, conn: Any
    ) -> Work[bool]:
        who = self.seam.who(org)
        changed = yield from self.seam.ask(breakers.force(self.seam.sql, verb, name, who, reason=reason, key=key), conn)
        if changed:
            self.seam.tell(conn, forced(verb, name, key, who.org_id, who.actor_id, reason))
        return changed


class Breakers(BreakerVerbs, Sync):
    """Circuit breakers, for sync code."""


class AsyncBreakers(BreakerVerbs, Async):
    """Circuit breakers, for async code."""
