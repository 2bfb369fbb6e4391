"""The push gateway's stand-in, from the outside."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from tests.contrib.senders.kit import NOBODY

from mainspring_sandbox import Sandbox

NOTE = {"to": "device-1", "title": "Hi", "text": "x"}


@pytest.fixture
def push(sandbox: Sandbox) -> Iterator[httpx2.Client]:
    headers = {"authorization": "Bearer t"}
    with httpx2.Client(base_url=f"{sandbox.url}/push", headers=headers, verify=NOBODY, trust_env=False) as client:
        yield client


def test_note_is_taken_once_under_its_key(sandbox: Sandbox, push: httpx2.Client) -> None:
    key = {"idempotency-key": "k"}

    answers = [push.post("/messages", json=NOTE, headers=key) for _ in range(2)]
    other = push.post("/messages", json=NOTE | {"text": "y"}, headers=key)

    assert [answer.status_code for answer in [*answers, other]] == [201, 201, 409]
    (entry,) = sandbox.ledger.find("push")
    assert {answer.json()["id"] for answer in answers} == {entry.id}
    assert (entry.body["to"], entry.body["title"], entry.body["text"], entry.body["key"]) == (
        "device-1",
        "Hi",
        "x",
        "k",
    )


@pytest.mark.parametrize(
    ("note", "status"), [(NOTE | {"to": "gone-1"}, 410), ({"to": "x"}, 422), (NOTE | {"text": 7}, 422), ("x", 422)]
)
def test_some_notes_are_refused(sandbox: Sandbox, push: httpx2.Client, note: Any, status: int) -> None:
    assert push.post("/messages", json=note).status_code == status
    assert sandbox.ledger.count("push") == 0


@pytest.mark.parametrize("login", ["", "Bearer wrong", "Bearer", "Basic t"])
def test_who_has_no_token_is_refused(push: httpx2.Client, login: str) -> None:
    assert push.post("/messages", json=NOTE, headers={"authorization": login}).status_code == 401
