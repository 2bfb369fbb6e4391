"""Lists in pages: a cursor says where the next one begins, and fits the list for which it was made, and no other."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from hashlib import sha256
from typing import Annotated, Any, Final, Generic, TypeVar

import msgspec

from mainspring.errors import ValidationError
from mainspring.web.api.instants import in_utc

T = TypeVar("T")
P = TypeVar("P")

MOST_LISTED: Final = 200
LIMIT: Final = Annotated[int, msgspec.Meta(ge=1, le=MOST_LISTED, description="How many at most.")]
CURSOR: Final = Annotated[
    str | None, msgspec.Meta(description="Where to go on: `next` of the page before, with the same filters.")
]


class PageOf(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """Some of a list, and where it goes on: null where it ends."""

    items: list[T]
    next: str | None = None


class Paging(Generic[P]):
    """How much of a list is wanted, and after which place.

    A cursor is not secret: it holds a place in a list that its reader may see anyway. It is bound to its list, filters
    and organisation by a digest, so that one made up or brought elsewhere is refused.
    """

    def __init__(self, limit: int, cursor: str | None, place: Any, *about: object) -> None:
        self.limit = limit
        self._digest = sha256(repr(about).encode("utf-8", "replace")).hexdigest()[:16]
        self.after: P | None = None if cursor is None else self._read(cursor, place)

    @property
    def wanted(self) -> int:
        """One more than are shown, to see whether there are more."""
        return self.limit + 1

    def of(self, found: Sequence[T], place: Callable[[T], P]) -> PageOf[T]:
        """The page, of what was found from its place on."""
        items = list(found[: self.limit])
        return PageOf(items=items, next=self._cursor(place(items[-1])) if len(found) > self.limit else None)

    def up_to(self, items: list[T], place: P | None) -> PageOf[T]:
        """The page of what was found by looking up to a place, from which the next one looks on; None: to the end."""
        return PageOf(items=items, next=None if place is None else self._cursor(place))

    def _cursor(self, place: P) -> str:
        return base64.urlsafe_b64encode(msgspec.json.encode((self._digest, place))).decode().rstrip("=")

    def _read(self, cursor: str, place: Any) -> P:
        try:
            raw = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
            digest, found = in_utc(msgspec.json.decode(raw, type=tuple[str, place]), "cursor")
        except (binascii.Error, ValueError, RecursionError, ValidationError):  # msgspec's errors are ValueErrors
            digest = ""
        if digest != self._digest:
            raise ValidationError("cursor: is not one of this list with these filters", field="cursor")
        after: P = found
        return after
