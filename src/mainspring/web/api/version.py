"""Versions: the ETag of what was seen, and the If-Match of whoever decides on it."""

from __future__ import annotations

import re
from hashlib import sha256
from typing import Any, Final

import msgspec

from mainspring.errors import ValidationError

#: As `If-Match: *` says it: whatever version it has, if only it is there.
ANY_VERSION: Final = "*"
_LIST: Final = re.compile(r'\s*(?:W/)?"[\x21\x23-\x7e]*"\s*(?:,\s*(?:W/)?"[\x21\x23-\x7e]*"\s*)*')
_TAG: Final = re.compile(r'(W/)?("[^"]*")')


class Versioned(msgspec.Struct, frozen=True, kw_only=True):
    """An answer about one thing, of which people change something."""

    def version(self) -> tuple[Any, ...]:
        """What makes another version of it: what people or workers change, and nothing that moves by itself."""
        raise NotImplementedError

    @property
    def etag(self) -> str:
        """The version as its ETag."""
        return f'"{sha256(msgspec.json.encode(self.version())).hexdigest()[:32]}"'


def read_if_match(header: str | None) -> frozenset[str] | None:
    """The versions that a request admits; a weak one fits nothing.

    >>> sorted(read_if_match('"a", W/"b"'))
    ['"a"']
    """
    if header is None:
        return None
    if header.strip() == ANY_VERSION:
        return frozenset({ANY_VERSION})
    if not _LIST.fullmatch(header):
        raise ValidationError('If-Match: is not an ETag in quotes, such as "5f0c4e", or *', field="If-Match")
    return frozenset(tag for weak, tag in _TAG.findall(header) if not weak)
