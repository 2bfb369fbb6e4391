"""`client.quarantine`: see tasks that are held back because they kill workers, and let them go."""

from __future__ import annotations

from typing import Any, TypeAlias

from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.db import quarantine
from mainspring.db.quarantine import Quarantined
from mainspring.events import TaskReleased
from mainspring.text.sanitize import mask

QuarantineRows: TypeAlias = list[Quarantined]  # the classes have a method of that name


class QuarantineVerbs(Verbs):
    """Tasks in quarantine, for sync code.

    ::

        for held in client.quarantine.list():
            print(held.task, held.workers)
    """

    @verb
    def list(self, *, conn: Any = None) -> Work[QuarantineRows]:
        """Every task in quarantine, the oldest first."""
        return self.seam.ask(quarantine.listing(self.seam.sql), conn)

    @verb
    def release(self, task: str, *, reason: str, conn: Any = None) -> Work[bool]:
        """Let a task go: its jobs run like others again, and what it killed is forgotten. False: it was not held."""
        who = self.seam.who()
        changed = yield from self.seam.ask(quarantine.release(self.seam.sql, task, who, reason=reason), conn)
        if changed:
            self.seam.tell(conn, TaskReleased(task, who.actor_id, mask(reason)))
        return changed


class Quarantine(QuarantineVerbs, Sync):
    """Tasks in quarantine, for sync code."""


class AsyncQuarantine(QuarantineVerbs, Async):
    """Tasks in quarantine, for async code."""
