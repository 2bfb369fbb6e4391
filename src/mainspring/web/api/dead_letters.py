"""Dead letters over HTTP: find them, see what their errors mean, and decide about one."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec.structs import asdict, replace

from mainspring.codes import CODES
from mainspring.db.dead import DeadLetter, DeadLetterGroup, Decision, Only
from mainspring.db.jobs import Attempt
from mainspring.errors import TransitionRefused
from mainspring.plans import Action
from mainspring.text.texts import MAX_NAME
from mainspring.web.api.asking import Asking
from mainspring.web.api.jobs import JobView, show_job
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import MOST_LISTED, PageOf, Paging
from mainspring.web.api.refused import not_found
from mainspring.web.api.terms import Instant, JobId, NeededReason, QueueName, TaskName
from mainspring.web.api.version import Versioned

dead_letters = Resource("dead letters", "Jobs that failed for good, and that nobody has decided about.")

#: So many are looked at for their groups: what an error looks like is computed.
MOST_GROUPED = 10_000
ErrorCode = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME, examples=["TIMEOUT"])]
Fingerprint = Annotated[
    str,
    msgspec.Meta(
        pattern="^[0-9a-f]{12}$", description="What errors that look alike have in common.", examples=["5f0c4e7a91b2"]
    ),
]
DeadState = Literal["failed", "dead"]


class DeadLetterFilter(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters are meant; an empty filter means all. `since` and `until` are about when they died."""

    task: TaskName | None = None
    queue: QueueName | None = None
    code: ErrorCode | None = None
    fingerprint: Fingerprint | None = None
    state: DeadState | None = None
    since: Instant | None = None
    until: Instant | None = None


class DeadLetterView(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter; its message is masked."""

    id: JobId
    org_id: str
    task: str
    state: str
    queue: str
    attempt: int
    max_attempts: int
    crashes: int
    created_at: Instant
    finished_at: Instant
    code: str | None
    message: str | None
    fingerprint: str
    key: str | None


class DeadLetterGroupView(DeadLetterGroup, frozen=True, kw_only=True):
    """Dead letters whose errors look alike, with the newest as an example, and what to do if their code is known."""

    meaning: str | None
    advised: Action | None


class CaseDecision(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody has decided about a dead letter."""

    resolution: str
    at: Instant
    by: str
    reason: str
    successor: UUID | None


class CaseView(Versioned, frozen=True, kw_only=True):
    """A dead letter with its attempts, what its error means, what is advised, and what to look at first."""

    job: JobView
    attempts: list[Attempt]
    fingerprint: str
    meaning: str
    advised: Action
    check_first: str
    decision: CaseDecision | None

    def version(self) -> tuple[Any, ...]:
        """That of the job, and what is decided."""
        return *self.job.version(), self.decision and self.decision.at


class Decided(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """NeededReason somebody decides so."""

    reason: NeededReason


@dead_letters.get("/dead-letters", role="viewer")
async def list_dead_letters(
    asking: Asking, page: Paging[tuple[datetime, UUID]], only: DeadLetterFilter
) -> PageOf[DeadLetterView]:
    """Dead letters, newest first; `since` and `until` are about when they died."""
    found = await asking.client.dead.list(limit=page.wanted, place=page.after, conn=asking.conn, **asdict(only))
    return page.of([_letter(asking, one) for one in found], lambda one: (one.finished_at, one.id))


@dead_letters.get("/dead-letters/groups", role="viewer")
async def list_dead_letter_groups(
    asking: Asking,
    task: TaskName | None = None,
    queue: QueueName | None = None,
    code: ErrorCode | None = None,
    state: DeadState | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_LISTED)] = 50,
) -> PageOf[DeadLetterGroupView]:
    """Dead letters by what their errors have in common, the most frequent first, among the newest 10,000."""
    only: Only = {"task": task, "queue": queue, "code": code, "state": state, "since": since, "until": until}
    found = await asking.client.dead.groups(limit=limit, newest=MOST_GROUPED, conn=asking.conn, **only)
    return PageOf(items=[_group(asking, one) for one in found])


@dead_letters.get("/dead-letters/{id}", role="viewer")
async def show_dead_letter(asking: Asking, id: JobId) -> CaseView:
    """One dead letter, also when it is decided: every attempt with its error, what the error means, what to do."""
    try:
        return await see_case(asking, id)
    except TransitionRefused:
        raise not_found() from None


@dead_letters.post("/dead-letters/{id}/replay", role="operator", if_match="optional")
async def replay_dead_letter(asking: Asking, id: JobId, body: Decided) -> JobView:
    """Make the job ready again, with all its attempts."""
    await look_at_case(asking, id)
    await asking.client.dead.replay(id, reason=body.reason, conn=asking.conn)
    return await show_job(asking, id)


@dead_letters.post("/dead-letters/{id}/discard", role="operator", if_match="optional")
async def discard_dead_letter(asking: Asking, id: JobId, body: Decided) -> CaseView:
    """Take it off the list; the job stays as it is."""
    await look_at_case(asking, id)
    await asking.client.dead.discard(id, reason=body.reason, conn=asking.conn)
    return await see_case(asking, id)


async def look_at_case(asking: Asking, id: UUID) -> CaseView:
    """Compare what is there with what was seen."""
    await asking.lock("dead letter", id)
    seen = await see_case(asking, id)
    asking.match(seen)
    return seen


async def see_case(asking: Asking, id: UUID) -> CaseView:
    """A dead letter; what is none is refused as the engine does."""
    case = await asking.client.dead.show(id, conn=asking.conn)
    return CaseView(
        job=await show_job(asking, id),
        attempts=[replace(one, error=asking.show(one.error)) for one in case.attempts],
        fingerprint=case.about.fingerprint,
        meaning=case.meaning,
        advised=case.plan.advised,
        check_first=case.plan.check,
        decision=_decision(case.about.decision),
    )


def _decision(decision: Decision | None) -> CaseDecision | None:
    if decision is None:
        return None
    return CaseDecision(**{name: getattr(decision, name) for name in CaseDecision.__struct_fields__})


def _letter(asking: Asking, letter: DeadLetter) -> DeadLetterView:
    about = {name: getattr(letter, name) for name in DeadLetterView.__struct_fields__}
    return DeadLetterView(**about | {"message": asking.show(letter.message)})


def _group(asking: Asking, group: DeadLetterGroup) -> DeadLetterGroupView:
    known = CODES.get(group.code or "")
    about: dict[str, Any] = asdict(group) | {"message": asking.show(group.message)}
    about |= {"meaning": known.text, "advised": known.plan.advised} if known else {"meaning": None, "advised": None}
    return DeadLetterGroupView(**about)
