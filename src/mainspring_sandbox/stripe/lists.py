"""Lists of objects, newest first, in pages; and searches, which are lists with a query."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from mainspring_sandbox.stripe.call import Call, Thing, shown
from mainspring_sandbox.stripe.errors import invalid, missing
from mainspring_sandbox.stripe.form import FormParams
from mainspring_sandbox.stripe.search import matching

PAGING: Final = "limit starting_after ending_before created"
SEARCHING: Final = "limit page query"
_CHUNK: Final = 200
_FOREVER: Final = 1 << 60


def listed(
    call: Call, kind: str, url: str, *equal: str, among: tuple[str, list[str]] | None = None, **fixed: Any
) -> Thing:
    """A page of the objects of a kind, whose fields named in `equal` are as the parameters say."""
    fields = fixed | {name: value for name in equal if (value := call.params.text(name))}
    limit, fits = _limit(call.params), _fits(call.params, among)
    after, before = call.params.text("starting_after"), call.params.text("ending_before")
    if before is not None:
        end = _serial(call, kind, before, "ending_before")
        newer = [thing for serial, thing in _newest(call, kind, None, fields) if serial > end and fits(thing)]
        chosen, more = newer[-limit:], len(newer) > limit
    else:
        start = _serial(call, kind, after, "starting_after") if after is not None else None
        chosen = []
        for _, thing in _newest(call, kind, start, fields):
            if fits(thing):
                chosen.append(thing)
                if len(chosen) > limit:
                    break
        chosen, more = chosen[:limit], len(chosen) > limit
    return {"object": "list", "url": url, "has_more": more, "data": [shown(thing) for thing in chosen]}


def searched(call: Call, kind: str, url: str) -> Thing:
    """A page of what a query finds."""
    query = call.params.text("query")
    if query is None:
        raise missing("query")
    match, limit, page = matching(query), _limit(call.params), call.params.text("page")
    latest = call.now() - call.stripe.settings.search_lag
    start = _serial(call, kind, page, "page") if page is not None else None
    found = (thing for _, thing in _newest(call, kind, start, {}) if thing["created"] <= latest and match(thing))
    chosen = [thing for thing, _ in zip(found, range(limit + 1), strict=False)]
    more, chosen = len(chosen) > limit, chosen[:limit]
    following = chosen[-1]["id"] if more else None
    data = [shown(thing) for thing in chosen]
    return {"object": "search_result", "url": url, "has_more": more, "next_page": following, "data": data}


def _newest(call: Call, kind: str, before: int | None, fields: dict[str, Any]) -> Iterator[tuple[int, Thing]]:
    ledger = call.stripe.world.ledger
    fields = {"_account": call.account, "deleted": None} | fields
    while found := ledger.find(f"stripe.{kind}", limit=_CHUNK, before=before, **fields):
        yield from ((entry.serial, entry.body) for entry in found)
        before = found[-1].serial


def _serial(call: Call, kind: str, id: str, param: str) -> int:
    call.get(kind, id, param=param)
    found = call.stripe.world.ledger.get(f"stripe.{kind}", id)
    assert found is not None
    return found.serial


def _limit(params: FormParams) -> int:
    limit = params.integer("limit")
    if limit is not None and not 1 <= limit <= 100:
        raise invalid("Invalid limit: it is between 1 and 100.", param="limit")
    return limit or 10


def _fits(params: FormParams, among: tuple[str, list[str]] | None) -> Callable[[Thing], bool]:
    """Whether an object is in the span of time that was asked for, and one of the kinds."""
    name, values = among or ("", [])
    if isinstance(params.given.get("created"), str):
        bounds = FormParams({"gte": params.given["created"], "lte": params.given["created"]})
    else:
        bounds = FormParams(params.part("created"))
        bounds.only(frozenset({"gt", "gte", "lt", "lte"}))
    gt, gte, lt, lte = (bounds.integer(name) for name in ("gt", "gte", "lt", "lte"))
    first = max(-1 if gt is None else gt, -1 if gte is None else gte - 1)
    last = min(_FOREVER if lt is None else lt, _FOREVER if lte is None else lte + 1)
    return lambda thing: first < thing["created"] < last and (among is None or thing[name] in values)
