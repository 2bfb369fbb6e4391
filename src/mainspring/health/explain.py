"""Why is this job not running? An answer from the claim's own predicates, one by one.

`mainspring.db.explain` asks the database for the situation of a job in one snapshot; `explain` says what it means. Each
predicate of the claim has its check here, and a test holds the two together: the answer is "claimable" if and only if
a claim takes the job.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from mainspring.job import Job
from mainspring.limit import words
from mainspring.text.span import ago, instant, span

#: What is ahead of a job is counted up to here.
MOST = 1000


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """Where a job that waits stands."""

    due: bool
    due_at: datetime
    retrying: bool
    crashes: int
    queue: str
    priority: int


class KeyHolder(msgspec.Struct, frozen=True, kw_only=True):
    """The job of the same key that this one waits for; no state: it is gone."""

    id: UUID
    state: str | None


class Pause(msgspec.Struct, frozen=True, kw_only=True):
    """Who stopped the queue, and why."""

    paused_at: datetime
    paused_by: str | None
    pause_reason: str | None


class Parent(msgspec.Struct, frozen=True, kw_only=True):
    """A job that this one waits for."""

    id: UUID
    task: str
    state: str | None


class FlowWait(msgspec.Struct, frozen=True, kw_only=True):
    """How many jobs this one waits for, and one that shows why; or the batch whose end it waits for."""

    open: int
    first: Parent | None
    batch: UUID | None


class BreakerHold(msgspec.Struct, frozen=True, kw_only=True):
    """What the job needs and was put off by."""

    need: str
    state: str
    since: datetime | None
    next_probe: datetime | None
    forced_by: str | None
    forced_reason: str | None


class EndpointPause(msgspec.Struct, frozen=True, kw_only=True):
    """Where the job would deliver to, and which was paused."""

    id: UUID
    state: str | None
    since: datetime | None
    reason: str | None


class LimitStanding(msgspec.Struct, frozen=True, kw_only=True):
    """A limit that concerns the job: how much room it has, and until when it has put the job off."""

    name: str
    by: str
    key: str | None
    rate: int | None
    per_s: float | None
    concurrency: int | None
    in_order: bool
    room: int
    opens_at: datetime | None
    put_off_to: datetime | None
    in_place: bool
    after: UUID | None
    late: str | None = None  # a worker that cannot start in time what was let in

    def __str__(self) -> str:
        by = {"org": " by organisation", "strand": " by strand"}.get(self.by, "")
        per = None if self.per_s is None else timedelta(seconds=self.per_s)
        return f"the limit {self.name}{by} ({words(self.rate, per, self.concurrency, self.in_order)})"


class TaskQuarantine(msgspec.Struct, frozen=True, kw_only=True):
    """Since when the task is held back, because its jobs have killed so many workers."""

    held_at: datetime
    workers: int
    next_probe: datetime


class Lock(msgspec.Struct, frozen=True, kw_only=True):
    """The session whose open transaction has locked the ticket: a claim passes over it."""

    pid: int
    name: str | None
    state: str | None
    seconds: float | None


class Mate(msgspec.Struct, frozen=True, kw_only=True):
    """A living worker, and what it could do for the job."""

    id: str
    host: str
    pid: int
    running: int
    concurrency: int
    serves: bool
    knows: bool


class Lease(msgspec.Struct, frozen=True, kw_only=True):
    """Who runs the job; without a host, the worker has no heartbeat any more."""

    worker: str
    host: str | None
    pid: int | None
    seen_at: datetime | None
    expired: bool


class Situation(msgspec.Struct, frozen=True, kw_only=True):
    """What the database knows about a job and whoever could claim it, in one snapshot."""

    now: datetime
    job: Job
    ticket: Ticket | None
    held_by: KeyHolder | None
    paused: Pause | None
    flow: FlowWait | None = None
    breaker: BreakerHold | None = None
    endpoint: EndpointPause | None = None
    limits: list[LimitStanding] = []
    fair: bool = False
    quarantine: TaskQuarantine | None = None
    locked_by: Lock | None
    crew: list[Mate]
    ahead: int
    lease: Lease | None
    rescuers: int


class ClaimCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One predicate of the claim: whether it holds (None: it does not decide), what was found, and the short reason."""

    name: str
    holds: bool | None
    detail: str
    reason: str = ""


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
    checks = _checks(s)
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


def _checks(s: Situation) -> list[ClaimCheck]:
    if s.ticket is None:
        what = "it is running" if s.lease else "it has ended"
        return [ClaimCheck(name="waits", holds=False, detail=f"{what}: only a job that waits is claimed", reason=what)]
    tries = f"after attempt {s.job.attempt} of {s.job.max_attempts}" if s.job.attempt else "not attempted yet"
    waits = ClaimCheck(name="waits", holds=True, detail=f"it is {s.job.state}, {tries}")
    lane = (_due(s, s.ticket), _held(s), _breaker(s), _paused(s, s.ticket))
    here = (_quarantine(s, s.ticket), _locked(s), _turn(s, s.ticket))
    return [waits, *lane, *_endpoint(s), *_flow(s), *_limits(s), *_crew(s, s.ticket), *here]


def _due(s: Situation, ticket: Ticket) -> ClaimCheck:
    when = f"{ago(ticket.due_at, s.now)}, at {instant(ticket.due_at)}"
    if ticket.due:
        return ClaimCheck(name="due", holds=True, detail=f"due {when}")
    if any(
        gate.put_off_to is not None for gate in s.limits
    ):  # the claim sees the limit's time; what decides is the limit
        return ClaimCheck(name="due", holds=None, detail=f"due {when}, but for a limit")
    if s.held_by or s.flow or s.breaker or s.endpoint:  # the claim sees it as due never; what decides is who holds it
        return ClaimCheck(name="due", holds=None, detail=f"due {when}, once it is no longer held")
    reason = f"it is due {ago(ticket.due_at, s.now)}"
    if ticket.retrying:
        reason = f"attempt {s.job.attempt} of {s.job.max_attempts} failed{_error(s.job.error)}, and the next is due "
        reason += ago(ticket.due_at, s.now)
    return ClaimCheck(name="due", holds=False, detail=f"due {when}", reason=reason)


def _held(s: Situation) -> ClaimCheck:
    if s.held_by is None:
        return ClaimCheck(name="held", holds=True, detail="no other job of its key is in front of it")
    state = f"is {s.held_by.state}" if s.held_by.state else "has ended: the next rescue frees this one"
    detail = f"job {s.held_by.id} of the same key {state}"
    return ClaimCheck(name="held", holds=False, detail=detail, reason=f"it waits for job {s.held_by.id}, which {state}")


def _limits(s: Situation) -> list[ClaimCheck]:
    """Each limit that concerns the job: whether it would let it in now."""
    if not s.limits:
        return [ClaimCheck(name="limits", holds=True, detail="no limit concerns it")]
    return [_limit(s, gate) for gate in s.limits]


def _limit(s: Situation, gate: LimitStanding) -> ClaimCheck:
    name = f"limit {gate.name}"
    late = f"; worker {gate.late} was let have jobs, and cannot start them in time" if gate.late else ""
    if gate.in_order and gate.after is not None:
        text = f"in order: it waits for job {gate.after} of strand {gate.key}"
    elif gate.in_place or (gate.room > 0 and gate.put_off_to is None):
        return ClaimCheck(name=name, holds=True, detail=f"{gate} has room for {max(gate.room, 1)}{late}")
    elif gate.rate is not None:
        text = f"{gate} has let in its {gate.rate}" if gate.room <= 0 else f"{gate} has put it off"
        when = gate.put_off_to or gate.opens_at
        who = "it is expected" if gate.put_off_to else "the next start is expected"  # there may be others before it
        text += f"; {who} {ago(when, s.now)}, at {instant(when)}" if when else ""
        text += late
    else:
        full = (
            f"is full: it waits behind {(gate.concurrency or 0) - gate.room} that run" if gate.room <= 0 else "was full"
        )
        text = f"{gate} {full}"
        text += f"; it asks again {ago(gate.put_off_to, s.now)}" if gate.put_off_to else ""
    return ClaimCheck(
        name=name, holds=False, detail=f"{text}; `mainspring limit show {gate.name}` shows it", reason=text
    )


def _breaker(s: Situation) -> ClaimCheck:
    """A breaker takes a job that it stops out of the claim's way, until it closes or lets the job try."""
    found = s.breaker
    if found is None:
        return ClaimCheck(name="breaker", holds=True, detail="no breaker has put it off")
    if found.forced_by:
        why = f": {found.forced_reason}" if found.forced_reason else ""
        state = f"held {found.state} by {found.forced_by}{why}"
    elif found.state == "closed":
        state = "closed again: the next look lets it go"
    else:
        state = "open" if found.state == "open" else "half open: a few jobs are let through to see"
        state += f", for {span(s.now - found.since)} now" if found.since and found.state == "open" else ""
        if found.state == "open" and found.next_probe:
            state += f"; the next probe is {ago(found.next_probe, s.now)}"
    text = f"it needs {found.need}, whose breaker is {state}"
    detail = f"{text}; `mainspring breaker show {found.need.partition(':')[0]}` shows it"
    return ClaimCheck(name="breaker", holds=False, detail=detail, reason=text)


def _endpoint(s: Situation) -> list[ClaimCheck]:
    """Whether a delivery waits for an endpoint that is paused; nothing where it does not."""
    found = s.endpoint
    if found is None:
        return []
    text = f"its endpoint {found.id} is {found.state or 'gone'}"
    text += f", since {span(s.now - found.since)}" if found.since else ""
    text += f": {found.reason}" if found.reason else ""
    detail = f"{text}; `mainspring webhook endpoint resume {found.id}` starts it again"
    return [ClaimCheck(name="endpoint", holds=False, detail=detail, reason=text)]


def _flow(s: Situation) -> list[ClaimCheck]:
    """Which jobs, or which batch, it waits for; nothing where it waits for none."""
    flow = s.flow
    if flow is None:
        return []
    if flow.first is None:
        what = "its parents, which have ended: the next sweep frees it"
        if flow.batch is not None:
            what = f"batch {flow.batch}, whose jobs have not all ended"
        return [ClaimCheck(name="parents", holds=False, detail=f"it waits for {what}", reason=f"it waits for {what}")]
    others = f" and {flow.open - 1} more" if flow.open > 1 else ""
    decide = ": replay or discard it" if flow.first.state in ("failed", "dead") else ""
    text = f"it waits for job {flow.first.id} of {flow.first.task}, which is {flow.first.state}{decide}{others}"
    return [ClaimCheck(name="parents", holds=False, detail=text, reason=text)]


def _paused(s: Situation, ticket: Ticket) -> ClaimCheck:
    if s.paused is None:
        return ClaimCheck(name="paused", holds=True, detail=f"{ticket.queue} is not paused")
    by = f" by {s.paused.paused_by}" if s.paused.paused_by else ""
    why = f": {s.paused.pause_reason}" if s.paused.pause_reason else ""
    text = f"{ticket.queue} was paused{by} {ago(s.paused.paused_at, s.now)}{why}"
    detail = f"{text}; `mainspring queue resume {ticket.queue}` starts it again"
    return ClaimCheck(name="paused", holds=False, detail=detail, reason=text)


def _crew(s: Situation, ticket: Ticket) -> list[ClaimCheck]:
    """Does somebody serve the queue, and does somebody who serves it know the task?"""
    serving = [mate for mate in s.crew if mate.serves]
    knowing = [mate for mate in serving if mate.knows]
    living = f"{len(s.crew)} worker{'s' * (len(s.crew) != 1)} alive"
    if not serving:
        reason = f"no living worker serves {ticket.queue}" if s.crew else "no worker is alive"
        detail = f"{reason}; {living}" if s.crew else f"{reason}: start one with `mainspring worker run`"
        idle = "decided once a worker serves the queue"
        return [
            ClaimCheck(name="queue", holds=False, detail=detail, reason=reason),
            ClaimCheck(name="task", holds=None, detail=idle),
        ]
    queue = ClaimCheck(name="queue", holds=True, detail=f"{_names(serving)} {_verb(serving, 'serve')} {ticket.queue}")
    if knowing:
        return [
            queue,
            ClaimCheck(name="task", holds=True, detail=f"{_names(knowing)} {_verb(knowing, 'know')} {s.job.task}"),
        ]
    reason = f"no living worker that serves {ticket.queue} knows the task {s.job.task}"
    hint = "is it declared in the application that they run, and are they of the newest version?"
    return [queue, ClaimCheck(name="task", holds=False, detail=f"{reason}: {hint}", reason=reason)]


def _locked(s: Situation) -> ClaimCheck:
    if s.locked_by is None:
        return ClaimCheck(name="unlocked", holds=True, detail="no open transaction has locked it")
    lock = s.locked_by
    since = f" for {span(lock.seconds)}" if lock.seconds is not None else ""
    text = f"session {lock.pid} ({lock.name or 'without a name'}, {lock.state or 'active'}{since}) has locked it"
    return ClaimCheck(name="unlocked", holds=False, detail=f"{text} in an open transaction", reason=text)


def _quarantine(s: Situation, ticket: Ticket) -> ClaimCheck:
    """A task whose jobs have killed several workers is held back; who crashed twice runs alone in any case."""
    found = s.quarantine
    if found is None:
        return ClaimCheck(name="quarantine", holds=True, detail="its task has not killed several workers")
    since = span(s.now - found.held_at)
    text = f"the task {s.job.task} has been in quarantine for {since}: its jobs killed {found.workers} workers"
    rule = "one of them a second at most runs alone, as a probe; the first that succeeds ends it"
    detail = f"{text}; {rule}, and so does `mainspring quarantine release {s.job.task}`"
    return ClaimCheck(name="quarantine", holds=None if ticket.crashes > 1 else False, detail=detail, reason=text)


def _turn(s: Situation, ticket: Ticket) -> ClaimCheck:
    """Who goes first: in its lane, as slots are free; suspects few at a time, and who crashed twice alone."""
    able = [mate for mate in s.crew if mate.serves and mate.knows]
    ahead = f"{_jobs(s.ahead)} of {ticket.queue} ahead of it"
    if ticket.crashes:
        rule = "such jobs come back one, two, four … at a time in each worker, as they end well"
        if ticket.crashes > 1:
            rule = "such a job runs alone, in a process of its own or in a worker that holds nothing else"
        detail = f"it may have crashed a worker, {_times(ticket.crashes)}: {rule}"
        return ClaimCheck(name="turn", holds=None, detail=f"{detail}; {ahead}" if ticket.due else detail)
    ahead += "; organisations take turns, and these are of its own" * s.fair
    detail = f"priority {ticket.priority}, {ahead}" if ticket.due else f"priority {ticket.priority}"
    if able and all(mate.running >= mate.concurrency for mate in able):
        detail += f"; every worker was full at its last heartbeat ({sum(mate.running for mate in able)} jobs)"
    return ClaimCheck(name="turn", holds=None, detail=detail)


def _waits(s: Situation, blocked: list[ClaimCheck]) -> str:
    reasons = [check.reason for check in blocked]
    if len(reasons) == 1:
        return _sentence(f"{reasons[0]}; nothing else holds it")
    if reasons:
        return _sentence("; ".join(reasons))
    if s.ahead:
        return f"Nothing holds it: it is claimed after the {_jobs(s.ahead)} ahead of it."
    if s.ticket is not None and s.ticket.crashes > 1:
        return "Nothing holds it: it runs alone, as soon as a worker has a process for it or holds nothing else."
    return "Nothing holds it: the next claim of a worker with a free slot takes it."


def _runs(s: Situation, lease: Lease) -> str:
    job, started = s.job, s.job.started_at or s.now
    where = f"worker {lease.worker}" + (f" on {lease.host}" if lease.host else "")
    if lease.expired:
        expired = f"the lease of {where} ended {ago(job.lease_expires_at or s.now, s.now)}"
        then = "the next rescue takes it back" if s.rescuers else "no worker is alive that could take it back"
        return _sentence(f"{expired} without being renewed; {then}")
    text = f"it is running: attempt {job.attempt} of {job.max_attempts} in {where} since {span(s.now - started)}"
    text += f"; its lease is renewed until {instant(job.lease_expires_at)}" if job.lease_expires_at else ""
    if job.progress is not None:
        of = f" of {job.progress.total:g}" if job.progress.total is not None else ""
        text += f"; {job.progress.done:g}{of} done" + (f" ({job.progress.note})" if job.progress.note else "")
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
            return f"It was cancelled{when}{_error(job.error)}."
        case "failed":
            return f"It failed for good{when}, {tries}{_error(job.error)}{_decided(job)}."
        case "dead":
            return f"It died{when}, {tries}{_error(job.error)}{_decided(job)}."
    return "It has no ticket: the invariant is broken, see `mainspring doctor`."


def _decided(job: Job) -> str:
    """What somebody decided about a dead letter."""
    if job.fixed_by:
        return f"; it was fixed forward by job {job.fixed_by}"
    return f"; it was {job.resolution}" if job.resolution else ""


def _error(error: dict[str, Any] | None) -> str:
    if not error:
        return ""
    message = " ".join(str(error.get("message") or "").split())
    return f" ({error.get('code')}: {message[:160].rstrip('.')})"


def _sentence(text: str) -> str:
    return f"{text}." if text.startswith("q:") else f"{text[:1].upper()}{text[1:]}."


def _names(mates: list[Mate]) -> str:
    return f"worker {mates[0].id}" if len(mates) == 1 else f"{len(mates)} workers"


def _verb(mates: list[Mate], verb: str) -> str:
    return f"{verb}s" if len(mates) == 1 else verb


def _number(count: int) -> str:
    return f"{count}{'+' * (count >= MOST)}"


def _jobs(count: int) -> str:
    return f"{_number(count)} ready job{'s' * (count != 1)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
