"""A field of a dataclass that takes a time span as anybody gives it, and has a timedelta."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mainspring.text.span import Span, configured_span, span_of

if TYPE_CHECKING:
    from datetime import timedelta


class SpanField:
    """`lease: SpanField = SpanField("60s")`: made with `lease="2m"`, its `lease` is a timedelta."""

    def __init__(self, default: Span) -> None:
        self._default = span_of("default", default)

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, of: Any, owner: type) -> timedelta:
        kept: timedelta = self._default if of is None else of.__dict__[self._name]
        return kept

    def __set__(self, of: Any, given: Span) -> None:
        of.__dict__[self._name] = configured_span(self._name, given)
