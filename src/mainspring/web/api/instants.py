"""Instants as the database takes them: in UTC, because a text may name an offset that no zone has."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from mainspring.errors import ValidationError


def in_utc(value: Any, field: str) -> Any:
    """A value with every instant in it in UTC; a Struct is changed in place.

    >>> in_utc(datetime.fromisoformat("2026-11-19T10:00:00+23:26"), "until")
    datetime.datetime(2026, 11, 18, 10, 34, tzinfo=datetime.timezone.utc)
    """
    match value:
        case datetime():
            try:
                return value.astimezone(UTC)
            except OverflowError:
                raise ValidationError(f"{field}: is before the year 1 or after the year 9999", field=field) from None
        case tuple():
            parts = [in_utc(one, field) for one in value]
            return type(value)(*parts) if hasattr(value, "_fields") else tuple(parts)  # a named one stays one
        case msgspec.Struct():
            for name in value.__struct_fields__:
                msgspec.structs.force_setattr(value, name, in_utc(getattr(value, name), name))
    return value
