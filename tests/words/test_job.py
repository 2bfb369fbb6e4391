from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
import pytest

from mainspring.errors import ValidationError
from mainspring.job import Claim, NewJob

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
JOB = NewJob(task="greet", payload=msgspec.Raw(b'{"name":"Ada"}'))


def a_claim(**fields: Any) -> Claim:
    defaults: dict[str, Any] = dict.fromkeys(Claim.__struct_fields__)
    defaults |= {"id": UUID(int=7), "created_at": NOON, "claimed_at": NOON + timedelta(hours=2)}
    return Claim(**(defaults | fields))


def test_building_on_a_job_leaves_it_unchanged() -> None:
    before = msgspec.json.encode(JOB)

    JOB.after(5).with_key("k", "keep").by(7).for_org("acme").with_priority(0).on_queue("q:critical")

    assert msgspec.json.encode(JOB) == before


def test_only_what_was_said_is_written() -> None:
    assert msgspec.json.decode(msgspec.json.encode(JOB)) == {"task": "greet", "payload": {"name": "Ada"}}


@pytest.mark.rule("ENG-2.03")
def test_due_time_and_trace_are_carried_unchanged() -> None:
    trace = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    job = JOB.at(NOON).traced(traceparent=trace)

    assert (job.scheduled_for, job.traceparent) == (NOON, trace)
    assert msgspec.json.decode(msgspec.json.encode(job))["scheduled_for"] == "2026-01-01T12:00:00Z"


def test_a_due_time_and_a_delay_replace_each_other() -> None:
    assert JOB.after(60).at(NOON).delay is None
    assert JOB.at(NOON).after(timedelta(minutes=1)).scheduled_for is None
    assert JOB.after(60).delay == timedelta(minutes=1)


@pytest.mark.parametrize(
    ("build", "field"),
    [(lambda: JOB.at(datetime(2026, 1, 1)), "scheduled_for"), (lambda: JOB.after(-1), "delay")],  # noqa: DTZ001
)
def test_a_time_that_means_nothing_is_refused_by_name(build: Any, field: str) -> None:
    with pytest.raises(ValidationError, match=f"^{field}: ") as caught:
        build()

    assert caught.value.field == field


def test_the_chain_names_everything_about_a_job() -> None:
    project, job_id = UUID(int=1), UUID(int=2)
    job = (
        JOB.by(7)
        .for_org(42)
        .in_project(project)
        .with_id(job_id)
        .with_priority(1)
        .on_queue("q:exports")
        .with_key("k", "window", reset=True)
        .traced(request_id="r", correlation_id="c")
        .traced(traceparent="t")
    )

    assert (job.actor_type, job.actor_id, job.org_id, job.project_id) == ("user", "7", "42", project)
    assert (job.id, job.priority, job.queue) == (job_id, 1, "q:exports")
    assert (job.key, job.mode, job.reset) == ("k", "window", True)
    assert (job.request_id, job.correlation_id, job.traceparent) == ("r", "c", "t")


def test_a_key_keeps_the_mode_that_the_task_declared() -> None:
    assert JOB.with_key("a", "keep").with_key("b").mode == "keep"


def test_waiting_counts_from_the_first_due_time() -> None:
    assert a_claim().waited == timedelta(hours=2)
    assert a_claim(scheduled_for=NOON + timedelta(hours=1)).waited == timedelta(hours=1)


@pytest.mark.parametrize("key", ["invoice:7", None])
def test_the_key_for_other_systems_is_the_same_on_every_attempt(key: str | None) -> None:
    keys = {a_claim(key=key, attempt=attempt, epoch=attempt + 40).idempotency_key for attempt in (1, 2, 3)}

    assert keys == {key or str(UUID(int=7))}
