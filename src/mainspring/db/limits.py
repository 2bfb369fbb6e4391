"""What people and the code say about limits, and what they see of them, as dialogues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

import msgspec

from mainspring.checks import check_number
from mainspring.db.jobs import Who, why
from mainspring.db.queues import HeldJob, held_jobs
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Statement, ask, nothing, scalar
from mainspring.errors import UnknownName, ValidationError
from mainspring.limit import MOST_LIMIT, DeclaredLimit, Fair, Limit, check_queue
from mainspring.text.texts import did_you_mean, text_problem

#: What waits because of a limit is counted up to here.
MOST_WAITING_COUNTED = 10_000


class LimitRow(Limit, frozen=True, kw_only=True):
    """A limit, whose word it is, and what it does: `used` by the key that has used most of `keys`, how many wait."""

    declared: bool
    app: str | None = None  # whose code declares it
    overrides: bool = False  # what the code says
    set_at: datetime
    set_by: str
    used: int
    keys: int
    waiting: int


class LimitGate(msgspec.Struct, frozen=True, kw_only=True):
    """What one key of a limit uses, and how many wait there; the key is an organisation, or one with its strand."""

    key: str
    used: int
    waiting: int


class FairRow(Fair, frozen=True, kw_only=True):
    """A queue whose organisations take turns, and whose word that is."""

    declared: bool
    app: str | None = None
    set_at: datetime
    set_by: str


_limit = msgspec.json.Decoder(LimitRow).decode
_fair = msgspec.json.Decoder(FairRow).decode
_gate = msgspec.json.Decoder(LimitGate).decode


def listing(sql: Sql, org: str | None = None) -> Dialogue[list[LimitRow]]:
    """Every limit, with what it does to all jobs or to those of an organisation."""
    params: Params = {"name": None, "org": org}
    return (yield from ask(Statement(sql["list_limits"], params, lambda rows: [_limit(r[0]) for r in rows])))


def get(sql: Sql, name: str, org: str | None = None) -> Dialogue[LimitRow]:
    """One limit, or an error that says which there are."""
    _check_name(name)
    text: str | None = yield from ask(Statement(sql["list_limits"], {"name": name, "org": org}, scalar))
    if text is None:
        raise (yield from _unknown(sql, name))
    return _limit(text)


def gates(sql: Sql, name: str, org: str | None, limit: int = 100) -> Dialogue[list[LimitGate]]:
    """What each key of a limit uses, the fullest first: all, or those of an organisation."""
    params: Params = {"name": name, "org": org, "limit": limit}
    return (yield from ask(Statement(sql["limit_gates"], params, lambda rows: [_gate(r[0]) for r in rows])))


def holders(sql: Sql, name: str, org: str | None, limit: int = 100) -> Dialogue[list[HeldJob]]:
    """The jobs that hold the places of a limit: all, or those of an organisation."""
    params: Params = {"name": name, "org": org, "limit": limit}
    found: list[HeldJob] = yield from ask(Statement(sql["limit_holders"], params, held_jobs))
    return found


def put(sql: Sql, limit: Limit, who: Who, reason: str | None = None) -> Dialogue[None]:
    """Set a limit at run time; it wins over what the code declares."""
    params = _acting(who, reason) | {
        "name": limit.name,
        "queue": limit.queue,
        "task": limit.task,
        "by": limit.by,
        "rate": _text(limit.rate),
        "per": None if limit.per is None else f"{limit.per.total_seconds()} s",
        "concurrency": _text(limit.concurrency),
        "in_order": str(limit.in_order),
    }
    yield from ask(Statement(sql["set_limit"], params, nothing))


def drop(sql: Sql, name: str, who: Who, reason: str | None = None) -> Dialogue[None]:
    """Take a limit away."""
    _check_name(name)
    if not (yield from ask(Statement(sql["drop_limit"], _acting(who, reason) | {"name": name}, scalar))):
        raise (yield from _unknown(sql, name))


def reset(sql: Sql, name: str, who: Who, reason: str | None = None) -> Dialogue[bool]:
    """Let the code's word hold again; False when nobody had said otherwise."""
    _check_name(name)
    done: bool = yield from ask(Statement(sql["reset_limit"], _acting(who, reason) | {"name": name}, scalar))
    if not done:
        yield from get(sql, name)  # or there is none
    return done


def declare(sql: Sql, app: str, declared: Iterable[DeclaredLimit]) -> Dialogue[None]:
    """Write down what an application's code declares, and take away what it declares no longer."""
    both = list(declared)
    limits = msgspec.json.encode([limit for limit in both if isinstance(limit, Limit)]).decode()
    fair = msgspec.json.encode([turn for turn in both if isinstance(turn, Fair)]).decode()
    params = {"app": app, "limits": limits, "fair": fair}
    yield from ask(Statement(sql["declare_limits"], params, nothing))


def turns(sql: Sql) -> Dialogue[list[FairRow]]:
    """Every queue whose organisations take turns."""
    return (yield from ask(Statement(sql["list_fair"], {}, lambda rows: [_fair(r[0]) for r in rows])))


def take_turns(
    sql: Sql, queue: str, weights: Mapping[str, int] | None, who: Who, reason: str | None = None
) -> Dialogue[None]:
    """Let the organisations of a queue take turns."""
    turn = Fair(queue=queue, weights=weights or {})
    params = _acting(who, reason) | {"queue": queue, "weights": msgspec.json.encode(dict(turn.weights)).decode()}
    yield from ask(Statement(sql["set_fair"], params, nothing))


def by_due_time(sql: Sql, queue: str, who: Who, reason: str | None = None) -> Dialogue[bool]:
    """Let the jobs of a queue start by their due time again; False when its organisations did not take turns."""
    check_queue(queue)
    done: bool = yield from ask(Statement(sql["unset_fair"], _acting(who, reason) | {"queue": queue}, scalar))
    return done


def limit_depth(sql: Sql, queue: str, most: int | None, who: Who, reason: str | None = None) -> Dialogue[None]:
    """Refuse best-effort jobs of a queue while so many are ready; None: take them all."""
    check_queue(queue)
    if most is not None:
        check_number("most", most, 1, MOST_LIMIT)
    yield from ask(Statement(sql["set_depth"], _acting(who, reason) | {"queue": queue, "most": _text(most)}, nothing))


def _unknown(sql: Sql, name: str) -> Dialogue[UnknownName]:
    names: list[str] = yield from ask(Statement(sql["limit_names"], {}, lambda rows: [row[0] for row in rows]))
    return UnknownName(f"name: no limit is called {name!r}{did_you_mean(name, names)}", field="name")


def _acting(who: Who, reason: str | None) -> dict[str, str | int | None]:
    return {"actor_type": who.actor_type, "actor_id": who.actor_id, "reason": why(reason)}


def _check_name(name: object) -> None:
    if problem := text_problem(name, 240):
        raise ValidationError(f"name: {problem}", field="name")


def _text(number: int | None) -> str | None:
    return None if number is None else str(number)
