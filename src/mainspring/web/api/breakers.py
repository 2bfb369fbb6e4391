"""Circuit breakers over HTTP: see them, hold them open or closed, and let the calls decide again."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec

from mainspring.circuit import MAX_BREAKER
from mainspring.client.breakers import forced
from mainspring.db.breakers import BreakerRow, BreakerState, BreakerVerb
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG
from mainspring.text.texts import MAX_NAME
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.refused import ApiRefused
from mainspring.web.api.terms import Instant, NeededReason
from mainspring.web.api.version import Versioned

breakers = Resource("breakers", "Circuit breakers: what jobs need, and whether calls of it go through.")

BreakerName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_BREAKER, examples=["stripe"])]
BreakerKey = Annotated[
    Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)] | None,
    msgspec.Meta(description="One key of it, which belongs to the organisation of the request; else the whole."),
]
_CALM: Final[dict[str, Any]] = {
    "state": "closed", "since": None, "next_probe": None, "probing": 0, "failed": 0, "succeeded": 0, "opened": 0,
    "waiting": 0, "forced": None, "forced_at": None, "forced_by": None, "forced_reason": None,
}  # fmt: skip
#: So many breakers and keys are looked at for a list.
MOST_BREAKERS: Final = 10_000


class BreakerInfo(Versioned, frozen=True, kw_only=True):
    """A breaker or one key of it, and how its calls went; `waiting` jobs are counted up to 10,000."""

    name: BreakerName
    key: str | None
    org_id: str
    rule: str
    state: BreakerState
    since: Instant | None
    next_probe: Instant | None
    probing: int
    failed: int
    succeeded: int
    opened: int
    waiting: int
    forced: str | None
    forced_at: Instant | None
    forced_by: str | None
    forced_reason: str | None

    def version(self) -> tuple[Any, ...]:
        """What people say of it."""
        return self.name, self.key, self.org_id, self.forced, self.forced_at, self.forced_by, self.forced_reason


class BreakerAct(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which key of a breaker is forced or let go, and why."""

    reason: NeededReason
    key: BreakerKey = None


@breakers.get("/breakers", role="viewer", connects="operator")
async def list_breakers(
    asking: Asking, page: Paging[tuple[str, str, str]], name: BreakerName | None = None
) -> PageOf[BreakerInfo]:
    """Every breaker, and the keys that are open or forced; of one that is named, also those in trouble of late."""
    verbs, most = asking.client.breakers, MOST_BREAKERS
    if name is None:
        found = await verbs.list(org=asking.org, limit=most, conn=asking.conn)
    else:
        found = await verbs.show(name, org=asking.org, limit=most, conn=asking.conn)
    rest = sorted((_view(row) for row in found), key=_place)
    return page.of([one for one in rest if page.after is None or _place(one) > page.after], _place)


@breakers.get("/breakers/{name}", role="viewer", connects="operator")
async def show_breaker(asking: Asking, name: BreakerName, key: BreakerKey = None) -> BreakerInfo:
    """One breaker, or one key of it; a key that was in no trouble of late is closed."""
    whole, *_ = await asking.client.breakers.show(name, org=asking.org, limit=1, conn=asking.conn)
    if key is None:
        return _view(whole)
    org = asking.org or DEFAULT_ORG
    try:
        found = await asking.client.breakers.show(name, key=key, org=org, conn=asking.conn)
    except ValidationError:  # it has no such key: until now nobody had trouble with it
        found = []
    for row in found:
        if row.org_id == org:
            return _view(row)
    return _view(msgspec.structs.replace(whole, key=key, org_id=org, **_CALM))


@breakers.post("/breakers/{name}/open", role="operator", if_match="required")
async def open_breaker(asking: Asking, name: BreakerName, body: BreakerAct) -> BreakerInfo:
    """Hold the jobs that need a dependency until somebody says otherwise; they lose no attempt by it."""
    return await _force(asking, "open", name, body)


@breakers.post("/breakers/{name}/close", role="operator", if_match="required")
async def close_breaker(asking: Asking, name: BreakerName, body: BreakerAct) -> BreakerInfo:
    """Let all calls through, whatever they meet, until somebody says otherwise; what was put off runs at once."""
    return await _force(asking, "close", name, body)


@breakers.post("/breakers/{name}/auto", role="operator", if_match="required")
async def let_breaker_decide(asking: Asking, name: BreakerName, body: BreakerAct) -> BreakerInfo:
    """Let the calls decide again."""
    return await _force(asking, "auto", name, body)


async def _force(asking: Asking, verb: BreakerVerb, name: str, body: BreakerAct) -> BreakerInfo:
    if body.key is None and asking.principal.org is not None:
        raise ApiRefused(403, "FORBIDDEN", "The whole breaker belongs to all organisations; name a key of yours.")
    await asking.lock("breaker", name if body.key is None else f"{name}:{body.key}")
    asking.match(await show_breaker(asking, name, body.key))
    how = getattr(asking.client.breakers, verb)
    if await how(name, reason=body.reason, key=body.key, conn=asking.conn):
        asking.tell(forced(verb, name, body.key, asking.org, asking.principal.name, body.reason))
    return await show_breaker(asking, name, body.key)


def _place(one: BreakerInfo) -> tuple[str, str, str]:
    return one.name, one.key or "", one.org_id


def _view(row: BreakerRow) -> BreakerInfo:
    about = {name: getattr(row, name) for name in BreakerInfo.__struct_fields__ if name != "rule"}
    return BreakerInfo(**about, rule=row.rule.describe())
