"""Why is this job not running? An answer from the claim's own predicates, one by one.

`mainspring.db.explain` asks the database for the situation of a job in one snapshot; `explain` says what it means. The
answer is "claimable" if and only if a claim takes the job.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from mainspring.health.claim_check import ClaimCheck, claim_checks, error_words, ready_jobs
from mainspring.health.situation import Lease, Situation
from mainspring.job import Job
from mainspring.text.span import ago, instant, span

_OVERDUE = timedelta(minutes=1)  # longer than a poll, and than the end of a worker whose slots are all held


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """Why a job runs or does not. `claimable`: the next claim of a worker with a free slot takes it."""

    id: UUID
    task: str
    state: str
    claimable: bool
    verdict: str
    checks: list[ClaimCheck]
    advice: str | None
    at: datetime


def explain(s: Situation, advice: str | None = None) -> Explanation:
    """What the situation of a job means."""
    checks = claim_checks(s)
    blocked = [check for check in checks if check.holds is False]
    if s.ticket is not None:
        verdict = _waits(s, blocked)
    elif s.lease is not None:
        verdict = _runs(s, s.lease)
    else:
        verdict = _ended(s)
    return Explanation(
        id=s.job.id,
        task=s.job.task,
        state=s.job.state,
        claimable=s.ticket is not None and not blocked,
        verdict=verdict,
        checks=checks,
        advice=advice,
        at=s.now,
    )


def _waits(s: Situation, blocked: list[ClaimCheck]) -> str:
    reasons = [check.reason for check in blocked]
    if len(reasons) == 1:
        return _sentence(f"{reasons[0]}; nothing else holds it")
    if reasons:
        return _sentence("; ".join(reasons))
    if s.ahead:
        return f"Nothing holds it: it is claimed after the {ready_jobs(s.ahead)} ahead of it.{_overdue(s)}"
    if s.ticket is not None and s.ticket.crashes > 1:
        return "Nothing holds it: it runs alone, as soon as a worker has a process for it or holds nothing else."
    return f"Nothing holds it: the next claim of a worker with a free slot takes it.{_overdue(s)}"


def _overdue(s: Situation) -> str:
    """What to look at when it should have been claimed long ago."""
    if s.ticket is None or s.now - s.ticket.due_at < _OVERDUE:
        return ""
    since = f"It has been due for {span(s.now - s.ticket.due_at)}, so no slot has become free for it"
    return f" {since}: handlers take long, or have outlived their time limit (`worker:stuck` in the workers' logs)."


def _runs(s: Situation, lease: Lease) -> str:
    job, started = s.job, s.job.started_at or s.now
    where = f"worker {lease.worker}" + (f" on {lease.host}" if lease.host else "")
    if lease.expired and s.locked_by is not None:
        held = f"{s.locked_by} has completed it in a transaction that it holds open, so that no worker can take it back"
        return _sentence(f"{held}: commit it, or end the session: select pg_terminate_backend({s.locked_by.pid})")
    if lease.expired:
        expired = f"the lease of {where} ended {ago(job.lease_expires_at or s.now, s.now)}"
        then = "the next rescue takes it back" if s.rescuers else "no worker is alive that could take it back"
        return _sentence(f"{expired} without being renewed; {then}")
    text = f"it is running: attempt {job.attempt} of {job.max_attempts} in {where} since {span(s.now - started)}"
    text += f"; its lease is renewed until {instant(job.lease_expires_at)}" if job.lease_expires_at else ""
    if job.progress is not None:
        of = f" of {job.progress.total:g}" if job.progress.total is not None else ""
        text += f"; {job.progress.done:g}{of} done" + (f" ({job.progress.note})" if job.progress.note else "")
    if s.locked_by is not None:
        text += f"; {s.locked_by} has completed it in a transaction that is still open"
    if lease.seen_at is None:
        text += ", but that worker has no heartbeat any more: it is taken back when the lease ends"
    if job.cancel_requested_at:
        text += (
            f"; its cancellation was asked for {ago(job.cancel_requested_at, s.now)}, and its handler must notice it"
        )
    return _sentence(text)


def _ended(s: Situation) -> str:
    job = s.job
    when = f" {ago(job.finished_at, s.now)}" if job.finished_at else ""
    tries = f"in attempt {job.attempt} of {job.max_attempts}"
    match job.state:
        case "succeeded":
            return f"It succeeded{when}, {tries}."
        case "cancelled":
            return f"It was cancelled{when}{error_words(job.error)}."
        case "failed":
            return f"It failed for good{when}, {tries}{error_words(job.error)}{_decided(job)}."
        case "dead":
            return f"It died{when}, {tries}{error_words(job.error)}{_decided(job)}."
    return "It has no ticket: the invariant is broken, see `mainspring doctor`."


def _decided(job: Job) -> str:
    """What somebody decided about a dead letter."""
    if job.fixed_by:
        return f"; it was fixed forward by job {job.fixed_by}"
    return f"; it was {job.resolution}" if job.resolution else ""


def _sentence(text: str) -> str:
    return f"{text}." if text.startswith("q:") else f"{text[:1].upper()}{text[1:]}."
