"""What an answer means for its delivery, and what is kept of it. Pure."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from typing import Final

import msgspec

from mainspring.contrib.webhooks.response import Response
from mainspring.db.webhooks import AttemptRecord
from mainspring.errors import MainspringError
from mainspring.outcome import Failure, Permanent, RetryAfter
from mainspring.text.sanitize import masked, sanitize

HTTP_GONE: Final = 410
#: A receiver may ask for this much patience.
RECEIVER_PATIENCE: Final = timedelta(hours=24)
MAX_ERROR: Final = 1000


def failure(answer: Response, now: datetime) -> Failure | None:
    """What the attempt raises; None: it is delivered. Redirects are not followed, so they are failures as well.

    >>> failure(Response(204, {}, b"", False), datetime.now(UTC)) is None
    True
    >>> failure(Response(503, {"retry-after": "120"}, b"", False), datetime.now(UTC)).after
    datetime.timedelta(seconds=120)
    """
    if 200 <= answer.status <= 299:
        return None
    said = f"the receiver answered {answer.status}"
    if answer.status == HTTP_GONE:
        return Permanent(said, code="WebhookGone")
    after = retry_after(answer.headers.get("retry-after"), now)
    if after is None:
        return Failure(said, code="WebhookNon2xx")
    # Who says when to come back is alive: the breaker need not find out.
    return RetryAfter(after, said, code="WebhookNon2xx", counts=False, longest=RECEIVER_PATIENCE)


def retry_after(text: str | None, now: datetime) -> timedelta | None:
    """How long a receiver wants to be left alone: seconds or a date; None where it says nothing that can be read.

    >>> retry_after("Wed, 04 Mar 2026 10:00:30 GMT", datetime(2026, 3, 4, 10, tzinfo=UTC))
    datetime.timedelta(seconds=30)
    """
    text = (text or "").strip()
    if text.isascii() and text.isdecimal():
        return min(timedelta(seconds=int(text[:9])), RECEIVER_PATIENCE)
    try:
        at = parsedate_to_datetime(text)
        at = at if at.tzinfo is not None else at.replace(tzinfo=UTC)
        return min(max(at - now, timedelta(0)), RECEIVER_PATIENCE)
    except (ValueError, OverflowError, TypeError):
        return None


def kept(answer: Response, error: Failure | None) -> AttemptRecord:
    """What is kept of an answer, within the bounds that the transport has set."""
    headers = msgspec.json.encode(masked(dict(answer.headers))).decode()
    body = base64.b64encode(answer.body).decode()
    return AttemptRecord(answer.status, None if error is None else words(error), headers, body, answer.truncated)


def words(error: Failure | MainspringError) -> str:
    """An error as it is kept, in one line."""
    return sanitize(f"{error.code}: {error}", MAX_ERROR // 2)
