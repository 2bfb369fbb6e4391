"""Queues over HTTP: see them, pause them, resume them, bound them."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from mainspring.db.queues import QueueRow, claims_seen
from mainspring.events import QueuePaused, QueueResumed
from mainspring.limit import MOST_LIMIT
from mainspring.text.sanitize import mask
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.refused import not_found
from mainspring.web.api.terms import Instant, QueueName, Reason
from mainspring.web.api.version import Versioned

queues = Resource("queues", "Lanes of jobs: how late they are, and whether jobs start from them.")


class QueueView(Versioned, frozen=True, kw_only=True):
    """A queue, whether it is paused, how many of its jobs are ready (up to 10,000), and how late the oldest is."""

    name: QueueName
    paused_at: Instant | None
    paused_by: str | None
    pause_reason: str | None
    start_target_s: float | None
    max_depth: int | None
    ready: int
    oldest_age_s: float | None
    late: bool

    def version(self) -> tuple[Any, ...]:
        """What people say of it."""
        return self.name, self.paused_at, self.paused_by, self.pause_reason, self.max_depth


class QueueAct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Why a queue is paused or resumed."""

    reason: Reason = None


class DepthRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """How many jobs of a queue may be ready before best-effort jobs are refused; null: none are refused."""

    most: Annotated[int, msgspec.Meta(ge=1, le=MOST_LIMIT)] | None
    reason: Reason = None


@queues.get("/queues", role="viewer", connects="operator")
async def list_queues(asking: Asking, page: Paging[str]) -> PageOf[QueueView]:
    """Every queue that is declared, served or filled, by name."""
    found = await asking.client.queues(org=asking.org, conn=asking.conn)
    rest = sorted((_view(row) for row in found), key=lambda queue: queue.name)
    return page.of([queue for queue in rest if queue.name > (page.after or "")], lambda queue: queue.name)


@queues.get("/queues/{name}", role="viewer", connects="operator")
async def show_queue(asking: Asking, name: QueueName) -> QueueView:
    """One queue."""
    for row in await asking.client.queues(org=asking.org, conn=asking.conn):
        if row.name == name:
            return _view(row)
    raise not_found()


@queues.post("/queues/{name}/pause", role="operator", shared=True, if_match="required")
async def pause_queue(asking: Asking, name: QueueName, body: QueueAct) -> QueueView:
    """Stop claims from a queue; running jobs finish."""
    await _look(asking, name)
    await asking.client.pause(name, reason=body.reason, conn=asking.conn)
    asking.then(claims_seen(asking.sql))
    asking.tell(QueuePaused(name, asking.principal.name, body.reason and mask(body.reason)))
    return await show_queue(asking, name)


@queues.post("/queues/{name}/resume", role="operator", shared=True, if_match="required")
async def resume_queue(asking: Asking, name: QueueName, body: QueueAct) -> QueueView:
    """Start claims from a queue again; one that is not paused stays as it is."""
    await _look(asking, name)
    if await asking.client.resume(name, reason=body.reason, conn=asking.conn):
        asking.tell(QueueResumed(name, asking.principal.name))
    return await show_queue(asking, name)


@queues.put("/queues/{name}/depth", role="operator", shared=True, if_match="required")
async def limit_depth(asking: Asking, name: QueueName, body: DepthRule) -> QueueView:
    """Refuse best-effort jobs of a queue while so many are ready; all others are always taken."""
    await _look(asking, name)
    await asking.client.limits.depth(name, body.most, reason=body.reason, conn=asking.conn)
    return await show_queue(asking, name)


async def _look(asking: Asking, name: str) -> None:
    """Compare what is there with what was seen."""
    await asking.lock("queue", name)
    asking.match(await show_queue(asking, name))


def _view(row: QueueRow) -> QueueView:
    return QueueView(**msgspec.structs.asdict(row), late=row.late)
