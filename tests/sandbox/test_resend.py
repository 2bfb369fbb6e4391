"""Resend's stand-in, from the outside."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx2
import pytest
from tests.contrib.senders.kit import NOBODY

from mainspring_sandbox import Sandbox

MAIL = {"from": "shop@example.com", "to": ["jo@example.com"], "subject": "Hi", "text": "x", "html": "<p>x</p>"}


@pytest.fixture
def resend(sandbox: Sandbox) -> Iterator[httpx2.Client]:
    headers = {"authorization": "Bearer re_1"}
    with httpx2.Client(base_url=f"{sandbox.url}/resend", headers=headers, verify=NOBODY, trust_env=False) as client:
        yield client


def test_mail_is_taken_and_can_be_looked_at(sandbox: Sandbox, resend: httpx2.Client) -> None:
    id = resend.post("/emails", json=MAIL).json()["id"]

    (entry,) = sandbox.ledger.find("mail")
    assert (entry.id, entry.body["provider"], entry.body["to"]) == (id, "resend", ["jo@example.com"])
    assert resend.get(f"/emails/{id}").json()["subject"] == "Hi"
    assert resend.get("/emails/none").status_code == 404


def test_key_is_known_again_for_a_day(sandbox: Sandbox, resend: httpx2.Client) -> None:
    key = {"idempotency-key": "k"}
    clock, began = sandbox.ledger.clock, datetime.now(UTC)
    try:
        ids = []
        for hours in (0, 23, 25):
            sandbox.ledger.clock = lambda hours=hours: began + timedelta(hours=hours)  # type: ignore[misc] # bound now
            ids.append(resend.post("/emails", json=MAIL, headers=key).json()["id"])
    finally:
        sandbox.ledger.clock = clock

    assert ids[0] == ids[1] != ids[2]
    assert sandbox.ledger.count("mail") == 2


def test_key_with_another_mail_is_refused(sandbox: Sandbox, resend: httpx2.Client) -> None:
    key = {"idempotency-key": "k"}
    resend.post("/emails", json=MAIL, headers=key)

    answer = resend.post("/emails", json=MAIL | {"subject": "Ho"}, headers=key)

    assert (answer.status_code, answer.json()["name"]) == (409, "invalid_idempotent_request")
    assert sandbox.ledger.count("mail") == 1


@pytest.mark.parametrize(
    ("mail", "status"),
    [
        (MAIL | {"to": []}, 422),
        (MAIL | {"to": ["a@"]}, 422),
        (MAIL | {"to": ["bounce@example.com"]}, 422),
        (MAIL | {"to": 7}, 422),
        ({"from": "a@b.de"}, 422),
        ({**MAIL, "text": None, "html": None}, 422),
        ("nonsense", 422),
    ],
)
def test_mail_that_is_none_is_refused(sandbox: Sandbox, resend: httpx2.Client, mail: Any, status: int) -> None:
    assert resend.post("/emails", json=mail).status_code == status
    assert sandbox.ledger.count("mail") == 0


@pytest.mark.parametrize(
    ("login", "status"), [("", 401), ("Basic x", 401), ("Bearer", 401), ("Bearer re_invalid", 403)]
)
def test_who_has_no_key_is_refused(resend: httpx2.Client, login: str, status: int) -> None:
    assert resend.post("/emails", json=MAIL, headers={"authorization": login}).status_code == status
    assert resend.get("/emails/1", headers={"authorization": login}).status_code == status
