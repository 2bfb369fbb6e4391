"""The words of Stripe's search: `metadata['booking']:'7' AND status:'succeeded'`."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any, Final

from mainspring_sandbox.stripe.errors import invalid

Match = Callable[[dict[str, Any]], bool]

_CLAUSE = re.compile(
    r"""\s*(?P<no>-)?(?P<field>[a-z_.]+)(?:\[(?P<q>['"])(?P<key>(?:\\.|(?!(?P=q)).)+)(?P=q)\])?
    \s*(?P<sign>>=|<=|:|~|>|<)\s*
    (?:(?P<r>['"])(?P<text>(?:\\.|(?!(?P=r)).)*)(?P=r)|(?P<number>[0-9]+)|(?P<null>null))\s*""",
    re.VERBOSE,
)
_SIGNS: Final = {">": operator.gt, "<": operator.lt, ">=": operator.ge, "<=": operator.le}
FIELDS: Final = frozenset({"amount", "created", "currency", "customer", "email", "metadata", "name", "status"})


def matching(query: str) -> Match:
    """Whether an object is one that the query means.

    >>> matching("metadata['booking']:'7' AND -status:'canceled'")({"metadata": {"booking": "7"}, "status": "new"})
    True
    """
    clauses: list[Match] = []
    words: set[str] = set()
    place = 0
    while True:
        found = _CLAUSE.match(query, place)
        if found is None:
            raise invalid(f"We were unable to parse your search query at: {query[place : place + 50]!r}", param="query")
        clauses.append(_clause(found))
        place = found.end()
        if place == len(query):
            break
        joint = re.compile(r"(AND|OR)\s", re.IGNORECASE).match(query, place)
        words.add(joint[1].upper() if joint else "AND")  # a blank means AND
        place = joint.end() if joint else place
    if len(words) > 1:
        raise invalid("Queries may hold AND or OR, not both.", param="query")
    every = all if words != {"OR"} else any
    return lambda thing: every(clause(thing) for clause in clauses)


def _clause(found: re.Match[str]) -> Match:
    field, key, sign = found["field"], found["key"], found["sign"]
    if field not in FIELDS or (field == "metadata") != (key is not None):
        raise invalid(f"Field `{field}` is an unsupported search field.", param="query")
    text = None if found["null"] else found["number"] or _plain(found["text"])

    def value(thing: dict[str, Any]) -> Any:
        held = thing.get(field)
        return (held or {}).get(_plain(key)) if key is not None else held

    def holds(thing: dict[str, Any]) -> bool:
        held = value(thing)
        if held is None or text is None:
            return held is None and text is None and sign == ":"
        if sign == ":":
            return str(held).lower() == text.lower()
        if sign == "~":
            return text.lower() in str(held).lower()
        return isinstance(held, int) and text.isdecimal() and bool(_SIGNS[sign](held, int(text)))

    return (lambda thing: not holds(thing)) if found["no"] else holds


def _plain(text: str) -> str:
    return re.sub(r"\\(.)", r"\1", text)
