"""Models of payloads: what their fields are called, and how pydantic's, unknown to msgspec, are read and written.

We never import pydantic: the model brings it.
"""

from __future__ import annotations

from types import NoneType
from typing import Any, get_args

import msgspec

from mainspring.declare.signature import is_model, is_pydantic


def model_in(hint: Any) -> tuple[Any, bool]:
    """The model that a type is, or None, and whether it may be left out as `None`.

    >>> class Invoice(msgspec.Struct): ...
    >>> model_in(Invoice | None)
    (<class 'mainspring.declare.model.Invoice'>, True)
    """
    if is_model(hint) or is_pydantic(hint):
        return hint, False
    kinds = get_args(hint)
    others = [kind for kind in kinds if kind is not NoneType]
    if len(others) == 1 < len(kinds) and (is_model(others[0]) or is_pydantic(others[0])):
        return others[0], True
    return None, False


def from_python(kind: Any, value: Any) -> Any:
    """Make a pydantic model of what a caller gave."""
    if is_pydantic(kind):
        return kind.model_validate(value)
    raise NotImplementedError


def from_json(kind: Any, value: Any) -> Any:
    """Make a pydantic model of what was read from JSON: a strict one takes a text for a date only there."""
    if is_pydantic(kind):
        return kind.model_validate_json(msgspec.json.encode(value))
    raise NotImplementedError


def to_json(value: Any) -> Any:
    """Write a pydantic model under its aliases."""
    if is_pydantic(type(value)):
        return msgspec.Raw(value.model_dump_json(by_alias=True).encode())
    raise TypeError(f"objects of type {type(value).__qualname__} cannot be written as JSON")


def schema_of(kind: Any) -> dict[str, Any]:
    """The JSON Schema of a type, also one with pydantic models in it."""
    found: dict[str, Any] = {}

    def own(inner: Any) -> dict[str, Any]:
        if not is_pydantic(inner):
            raise NotImplementedError
        schema: dict[str, Any] = inner.model_json_schema(by_alias=True)
        found.update(schema.pop("$defs", {}))  # its references are to the root of the document
        return schema

    schema = own(kind) if is_pydantic(kind) else msgspec.json.schema(kind, schema_hook=own)
    return schema | {"$defs": found | schema.get("$defs", {})} if found else schema


def body_of(schema: dict[str, Any]) -> dict[str, Any]:
    """What a schema says of its root, which may stand among its definitions."""
    name = schema.get("$ref", "").rpartition("/")[2]
    body: dict[str, Any] = schema["$defs"][name] if name else schema
    return body
