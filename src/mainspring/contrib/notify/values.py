"""The values of a notification: as they are kept, compared and filled in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime
from typing import Any

import msgspec

from mainspring.errors import ValidationError
from mainspring.text.document import check_payload
from mainspring.when.zones import check_zone, zone_info

_encode = msgspec.json.Encoder(order="sorted", decimal_format="string").encode


def normalised(data: Mapping[str, Any] | None, zone: str | None = None, *, dates: bool = False) -> msgspec.Raw:
    """The values as JSON, in one order. With a zone, instants become dates there: `YYYY-MM-DD`; `dates` asks for one.

    >>> late = datetime(2026, 11, 15, 23, 30, tzinfo=UTC)
    >>> bytes(normalised({"Sunday date": late}, "Asia/Tokyo"))
    b'{"Sunday date":"2026-11-16"}'
    """
    if zone is not None:
        check_zone(zone)
    if data is not None and not isinstance(data, Mapping):
        raise ValidationError("data: is not an object of names and values", field="data")
    try:
        raw = _encode(_plain(dict(data or {}), zone, dates, "data"))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError, UnicodeEncodeError, RecursionError):
        raise ValidationError("data: holds what JSON cannot", field="data") from None
    try:
        check_payload(raw)
    except ValidationError as error:
        field = error.field.replace("payload", "data", 1)
        raise type(error)(str(error).replace("payload", "data", 1), field=field) from None
    return msgspec.Raw(raw)


def _plain(value: Any, zone: str | None, dates: bool, field: str) -> Any:
    match value:
        case datetime():
            if value.utcoffset() is None:
                raise ValidationError(f"{field}: is a time without a time zone", field=field)
            if zone is None and dates:
                raise ValidationError(f"{field}: is an instant: say in which zone its date is meant", field=field)
            return value.astimezone(UTC) if zone is None else value.astimezone(zone_info(zone)).date()
        case date():
            return value
        case Mapping():
            return {str(name): _plain(inner, zone, dates, f"{field}.{name}") for name, inner in value.items()}
        case list() | tuple():
            return [_plain(inner, zone, dates, f"{field}[{n}]") for n, inner in enumerate(value)]
        case _:
            return value
