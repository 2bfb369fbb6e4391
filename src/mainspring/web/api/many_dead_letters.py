"""Many dead letters over HTTP: counted first, then replayed or discarded by filter or by id."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any

import msgspec
from msgspec.structs import asdict

from mainspring.db.bulk import FASTEST, SLOWEST, Bulk
from mainspring.db.decisions import check_reason
from mainspring.errors import JobNotFound, TransitionRefused, ValidationError
from mainspring.web.api.asking import Asking
from mainspring.web.api.dead_letters import DeadLetterFilter, dead_letters
from mainspring.web.api.many import Done, LeftAlone, Many
from mainspring.web.api.terms import Instant, Reason


class ManyDead(Many, forbid_unknown_fields=True, kw_only=True):
    """Which dead letters, by their ids or by a filter, how many at most, the oldest first, and why.

    A dry run counts them, and needs no reason. With the instant of that count as `until`, what dies meanwhile is not
    meant.
    """

    filter: DeadLetterFilter | None = None
    reason: Reason = None


class ManyReplayed(ManyDead, forbid_unknown_fields=True, kw_only=True):
    """The same, and how fast: `rate` a second become due, the first now or at `first_due_at`."""

    rate: Annotated[float, msgspec.Meta(ge=SLOWEST, le=FASTEST)] | None = None
    first_due_at: Instant | None = None


class ManyDecided(Done, frozen=True, kw_only=True):
    """How many were meant and done; `rest` is for the next call, which goes on at `next_due_at` at this rate.

    Those that were found by the filter and left because they or their keys were in use are `skipped`.
    """

    skipped: int = 0
    rest: int = 0
    next_due_at: Instant | None = None


@dead_letters.post("/bulk/dead-letters/replay", role="operator")
async def replay_dead_letters(asking: Asking, body: ManyReplayed) -> ManyDecided:
    """Make many ready again, with all their attempts; by `rate`, so that what was down is not flooded."""
    dead, how = asking.client.dead, {"rate": body.rate, "first_due_at": body.first_due_at}
    if body.ids is None:
        return await _by_filter(asking, dead.replay_many, body, **how)
    if any(how.values()):
        raise ValidationError("rate: goes with a filter, not with ids", field="rate")
    return await _by_ids(asking, dead.replay, body)


@dead_letters.post("/bulk/dead-letters/discard", role="operator")
async def discard_dead_letters(asking: Asking, body: ManyDead) -> ManyDecided:
    """Take many off the list; the jobs stay as they are."""
    dead = asking.client.dead
    if body.ids is None:
        return await _by_filter(asking, dead.discard_many, body)
    return await _by_ids(asking, dead.discard, body)


async def _by_filter(asking: Asking, act: Callable[..., Awaitable[Bulk]], body: ManyDead, **how: Any) -> ManyDecided:
    """Decide about those that a filter means, which must be said, though it may be empty."""
    if body.filter is None:
        raise ValidationError("filter: is missing; an empty one means all", field="filter")
    how |= {"limit": body.limit, "dry_run": body.dry_run, "reason": body.reason, "conn": asking.conn}
    found = await act(**how, **asdict(body.filter))
    return ManyDecided(
        meant=found.matched,
        done=found.moved,
        skipped=found.skipped,
        rest=max(found.matched - found.moved - found.skipped, 0),
        next_due_at=found.next_due_at,
        dry_run=found.dry_run,
    )


async def _by_ids(asking: Asking, act: Callable[..., Awaitable[None]], body: ManyDead) -> ManyDecided:
    """Decide about some by id, in one order; what is refused is said, and the others go on."""
    if body.filter is not None:
        raise ValidationError("ids: are given together with a filter", field="ids")
    (named, rest), left = body.named(), list[LeftAlone]()
    if not body.dry_run:
        check_reason(body.reason)
    for id_ in named:
        try:
            if body.dry_run:
                await asking.client.dead.show(id_, conn=asking.conn)
            else:
                await act(id_, reason=body.reason, conn=asking.conn)
        except JobNotFound:
            left.append(LeftAlone(id=id_, outcome="not_found", detail="There is nothing here."))
        except TransitionRefused as error:
            left.append(LeftAlone(id=id_, outcome="not_possible_now", detail=str(error)))
    return ManyDecided(
        meant=len(named),
        done=0 if body.dry_run else len(named) - len(left),
        rest=rest,
        left_alone=left,
        dry_run=body.dry_run,
    )
