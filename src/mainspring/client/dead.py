"""`client.dead`: each verb is written once, over a dialogue of `mainspring.db`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any, TypeAlias, Unpack
from uuid import UUID

from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.db import bulk, dead, decisions, jobs
from mainspring.db.bulk import Bulk
from mainspring.db.dead import Case, DeadLetter, DeadLetterGroup, Only, Size
from mainspring.db.decisions import Fix
from mainspring.db.readable import key_in, readable_case
from mainspring.declare.task import Task
from mainspring.job import Id

# Named here, because inside the classes `list` is a method.
Letters: TypeAlias = list[DeadLetter]
Groups: TypeAlias = list[DeadLetterGroup]
Sizes: TypeAlias = list[Size]
#: When a dead letter died, and its id.
Death: TypeAlias = tuple[datetime, UUID]


class DeadLetterVerbs(Verbs):
    """Failed and dead jobs that nobody has decided about, and the three decisions: replay, discard, fix.

    ::

        client.dead.groups()
        client.dead.replay_many(fingerprint="5f0c4e7a91b2", rate=10, reason="the supplier is back")
        client.dead.fix(job_id, set={"cents": 1250}, task=place_order, reason="the till sent euros")
    """

    @verb
    def list(
        self,
        *,
        limit: int = 50,
        before: Id | None = None,
        place: Death | None = None,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Work[Letters]:
        """Open dead letters, newest first; `before` continues after the last one seen, `place` after where it stood."""
        seam = self.seam
        return seam.ask(dead.listing(seam.sql, seam.who(org), only, limit=limit, before=before, place=place), conn)

    @verb
    def groups(
        self,
        *,
        limit: int = 50,
        newest: int | None = None,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Work[Groups]:
        """Open dead letters by what their errors have in common, the most frequent first; of all, or the newest."""
        seam = self.seam
        return seam.ask(dead.groups(seam.sql, seam.who(org), only, limit=limit, newest=newest), conn)

    @verb
    def summary(self, *, org: str | None = None, conn: Any = None) -> Work[Sizes]:
        """How many are open and how old the oldest is, by task and queue; cheap enough for metrics."""
        seam = self.seam
        return seam.ask(dead.summary(seam.sql, seam.who(org)), conn)

    @verb
    def show(self, job: Id, *, org: str | None = None, conn: Any = None) -> Work[Case]:
        """One failed or dead job: every attempt with its error, what the error means and what to do."""
        seam = self.seam
        case = yield from seam.ask(dead.show(seam.sql, job, seam.who(org)), conn)
        key = key_in(case.job)
        return case if key is None else readable_case(case, (yield from seam.keys_to_read(case.job.org_id, key)))

    @verb
    def replay(self, job: Id, *, reason: str, org: str | None = None, conn: Any = None) -> Work[None]:
        """Make a failed or dead job ready again, attempts 0."""
        seam = self.seam
        return seam.ask(decisions.replay(seam.sql, job, seam.who(org), reason), conn)

    @verb
    def discard(self, job: Id, *, reason: str, org: str | None = None, conn: Any = None) -> Work[None]:
        """Take a dead letter off the open list; the job stays as it is."""
        seam = self.seam
        return seam.ask(decisions.discard(seam.sql, job, seam.who(org), reason), conn)

    @verb
    def fix(
        self,
        job: Id,
        *,
        reason: str,
        payload: Mapping[str, Any] | None = None,
        set: Mapping[str, Any] | None = None,
        unset: Sequence[str] = (),
        task: Task[..., Any] | None = None,
        dry_run: bool = False,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[Fix]:
        """Enqueue a successor with a corrected payload: a whole one, or the old one with fields set and unset.

        With `task` the payload is checked against its types. A dry run shows the difference and writes nothing.
        """
        seam = self.seam
        how: dict[str, Any] = {"payload": payload, "set": set, "unset": unset, "task": task, "dry_run": dry_run}
        how["ring"] = seam.keyring
        if seam.keyring.cipher is not None:  # take its keys first: the dialogue must not wait for them
            yield from seam.shown((yield from seam.ask(jobs.get(seam.sql, job, seam.who(org)), conn)))
        return (yield from seam.ask(decisions.fix(seam.sql, job, seam.who(org), reason, **how), conn))

    @verb
    def replay_many(
        self,
        *,
        reason: str | None = None,
        rate: float | None = None,
        first_due_at: datetime | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Work[Bulk]:
        """Replay the dead letters that are meant, oldest first, at most `limit`; `rate` a second are due.

        A dry run counts them; only it needs no reason. The first is due now, or at `first_due_at`: that of the rest is
        the `next_due_at` of what was answered.
        """
        seam = self.seam
        how: dict[str, Any] = {"rate": rate, "first_due_at": first_due_at, "limit": limit, "dry_run": dry_run}
        return seam.ask(bulk.act(seam.sql, "replay", seam.who(org), only, reason, **how), conn)

    @verb
    def discard_many(
        self,
        *,
        reason: str | None = None,
        limit: int | None = None,
        dry_run: bool = False,
        org: str | None = None,
        conn: Any = None,
        **only: Unpack[Only],
    ) -> Work[Bulk]:
        """Discard the dead letters that are meant, oldest first, at most `limit`; a dry run counts them."""
        seam = self.seam
        return seam.ask(bulk.act(seam.sql, "discard", seam.who(org), only, reason, limit=limit, dry_run=dry_run), conn)


class DeadLetters(DeadLetterVerbs, Sync):
    """Dead letters, for sync code."""


class AsyncDeadLetters(DeadLetterVerbs, Async):
    """Dead letters, for async code."""
