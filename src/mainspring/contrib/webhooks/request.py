"""The headers of one attempt. Pure: what time it is says the database, and whoever calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from uuid import UUID

from mainspring import __version__
from mainspring.contrib import standard_webhooks


def headers(
    *,
    delivery: UUID,
    event_type: str,
    body: bytes,
    prefix: str,
    secrets: Sequence[str],
    now: datetime,
    custom: Mapping[str, str],
) -> dict[str, str]:
    """What an attempt says beside its body; of the secrets, the newest comes first.

    >>> from datetime import UTC
    >>> made = headers(delivery=UUID(int=7), event_type="order.paid", body=b"{}", prefix="X-Mainspring",
    ...                secrets=[standard_webhooks.new_secret()], now=datetime(2026, 1, 1, tzinfo=UTC), custom={})
    >>> made["X-Mainspring-Event-Type"], made["webhook-timestamp"]
    ('order.paid', '1767225600')
    """
    return {
        **custom,
        "Content-Type": "application/json",
        "User-Agent": f"Mainspring/{__version__}",
        f"{prefix}-Signature": standard_webhooks.plain(secrets[0], body),
        f"{prefix}-Event-Type": event_type,
        f"{prefix}-Delivery-Id": str(delivery),
        **standard_webhooks.standard(secrets, str(delivery), now, body),
    }
