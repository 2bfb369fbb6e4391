"""Quarantine over HTTP: tasks that are held back because they kill workers, and letting them go."""

from __future__ import annotations

import msgspec

from mainspring.db.quarantine import Quarantined
from mainspring.events import TaskReleased
from mainspring.text.sanitize import mask
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import NeededReason, TaskName

quarantine = Resource("quarantine", "Tasks that are held back because their jobs kill workers.")


class TaskRelease(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Why a task is let go."""

    reason: NeededReason


class Released(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a task was in quarantine; it is no longer."""

    task: TaskName
    released: bool


@quarantine.get("/quarantine", role="viewer", connects="operator")
async def list_quarantine(asking: Asking, page: Paging[str]) -> PageOf[Quarantined]:
    """Every task whose jobs have killed several workers, by name."""
    found = sorted(await asking.client.quarantine.list(conn=asking.conn), key=lambda one: one.task)
    return page.of([one for one in found if one.task > (page.after or "")], lambda one: one.task)


@quarantine.post("/quarantine/{task}/release", role="operator", shared=True)
async def release_task(asking: Asking, task: TaskName, body: TaskRelease) -> Released:
    """Let a task go: its jobs run like others again, and what it killed is forgotten. Twice is harmless."""
    released = await asking.client.quarantine.release(task, reason=body.reason, conn=asking.conn)
    if released:
        asking.tell(TaskReleased(task, asking.principal.name, mask(body.reason)))
    return Released(task=task, released=released)
