"""Fires over HTTP: what schedules did."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.db.schedules import FanOutProgress, Fire, FirePlace
from mainspring.errors import ValidationError
from mainspring.states import State
from mainspring.text.sanitize import sanitize
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import Instant, ScheduleName, Since, Until
from mainspring.when.fire import FireKind

fires = Resource("fires", "What schedules did: at which instants, and what became of each.")


@fires.get("/fires", role="viewer")
async def list_fires(
    asking: Asking,
    page: Paging[tuple[Instant, Instant, str, UUID]],
    schedule: Annotated[ScheduleName | None, msgspec.Meta(description="Only of this one, also if it is gone.")] = None,
    how: tuple[FireKind, ...] = (),
    state: tuple[State, ...] = (),
    since: Since | None = None,
    until: Until | None = None,
) -> PageOf[Fire]:
    """What schedules did, newest first; by the state of their jobs only of one schedule or since an instant."""
    if state and schedule is None and since is None:
        raise ValidationError("state: needs a schedule or since", field="state")
    found = await asking.client.schedules.fires(
        schedule, limit=page.wanted, how=how, state=state, since=since, until=until, before=page.after, conn=asking.conn
    )
    return page.of([shown_fire(fire) for fire in found], _place)


def shown_fire(fire: Fire) -> Fire:
    """A fire as everybody may see it."""
    return replace(fire, reason=fire.reason and sanitize(fire.reason), fan_out=shown_fan_out(fire.fan_out))


def shown_fan_out(found: FanOutProgress | None) -> FanOutProgress | None:
    """How far a fire over entities is, as everybody may see it."""
    return found and replace(found, problem=found.problem and sanitize(found.problem))


def _place(fire: Fire) -> FirePlace:
    return fire.at, fire.instant, fire.zone, fire.id
