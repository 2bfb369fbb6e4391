"""Types that several resources speak of, with what the document says of them."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec

from mainspring.text.texts import MAX_NAME, MAX_QUEUE, MAX_REASON

Instant = Annotated[datetime, msgspec.Meta(tz=True)]
JobId = Annotated[UUID, msgspec.Meta(description="The id of a job.", examples=["0199a8c3-1f00-7a52-9c11-5d2f3b6a7e01"])]
OrgName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME)]
QueueName = Annotated[
    str, msgspec.Meta(min_length=1, max_length=MAX_QUEUE, description="A queue.", examples=["q:default"])
]
Reason = Annotated[
    Annotated[str, msgspec.Meta(max_length=MAX_REASON)] | None,
    msgspec.Meta(description="Why; it stands in the trail.", examples=["the bank asked"]),
]
