"""The answer to a webhook, within the bounds in which it is kept."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

MOST_RESPONSE_BODY: Final = 64 * 1024  # bytes that are kept
MOST_RESPONSE_HEADERS: Final = 16 * 1024

_SECRET: Final = ("set-cookie", "cookie", "authorization", "www-authenticate", "authentication-info", "proxy-")
_UNPRINTABLE: Final = re.compile(r"[^\x20-\x7e]")


@dataclass(frozen=True, slots=True)
class Response:
    """What a receiver answered, as far as it is kept."""

    status: int
    headers: Mapping[str, str]  # lower-case names, printable ASCII; at most 16 KiB; no cookies, no credentials
    body: bytes  # as it came, never unpacked; at most 64 KiB
    truncated: bool  # whether the body or the headers were longer
    seconds: float = 0.0  # from the look-up of the name to the end


def kept(headers: Iterable[tuple[bytes, bytes]]) -> tuple[dict[str, str], bool]:
    """The headers that are kept, and whether some did not fit.

    >>> kept([(b"retry-after", b"60"), (b"set-cookie", b"id=7")])
    ({'retry-after': '60'}, False)
    """
    fit: dict[str, str] = {}
    size, cut = 0, False
    for raw_name, raw_value in headers:
        name, value = raw_name.decode("ascii").lower(), _UNPRINTABLE.sub("?", raw_value.decode("latin-1"))
        more = len(name) + len(value) + 4  # as it was sent, with its colon and the end of its line
        if name.startswith(_SECRET):
            continue
        if size + more > MOST_RESPONSE_HEADERS:
            cut = True
            continue
        size += more
        fit[name] = f"{fit[name]}, {value}" if name in fit else value
    return fit, cut
