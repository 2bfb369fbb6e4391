"""Parameters of a query that an application declares: the values for its `%(name)s`, which the driver binds.

They are given as they are, or by a function that is asked each time the query is: so settings count that were read
after the declaration. A percent sign of the query's own is `%%` beside them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Set
from typing import Any, Final, NoReturn, TypeAlias

from mainspring.errors import ValidationError
from mainspring.text.texts import did_you_mean

QueryParams: TypeAlias = "Mapping[str, Any] | Callable[[], Mapping[str, Any]]"

_PLACEHOLDER: Final = re.compile(r"%(?:%|\(([^)]+)\)[sbt])?")


def check_params(query: str, params: object, own: Collection[str] = ()) -> None:
    """Refuse at the declaration what is wrong whatever the database says; `own` are names that the engine gives."""
    if isinstance(params, Mapping):
        params_now(query, params, own)
    elif callable(params):
        _asked(query)
    else:
        _refuse("", "is neither a mapping nor a function that answers one")


def params_now(query: str, params: QueryParams, own: Collection[str] = ()) -> dict[str, Any]:
    """The values that are bound now: a function is asked for them.

    >>> params_now("select id from case where age > %(age)s", lambda: {"age": 7})
    {'age': 7}
    >>> params_now("select id from case where age > %(age)s", {"ago": 7})
    Traceback (most recent call last):
    mainspring.errors.ValidationError: params: age: is missing (did you mean 'ago'?)
    """
    found = params if isinstance(params, Mapping) else params()
    if not isinstance(found, Mapping):
        _refuse("", "is not answered as a mapping of names to values")
    for name in sorted(_asked(query) - found.keys() - set(own)):
        _refuse(name, f"is missing{did_you_mean(name, [*map(str, found), *own])}")
    for name, value in found.items():
        if name in own:
            _refuse(name, "is given by the engine")
        if isinstance(value, Mapping | Set) or callable(value):
            _refuse(name, f"is a {type(value).__name__}, which is no value of a column")
    return dict(found)


def _asked(query: str) -> set[str]:
    """The names that a query asks for."""
    found = list(_PLACEHOLDER.finditer(query))
    if any(one[0] == "%" for one in found):
        _refuse("", "the query has a % that is not of %(name)s: write %%")
    return {one[1] for one in found if one[1]}


def _refuse(name: str, problem: str) -> NoReturn:
    raise ValidationError(f"params: {name}: {problem}" if name else f"params: {problem}", field=name or "params")
