"""The audit trail over HTTP: who did what, when and why, and whether anybody has changed it."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from mainspring.audit import MAX_EVENT, AuditEvent, AuditFinding
from mainspring.db.audit import search
from mainspring.job import DEFAULT_ORG
from mainspring.text.texts import MAX_NAME
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import Instant, JobId

audit = Resource("audit", "Who did what, when and why: events are added, sealed, and never changed.")

#: So many events one page looks at; where a filter fits few of them, the next page looks further back.
MOST_LOOKED_AT = 20_000
MOST_FINDINGS = 100
WhoOrWhat = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
EventName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_EVENT, examples=["job.replayed"])]


class EventView(msgspec.Struct, frozen=True, kw_only=True):
    """One event: `by` acted, about `subject` or a job that `actor_id` asked for; what it says is masked."""

    id: int
    at: Instant
    event: str
    org_id: str
    by: str
    actor_type: str
    actor_id: str
    subject: str | None
    job_id: UUID | None
    task: str | None
    attempt: int | None
    project_id: UUID | None
    request_id: str
    correlation_id: str
    detail: dict[str, Any]


class SealView(msgspec.Struct, frozen=True, kw_only=True):
    """The last seal of an organisation's trail: who keeps its hash elsewhere knows if the end is cut off."""

    org_id: str
    number: int
    hash: str
    sealed_at: Instant


class FindingView(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it was sealed: an event by its id, or a seal by its number."""

    problem: str
    id: int | None
    number: int | None
    text: str


class VerificationView(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of the seals found: `ok`, or the first findings of `wrong`; `waiting` events are not sealed yet."""

    org_id: str
    ok: bool
    first_seal: int
    last_seal: int
    events: int
    waiting: int
    oldest_waiting: Instant | None
    head: str | None
    wrong: int
    findings: list[FindingView]


@audit.get("/audit", role="viewer")
async def list_audit(
    asking: Asking,
    page: Paging[int],
    event: EventName | None = None,
    actor: WhoOrWhat | None = None,
    subject: WhoOrWhat | None = None,
    job: JobId | None = None,
    correlation: WhoOrWhat | None = None,
    since: Instant | None = None,
    until: Instant | None = None,
) -> PageOf[EventView]:
    """Stored events, newest first; a page may hold few, or none, and go on: each looks at 20,000 events.

    That a job was enqueued, started or succeeded stands with the job itself.
    """
    only: dict[str, Any] = {"event": event, "actor": actor, "subject": subject, "job": job, "correlation": correlation}
    only |= {"since": since, "until": until, "before": page.after, "limit": page.limit, "org": asking.org}
    found, place = await asking.ask(search(asking.sql, newest=MOST_LOOKED_AT, **only))
    return page.up_to([_view(asking, one) for one in found], place)


@audit.get("/audit/seals", role="viewer", connects="operator")
async def list_seals(asking: Asking, page: Paging[str]) -> PageOf[SealView]:
    """The last seal of each organisation."""
    found = await asking.client.audit.heads(conn=asking.conn)
    seals = [SealView(**asdict(one)) for one in found if one.org_id > (page.after or "")]
    return page.of(seals, lambda one: one.org_id)


@audit.get("/audit/verification", role="operator")
async def verify_audit(
    asking: Asking,
    seals: Annotated[int, msgspec.Meta(ge=1, le=200, description="How many of the newest are recomputed.")] = 20,
    head: Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{64}$", description="A hash that was kept.")] | None = None,
) -> VerificationView:
    """Recompute the newest seals of one organisation's trail, by default `default`, each over up to 1,000 events.

    `mainspring audit verify` recomputes all of them. With `head` they must hold a hash that was kept elsewhere.
    """
    org = asking.org or DEFAULT_ORG
    (found,) = await asking.client.audit.verify(org=org, head=head, newest=seals, conn=asking.conn)
    findings = found.findings
    return VerificationView(
        org_id=found.org_id,
        ok=not findings,
        first_seal=found.first,
        last_seal=found.seals,
        events=found.rows,
        waiting=found.waiting,
        oldest_waiting=found.oldest_waiting,
        head=found.head,
        wrong=len(findings),
        findings=[_finding(one) for one in findings[:MOST_FINDINGS]],
    )


def _finding(finding: AuditFinding) -> FindingView:
    return FindingView(problem=finding.problem, id=finding.id, number=finding.number, text=str(finding))


def _view(asking: Asking, event: AuditEvent) -> EventView:
    about = {name: getattr(event, name) for name in EventView.__struct_fields__}
    return EventView(**about | {"detail": asking.show(event.detail)})
