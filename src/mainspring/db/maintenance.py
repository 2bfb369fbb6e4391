"""Clean-up, as dialogues: each removes at most so many and says how many went."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Final

from mainspring.config import Retention
from mainspring.db import jobs
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, nothing, scalar

#: One run of clean-up: what it may remove, by how long things are kept.
Sweep = Callable[[Sql, Retention], Dialogue[int]]


def prune_jobs(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove finished jobs; failed and dead ones only when somebody has decided about them."""
    count = 0
    for states, age in (
        (["succeeded"], keep.succeeded),
        (["cancelled"], keep.cancelled),
        (["failed", "dead"], keep.resolved),
    ):
        if count < keep.batch:
            count += yield from jobs.prune(sql, states, age, keep.batch - count)
    return count


def prune_keys(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove idempotency keys that have expired."""
    return (yield from _count(Statement(sql["prune_keys"], {"limit": str(keep.batch)}, scalar)))


def prune_fires(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove fires of schedules."""
    params: dict[str, str | int | None] = {"age": _interval(keep.fires), "limit": keep.batch}
    return (yield from _count(Statement(sql["prune_fires"], params, scalar)))


def prune_deliveries(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove deliveries of webhooks that have ended, and secrets that have expired."""
    params: dict[str, str | int | None] = {"age": _interval(keep.deliveries), "limit": keep.batch}
    return (yield from _count(Statement(sql["prune_deliveries"], params, scalar)))


def prune_inbound(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove webhooks that came, once the jobs that acted on them are gone."""
    params: dict[str, str | int | None] = {"age": _interval(keep.inbound), "limit": keep.batch}
    return (yield from _count(Statement(sql["prune_inbound"], params, scalar)))


def prune_notifications(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove notifications that are not under way any more, and what inboxes show of them."""
    params: dict[str, str | int | None] = {"age": _interval(keep.notifications), "limit": keep.batch}
    return (yield from _count(Statement(sql["prune_notifications"], params, scalar)))


def prune_alerts(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove alerts that are closed."""
    params: dict[str, str | int | None] = {"age": _interval(keep.alerts), "limit": keep.batch}
    return (yield from _count(Statement(sql["prune_alerts"], params, scalar)))


def prune_access(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove sessions and sign-in links that are over, and tokens that nobody can use any more."""
    return (yield from _count(Statement(sql["prune_access"], {"limit": keep.batch}, scalar)))


def prune_requests(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove what was answered over HTTP under keys whose day is over."""
    return (yield from _count(Statement(sql["prune_requests"], {"limit": str(keep.batch)}, scalar)))


def forget_workers(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove workers whose heartbeat has stopped."""
    return (yield from _count(Statement(sql["forget_workers"], {"age": _interval(keep.workers)}, scalar)))


def forget_buckets(sql: Sql, keep: Retention) -> Dialogue[int]:
    """Remove what limits counted of keys that nobody uses any more."""
    return (yield from _count(Statement(sql["forget_buckets"], {"limit": keep.batch}, scalar)))


def alone(sql: Sql, name: str, org: str, sweep: Dialogue[int]) -> Dialogue[int]:
    """Sweep in all organisations, in a transaction that belongs to one; 0 while somebody else does."""
    free = yield from begin(sql, name)
    count = (yield from sweep) if free else 0
    yield from end(sql, org)
    return count


def begin(sql: Sql, name: str) -> Dialogue[bool]:
    """Let the transaction concern all organisations; False: somebody else does the same."""
    free: bool | None = yield from ask(Statement(sql["begin_sweep"], {"name": name}, scalar))
    return bool(free)


def end(sql: Sql, org: str) -> Dialogue[None]:
    """Let the transaction belong to its organisation again."""
    yield from ask(Statement(sql["end_sweep"], {"org": org}, nothing))


SWEEPS: Final[dict[str, Sweep]] = {
    "prune_jobs": prune_jobs,
    "prune_keys": prune_keys,
    "prune_fires": prune_fires,
    "prune_inbound": prune_inbound,
    "prune_deliveries": prune_deliveries,
    "prune_notifications": prune_notifications,
    "prune_alerts": prune_alerts,
    "prune_access": prune_access,
    "prune_requests": prune_requests,
    "forget_workers": forget_workers,
    "forget_buckets": forget_buckets,
}


def _count(statement: Statement[int]) -> Dialogue[int]:
    count: int = yield from ask(statement)
    return count


def _interval(age: timedelta) -> str:
    return f"{age.total_seconds()} s"
