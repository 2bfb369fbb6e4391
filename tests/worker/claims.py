"""A claimed job for tests of parts that only hold one."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from mainspring.job import Claim

NOW = datetime(2026, 6, 1, tzinfo=UTC)

CLAIM = Claim(
    id=UUID(int=1),
    task="work",
    payload="{}",
    org_id="default",
    project_id=None,
    actor_type="system",
    actor_id="SYSTEM",
    request_id="r",
    correlation_id="c",
    traceparent=None,
    key=None,
    created_at=NOW,
    scheduled_for=None,
    max_attempts=5,
    epoch=1,
    attempt=1,
    crashes=0,
    snoozes=0,
    suspect=False,
    queue="q:default",
    priority=2,
    due_at=NOW,
    claimed_at=NOW,
)
