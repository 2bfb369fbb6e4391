"""What a request says, as the parameters of an event: read by their types, refused by their names."""

from __future__ import annotations

import re
import typing
from collections import abc
from datetime import date, datetime, time
from types import UnionType
from typing import Any, Final

import msgspec

import mainspring as ms

KINDS: Final = {
    int: "a number", str: "a text", bool: "true | false", type(None): "null", date: "a date such as 2026-06-03",
    time: "a time such as 08:30", datetime: "an instant such as 2026-06-03T10:00:00Z",
}  # fmt: skip
_LARGEST_ID: Final = 2**63 - 1  # what a bigint holds
_MINUTE: Final = re.compile(r"[0-2]\d:[0-5]\d")


class Malformed(ms.ValidationError):
    """A request that says nothing that could be done or refused."""


def fields(body: bytes, type_: type[msgspec.Struct]) -> dict[str, Any]:
    """What a body says, by the names of the event's parameters; who acts it says for a program alone."""
    try:
        known = msgspec.json.decode(body or b"{}")
    except (msgspec.MsgspecError, RecursionError) as error:
        raise Malformed(f"body: is not JSON: {error}", field="body") from None
    if not isinstance(known, dict):
        raise Malformed("body: is not a JSON object", field="body")
    if "by" in known and "by" not in type_.__struct_fields__:
        raise Malformed("by: is said by who asks, and not by the body", field="by")
    try:
        said = msgspec.convert({name: _timed(value) for name, value in known.items()}, type_)
    except msgspec.ValidationError as error:
        name, wrong = _complaint(str(error), type_)
        raise Malformed(f"{name}: {wrong}", field=name) from None
    values = {name: getattr(said, name) for name in said.__struct_fields__}
    for name, value in values.items():
        if (why := _unfit(value)) is not None:
            raise Malformed(f"{name}: {why}", field=name)
    return values


def number(name: str, text: str) -> int:
    """A number of a query."""
    try:
        return int(text)
    except ValueError:
        raise Malformed(f"{name}: is not a whole number", field=name) from None


def words(info: msgspec.structs.FieldInfo) -> str:
    """A field as people say it."""
    return _kind(info.type) + ("" if info.required else ", optional")


def _unfit(value: Any) -> str | None:
    """What no event could keep."""
    if "\0" in str(value):
        return "contains a NUL character"
    if isinstance(value, int) and abs(value) > _LARGEST_ID:
        return "is too large a number"
    if isinstance(value, date) and not 1970 <= value.year < 2200:
        return "is not between 1970 and 2200"
    if isinstance(value, datetime) and value.tzinfo is None:
        return "does not say its offset from UTC, such as 2026-06-03T10:00:00Z"
    if isinstance(value, time) and value.tzinfo is not None:
        return "is a time of local clocks, such as 08:30"
    return None


def _timed(value: Any) -> Any:
    """Times as people write them, 08:30, are as good as those with seconds."""
    return f"{value}:00" if isinstance(value, str) and _MINUTE.fullmatch(value) else value


def _complaint(message: str, type_: type[msgspec.Struct]) -> tuple[str, str]:
    """The field that msgspec complains about, behind `$.` or else the first in backticks, and what is wrong with it."""
    why, found, place = message.partition(" - at `$.")  # as in: Expected `int`, got `str` - at `$.by`
    name = re.split(r"[.`\[]", place)[0] if found else message.split("`")[1]
    if why.startswith("Object missing"):
        return name, "is missing"
    if why.startswith("Object contains unknown"):
        return name, f"is unknown here, where there are {', '.join(type_.__struct_fields__)}"
    return name, f"is not {_kind(typing.get_type_hints(type_)[name])}"


def _kind(type_: Any) -> str:
    """A type as people say it."""
    if type_ in KINDS:
        return KINDS[type_]
    inner, origin = typing.get_args(type_), typing.get_origin(type_)
    if origin is typing.Literal:
        return " | ".join(inner)
    if origin in (UnionType, typing.Union):
        return " | ".join(_kind(one) for one in inner)
    return "an object" if origin is abc.Mapping else f"a list: {_kind(inner[0])}"
