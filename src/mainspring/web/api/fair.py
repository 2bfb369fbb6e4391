"""Fair queues over HTTP: in which queues organisations take turns, and by which weights."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from mainspring.db.limits import FairRow
from mainspring.limit import HEAVIEST_WEIGHT
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import Instant, OrgName, QueueName, Reason, WithReason
from mainspring.web.api.version import Versioned

fair = Resource(
    "fair queues", "Queues whose organisations take turns, so that one with many jobs keeps no other waiting."
)

Weight = Annotated[int, msgspec.Meta(ge=1, le=HEAVIEST_WEIGHT)]


class TurnsView(Versioned, frozen=True, kw_only=True):
    """Whether the organisations of a queue take turns, and their weights: who belongs to one sees its own."""

    queue: QueueName
    fair: bool
    weights: Mapping[str, int] = {}
    declared: bool = False
    app: str | None = None
    set_at: Instant | None = None
    set_by: str | None = None

    def version(self) -> tuple[Any, ...]:
        """What people and the code say."""
        return self.queue, self.fair, sorted(self.weights.items()), self.declared, self.set_at, self.set_by


class TurnsRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """The weights of those organisations that have more than one turn."""

    weights: Annotated[dict[OrgName, Weight], msgspec.Meta(max_length=1000)] = {}
    reason: Reason = None


@fair.get("/fair-queues", role="viewer", connects="operator")
async def list_fair(asking: Asking, page: Paging[str]) -> PageOf[TurnsView]:
    """Every queue whose organisations take turns, by name."""
    found = await asking.client.limits.turns(conn=asking.conn)
    rest = [_view(row) for row in found if row.queue > (page.after or "")]
    return page.of(rest, lambda turns: turns.queue)


@fair.get("/queues/{name}/fair", role="viewer", connects="operator")
async def show_fair(asking: Asking, name: QueueName) -> TurnsView:
    """Whether the organisations of a queue take turns."""
    for row in await asking.client.limits.turns(conn=asking.conn):
        if row.queue == name:
            return _view(row)
    return TurnsView(queue=name, fair=False)


@fair.put("/queues/{name}/fair", role="operator", shared=True, if_match="required")
async def take_turns(asking: Asking, name: QueueName, body: TurnsRule) -> TurnsView:
    """Let the organisations of a queue take turns; its jobs then start no longer strictly by their due time."""
    await _look(asking, name)
    await asking.client.limits.fair(name, weights=body.weights, reason=body.reason, conn=asking.conn)
    return await show_fair(asking, name)


@fair.post("/queues/{name}/unfair", role="operator", shared=True, if_match="required")
async def go_by_due_time(asking: Asking, name: QueueName, body: WithReason) -> TurnsView:
    """Let the jobs of a queue start by their due time again; where they did, nothing happens."""
    await _look(asking, name)
    await asking.client.limits.unfair(name, reason=body.reason, conn=asking.conn)
    return await show_fair(asking, name)


async def _look(asking: Asking, name: str) -> None:
    await asking.lock("fair", name)
    asking.match(await show_fair(asking, name))


def _view(row: FairRow) -> TurnsView:
    return TurnsView(fair=True, **asdict(row))
