"""What a key means when it is enqueued again.

Without a key two equal enqueues are two jobs. With one, the mode says what the second enqueue does:

=============  =======================================================================================
`live`         one job waits under the key, one more may run; free again once finished. The default
`keep`         one job for ever: the first is returned whatever became of it
`window`       one job until its end plus the key's life time
`reset_failed` a failed, dead or cancelled job runs again with the new payload; any other is returned
`replace`      a job that has not started takes over the new payload and due time
`debounce`     as replace, and every enqueue puts the start off again
=============  =======================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Literal, get_args

from mainspring.errors import DeclarationError
from mainspring.text.span import Span, declared_span

Mode = Literal["live", "keep", "window", "reset_failed", "replace", "debounce"]
MODES: tuple[str, ...] = get_args(Mode)


@dataclass(frozen=True, slots=True)
class Dedupe:
    """A dedupe mode, and where its key comes from: a template over the payload's fields, or the payload's hash."""

    mode: Mode = "live"
    template: str | None = None
    by_payload: bool = False
    ttl: timedelta | None = None  # None: the category's
    wait: timedelta | None = None  # debounce: how long after the last enqueue the job starts


def live(template: str | None = None) -> Dedupe:
    """One job waits under the key; once it has started another may wait behind it."""
    return Dedupe("live", template)


def keep(template: str | None = None) -> Dedupe:
    """One job under the key for ever."""
    return Dedupe("keep", template)


def window(template: str | None = None, *, ttl: Span | None = None) -> Dedupe:
    """One job under the key until `ttl` after its end."""
    return Dedupe("window", template, ttl=None if ttl is None else declared_span("ttl", ttl))


def reset_failed(template: str | None = None) -> Dedupe:
    """A failed, dead or cancelled job under the key runs again.

    >>> reset_failed("{booking_id}").mode
    'reset_failed'
    """
    return Dedupe("reset_failed", template)


def replacing(template: str | None = None) -> Dedupe:
    """A job under the key that has not started takes over the new payload and due time."""
    return Dedupe("replace", template)


def debounce(template: str | None = None, *, wait: Span) -> Dedupe:
    """The job starts once no enqueue has come under the key for `wait`."""
    waits = declared_span("wait", wait)
    if waits <= timedelta(0):
        raise DeclarationError("wait: must be positive")
    return Dedupe("debounce", template, wait=waits)


def by_payload(mode: Dedupe | None = None) -> Dedupe:
    """The key is made from the payload: `<job_type>:<org_id>:<project_id?>:<sha256>`.

    >>> by_payload().mode
    'window'
    """
    return replace(mode or window(), by_payload=True)
