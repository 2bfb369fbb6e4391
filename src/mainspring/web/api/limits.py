"""Limits over HTTP: see what they hold, set, drop and reset them."""

from __future__ import annotations

from typing import Annotated, Any, Final
from urllib.parse import unquote

import msgspec

from mainspring.db.limits import LimitRow
from mainspring.db.queues import HeldJob
from mainspring.errors import UnknownName
from mainspring.limit import MOST_LIMIT, Limit, LimitBy, read_per
from mainspring.text.sanitize import sanitize
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.refused import ApiRefused
from mainspring.web.api.terms import Instant, LimitName, QueueName, Reason, SpanText, TaskName, WithReason
from mainspring.web.api.version import Versioned

limits = Resource("limits", "How many jobs may start in a time, and how many run at once.")

Most = Annotated[int, msgspec.Meta(ge=1, le=MOST_LIMIT)]
#: So many keys and jobs of a limit are shown.
MOST_SHOWN_OF_LIMIT: Final = 100


class LimitView(Versioned, frozen=True, kw_only=True):
    """A limit, whose word it is, and what it does.

    `used` is what the key has used that used most; `waiting` jobs are counted up to 10,000.
    """

    name: LimitName
    words: str
    queue: str | None
    task: str | None
    by: LimitBy
    rate: int | None
    per_s: float | None
    concurrency: int | None
    in_order: bool
    declared: bool
    app: str | None
    overrides: bool
    set_at: Instant
    set_by: str
    used: int
    keys: int
    waiting: int

    def version(self) -> tuple[Any, ...]:
        """What people and the code say."""
        rule = self.queue, self.task, self.by, self.rate, self.per_s, self.concurrency, self.in_order
        return self.name, *rule, self.declared, self.app, self.overrides, self.set_at, self.set_by


class LimitKeyView(msgspec.Struct, frozen=True, kw_only=True):
    """What one organisation, or one strand of it, uses of a limit, and how many of its jobs wait, up to 10,000."""

    org: str | None
    strand: str | None
    used: int
    waiting: int


class LimitUse(msgspec.Struct, frozen=True, kw_only=True):
    """What a limit holds now: its fullest keys, and the jobs that have held a place for the longest time."""

    keys: list[LimitKeyView]
    jobs: list[HeldJob]


class LimitRule(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Of a queue or a task: so many in a time, or at once, or those of a strand one after another."""

    queue: QueueName | None = None
    task: TaskName | None = None
    by: LimitBy = "all"
    rate: Most | None = None
    per: SpanText | None = None
    concurrency: Most | None = None
    in_order: bool = False
    reason: Reason = None

    def limit(self, name: str) -> Limit:
        """The limit of this name; what has no meaning is refused."""
        return Limit(
            name=name, queue=self.queue, task=self.task, by="strand" if self.in_order else self.by, rate=self.rate,
            per=None if self.per is None else read_per(self.per),
            concurrency=1 if self.in_order and self.concurrency is None else self.concurrency, in_order=self.in_order,
        )  # fmt: skip


class NewLimit(LimitRule, kw_only=True):
    """A limit that there is not yet."""

    name: LimitName


@limits.get("/limits", role="viewer", connects="operator")
async def list_limits(asking: Asking, page: Paging[str]) -> PageOf[LimitView]:
    """Every limit, by name."""
    found = await asking.client.limits.list(org=asking.org, conn=asking.conn)
    rest = sorted((_view(row) for row in found), key=lambda limit: limit.name)
    return page.of([limit for limit in rest if limit.name > (page.after or "")], lambda limit: limit.name)


@limits.get("/limits/{name}", role="viewer", connects="operator")
async def show_limit(asking: Asking, name: LimitName) -> LimitView:
    """One limit."""
    return _view(await asking.client.limits.get(name, org=asking.org, conn=asking.conn))


@limits.get("/limits/{name}/use", role="viewer", connects="operator")
async def show_limit_use(asking: Asking, name: LimitName) -> LimitUse:
    """What a limit holds right now, at most a hundred keys and jobs: those of the organisation that is asked about."""
    limit = await asking.client.limits.get(name, org=asking.org, conn=asking.conn)
    verbs, most = asking.client.limits, MOST_SHOWN_OF_LIMIT
    gates = await verbs.gates(name, limit=most, org=asking.org, conn=asking.conn)
    jobs = [] if limit.concurrency is None else await verbs.holders(name, limit=most, org=asking.org, conn=asking.conn)
    keys = []
    for gate in gates:
        org, _, strand = gate.key.partition("/")
        keys.append(LimitKeyView(
            org=unquote(org) or None, strand=sanitize(strand) or None, used=gate.used, waiting=gate.waiting
        ))  # fmt: skip
    return LimitUse(keys=keys, jobs=jobs)


@limits.post("/limits", role="operator", shared=True, status=201, refuses=(409,))
async def create_limit(asking: Asking, body: NewLimit) -> LimitView:
    """Set a limit of a new name; it holds at once, also for what waits already."""
    await asking.lock("limit", body.name)
    try:
        await asking.client.limits.get(body.name, conn=asking.conn)
    except UnknownName:
        await asking.client.limits.set(body.limit(body.name), reason=body.reason, conn=asking.conn)
        return await show_limit(asking, body.name)
    raise ApiRefused(409, "NAME_TAKEN", "A limit has this name.")


@limits.put("/limits/{name}", role="operator", shared=True, if_match="required")
async def set_limit(asking: Asking, name: LimitName, body: LimitRule) -> LimitView:
    """Set a limit anew, as a whole; it holds at once, and wins over what the code declares until it is reset."""
    await _look(asking, name)
    await asking.client.limits.set(body.limit(name), reason=body.reason, conn=asking.conn)
    return await show_limit(asking, name)


@limits.post("/limits/{name}/drop", role="operator", shared=True, if_match="required")
async def drop_limit(asking: Asking, name: LimitName, body: WithReason) -> None:
    """Take a limit away; one that the code declares comes back when a worker starts."""
    await _look(asking, name)
    await asking.client.limits.drop(name, reason=body.reason, conn=asking.conn)


@limits.post("/limits/{name}/reset", role="operator", shared=True, if_match="required")
async def reset_limit(asking: Asking, name: LimitName, body: WithReason) -> LimitView:
    """Let what the code declares hold again; where nobody had said otherwise, nothing happens."""
    await _look(asking, name)
    await asking.client.limits.reset(name, reason=body.reason, conn=asking.conn)
    return await show_limit(asking, name)


async def _look(asking: Asking, name: str) -> None:
    """Compare what is there with what was seen."""
    await asking.lock("limit", name)
    asking.match(await show_limit(asking, name))


def _view(row: LimitRow) -> LimitView:
    about = msgspec.structs.asdict(row)
    per = about.pop("per")
    return LimitView(**about, words=row.words, per_s=None if per is None else per.total_seconds())
