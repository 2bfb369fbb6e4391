from __future__ import annotations

import contextvars
from typing import Any
from uuid import UUID

import pytest

from mainspring.declare.caller import NOBODY, Caller, calling, current, current_job, following, log_fields, running
from mainspring.job import Claim

ACME = Caller(org_id="acme", actor_type="user", actor_id="7")


def test_nobody_calls_by_default() -> None:
    assert current() == NOBODY == Caller()


def test_a_caller_ends_with_its_block_even_after_an_error() -> None:
    with calling(ACME):
        with pytest.raises(RuntimeError), calling(Caller(org_id="inner")):
            raise RuntimeError(current().org_id)
        assert current() is ACME

    assert current() is NOBODY


def test_who_acts_inside_keeps_the_trace_around_unless_they_bring_their_own() -> None:
    around = Caller(org_id="acme", actor_id="7", request_id="req-1", correlation_id="c-1")
    with calling(around), calling(Caller(actor_id="8", correlation_id="c-2")):
        assert current() == Caller(actor_id="8", request_id="req-1", correlation_id="c-2")


def test_contexts_do_not_see_each_others_callers() -> None:
    elsewhere = contextvars.copy_context()

    with calling(ACME):
        assert elsewhere.run(current) is NOBODY


def test_inside_a_handler_its_job_is_the_caller() -> None:
    fields: dict[str, Any] = dict.fromkeys(Claim.__struct_fields__)
    fields |= {"id": UUID(int=7), "org_id": "acme", "project_id": UUID(int=1), "actor_type": "user", "actor_id": "9"}
    fields |= {"request_id": "r", "correlation_id": "c", "traceparent": "t"}
    handler = contextvars.copy_context()

    handler.run(running, Claim(**fields))

    assert handler.run(current) == Caller("acme", UUID(int=1), "user", "9", "r", "c", UUID(int=7), "t")
    assert handler.run(log_fields)["job_id"] == str(UUID(int=7))  # still the job, though its caller was asked for
    assert current() is NOBODY


def test_who_follows_another_story_stays_who_they_are() -> None:
    around = Caller(org_id="acme", actor_id="7", request_id="req-1", correlation_id="c-1")
    with calling(around):
        with following("c-2"):
            assert current() == Caller(org_id="acme", actor_id="7", request_id="req-1", correlation_id="c-2")
        with following(None):
            assert current() == around
        assert current() is around


def test_a_handler_that_follows_another_story_stays_the_parent_of_what_it_enqueues() -> None:
    fields: dict[str, Any] = dict.fromkeys(Claim.__struct_fields__)
    fields |= {"id": UUID(int=7), "org_id": "acme", "actor_type": "user", "actor_id": "9", "correlation_id": "c-1"}

    def handler() -> None:
        running(Claim(**fields))
        with following("c-2"):
            assert (current().parent_id, current().correlation_id) == (UUID(int=7), "c-2")
            assert (current().org_id, current().actor_id) == ("acme", "9")
            assert log_fields()["correlation_id"] == "c-2"
            assert (job := current_job()) is not None
            assert job.id == UUID(int=7)
        assert current().correlation_id == "c-1"

    contextvars.copy_context().run(handler)
