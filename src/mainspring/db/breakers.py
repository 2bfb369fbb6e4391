"""What workers say and hear of breakers, and what people do with them, as dialogues."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from mainspring.circuit import MAX_BREAKER, Breaker
from mainspring.db.jobs import Who, check_limit, check_texts, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Row, Statement, ask, nothing, scalar
from mainspring.errors import UnknownName, ValidationError
from mainspring.job import DEFAULT_ORG
from mainspring.text.texts import MAX_NAME, did_you_mean

BreakerState = Literal["closed", "open", "half_open"]
BreakerVerb = Literal["open", "close", "auto"]
Serves: TypeAlias = tuple[Sequence[str], Sequence[str]]  # queues and tasks
_json = msgspec.json.Encoder().encode


class BreakerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A breaker as it stands, or one key of it; `waiting` jobs are counted up to 10,000."""

    name: str
    key: str | None
    org_id: str
    state: BreakerState
    since: datetime | None
    next_probe: datetime | None
    probing: int
    failed: int
    succeeded: int
    opened: int
    waiting: int
    forced: Literal["open", "closed"] | None
    forced_at: datetime | None
    forced_by: str | None
    forced_reason: str | None
    failures: int | None
    rate: float | None
    calls: int | None
    within_s: float
    pause_s: float
    longest_s: float
    probes: int
    failing_for_s: float | None

    @property
    def rule(self) -> Breaker:
        """As it was declared."""
        within, pause, longest = (timedelta(seconds=s) for s in (self.within_s, self.pause_s, self.longest_s))
        alone = None if self.failing_for_s is None else timedelta(seconds=self.failing_for_s)
        return Breaker(self.name, self.failures, self.rate, self.calls, within, pause, longest, self.probes, alone)


class BreakerView(NamedTuple):
    """What a worker needs to know of a breaker at an instant: does it let calls through, or when, and do some fail."""

    org_id: str
    name: str
    key: str
    state: BreakerState
    wait: float
    troubled: bool
    at: datetime
    held: bool  # closed, by a person


class Change(NamedTuple):
    """A breaker that opened or closed by what this worker said."""

    org_id: str
    name: str
    key: str
    change: Literal["opened", "closed"]
    failures: int
    pause: float


class CallTally(msgspec.Struct, omit_defaults=True):
    """How calls of one breaker ended: how many succeeded, and of those that failed how long ago they began."""

    org_id: str
    name: str
    key: str
    succeeded: int = 0
    ages: list[float] = []
    probe: int | None = None


def declare(sql: Sql, breakers: Iterable[Breaker]) -> Dialogue[None]:
    """Write down what an application declares."""
    rules = [
        {
            "name": rule.name,
            "failures": rule.failures,
            "rate": rule.rate,
            "calls": rule.calls,
            "within": f"{rule.within.total_seconds()} s",
            "pause": f"{rule.pause.total_seconds()} s",
            "longest": f"{rule.longest.total_seconds()} s",
            "probes": rule.probes,
            "failing_for": None if rule.failing_for is None else f"{rule.failing_for.total_seconds()} s",
        }
        for rule in breakers
    ]
    yield from ask(Statement(sql["declare_breakers"], {"rules": _json(rules).decode()}, nothing))


def look(sql: Sql, names: Sequence[str]) -> Dialogue[list[BreakerView]]:
    """The breakers of these dependencies, and those of their keys that are not simply closed."""
    params = {"names": _json(names).decode()}
    read = lambda rows: [BreakerView(*row) for row in rows]  # noqa: E731 (used once)
    seen: list[BreakerView] = yield from ask(Statement(sql["look_at_breakers"], params, read))
    return seen


def report(sql: Sql, calls: Sequence[CallTally]) -> Dialogue[list[Change]]:
    """Say how calls ended; answers what opened or closed by it."""
    params = {"calls": _json(calls).decode()}
    read = lambda rows: [Change(*row) for row in rows]  # noqa: E731 (used once)
    changes: list[Change] = yield from ask(Statement(sql["report_calls"], params, read))
    return changes


def probe(sql: Sql, org: str, name: str, key: str, epoch: int) -> Dialogue[tuple[str, float, datetime]]:
    """Ask to be let through to see: `probe`, `closed`, or `open` and in how many seconds to ask again, from when on."""
    params: dict[str, str | int | None] = {"org": org, "name": name, "key": key, "epoch": epoch}
    answer: Row = yield from ask(Statement(sql["ask_probe"], params, lambda rows: rows[0]))
    return answer[0], answer[1], answer[2]


def park(sql: Sql, name: str, serves: Serves, limit: int) -> Dialogue[int]:
    """Let jobs wait that are due and need a dependency whose breaker is open; answers how many."""
    params: dict[str, Any] = {"name": name, "queues": serves[0], "tasks": serves[1], "limit": limit}
    count: int = yield from ask(Statement(sql["park_due"], params, scalar))
    return count


def release(sql: Sql, gates: Sequence[str] | None, serves: Serves, limit: int) -> Dialogue[int]:
    """Let go of jobs at these gates, or at all, whom nothing stops any more or who may be a probe; answers how many."""
    params: dict[str, Any] = {"gates": gates, "queues": serves[0], "tasks": serves[1], "limit": limit}
    count: int = yield from ask(Statement(sql["release_gates"], params, scalar))
    return count


def forget(sql: Sql, limit: int = 1000) -> Dialogue[int]:
    """Forget keys that nobody calls any more."""
    count: int = yield from ask(Statement(sql["forget_breakers"], {"limit": limit}, scalar))
    return count


_decode = msgspec.json.Decoder(BreakerRow).decode


def listing(
    sql: Sql, who: Who, *, name: str | None = None, key: str | None = None, limit: int = 100
) -> Dialogue[list[BreakerRow]]:
    """Every breaker that is declared, and the keys that are open or forced; of one that is named, all its keys."""
    check_texts(MAX_BREAKER, name=name)
    check_texts(MAX_NAME, key=key)
    check_limit(limit, 10_000)
    params: dict[str, str | int | None] = {"name": name, "key": key, "of": who.org_id, "limit": limit}
    read = lambda rows: [_decode(row[0]) for row in rows]  # noqa: E731 (used once)
    found: list[BreakerRow] = yield from ask(Statement(sql["list_breakers"], params, read))
    if name is not None and not found:
        yield from _unknown(sql, name)
        if key is not None:
            raise ValidationError(f"key: {name} has no key {key!r} that is or was in trouble of late", field="key")
    return found


def force(
    sql: Sql, verb: BreakerVerb, name: str, who: Who, *, reason: str, key: str | None = None, org: str | None = None
) -> Dialogue[bool]:
    """Hold a breaker open or closed, or let the calls decide again; False: so it was already."""
    check_texts(MAX_BREAKER, name=name)
    check_texts(MAX_NAME, key=key, org=org)
    if reason is None:
        raise ValidationError("reason: is missing", field="reason")
    yield from _unknown(sql, name)
    params: dict[str, str | int | None] = {
        "name": name,
        "key": key or "",
        "org": None if key is None else org or who.org_id or DEFAULT_ORG,
        "actor_type": who.actor_type,
        "actor_id": who.actor_id,
        "reason": why(reason),
    }
    changed: bool = yield from ask(Statement(sql[f"{verb}_breaker"], params, scalar))
    return changed


def _unknown(sql: Sql, name: str) -> Dialogue[None]:
    """Refuse a name that no worker has declared."""
    known: list[str] = yield from ask(Statement(sql["breaker_names"], {}, lambda rows: [row[0] for row in rows]))
    if name not in known:
        near = did_you_mean(name, known) or (": none is declared" if not known else "")
        raise UnknownName(f"name: no breaker is called {name!r}{near}", field="name")
