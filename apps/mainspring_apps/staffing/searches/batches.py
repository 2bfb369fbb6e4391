"""One run of a batch of saved searches: it is told as a whole, or what follows its failure is done (STAFF-7)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
import psycopg

import mainspring as ms
from mainspring.errors import DatabaseUnavailable
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.rules import failures
from mainspring_apps.staffing.rules.failures import Failure, SearchKind
from mainspring_apps.staffing.searches.search import Unanswered
from mainspring_apps.staffing.store import Conn

#: The query failed, or the database went away around it; anything else is a mistake of ours and is tried as any job is.
FAILURES = (Unanswered, psycopg.OperationalError, DatabaseUnavailable)


class Trouble(msgspec.Struct, frozen=True):
    """What a job remembers from one try to the next."""

    failure: Failure = "ordinary"
    since: datetime | None = None
    tries: int = 0


@dataclass(frozen=True, slots=True)
class Batch:
    """Searches that are asked together, for a slot that is the same however late it gets (G-31)."""

    desk: Desk
    kind: SearchKind
    slot: str
    searches: Sequence[int]
    size: int  # as it was made; a half has fewer

    def run(
        self,
        ctx: ms.SyncContext,
        work: Callable[[Conn], None],
        skipped: Callable[[Conn], None] = lambda conn: None,
    ) -> None:
        """Do the work with the job's success; where its query fails, halve, try again or skip as the rules say.

        `skipped` is done with the rows that say so. Users are never told of it (STAFF-7.04).
        """
        trouble = ctx.resume_from(Trouble())
        try:
            if trouble.since is not None:
                with ctx.transaction() as conn:
                    now = self.desk.now(conn)
                if failures.over(self.kind, trouble.failure, trouble.since, now, self.desk.settings):
                    self._skip(ctx, trouble.failure, trouble.since, skipped)
                    return
            with ctx.complete() as conn:
                work(conn)
                self._record(conn, ctx, trouble, failed=False)
        except FAILURES as error:
            self._follow(ctx, trouble, error, skipped)

    def _follow(self, ctx: ms.SyncContext, trouble: Trouble, error: Exception, skipped: Callable[[Conn], None]) -> None:
        state: str | None = getattr(error, "sqlstate", None)
        failure = failures.failure_of(state)
        with ctx.transaction() as conn:
            now = self.desk.now(conn)
            if ctx.attempt == 1 and not trouble.tries and len(self.searches) == self.size:
                self._count(conn, retry=False, failed=True)
        self._log(failure, state, error)
        since = trouble.since or now
        about = {"searches": len(self.searches), "attempt": ctx.attempt, "tries": trouble.tries}
        match failures.follow(self.kind, failure, since=since, now=now, settings=self.desk.settings, **about):
            case failures.Halve():
                raise Unanswered(state, str(error)) from error
            case failures.Again(after):
                ctx.checkpoint(Trouble(failure, since, trouble.tries + 1))
                raise (Unanswered(state, str(error)) if after is None else ms.Snooze(after)) from error
            case failures.Skip():
                self._skip(ctx, failure, since, skipped)

    def _skip(self, ctx: ms.SyncContext, failure: Failure, since: datetime, skipped: Callable[[Conn], None]) -> None:
        with ctx.complete() as conn:
            for search in self.searches:
                self.deliver(conn, search, status="Skipped", reason=failure, since=since)
            skipped(conn)
            if len(self.searches) == 1:
                self._count(conn, retry=True, failed=True)

    def deliver(
        self,
        conn: Conn,
        search_id: int,
        *,
        status: str = "Sent",
        reason: str | None = None,
        since: datetime | None = None,
    ) -> bool:
        """Say what became of one search in this slot, once: False where it is said already."""
        about = {"slot": self.slot, "kind": self.kind, "status": status, "reason": reason, "since": since}
        return store.value(conn, "deliver", search_id=search_id, **about) is not None

    def _record(self, conn: Conn, ctx: ms.SyncContext, trouble: Trouble, *, failed: bool) -> None:
        again = bool(trouble.tries) or ctx.attempt > 1
        if again and len(self.searches) == 1:
            self._count(conn, retry=True, failed=failed)
        elif not again and len(self.searches) == self.size:
            self._count(conn, retry=False, failed=failed)

    def _count(self, conn: Conn, *, retry: bool, failed: bool) -> None:
        about = {"kind": self.kind, "slot": self.slot, "searches": len(self.searches)}
        store.do(conn, "record_search_run", **about, retry=retry, failed=failed)

    def _log(self, failure: Failure, state: str | None, error: Exception) -> None:
        one = self.searches[0] if len(self.searches) == 1 else None
        about = {"saved_search_id": one, "saved_search_ids": list(self.searches), "kind": self.kind, "slot": self.slot}
        which = f"saved search {one}" if one is not None else f"{len(self.searches)} saved searches"
        log.error("%s: %s failure %s: %s", which, failure, state, error, extra=about | {"sqlstate": state})
