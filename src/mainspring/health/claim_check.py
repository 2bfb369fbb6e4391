"""The predicates of the claim, one by one: whether each lets a job through, and what was found.

Each predicate of the claim has its check here, and a test holds the two together: nothing is blocked if and only if a
claim takes the job.
"""

from __future__ import annotations

from typing import Any

import msgspec

from mainspring.health.situation import MOST_AHEAD, LimitStanding, Situation, Ticket, WorkerView
from mainspring.text.span import ago, instant, span


class ClaimCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One predicate of the claim: whether it holds (None: it does not decide), what was found, and the short reason."""

    name: str
    holds: bool | None
    detail: str
    reason: str = ""


def claim_checks(s: Situation) -> list[ClaimCheck]:
    """Every predicate of the claim, as the situation of a job answers it."""
    if s.ticket is None:
        what = "it is running" if s.lease else "it has ended"
        return [ClaimCheck(name="waits", holds=False, detail=f"{what}: only a job that waits is claimed", reason=what)]
    tries = f"after attempt {s.job.attempt} of {s.job.max_attempts}" if s.job.attempt else "not attempted yet"
    waits = ClaimCheck(name="waits", holds=True, detail=f"it is {s.job.state}, {tries}")
    lane = (_due(s, s.ticket), _held(s), _breaker(s), _paused(s, s.ticket))
    here = (_quarantine(s, s.ticket), _locked(s), _turn(s, s.ticket))
    return [waits, *lane, *_endpoint(s), *_flow(s), *_limits(s), *_workers(s, s.ticket), *here]


def _due(s: Situation, ticket: Ticket) -> ClaimCheck:
    when = f"{ago(ticket.due_at, s.now)}, at {instant(ticket.due_at)}"
    if ticket.due:
        return ClaimCheck(name="due", holds=True, detail=f"due {when}")
    if any(
        limit.put_off_to is not None for limit in s.limits
    ):  # the claim sees the limit's time; what decides is the limit
        return ClaimCheck(name="due", holds=None, detail=f"due {when}, but for a limit")
    if s.held_by or s.flow or s.breaker or s.endpoint:  # the claim sees it as due never; what decides is who holds it
        return ClaimCheck(name="due", holds=None, detail=f"due {when}, once it is no longer held")
    reason = f"it is due {ago(ticket.due_at, s.now)}"
    if ticket.retrying:
        reason = (
            f"attempt {s.job.attempt} of {s.job.max_attempts} failed{error_words(s.job.error)}, and the next is due "
        )
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
    return [_limit(s, limit) for limit in s.limits]


def _limit(s: Situation, limit: LimitStanding) -> ClaimCheck:
    name = f"limit {limit.name}"
    late = f"; worker {limit.late} was let have jobs, and cannot start them in time" if limit.late else ""
    if limit.in_order and limit.after is not None:
        text = f"in order: it waits for job {limit.after} of strand {limit.key}"
    elif limit.in_place or (limit.room > 0 and limit.put_off_to is None):
        return ClaimCheck(name=name, holds=True, detail=f"{limit} has room for {max(limit.room, 1)}{late}")
    elif limit.rate is not None:
        text = f"{limit} has let in its {limit.rate}" if limit.room <= 0 else f"{limit} has put it off"
        when = limit.put_off_to or limit.opens_at
        who = "it is expected" if limit.put_off_to else "the next start is expected"  # there may be others before it
        text += f"; {who} {ago(when, s.now)}, at {instant(when)}" if when else ""
        text += late
    else:
        full = (
            f"is full: it waits behind {(limit.concurrency or 0) - limit.room} that run"
            if limit.room <= 0
            else "was full"
        )
        text = f"{limit} {full}"
        text += f"; it asks again {ago(limit.put_off_to, s.now)}" if limit.put_off_to else ""
    return ClaimCheck(
        name=name, holds=False, detail=f"{text}; `mainspring limit show {limit.name}` shows it", reason=text
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


def _workers(s: Situation, ticket: Ticket) -> list[ClaimCheck]:
    """Does somebody serve the queue, and does somebody who serves it know the task?"""
    serving = [worker for worker in s.workers if worker.serves]
    knowing = [worker for worker in serving if worker.knows]
    living = f"{len(s.workers)} worker{'s' * (len(s.workers) != 1)} alive"
    if not serving:
        reason = f"no living worker serves {ticket.queue}" if s.workers else "no worker is alive"
        detail = f"{reason}; {living}" if s.workers else f"{reason}: start one with `mainspring worker run`"
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
    text = f"{s.locked_by} has locked it"
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
    able = [worker for worker in s.workers if worker.serves and worker.knows]
    ahead = f"{ready_jobs(s.ahead)} of {ticket.queue} ahead of it"
    if ticket.crashes:
        rule = "such jobs come back one, two, four … at a time in each worker, as they end well"
        if ticket.crashes > 1:
            rule = "such a job runs alone, in a process of its own or in a worker that holds nothing else"
        detail = f"it may have crashed a worker, {_times(ticket.crashes)}: {rule}"
        return ClaimCheck(name="turn", holds=None, detail=f"{detail}; {ahead}" if ticket.due else detail)
    ahead += "; organisations take turns, and these are of its own" * s.fair
    detail = f"priority {ticket.priority}, {ahead}" if ticket.due else f"priority {ticket.priority}"
    if able and all(worker.running >= worker.concurrency for worker in able):
        detail += f"; every worker was full at its last heartbeat ({sum(worker.running for worker in able)} jobs)"
    return ClaimCheck(name="turn", holds=None, detail=detail)


def _names(workers: list[WorkerView]) -> str:
    return f"worker {workers[0].id}" if len(workers) == 1 else f"{len(workers)} workers"


def _verb(workers: list[WorkerView], verb: str) -> str:
    return f"{verb}s" if len(workers) == 1 else verb


def error_words(error: dict[str, Any] | None) -> str:
    """The code and the message of an error, in brackets; nothing without one."""
    if not error:
        return ""
    message = " ".join(str(error.get("message") or "").split())
    return f" ({error.get('code')}: {message[:160].rstrip('.')})"


def _number(count: int) -> str:
    return f"{count}{'+' * (count >= MOST_AHEAD)}"


def ready_jobs(count: int) -> str:
    """How many jobs are ready, in words."""
    return f"{_number(count)} ready job{'s' * (count != 1)}"


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
