"""Fix-forward over HTTP: a new job with a corrected payload takes the place of a dead letter."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec

from mainspring.db.readable import is_encrypted
from mainspring.job import Job
from mainspring.text.restore import restore, rewrites
from mainspring.text.texts import MAX_NAME
from mainspring.web.api.asking import Asking
from mainspring.web.api.dead_letters import dead_letters, look_at_case
from mainspring.web.api.refused import ApiRefused
from mainspring.web.api.terms import JobId, NeededReason

FieldName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]


class Correction(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Either the whole payload, or fields to set and to leave out; what is left as it was shown masked stays."""

    reason: NeededReason
    payload: dict[str, Any] | None = None
    set: dict[FieldName, Any] = {}
    unset: Annotated[list[FieldName], msgspec.Meta(max_length=200)] = []
    dry_run: bool = False


class PayloadChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One operation of a JSON Patch, masked; `old` is for people who read it."""

    op: str
    path: str
    value: Any = msgspec.UNSET
    old: Any = msgspec.UNSET


class FixView(msgspec.Struct, frozen=True, kw_only=True):
    """What was changed, or would be: `checked` says whether the task's own types were there to check it.

    `successor` is the new job; null after a dry run.
    """

    job: JobId
    successor: UUID | None
    payload: dict[str, Any]
    diff: list[PayloadChange]
    checked: bool
    dry_run: bool


@dead_letters.post("/dead-letters/{id}/fix", role="operator", if_match="required")
async def fix_dead_letter(asking: Asking, id: JobId, body: Correction) -> FixView:
    """Enqueue a successor with a corrected payload, which is checked by the task's types; try with `dry_run` first.

    The successor has everything else of the job, and its key. What is encrypted, and what is shown masked, is corrected
    by who may see it.
    """
    await look_at_case(asking, id)
    client, job = asking.client, await asking.client.get(id, conn=asking.conn)
    if is_encrypted(job):
        client = await asking.reveal(f"job {job.id}", job.org_id)
        job = await client.get(id, conn=asking.conn)
    else:
        await _check_masked(asking, body, job)
    payload = None if body.payload is None else restore(body.payload, job.payload, asking.show)
    made = await client.dead.fix(
        id,
        reason=body.reason,
        payload=payload,
        set=restore(body.set, job.payload, asking.show),
        unset=body.unset,
        task=asking.registry.get(job.task) if job.task in asking.registry else None,
        dry_run=body.dry_run,
        conn=asking.conn,
    )
    return FixView(
        job=made.job,
        successor=made.successor,
        payload=asking.show(made.payload),
        diff=[PayloadChange(**asking.show(change)) for change in made.diff],
        checked=made.checked,
        dry_run=made.dry_run,
    )


async def _check_masked(asking: Asking, body: Correction, job: Job) -> None:
    """Let only those write where something is masked who may see it: what it changes tells what was there."""
    shown = asking.show(job.payload)
    sent = body.set | {name: shown.get(name) for name in body.unset} if body.payload is None else body.payload
    if rewrites(sent, job.payload, asking.show):
        if not asking.principal.reveals:
            raise ApiRefused(403, "FORBIDDEN", "To correct what is shown masked needs the right to reveal it.")
        await asking.reveal(f"job {job.id}", job.org_id)
