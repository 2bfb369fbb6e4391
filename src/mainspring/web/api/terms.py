"""Types that several resources speak of, with what the document says of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec

from mainspring.checks import LOWEST_PRIORITY
from mainspring.limit import MAX_LIMIT_NAME
from mainspring.text.texts import MAX_KEY, MAX_NAME, MAX_QUEUE, MAX_REASON

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
Since = Annotated[Instant, msgspec.Meta(description="From this instant on.")]
Until = Annotated[Instant, msgspec.Meta(description="Up to before this instant.")]
JobId = Annotated[UUID, msgspec.Meta(description="The id of a job.", examples=["0199a8c3-1f00-7a52-9c11-5d2f3b6a7e01"])]
TaskName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_NAME, description="A task.", examples=["send_welcome"])
]
JobKey = Annotated[
    str,
    msgspec.Meta(min_length=1, max_length=MAX_KEY, description="An idempotency key of jobs.", examples=["order:7"]),
]
Priority = Annotated[int, msgspec.Meta(ge=0, le=LOWEST_PRIORITY, description="From 0 (first) to 3 (last).")]
Delay = Annotated[
    Annotated[str, msgspec.Meta(max_length=40)] | float | None,
    msgspec.Meta(description="A time span: seconds, or a text such as 90s or 2h.", examples=["2h"]),
]
OrgName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
QueueName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_QUEUE, description="A queue.", examples=["q:default"])
]
Reason = Annotated[
    Annotated[str, msgspec.Meta(max_length=MAX_REASON)] | None,
    msgspec.Meta(description="Why; it stands in the trail.", examples=["the bank asked"]),
]
NeededReason = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_REASON, description="Why; it stands in the trail.")
]
LimitName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_LIMIT_NAME, description="A limit.", examples=["rate:q:default"])
]
ScheduleName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_NAME, description="A schedule.", examples=["weekly-payments"])
]
ZoneName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=100, description="A time zone.", examples=["Europe/London"])
]
SpanText = Annotated[
    str, msgspec.Meta(min_length=1, max_length=60, description="A time span.", examples=["30s", "15m", "1h30m"])
]


class WithReason(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Why something is done."""

    reason: Reason = None
