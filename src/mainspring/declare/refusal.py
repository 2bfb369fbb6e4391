"""What is wrong with a payload, in one line that names the field; never the value, which may be a secret."""

from __future__ import annotations

import math
import re
from datetime import datetime
from typing import Any, Final

import msgspec

from mainspring.declare.model import to_json
from mainspring.errors import ValidationError
from mainspring.text.texts import did_you_mean

#: What an encoder raises for a value that JSON cannot hold.
UNWRITABLE: Final = (TypeError, ValueError, OverflowError, RecursionError)

_encode: Final = msgspec.json.Encoder(enc_hook=to_json).encode
_ERROR: Final = re.compile(r"(?P<problem>.*?)(?: - at `\$\.?(?P<path>.*)`)?", re.DOTALL)
_FIELD: Final = re.compile(r"Object (missing required|contains unknown) field `(.*)`")


def refusal(error: Exception, fields: tuple[str, ...], own: str = "") -> ValidationError:
    """An error in our words: msgspec's ``Expected `int`, got `str` - at `$.id` `` is `id: expected int, got str`.

    `own` is the parameter whose fields stand in the payload itself.
    """
    match = _ERROR.fullmatch(str(error))
    assert match
    problem, path = match["problem"], match["path"] or ""
    cause: Any = error.__cause__
    if hasattr(cause, "errors"):  # pydantic's, raised inside of msgspec
        first = cause.errors(include_url=False, include_input=False)[0]
        path, problem = ".".join(filter(None, (path, *map(str, first["loc"])))), first["msg"]
    elif about := _FIELD.fullmatch(problem):
        path = f"{path}.{about[2]}" if path else about[2]
        missing = about[1] == "missing required"
        problem = "is missing" if missing else f"is not a field{did_you_mean(about[2], fields)}"
    problem = problem.replace("`", "")
    field = (path.removeprefix(f"{own}.") if own else path) or "payload"
    if not problem[:2].isupper():  # JSON stays that
        problem = problem[:1].lower() + problem[1:]
    return ValidationError(f"{field}: {problem[:200]}", field=field)


def unwritable(given: dict[str, Any], error: Exception) -> ValidationError:
    """Name the value that JSON cannot hold."""
    field = "payload"
    for name, value in given.items():
        try:
            _encode(value)
        except UNWRITABLE as its_error:
            field, error = str(name), its_error
            break
    problem = "is not valid Unicode" if isinstance(error, UnicodeError) else str(error)[:200]
    return ValidationError(f"{field}: {problem}", field=field)


def refuse_unfit(value: Any, own: str = "") -> None:
    """Refuse NaN and times without a zone, wherever they are."""
    found = msgspec.to_builtins(value, builtin_types=(datetime,), str_keys=True, enc_hook=_dumped)
    rest: list[tuple[str, Any]] = [("", found)]
    while rest:
        path, node = rest.pop()
        if isinstance(node, dict):
            rest.extend((f"{path}.{key}" if path else str(key), item) for key, item in node.items())
        elif isinstance(node, list | tuple):
            rest.extend((f"{path}[{index}]", item) for index, item in enumerate(node))
        elif isinstance(node, float) and not math.isfinite(node):
            field = path.removeprefix(f"{own}.") if own else path
            raise ValidationError(f"{field}: {node} cannot be written as JSON", field=field)
        elif isinstance(node, datetime) and node.tzinfo is None:
            field = path.removeprefix(f"{own}.") if own else path
            raise ValidationError(f"{field}: has no time zone", field=field)


def _dumped(value: Any) -> Any:
    """A pydantic model as a dict; what else is in it holds no number and no time that we could look at."""
    return value.model_dump() if hasattr(value, "model_dump") else None
