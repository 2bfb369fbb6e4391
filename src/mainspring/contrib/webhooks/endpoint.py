"""What an organisation may say of its endpoint, besides the URL. Pure."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

import msgspec

from mainspring.contrib.webhooks.event import check_type
from mainspring.contrib.webhooks.headers import check_custom
from mainspring.db.webhooks import Endpoint
from mainspring.errors import ConfigurationError, ValidationError

MOST_EVENTS: Final = 100
MOST_ENDPOINT_HEADERS: Final = 20
MAX_DESCRIPTION: Final = 1000

_PREFIX: Final = re.compile(r"[A-Za-z][A-Za-z0-9]*(?:-[A-Za-z0-9]+)*")
_UNSEEN: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff]")
#: What every request says by itself.
_SAID: Final = frozenset({"user-agent", "content-type", "accept"})


@dataclass(frozen=True, slots=True)
class Registered:
    """A new endpoint and its secret, which is shown this once."""

    endpoint: Endpoint
    secret: str = field(repr=False)


def check_prefix(prefix: str) -> str:
    """The beginning of our headers, such as X-Mainspring."""
    if not isinstance(prefix, str) or len(prefix) > 50 or not _PREFIX.fullmatch(prefix):
        raise ConfigurationError("prefix: is not the beginning of a header such as X-Mainspring")
    if prefix.lower() in ("webhook", "content", "proxy"):
        raise ConfigurationError("prefix: is that of other headers")
    return prefix


def checked_events(events: Sequence[str]) -> list[str]:
    """The filter of an endpoint: names of events, and `prefix.*`.

    >>> checked_events(["order.paid", "refund.*", "order.paid"])
    ['order.paid', 'refund.*']
    """
    if isinstance(events, str) or not isinstance(events, Sequence):
        raise ValidationError("events: is not a list of names", field="events")
    if len(events) > MOST_EVENTS:
        raise ValidationError(f"events: are more than {MOST_EVENTS}", field="events")
    for name in events:
        check_type("events", name.removesuffix(".*") if isinstance(name, str) else name)
    return list(dict.fromkeys(events))


def checked_description(text: str | None) -> str | None:
    """A note for people."""
    if text is not None and (not isinstance(text, str) or len(text) > MAX_DESCRIPTION or _UNSEEN.search(text)):
        raise ValidationError(f"description: is no text of up to {MAX_DESCRIPTION} characters", field="description")
    return text or None


def written_headers(headers: Mapping[str, str] | None, prefix: str) -> str | None:
    """The headers that an endpoint wants on each request, as they are kept."""
    if not headers:
        return None
    if not isinstance(headers, Mapping) or len(headers) > MOST_ENDPOINT_HEADERS:
        raise ValidationError(f"headers: are no mapping of up to {MOST_ENDPOINT_HEADERS}", field="headers")
    check_custom(headers)
    for name in headers:
        if name.lower() in _SAID or name.lower().startswith(f"{prefix.lower()}-"):
            raise ValidationError(f"headers: {name} is not for endpoints to set", field="headers")
    return msgspec.json.encode(list(headers.items())).decode()


def read_headers(text: str | None) -> dict[str, str]:
    """The same as a request carries them."""
    return {} if text is None else dict(msgspec.json.decode(text, type=list[tuple[str, str]]))
