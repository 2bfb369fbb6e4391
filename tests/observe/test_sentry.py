from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest
from tests.observe.conftest import Theatre

from mainspring import Permanent, Registry, fixed
from mainspring.events import JobDeadlettered, JobLeaseExpired
from mainspring.observe.sentry import SentryObserver

pytestmark = pytest.mark.anyio


async def test_final_failures_are_sent_without_secrets_and_what_is_tried_again_is_not(
    stage: Theatre, tasks: Registry, sent: list[dict[str, Any]]
) -> None:
    @tasks.task(retry=fixed(0, attempts=2))
    async def flaky(*, note: str) -> None:
        raise ValueError("api_key=sk_live_0123456789abcdef was refused")

    @tasks.task
    async def bad() -> None:
        raise Permanent("closed")

    stage.observers = [SentryObserver()]
    job = await stage.enqueue(flaky.job(note="payload-canary").for_org("acme"))
    await stage.enqueue(bad.job())
    await stage.drain(tasks)

    assert len(sent) == 2
    (event,) = [event for event in sent if event["tags"]["job_type"] == "flaky"]
    assert event["tags"] | {"org_id": "acme", "attempt": "2", "error_code": "INTERNAL_ERROR"} == event["tags"]
    assert event["contexts"]["job"]["job_id"] == str(job)
    assert event["fingerprint"] == ["mainspring", "flaky", "INTERNAL_ERROR"]
    assert "in flaky" in event["contexts"]["job"]["stack"]
    assert "sk_live" not in str(sent)
    assert "payload-canary" not in str(sent)


def test_a_job_that_killed_its_workers_is_sent_once(sent: list[dict[str, Any]]) -> None:
    job = (UUID(int=1), "work", "q:default", "acme", None, "r", "c", 3, None)
    SentryObserver()([JobLeaseExpired(*job, "w", "dead"), JobDeadlettered(*job, "LEASE_EXPIRED", "gone")])

    assert [event["tags"]["error_code"] for event in sent] == ["LEASE_EXPIRED"]
