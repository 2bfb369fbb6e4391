"""Twilio's stand-in, from the outside."""

from __future__ import annotations

from collections.abc import Iterator

import httpx2
import pytest
from tests.contrib.senders.kit import NOBODY

from mainspring_sandbox import Sandbox

SMS = {"To": "+4930901820", "From": "+4930901821", "Body": "Hi"}
PATH = "/Messages.json"


@pytest.fixture
def twilio(sandbox: Sandbox) -> Iterator[httpx2.Client]:
    base = f"{sandbox.url}/twilio/2010-04-01/Accounts/AC1"
    with httpx2.Client(base_url=base, auth=("AC1", "token"), verify=NOBODY, trust_env=False) as client:
        yield client


def test_message_is_taken_listed_and_fetched(sandbox: Sandbox, twilio: httpx2.Client) -> None:
    made = twilio.post(PATH, data=SMS)

    assert (made.status_code, made.json()["status"]) == (201, "queued")
    (entry,) = sandbox.ledger.find("sms")
    assert (entry.body["to"], entry.body["from"], entry.body["text"]) == ("+4930901820", "+4930901821", "Hi")
    fetched = twilio.get(f"/Messages/{entry.id}.json").json()
    assert (fetched["sid"], fetched["body"], fetched["status"]) == (made.json()["sid"], "Hi", "delivered")
    assert twilio.get(PATH).json()["messages"] == [fetched]
    assert twilio.get("/Messages/SM0.json").status_code == 404


def test_list_is_by_number_and_day_the_newest_first(sandbox: Sandbox, twilio: httpx2.Client) -> None:
    for text, to in (("one", "+4930901820"), ("two", "+4930901820"), ("three", "+4930901829")):
        twilio.post(PATH, data=SMS | {"Body": text, "To": to})

    def listed(**asked: str) -> list[str]:
        return [one["body"] for one in twilio.get(PATH, params=asked).json()["messages"]]

    assert listed() == ["three", "two", "one"]
    assert listed(To="+4930901820") == ["two", "one"]
    assert listed(PageSize="1") == ["three"]
    assert listed(**{"DateSent>": "2020-01-01"}) == ["three", "two", "one"]
    assert listed(**{"DateSent>": "2999-01-01"}) == []


def test_asked_twice_it_sends_twice(sandbox: Sandbox, twilio: httpx2.Client) -> None:
    for _ in range(2):
        twilio.post(PATH, data=SMS)

    assert sandbox.ledger.count("sms") == 2


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("To", "+15005550001", 21211), ("To", "+15005550002", 21612), ("To", "+15005550003", 21408),
        ("To", "+15005550004", 21610), ("To", "+15005550009", 21614), ("To", "12", 21211), ("To", "", 21211),
        ("From", "+15005550001", 21212), ("From", "+15005550007", 21606), ("From", "", 21603),
        ("Body", "", 21602), ("Body", "x" * 1601, 21617),
    ],
)  # fmt: skip
def test_some_messages_are_refused(sandbox: Sandbox, twilio: httpx2.Client, field: str, value: str, code: int) -> None:
    answer = twilio.post(PATH, data=SMS | {field: value})

    assert (answer.status_code, answer.json()["code"]) == (400, code)
    assert sandbox.ledger.count("sms") == 0


@pytest.mark.parametrize("login", [("AC2", "token"), ("AC1", "wrong"), ("AC1", ""), None])
def test_who_is_not_the_account_is_refused(twilio: httpx2.Client, login: tuple[str, str] | None) -> None:
    twilio.auth = login or (lambda request: request)

    answers = [twilio.post(PATH, data=SMS), twilio.get(PATH), twilio.get("/Messages/SM1.json")]

    assert [(answer.status_code, answer.json()["code"]) for answer in answers] == [(401, 20003)] * 3
